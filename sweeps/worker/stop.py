"""Reasons why a process of a sweep stops, and the function with which it ends itself.

reason           cause                                     what is saved             how the process ends
TAKEN_OVER       another driver's session.json             nothing                   exit code 1
MOVED            no session.json: the directory has gone   nothing                   exit code 1
SIGTERM          the signal, in a worker                   checkpoint of its pack    exit code 0; at once if it is idle
ASKED_BY_DRIVER  the file OUT/leave                        checkpoint of its pack    continues; driver gets Preempted
NOT_SAVED        SIGTERM, and the trial failed             nothing                   exit code 1
DRIVER_GONE      the end of a worker's standard input      nothing                   exit code 0, at once; or SIGKILL
GANG_BROKEN      failure or end of another gang member     nothing                   exit code 1, at once
RAY_LOST         Ray does not answer a driver              nothing                   exit code 1, at once
DISK_FULL        a trial of this driver                    checkpoints of all packs  continues; no further trial starts
INTERRUPTED      Ctrl-C, SIGTERM or SIGHUP of a driver     checkpoints of all packs  continues; KeyboardInterrupt

The last three are reasons of a driver. A driver that trains in its own process keeps its last checkpoints and saves no
further checkpoints.

Records and checkpoints are written atomically, so a process may end at any time.
"""

import ctypes
import errno
import os
import signal
import sys
from enum import IntEnum
from typing import NoReturn

from sweeps.driver.manifest import Manifest


class Reason(IntEnum):
    """The reason why a process stops. Workers that share a mesh all stop for the smallest of their reasons."""

    TAKEN_OVER = 1
    MOVED = 2
    SIGTERM = 3
    ASKED_BY_DRIVER = 4
    NOT_SAVED = 5
    DRIVER_GONE = 6
    GANG_BROKEN = 7
    RAY_LOST = 8
    DISK_FULL = 9
    INTERRUPTED = 10


EXIT_CODES = {
    Reason.TAKEN_OVER: 1,
    Reason.MOVED: 1,
    Reason.SIGTERM: 0,
    Reason.NOT_SAVED: 1,
    Reason.DRIVER_GONE: 0,
    Reason.GANG_BROKEN: 1,
    Reason.RAY_LOST: 1,
}


# Error numbers that mean: the file's directory was moved, removed or unmounted.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENOTCONN, errno.ENODEV)


def lost(manifest: Manifest, session: str | None) -> Reason | None:
    """Returns TAKEN_OVER or MOVED if the sweep's directory no longer belongs to this driver, else None. After
    TAKEN_OVER or MOVED nothing may be written to the directory.

    Args:
      session: the content of session.json that this driver wrote; None for a worker in the driver's process.
    """
    if session is None:
        return None
    try:
        return None if manifest.session() == session else Reason.TAKEN_OVER
    except OSError as error:
        return Reason.MOVED if error.errno in _GONE else None


class Stop:
    """Holds the first reason to stop. Threads and signal handlers may set it."""

    def __init__(self) -> None:
        self._reasons: list[Reason] = []  # a list because `append` is atomic; a lock could block in a signal handler

    def set(self, reason: Reason) -> None:
        """Sets the reason, unless it is already set."""
        self._reasons.append(reason)

    @property
    def reason(self) -> Reason | None:
        """The first reason, or None."""
        return self._reasons[0] if self._reasons else None

    def check(self, manifest: Manifest, session: str | None) -> Reason | None:
        """Returns the reason to stop training now, or None. Reads session.json and OUT/leave at most once each.

        TAKEN_OVER and MOVED take precedence over an earlier reason, because nothing may be saved. For `session` see
        `lost`.
        """
        if reason := lost(manifest, session):
            return reason
        if self.reason is None and manifest.leave_path.exists():
            self.set(Reason.ASKED_BY_DRIVER)
        return self.reason


def end(reason: Reason) -> NoReturn:
    """Ends this process immediately with the reason's exit code. Raises KeyError for a reason that does not end the
    process."""
    os._exit(EXIT_CODES[reason])


PR_SET_PDEATHSIG = 1  # of Linux's prctl


def end_with_parent() -> None:
    """Asks Linux to send SIGKILL to this process when the thread that started it ends.

    A process that hangs in native code runs no Python, so it does not see the end of its standard input.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
