"""Pins a worker to cores that no other worker of this user on this machine has claimed."""

import fcntl
import logging
import os
from typing import IO

from lvp.files import explained
from lvp.files.private import open_lock, private_directory

log = logging.getLogger(__name__)
_held: list[IO] = []  # open files of this process's claims; closing a file would release its lock


def problem() -> str | None:
    """Returns in one line why the directory of core locks cannot be used; None if it can."""
    try:
        private_directory()
    except OSError as error:
        return f"workers are not pinned to cores: {explained(error)}"
    return None


def claim_cores(threads: int) -> tuple[int, ...] | None:
    """Pins this process to `threads` unclaimed cores and returns the cores.

    Returns None and pins nothing if the system does not support affinity, if there is no directory for claims (see
    `problem`), or if no group of `threads` cores is unclaimed. A claim is a file lock, so it ends with the process.
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
        except OSError:  # claimed by another worker, or the lock file cannot be opened
            for f in files:
                f.close()
            continue
        _held.extend(files)
        os.sched_setaffinity(0, group)
        return tuple(group)
    return None
