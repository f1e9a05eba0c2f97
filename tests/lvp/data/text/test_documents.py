"""The blocks of a text contain every byte once and whole characters, and have a bounded size."""

import pytest

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


def test_the_head_of_a_text(directory):
    part = documents.of_files(directory, None).train
    whole = joined(part)
    for limit in (1, 6, 7, 8, 200, len(whole) - 1, len(whole), len(whole) + 5):
        blocks = list(documents.head(part, limit))
        assert b"".join(block.ended for block in blocks) == splits.cut(whole, limit)
        assert sum(block.begins for block in blocks) - sum(block.ends for block in blocks) == (limit < len(whole))


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
