"""Reading text: user's files and directories, strictly; and cutting bytes where no character is cut."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from lvp.data import storage
from lvp.errors import InputError


def cut(text: bytes, limit: int) -> bytes:
    """The longest prefix of at most `limit` bytes that ends between two UTF-8 characters (text is UTF-8)."""
    end = min(limit, len(text))
    while 0 < end < len(text) and text[end] & 0xC0 == 0x80:  # a continuation byte would be cut off
        end -= 1
    return text[:end]


def read(path: Path) -> bytes:
    """The bytes of a UTF-8 text file, as they are (line ends, byte-order mark and all; may be empty).

    Raises InputError naming the file if it is missing, unreadable, binary (a NUL byte) or not UTF-8; for the
    last two with the offset in bytes.
    """
    content = storage.read_input(path)
    if (at := content.find(b"\0")) >= 0:
        raise InputError(f"{path} is binary, not text: NUL at byte offset {at}")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 (byte offset {error.start}: 0x{content[error.start]:02x}); convert it first"
        ) from None
    return content


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    found = {}
    for directory, below, names in os.walk(path, onerror=_refuse):
        below[:] = [name for name in below if not name.startswith(".")]
        for file in (Path(directory, name) for name in names if not name.startswith(".")):
            if file.is_file():
                found[file.relative_to(path).as_posix()] = file
    yield from (found[name] for name in sorted(found))


def _refuse(error: OSError) -> NoReturn:
    raise InputError(f"cannot read {error.filename}: {error.strerror or error}") from error


def load(path: Path) -> tuple[bytes, bytes]:
    """(train, valid) of a text file, or of all files below a directory in the order of their relative paths.

    Hidden files and directories (their name begins with a dot) and linked directories are skipped; every
    other file must be UTF-8 text, so that nothing is left out silently. The last tenth of every file, cut
    between two characters, is validation; each file's two parts end with a newline, added where there is
    none. Raises InputError if something is missing, empty, binary or not UTF-8, or a part comes out empty.
    """
    train, valid = [], []
    for file in _files(path):
        content = read(file)
        head = cut(content, len(content) - len(content) // 10)
        train.append(_ended(head))
        valid.append(_ended(content[len(head) :]))
    if not any(train):
        what = "holds no text file that is not empty" if path.is_dir() else "is empty"
        raise InputError(f"the text corpus {path} {what}")
    if not any(valid):
        raise InputError(f"the text corpus {path} is too small: a tenth of a file, for validation, is 0 bytes")
    return b"".join(train), b"".join(valid)


def _ended(text: bytes) -> bytes:
    return text if not text or text.endswith(b"\n") else text + b"\n"
