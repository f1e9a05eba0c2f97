"""Atomic file writes."""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from lvp.files.machine import FULL
from lvp.files.schema import Shape, fits


def sync_directory(path: Path) -> None:
    """Flushes the entries of a directory to disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Writes a file atomically: a reader sees the old file or the new one, also after a crash.

    The content goes to a temporary file, which is synced and renamed. Raises OSError with the path, and with the size
    if the file system is full, and leaves no temporary file. The directory must exist: a directory that was moved away
    is not made again.
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
    """A new file that replaces the file at `path` when the block ends. After an exception in the block, `path` is
    unchanged and the new file is removed."""
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


def append_line(path: Path, line: str) -> None:
    """Appends a line to a log in one write, after dropping a last line that a crash cut short.

    Raises OSError, with path and size if the file system is full.
    """
    try:
        with open(path, "ab+") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            if file.read(1) not in (b"", b"\n"):
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line.encode() + b"\n")
    except OSError as error:
        if error.errno in FULL:
            raise no_space(error.errno, len(line), path) from None
        raise


def whole_lines(path: Path) -> list[str]:
    """The complete lines of a log; an empty list without the file."""
    content = path.read_text(errors="replace") if path.exists() else ""
    return content[: content.rfind("\n") + 1].splitlines()


def log_entries(path: Path, shape: Shape) -> list[dict]:
    """The entries of a log of JSON lines that have this shape. Damaged lines are skipped: logs are only displayed."""
    entries = []
    for line in whole_lines(path):
        with contextlib.suppress(ValueError, RecursionError):
            if fits(entry := json.loads(line), shape):
                entries.append(entry)
    return entries
