"""One driver per sweep: a file lock in its directory, which ends with the process that holds it."""

import contextlib
import fcntl
import os
import socket
from pathlib import Path

from lvp.errors import InputError


@contextlib.contextmanager
def only_driver(out: Path):
    """Holds the sweep's directory for the block; InputError naming the holder where another driver has it."""
    with open(out / ".lock", "a+") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            f.seek(0)
            raise InputError(f"{out} is being worked on by another process ({f.read().strip()})") from None
        f.truncate(0)
        f.write(f"host {socket.gethostname()}, pid {os.getpid()}\n")
        f.flush()
        yield
