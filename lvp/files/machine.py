"""Distinguishes errors of the machine from damaged files. No other module decides this.

A file is damaged if its content does not match its digest or cannot be parsed. A damaged file is replaced or skipped.
Other errors, except those of a missing file, are errors of the machine: missing permission or memory, too many open
files, a full or failing disk. The file is then kept, and the error is raised.
"""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from lvp.errors import printable

ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # no file has this name
FULL = (errno.ENOSPC, errno.EDQUOT)  # error numbers of a full file system and a used-up quota
_REMEDIES = {
    (errno.EACCES, errno.EPERM): "give this user access",
    (errno.EMFILE, errno.ENFILE): "raise the limit of open files (ulimit -n)",
    (errno.ENOMEM,): "free memory, or raise its limit (ulimit -v)",
    (errno.EAGAIN,): "raise the limit of processes (ulimit -u)",
    (errno.EROFS,): "mount its file system for writing",
    (errno.EIO, errno.ESTALE): "check its disk or its mount",
    FULL: "make space",
}


def machine_error(error: BaseException | None, path: Path) -> OSError | None:
    """The error of the machine that caused an exception, or None.

    Examines the exception, its causes, and the error numbers in TensorStore's messages.

    Args:
      path: the file that the error names if the exception names no file.
    """
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        if quoted := re.search(r"os_error_code='(\d+)'", str(error)):
            number = int(quoted[1])
        elif isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            number = errno.ENOMEM
        if number is not None and number not in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
            return OSError(number, os.strerror(number), str(getattr(error, "filename", None) or path))
        error = error.__cause__ or error.__context__
    return None


def check_readable(directory: Path) -> None:
    """Reads every file below a directory.

    Raises:
      OSError: a file or a directory cannot be read. The error is that of the first one.
    """
    for folder, _, names in walked(directory):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                while file.read(1 << 24):
                    pass


def walked(directory: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walks a directory as `os.walk` does. Directories that do not exist are left out.

    Raises:
      OSError: a directory cannot be read.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, ABSENT):
            raise error

    return os.walk(directory, onerror=refuse)


def listed(directory: Path, suffix: str = "") -> Iterator[Path]:
    """The paths in a directory whose names end in `suffix`, sorted; none if the directory is missing.

    Raises:
      OSError: the directory cannot be read. `Path.glob` would return nothing.
    """
    try:
        names = os.listdir(directory)
    except ABSENT:
        names = []
    return (Path(directory) / name for name in sorted(names) if name.endswith(suffix))


def explained(error: OSError) -> str:
    """An error as one line with file, reason and remedy."""
    file = f": {error.filename}" if error.filename else ""
    remedy = next((f"; {words}" for numbers, words in _REMEDIES.items() if error.errno in numbers), "")
    return printable(f"{error.strerror or error}{file}{remedy}")
