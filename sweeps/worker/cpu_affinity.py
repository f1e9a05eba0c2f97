"""Pins a worker to the first cores that no other worker on this machine holds."""

import fcntl
import os
import tempfile
from pathlib import Path
from typing import IO

_held: list[IO] = []  # the open files whose locks last as long as this process


def claim_cores(threads: int) -> tuple[int, ...] | None:
    """Pins this process to `threads` cores that no other worker claims and returns them.

    None, and nothing is pinned, where the system has no affinity, no group of cores is free, or the workers would use
    all cores anyway. Claims are file locks: they end with the process, however it ends.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    folder = Path(tempfile.gettempdir()) / f"lvp-cores-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for start in range(0, len(cores) - threads + 1, threads):
        group = cores[start : start + threads]
        files = [open(folder / f"core-{core}.lock", "w") for core in group]
        try:
            for f in files:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            for f in files:
                f.close()
            continue
        _held.extend(files)
        os.sched_setaffinity(0, group)
        return tuple(group)
    return None
