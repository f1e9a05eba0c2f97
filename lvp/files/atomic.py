"""Files that stand whole or not at all, and where those go that can be made again."""

import contextlib
import errno
import json
import os
import secrets
from pathlib import Path

from lvp.files.schema import Shape, fits

FULL = (errno.ENOSPC, errno.EDQUOT)  # of an OSError: no space left, or no quota


def cache_dir() -> Path:
    """Where corpora, tokenizers and compiled programs are kept: $LVP_CACHE, else ~/.cache/lvp."""
    return Path(os.environ.get("LVP_CACHE", Path.home() / ".cache" / "lvp")).absolute()


def sync_directory(path: Path) -> None:
    """Has the names in a directory on disk."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Writes a file under a temporary name beside it, syncs it to disk, renames it, and syncs the directory: whoever
    reads `path`, and whenever the machine dies, it is the old file or the new one. Makes the directories above it.

    Raises OSError where the file system refuses, with path and size where it is full, and leaves nothing behind.
    """
    path, content = Path(path), content.encode() if isinstance(content, str) else content
    # Nothing of the file's own name: a killed writer's must not be taken for one by whoever looks for parts of names.
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in FULL:
            raise no_space(error.errno, len(content), path) from None
        raise
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def no_space(number: int, size: int, path: Path) -> OSError:
    """The error of a file system that has no room for `size` bytes at `path`."""
    return OSError(number, f"no space left for {size:,} bytes", str(path))


def append_line(path: Path, line: str) -> None:
    """Adds a line to a log, in one write. A last line that a crash cut short is dropped first.

    Raises OSError, with path and size where the file system is full.
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
    """The lines of a log, but for a last one that a crash cut short; none where there is no file."""
    content = path.read_text(errors="replace") if path.exists() else ""
    return content[: content.rfind("\n") + 1].splitlines()


def log_entries(path: Path, shape: Shape) -> list[dict]:
    """What the lines of a log say that are JSON of this shape. One that was damaged is left out: nothing but what is
    shown to people depends on a log."""
    entries = []
    for line in whole_lines(path):
        with contextlib.suppress(ValueError, RecursionError):
            if fits(entry := json.loads(line), shape):
                entries.append(entry)
    return entries
