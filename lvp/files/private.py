"""Files that processes of one user share under the system's temporary directory, and lock files."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import IO


def private_directory() -> Path:
    """The directory `lvp-UID` under the system's temporary directory, which is made if it is missing.

    Raises PermissionError if another user made it or can enter it, or if it is a link; OSError if it cannot be made.
    """
    path = Path(tempfile.gettempdir()) / f"lvp-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise PermissionError(f"{path} is not a directory of this user alone; remove it, or set TMPDIR")
    return path


def open_lock(path: Path) -> IO[bytes]:
    """Opens a lock file, which is made if it is missing and never truncated. Raises OSError for a link."""
    return open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "rb+", buffering=0)
