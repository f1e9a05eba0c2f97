"""Texts of any size, read as blocks.

A block says whether a document begins or ends with it. A file, a record of TFDS and a text in memory are documents; the
training part and the validation part of a file are two.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

from lvp.data.text import splits
from lvp.errors import InputError
from lvp.files import buckets, storage
from lvp.files.buckets import BucketFile

_LEAST_TAIL = 1 << 16  # smallest validation part of a file, in bytes; smaller shares are combined


class Block(NamedTuple):
    """A document, or a part of it that ends between two characters."""

    text: bytes
    begins: bool  # whether the document begins here
    ends: bool  # whether the document ends here
    is_line: bool = False  # whether the document must end with a line end

    @property
    def ended(self) -> bytes:
        """The text, with a line end if it must have one."""
        return splits.ended(self.text) if self.is_line else self.text


class Text(NamedTuple):
    """One part of a corpus."""

    num_bytes: int | None  # approximately; None if it is not known before reading
    blocks: Callable[[], Iterator[Block]]  # reads the documents in blocks of at most about `splits.BLOCK` bytes


@dataclass(frozen=True)
class Source:
    """The two parts of a text."""

    spec: str  # canonical specification
    identity: str  # changes if the text changes; computed without reading all of it
    train: Text  # the training part
    valid: Text  # the validation part
    validation: str  # description of the validation part


def held(spec: str, train: bytes, valid: bytes, validation: str) -> Source:
    """A source whose text is in memory."""

    def part(content: bytes) -> Text:
        return Text(len(content), lambda: _document(io.BytesIO(content), 0, len(content), spec))

    return Source(spec, storage.digest(train, valid), part(train), part(valid), validation)


def _document(
    file: BinaryIO, first: int, last: int, name: Path | BucketFile | str, is_line: bool = False
) -> Iterator[Block]:
    """The blocks of a document, the bytes of an open file from `first` to `last`."""
    for at, text in splits.blocks(file, first, last, name):
        yield Block(text, at - len(text) == first, at == last, is_line and at == last)


class _File(NamedTuple):
    path: Path | BucketFile
    size: int
    tail: int  # approximate number of bytes at its end that are validation


def _blocks(files: Sequence[_File], of_tails: bool) -> Iterator[Block]:
    """The validation parts of files, or their training parts."""
    for path, size, tail in files:
        try:
            with path.open("rb") as file:
                border = _border(file, size - tail)
                first, last = (border, size) if of_tails else (0, border)
                yield from _document(file, first, last, path, is_line=True)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _border(file: BinaryIO, at: int) -> int:
    """The last position up to `at` at which a UTF-8 character begins."""
    file.seek(max(0, at - 3))
    around = file.read(4 if at >= 3 else at + 1)
    return at - (min(at, 3) - len(splits.cut(around, min(at, 3))))


def _tails(sizes: Sequence[int], valid_bytes: int | None) -> list[int]:
    """Number of validation bytes at the end of every file: a tenth, or its share of valid_bytes if that is less.

    The shares of small files are combined, at the end of some of them.
    """
    total = sum(sizes)
    if valid_bytes is None or 10 * valid_bytes >= total:
        return [size // 10 for size in sizes]
    tails, due = [], 0  # due: in units of 1 / total byte
    for size in sizes:
        due += size * valid_bytes
        tail = min(due // total, size // 10)
        if tail < min(size // 10, valid_bytes // 2, _LEAST_TAIL):
            tail = 0
        due -= tail * total
        tails.append(tail)
    return tails


def of_files(path: Path, valid_bytes: int | None) -> Source:
    """The text of a file, or of all files below a directory in the order of their relative paths.

    Hidden files are left out (`lvp.data.text.splits.files`). Every other file must be UTF-8 text, so that no file is
    left out silently. Validation is the ends of files, cut between two characters. Both parts of a file end with a line
    end, which is added if it is missing.

    Args:
      valid_bytes: approximate size of the validation part in bytes, at most a tenth of each file; None is a tenth.

    Raises:
      InputError: a file is missing, or no file has 10 bytes. While reading: a file is binary or not UTF-8.
    """
    paths = list(splits.files(path))
    try:
        states = [file.stat() for file in paths]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror or error}") from error
    sizes = [state.st_size for state in states]
    if not any(sizes):
        problem = (
            "has no text file, or only empty text files; give a text file of 10 bytes or more"
            if path.is_dir()
            else "is empty"
        )
        raise InputError(f"the text corpus {path} {problem}")
    if max(sizes) < 10:
        # Report another problem of so small a file first.
        for file in paths:
            splits.read(file)
        raise InputError(f"the text corpus {path} is too small; give at least one file of 10 bytes or more")
    files = [_File(*each) for each in zip(paths, sizes, _tails(sizes, valid_bytes), strict=True)]
    names = [[str(f.relative_to(path)), s.st_size, s.st_mtime_ns] for f, s in zip(paths, states, strict=True)]
    return _source(path, names, files)


def of_bucket(address: str, valid_bytes: int | None) -> Source:
    """The text of the object at an address, or of all objects below it, divided as in `of_files`.

    Only the byte ranges that are needed are read.

    Args:
      valid_bytes: as in `of_files`.

    Raises:
      InputError: there is no object, the server refuses, or no object has 10 bytes. While reading: an object is binary
        or not UTF-8.
    """
    objects = [(f, o) for f, o in buckets.files(address) if not any(p[0] == "." for p in o.name.split("/"))]
    sizes = [entry.size for _, entry in objects]
    if max(sizes, default=0) < 10:
        raise InputError(f"the text corpus {address} is too small; give at least one object of 10 bytes or more")
    tails = _tails(sizes, valid_bytes)
    files = [_File(file, entry.size, tail) for (file, entry), tail in zip(objects, tails, strict=True)]
    return _source(address, [[entry.name, entry.size, dict(entry.version)] for _, entry in objects], files)


def _source(place: Path | str, contents: list, files: list[_File]) -> Source:
    """The source of files.

    Args:
      contents: values that change if the text changes.
    """
    tails = sum(file.tail for file in files)
    train = Text(sum(file.size for file in files) - tails, partial(_blocks, files, False))
    valid = Text(tails, partial(_blocks, files, True))
    identity = storage.digest(storage.as_json(contents))
    return Source(f"text:{place}", identity, train, valid, "the ends of the text's files")


def head(text: Text, limit: int | None) -> Iterator[Block]:
    """The blocks of the first `limit` bytes of a text (None: of all); the last one is cut between two characters."""
    left = limit
    for block in text.blocks():
        size = len(block.ended)
        if left is not None and size >= left:
            yield block if size == left else Block(splits.cut(block.ended, left), block.begins, ends=False)
            return
        yield block
        left = None if left is None else left - size
