"""Strict reading of a user's text files, and cuts between characters."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from lvp.errors import InputError
from lvp.files import storage
from lvp.files.buckets import BucketFile

BLOCK = 1 << 23  # bytes of a text in memory at a time


def cut(text: bytes, limit: int) -> bytes:
    """The longest prefix of at most `limit` bytes that ends between two UTF-8 characters (text is UTF-8)."""
    end = min(limit, len(text))
    while 0 < end < len(text) and text[end] & 0xC0 == 0x80:  # a continuation byte: the character begins before
        end -= 1
    return text[:end]


def ended(text: bytes) -> bytes:
    """The text with a line end, which is added if it is missing; an empty text stays empty."""
    return text if not text or text.endswith(b"\n") else text + b"\n"


def read(path: Path) -> bytes:
    """The bytes of a UTF-8 text file, unchanged (line ends and byte-order mark included); may be empty.

    Raises:
      InputError: the file is missing, unreadable, binary (a NUL byte) or not UTF-8. The error has the file's name and,
        for the last two, the offset in bytes.
    """
    content = storage.read_input(path)
    _check(content, path, 0)
    return content


def _check(content: bytes, name: Path | BucketFile | str, offset: int) -> None:
    if (at := content.find(b"\0")) >= 0:
        raise InputError(f"{name} is binary, not text: NUL at byte offset {offset + at}")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"byte offset {offset + error.start}: 0x{content[error.start]:02x}"
        raise InputError(f"{name} is not UTF-8 ({place}); convert it first") from None


def blocks(file: BinaryIO, begin: int, end: int, name: Path | BucketFile | str) -> Iterator[tuple[int, bytes]]:
    """Yields the bytes of an open file from `begin` to `end` as (end offset, block of at most BLOCK bytes).

    Blocks before the last end with a line end. Within a line longer than a block, they end between two characters. A
    block depends only on the end of the block before it.

    Args:
      name: names the file in errors.

    Raises:
      InputError: the text is binary (a NUL byte) or not UTF-8, or the file ends before `end`.
    """
    file.seek(begin)
    while begin < end:
        block = file.read(min(BLOCK, end - begin))
        if not block:
            raise InputError(f"{name} was truncated while it was read: start again")
        if begin + len(block) < end:
            # If the text is not UTF-8, `cut` may return nothing; the whole block then avoids an endless loop.
            block = block[: block.rfind(b"\n") + 1] or cut(block, len(block) - 1) or block
        _check(block, name, begin)
        begin += len(block)
        file.seek(begin)
        yield begin, block


def files(path: Path) -> Iterator[Path]:
    """The path itself, or all files below a directory in the order of their relative paths.

    Hidden files and directories (".…") and linked directories are left out.

    Raises:
      InputError: a directory cannot be read.
    """
    if not path.is_dir():
        yield path
        return
    files_by_name = {}
    for directory, below, names in os.walk(path, onerror=_refuse):
        below[:] = [name for name in below if not name.startswith(".")]
        for file in (Path(directory, name) for name in names if not name.startswith(".")):
            if file.is_file():
                files_by_name[file.relative_to(path).as_posix()] = file
    yield from (files_by_name[name] for name in sorted(files_by_name))


def _refuse(error: OSError) -> NoReturn:
    raise InputError(f"cannot read {error.filename}: {error.strerror or error}") from error
