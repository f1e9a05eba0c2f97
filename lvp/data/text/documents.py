"""Texts of any size as streams of documents that can be resumed at any position.

There is no mark between documents, since the tokenizers have no special tokens. Every document ends with a line end,
which is added if it is missing. Lines are encoded separately, so that a text can be encoded in parts.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from lvp.data.text import splits
from lvp.data.tokens import storage
from lvp.errors import InputError

_LEAST_TAIL = 1 << 16  # smallest validation part of a file, in bytes; smaller shares are combined


class Position(NamedTuple):
    """A position between two blocks of a stream."""

    document: int = 0  # number of complete documents
    offset: int = 0  # bytes of the next document


START, END = Position(), Position(2**61)


class Documents(Protocol):
    """A part of a corpus: `count` documents of `num_bytes` bytes of text (None if not known beforehand)."""

    @property
    def count(self) -> int: ...

    @property
    def num_bytes(self) -> int | None: ...

    def stream(self, start: Position) -> Iterator[tuple[Position, bytes]]:
        """Blocks of text from `start`, each with the position after it; resuming there yields the same blocks."""


@dataclass(frozen=True)
class Source:
    """The two parts of a text."""

    spec: str  # canonical specification
    identity: str  # changes if the text changes; computed without reading all of it
    train: Documents  # the training part
    valid: Documents  # the validation part
    validation: str  # description of the validation part


@dataclass(frozen=True)
class Held:
    """A text in memory."""

    name: str
    content: bytes = field(repr=False)
    count = 1

    @property
    def num_bytes(self) -> int:
        return len(self.content)

    def stream(self, start: Position) -> Iterator[tuple[Position, bytes]]:
        end = len(self.content)
        begin = end if start.document else start.offset
        for at, block in splits.blocks(io.BytesIO(self.content), begin, end, Path(self.name)):
            yield Position(1) if at == end else Position(0, at), block


def held(spec: str, train: bytes, valid: bytes, validation: str) -> Source:
    """A source whose text is in memory."""
    return Source(spec, storage.digest(train, valid), Held(spec, train), Held(spec, valid), validation)


class _File(NamedTuple):
    path: Path
    size: int
    tail: int  # approximate number of bytes at its end that are validation


@dataclass(frozen=True)
class _Files:
    files: Sequence[_File] = field(repr=False)
    tails: bool

    @property
    def count(self) -> int:
        return len(self.files)

    @property
    def num_bytes(self) -> int:
        return sum(file.tail if self.tails else file.size - file.tail for file in self.files)

    def stream(self, start: Position) -> Iterator[tuple[Position, bytes]]:
        offset = start.offset
        for number in range(start.document, len(self.files)):
            path, size, tail = self.files[number]
            try:
                with open(path, "rb") as file:
                    border = _border(file, size - tail)
                    begin, end = (border, size) if self.tails else (0, border)
                    for at, block in splits.blocks(file, begin + offset, end, path):
                        last = at == end
                        after = Position(number + 1) if last else Position(number, at - begin)
                        yield after, splits.ended(block) if last else block
            except OSError as error:
                raise InputError(f"cannot read {path}: {error.strerror or error}") from error
            offset = 0


def _border(file, at: int) -> int:
    """The last position up to `at` at which a UTF-8 character begins."""
    file.seek(max(0, at - 3))
    around = file.read(4 if at >= 3 else at + 1)
    return at - (min(at, 3) - len(splits.cut(around, min(at, 3))))


def _tails(sizes: Sequence[int], valid_bytes: int | None) -> list[int]:
    """Number of validation bytes at the end of every file: a tenth, or its share of valid_bytes if that is less.

    The shares of small files are combined, at the end of some of them."""
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
    left out silently. Validation is the last tenth of every file, cut between two characters, or less for large texts:
    valid_bytes in total. Both parts of a file end with a line end, which is added if it is missing. Raises InputError
    for a missing file or an empty part, and, while reading, for a binary file or a file that is not UTF-8.
    """
    paths = list(splits.files(path))
    try:
        states = [file.stat() for file in paths]
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror or error}") from error
    sizes = [state.st_size for state in states]
    if not any(sizes):
        problem = "has no text file that is not empty" if path.is_dir() else "is empty"
        raise InputError(f"the text corpus {path} {problem}")
    if max(sizes) < 10:
        # Report another problem of so small a file first.
        for file in paths:
            splits.read(file)
        raise InputError(f"the text corpus {path} is too small: the validation part, a tenth of each file, is empty")
    files = [_File(*each) for each in zip(paths, sizes, _tails(sizes, valid_bytes), strict=True)]
    names = [[str(f.relative_to(path)), s.st_size, s.st_mtime_ns] for f, s in zip(paths, states, strict=True)]
    identity = storage.digest(storage.as_json(names))
    return Source(f"text:{path}", identity, _Files(files, False), _Files(files, True), "the ends of the text's files")


def limited(stream: Iterator[tuple[Position, bytes]], limit: int | None) -> Iterator[tuple[Position, bytes]]:
    """The stream up to `limit` bytes, cut between two characters; None is the whole stream.

    The position after a block that was cut is END."""
    for position, block in stream:
        if limit is None:
            yield position, block
        elif len(block) < limit:
            limit -= len(block)
            yield position, block
        else:
            yield END, splits.cut(block, limit)
            return


def pieces(stream: Iterator[tuple[Position, bytes]], size: int) -> Iterator[tuple[Position, bytes]]:
    """The stream in pieces of at least `size` bytes, except for the last; a resumed stream yields the same pieces."""
    parts, held_back = [], 0
    for position, block in stream:
        parts.append(block)
        held_back += len(block)
        if held_back >= size:
            yield position, b"".join(parts)
            parts, held_back = [], 0
    if parts:
        yield position, b"".join(parts)
