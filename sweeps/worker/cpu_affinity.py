"""Pins a worker to the first cores that no other worker on this machine holds."""

import fcntl
import logging
import os
from typing import IO

from lvp.files import explained
from lvp.files.private import open_lock, private_directory

log = logging.getLogger(__name__)
_held: list[IO] = []  # the open files whose locks last as long as this process


def problem() -> str | None:
    """One line that says why workers on this machine are not pinned; None if they can be."""
    try:
        private_directory()
    except OSError as error:
        return f"workers are not pinned to cores: {explained(error)}"
    return None


def claim_cores(threads: int) -> tuple[int, ...] | None:
    """Pins this process to `threads` cores that no other worker claims and returns them.

    None, and nothing is pinned, where the system has no affinity, there is no directory for claims (`problem`), no
    group of cores is free, or the workers would use all cores anyway. Claims are file locks: they end with the process,
    however it ends.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    if reason := problem():
        log.warning(reason)
        return None
    cores = sorted(os.sched_getaffinity(0))
    for start in range(0, len(cores) - threads + 1, threads):
        group = cores[start : start + threads]
        files: list[IO] = []
        try:
            for core in group:
                files.append(open_lock(private_directory() / f"core-{core}.lock"))
                fcntl.flock(files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held, or not a file of ours
            for f in files:
                f.close()
            continue
        _held.extend(files)
        os.sched_setaffinity(0, group)
        return tuple(group)
    return None
