"""Texts of any size as ranges that processes read and encode independently.

    documents ──► ranges of whole lines ──► tokens of each range ──► one stream of tokens, in the order of the ranges

The documents of files, one after the other, are cut every `size` bytes. A range is the lines that begin between two
cuts, so every process finds the borders of its range without the other ranges. A line without an end between two cuts
is cut between two characters, so a range has at most about 2 · `size` bytes. A text in memory is cut only at line ends,
and a TFDS dataset only between records. Lines are encoded separately: the tokens do not depend on the cuts, unless a
line of a file is longer than `size`.

A block of a text says whether a document begins or ends with it. A file, a record of TFDS and a text in memory are
documents; the training part and the validation part of a file are two.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from lvp.data.text import splits
from lvp.errors import InputError
from lvp.files import buckets, storage
from lvp.files.buckets import BucketFile

_LEAST_TAIL = 1 << 16  # smallest validation part of a file, in bytes; smaller shares are combined
_SCAN = 1 << 16  # bytes read at a time in the search for a line end


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


class Documents(Protocol):
    """Documents, or parts of documents, that can be sent to another process."""

    @property
    def num_bytes(self) -> int | None:
        """The approximate number of bytes; None if it is not known before reading."""

    def blocks(self) -> Iterator[Block]:
        """The documents in blocks of bounded size."""

    def ranges(self, size: int) -> Iterator["Documents"]:
        """The same text in ranges of about `size` bytes."""


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

    content: bytes = field(repr=False)
    begins: bool = True
    ends: bool = True

    @property
    def num_bytes(self) -> int:
        return len(self.content)

    def blocks(self) -> Iterator[Block]:
        yield Block(self.content, self.begins, self.ends)

    def ranges(self, size: int) -> Iterator["Held"]:
        begin = 0
        while begin < len(self.content):
            end = self.content.find(b"\n", begin + size - 1) + 1 or len(self.content)
            yield Held(self.content[begin:end], begin == 0, end == len(self.content))
            begin = end


def held(spec: str, train: bytes, valid: bytes, validation: str) -> Source:
    """A source whose text is in memory."""
    return Source(spec, storage.digest(train, valid), Held(train), Held(valid), validation)


class _File(NamedTuple):
    path: Path | BucketFile
    size: int
    tail: int  # approximate number of bytes at its end that are validation


@dataclass(frozen=True)
class _Files:
    """One of the two parts of consecutive files, from offset `begin` in the part of the first to `end` in the last."""

    files: Sequence[_File] = field(repr=False)
    tails: bool  # True for the validation part
    size: int = 0  # distance between two cuts; 0 without cuts
    begin: int = 0  # 0 is the beginning of the first file's part
    end: int | None = None  # None is the end of the last file's part

    def _lengths(self) -> list[int]:
        return [file.tail if self.tails else file.size - file.tail for file in self.files]

    @property
    def num_bytes(self) -> int:
        *others, last = self._lengths()
        return sum(others) + (last if self.end is None else self.end) - self.begin

    def ranges(self, size: int) -> Iterator["_Files"]:
        lengths = self._lengths()
        ends = list(accumulate(lengths))
        for begin in range(0, ends[-1], size):
            end = min(begin + size, ends[-1])
            first, last = bisect_right(ends, begin), bisect_left(ends, end)
            yield replace(
                self,
                files=self.files[first : last + 1],
                size=size,
                begin=begin - ends[first] + lengths[first],
                end=None if end == ends[last] else end - ends[last] + lengths[last],
            )

    def blocks(self) -> Iterator[Block]:
        for number, (path, size, tail) in enumerate(self.files):
            try:
                with path.open("rb") as file:
                    border = _border(file, size - tail)
                    first, last = (border, size) if self.tails else (0, border)
                    begin, end = first, last
                    if number == 0 and self.begin:
                        begin = _cut(file, first + self.begin, self.size, last)
                    if number == len(self.files) - 1 and self.end is not None:
                        end = _cut(file, first + self.end, self.size, last)
                    for at, block in splits.blocks(file, begin, end, path):
                        yield Block(block, at - len(block) == first, at == last, is_line=at == last)
            except OSError as error:
                raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def _cut(file: BinaryIO, at: int, size: int, last: int) -> int:
    """The border that the cut at offset `at` makes: the first start of a line in [at, at + size), else the start of the
    character at `at`. `last`, the end of the text, counts as the start of a line."""
    if at >= last:
        return last
    file.seek(at - 1)
    place, limit = at, min(at + size, last)
    while place < limit:
        part = file.read(min(_SCAN, limit - place))
        if (index := part.find(b"\n")) >= 0:
            return place + index
        if not part:
            break
        place += len(part)
    return last if at + size >= last else _border(file, at)


def _border(file: BinaryIO, at: int) -> int:
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
    left out silently. Validation is the ends of files, cut between two characters: a tenth of each file, or about
    valid_bytes bytes in total if that is less. Both parts of a file end with a line end, which is added if it is
    missing. Raises InputError for a missing file, and if no file has 10 bytes. Raises InputError, while reading, for a
    binary file or a file that is not UTF-8.
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
    """The text of the object at an address, or of all objects below it, divided as in `of_files`. Reads only the byte
    ranges that are needed.

    Raises:
      InputError: there is no object, the server refuses, or the text is too small.
    """
    objects = [(f, o) for f, o in buckets.files(address) if not any(p[0] == "." for p in o.name.split("/"))]
    sizes = [entry.size for _, entry in objects]
    if max(sizes, default=0) < 10:
        raise InputError(f"the text corpus {address} is too small; give at least one object of 10 bytes or more")
    tails = _tails(sizes, valid_bytes)
    files = [_File(file, entry.size, tail) for (file, entry), tail in zip(objects, tails, strict=True)]
    return _source(address, [[entry.name, entry.size, dict(entry.version)] for _, entry in objects], files)


def _source(place: Path | str, contents: list, files: list[_File]) -> Source:
    """The source of files. `contents`: values that change if the text changes."""
    identity = storage.digest(storage.as_json(contents))
    return Source(f"text:{place}", identity, _Files(files, False), _Files(files, True), "the ends of the text's files")


def head(text: Documents, limit: int) -> bytes:
    """The first bytes of a text, at most `limit`, cut between two characters."""
    parts = []
    for block in text.blocks():
        parts.append(splits.cut(block.ended, limit))
        limit -= len(block.ended)
        if limit <= 0:
            break
    return b"".join(parts)
