"""The working copy of a worker whose machine does not have the driver's copy of a sweep in a bucket.

A thread reads the driver's session and its request to leave from the bucket, and uploads the worker's progress and
curves.
"""

import contextlib
import fcntl
import logging
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from lvp.files.private import open_lock, private_directory
from sweeps.driver import working_copy
from sweeps.driver.manifest import Manifest

log = logging.getLogger(__name__)
INTERVAL = 3.0  # seconds between two exchanges with the bucket
_PREFIX = f"{working_copy.PREFIX}worker-"
_LOCK = ".worker"  # file of a copy that its worker locks until the worker ends
_locks: list[IO[bytes]] = []  # open files: a closed file would end its lock


def joined(out: Path, address: str | None, session: str | None) -> Path:
    """Returns the directory in which a worker on this machine works: the driver's directory `out` if this machine has
    it, else a new working copy of the bucket.

    Args:
      out: the directory on the driver's machine.
      address: the sweep's address in a bucket; None for a sweep in a directory.
      session: the content of the driver's session.json.
    """
    with contextlib.suppress(OSError):
        if address is None or (out / "session.json").read_text() == session:
            return out
    with open_lock(private_directory() / "copies.lock") as lock:  # other workers start at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_abandoned()
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        _locks.append(_locked(folder))
    copy = working_copy.fill(folder, str(address))
    Manifest.read(folder).make_lane_directories()
    threading.Thread(target=_follow, args=(copy,), daemon=True).start()
    return folder


def _locked(folder: Path) -> IO[bytes]:
    """The locked file of a copy. Raises BlockingIOError if the worker of the copy still runs."""
    lock = open_lock(folder / _LOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise
    return lock


def _remove_abandoned() -> None:
    """Removes the copies of workers that have ended. A worker that is killed cannot remove its own."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _locked(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _follow(copy: working_copy.WorkingCopy) -> None:
    while copy.out.exists():
        time.sleep(INTERVAL)
        try:
            copy.follow()
        except OSError as error:
            log.warning("%s; the exchange is tried again", error)
