"""Atomic file writes."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lvp.files.machine import FULL


def sync_directory(path: Path) -> None:
    """Flushes the entries of a directory to disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Writes a file atomically: a reader sees the old file or the new one, also after a crash.

    The content goes to a temporary file, which is synced and renamed. After an error, no temporary file is left. The
    directory must exist: a directory that was moved away is not made again.

    Raises:
      OSError: the file cannot be written. The error has the path and, if the file system is full, the size.
    """
    path, content = Path(path), content.encode() if isinstance(content, str) else content
    try:
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        if error.errno in FULL:
            raise no_space(error.errno, len(content), path) from None
        raise OSError(error.errno, error.strerror, str(path)) from error  # not the temporary file's name


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that replaces the file at `path` when the block ends.

    After an exception in the block, `path` is unchanged and the new file is removed.
    """
    # Without the file's name: the temporary file of a killed writer must not match a search for that name.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def no_space(number: int, size: int, path: Path) -> OSError:
    """The OSError of a full file system, with path and size."""
    return OSError(number, f"no space left for {size:,} bytes", str(path))
