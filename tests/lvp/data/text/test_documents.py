"""A text's ranges contain every byte once and whole lines, and have a bounded size."""

import itertools
import pickle
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lvp import data
from lvp.data.text import corpora, documents, splits
from lvp.errors import InputError

FILES = {"a.txt": "ab\r\né\tx\n" * 30, "b/c.txt": "no line end €" * 20, "d.txt": "", "e.txt": "ü" * 500}


@pytest.fixture
def directory(tmp_path):
    for name, content in FILES.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content.encode())
    return tmp_path / "in"


def joined(text) -> bytes:
    return b"".join(block.ended for block in text.blocks())


@pytest.mark.parametrize("block", [5, 64, 10**6])
def test_every_byte_is_read_once_in_small_blocks(directory, monkeypatch, block):
    monkeypatch.setattr(splits, "BLOCK", block)
    split_files = documents.of_files(directory, None)
    train, valid = ([block.ended for block in part.blocks()] for part in (split_files.train, split_files.valid))
    expected = [], []
    for content in map(str.encode, FILES.values()):
        head = splits.cut(content, len(content) - len(content) // 10)
        for into, part in zip(expected, (head, content[len(head) :]), strict=True):
            into.append(splits.ended(part))
    assert (b"".join(train), b"".join(valid)) == tuple(map(b"".join, expected))
    for part in train + valid:
        part.decode()  # no character is split
        assert len(part) <= block + 1  # one more for an added line end
    if block == 64:
        assert train[0].endswith(b"\n") and train[1].endswith(b"\n")


def check_ranges(text, size):
    """Asserts that the ranges of a text are the text and have whole characters. A range ends with a line end, unless
    the text has a line of about `size` bytes or more."""
    whole = joined(text)
    parts = [joined(pickle.loads(pickle.dumps(part))) for part in text.ranges(size)]
    assert b"".join(parts) == whole
    longest = max(map(len, whole.splitlines(keepends=True)), default=0)
    for part in parts:
        part.decode()
        assert not part or part.endswith(b"\n") or longest > size - 8  # a character, and borders between characters


CONTENT = st.lists(st.sampled_from(["a", "\n", "\r\n", "é", "€", "𝄞", "a line\n", "\n\n"]), max_size=60).map("".join)


@settings(max_examples=60, deadline=None)
@given(contents=st.lists(CONTENT, min_size=1, max_size=4), size=st.integers(1, 200))
@example(contents=["", "no line end" * 9, "", "€\r\n" * 50], size=64)
@example(contents=["x" * 1000], size=30)  # a line of many ranges
@example(contents=["x\n" * 500], size=1)
@example(contents=["a\n" * 10 + "b" * 20], size=26)  # a cut within the last line
def test_ranges_of_files_are_whole_lines(contents, size):
    with tempfile.TemporaryDirectory() as folder:
        for number, content in enumerate(contents):
            Path(folder, f"{number}.txt").write_bytes(content.encode())
        if max(len(content.encode()) for content in contents) < 10:
            return
        source = documents.of_files(Path(folder), None)
        for text in (source.train, source.valid, documents.Held(joined(source.train))):
            check_ranges(text, size)
        for part in source.train.ranges(size):
            added = len(contents)  # line ends
            assert len(joined(part)) < 2 * size + 4 + added


def test_a_cut_that_splits_lines_or_characters_is_noticed(directory, monkeypatch):
    """Negative control for the test above."""
    (directory / "lines.txt").write_bytes(b"a line\n" * 100)
    monkeypatch.setattr(documents, "_cut", lambda file, at, size, last: min(at, last))
    with pytest.raises(AssertionError):
        check_ranges(documents.of_files(directory / "lines.txt", None).train, 100)
    with pytest.raises(InputError, match="not UTF-8"):
        check_ranges(documents.of_files(directory / "e.txt", None).train, 7)


def test_a_range_reads_little_more_than_its_size(tmp_path, monkeypatch):
    """The search for a line end stops at the next range, also in a line of many ranges."""
    (tmp_path / "t.txt").write_bytes(b"x" * 100_000)
    monkeypatch.setattr(documents, "_SCAN", 100)
    text = documents.of_files(tmp_path / "t.txt", None).train
    read = itertools.count()
    monkeypatch.setattr(documents, "open", lambda *words: Counted(open(*words), read), raising=False)
    assert sum(len(joined(part)) for part in text.ranges(1000)) == 90_001
    assert next(read) < 90 * (2 * 10 + 6)  # two searches of 1000 bytes, and reads at the borders


class Counted:
    """A file that counts its reads."""

    def __init__(self, file, read):
        self.file, self.count = file, read

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def seek(self, at):
        self.file.seek(at)

    def read(self, size):
        next(self.count)
        return self.file.read(size)


def test_the_head_of_a_text(directory):
    part = documents.of_files(directory, None).train
    whole = joined(part)
    for limit in (1, 6, 7, 8, 200, len(whole) - 1, len(whole), len(whole) + 5):
        assert documents.head(part, limit) == splits.cut(whole, limit)


@pytest.mark.parametrize(
    "sizes, valid_bytes, expected",
    [
        ([1000, 55, 9], None, [100, 5, 0]),
        ([1000, 1000], 10**9, [100, 100]),
        ([10**9], 500, [500]),  # one file provides all of it
        ([10**9, 3 * 10**9], 4 * 10**6, [10**6, 3 * 10**6]),  # large files in proportion to their size
        # every fiftieth small file provides a tenth of itself
        ([5000] * 100, 1000, [0] * 49 + [500] + [0] * 49 + [500]),
    ],
)
def test_validation_bytes_per_file(sizes, valid_bytes, expected):
    assert documents._tails(sizes, valid_bytes) == expected


def test_the_number_of_validation_bytes_can_be_set(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"0123456789" * 1000)
    source = corpora.source(f"text:{tmp_path / 't.txt'}", cache=tmp_path, valid_bytes=123)
    assert joined(source.valid) == (b"0123456789" * 13)[-123:] + b"\n"
    assert len(data.load(source.spec, cache=tmp_path).valid) == 1001


def test_a_corpus_too_large_for_memory_is_refused(tmp_path, monkeypatch):
    content = b"ten bytes\n" * 1000
    (tmp_path / "t.txt").write_bytes(content)
    monkeypatch.setattr(splits, "BLOCK", 500)
    monkeypatch.setattr(corpora, "_MOST", 9000)
    assert data.load(f"text:{tmp_path / 't.txt'}", cache=tmp_path).train == content[:9000]
    monkeypatch.setattr(corpora, "_MOST", 8999)
    with pytest.raises(InputError, match="the limit of texts in memory"):
        data.load(f"text:{tmp_path / 't.txt'}", cache=tmp_path)


def test_a_block_without_a_whole_character_is_not_utf_8(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_bytes(b"\x80" * 1000)
    monkeypatch.setattr(splits, "BLOCK", 100)
    with pytest.raises(InputError, match=r"t.txt is not UTF-8 \(byte offset 0: 0x80\)"):
        joined(documents.of_files(tmp_path / "t.txt", None).train)


def test_the_identity_depends_on_the_files(directory):
    first = documents.of_files(directory, None).identity
    assert documents.of_files(directory, 10).identity == first
    (directory / "a.txt").write_bytes(b"another text")
    assert documents.of_files(directory, None).identity != first
