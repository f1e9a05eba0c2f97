"""The file lock that allows one driver per sweep. It ends with the process that holds it.

A sweep in a bucket has a lease instead (`sweeps.driver.lease`).
"""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from lvp.errors import InputError
from lvp.files.private import open_lock
from sweeps.driver import lease, working_copy


def _lock(file) -> None:
    """Takes the lock. Tries several times, because `driver` holds the lock for a moment. Raises BlockingIOError if
    another process keeps the lock."""
    for _ in range(5):
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.05)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def only_driver(out: Path, say: Callable[[str], None] = print):
    """Holds the lock of the sweep's directory `out` during the block, or the lease of its bucket.

    Args:
      say: prints a line when the driver waits for another driver's lease.

    Raises:
      InputError: another driver holds the lock (the message names its host and pid), or the file system has no locks.
        No file is changed.
    """
    if copy := working_copy.get(out):
        with lease.Lease(copy, say):
            yield
        return
    with open_lock(out / ".lock") as f:
        try:
            _lock(f)
        except BlockingIOError:
            raise InputError(f"{out} is run by another driver ({f.read().decode(errors='replace').strip()})") from None
        except OSError as error:
            why = f"{out} cannot be locked ({error.strerror})"
            raise InputError(f"{why}: name a directory on a file system that has file locks") from None
        f.truncate(0)
        f.write(f"host {socket.gethostname()}, pid {os.getpid()}\n".encode())
        yield


def driver(out: Path) -> str:
    """Host and pid of the driver that runs the sweep in `out`; "" if no driver runs."""
    if copy := working_copy.get(out):
        return lease.driver(copy)
    try:
        with open(out / ".lock") as f:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return (out / ".lock").read_text().strip()
    except OSError:  # no lock file, or a file system without locks, where `only_driver` refuses to run
        return ""
    return ""
