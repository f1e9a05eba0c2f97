"""Text streams yield every byte once, in blocks of bounded size, and continue from any position."""

import pytest

from lvp import data
from lvp.data.text import corpora, documents, splits
from lvp.data.text.documents import END, START, limited, pieces
from lvp.errors import InputError

FILES = {"a.txt": "ab\r\né\tx\n" * 30, "b/c.txt": "no line end €" * 20, "d.txt": "", "e.txt": "ü" * 500}


@pytest.fixture
def directory(tmp_path):
    for name, content in FILES.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content.encode())
    return tmp_path / "in"


def joined(stream) -> bytes:
    return b"".join(block for _, block in stream)


@pytest.mark.parametrize("block", [5, 64, 10**6])
def test_every_byte_is_streamed_once_in_small_blocks(directory, monkeypatch, block):
    monkeypatch.setattr(splits, "BLOCK", block)
    split_files = documents.of_files(directory, None)
    train, valid = ([b for _, b in part.stream(START)] for part in (split_files.train, split_files.valid))
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


@pytest.mark.parametrize("block", [5, 64])
def test_a_stream_continues_from_every_position(directory, monkeypatch, block):
    monkeypatch.setattr(splits, "BLOCK", block)
    split_files = documents.of_files(directory, None)
    held = documents.held("held", joined(split_files.train.stream(START)), b"x", "")
    for part in (split_files.train, split_files.valid, held.train):
        whole = list(part.stream(START))
        assert len(whole) > 3
        for at, (position, _) in enumerate(whole):
            assert list(part.stream(position)) == whole[at + 1 :]
        assert not list(part.stream(END))


def test_a_limit_is_respected_and_ends_the_stream(directory):
    part = documents.of_files(directory, None).train
    whole = joined(part.stream(START))
    for limit in (1, 6, 7, 8, 200, len(whole) - 1, len(whole), len(whole) + 5):
        blocks = list(limited(part.stream(START), limit))
        assert joined(blocks) == splits.cut(whole, limit)
        assert (blocks[-1][0] == END) == (limit <= len(whole))
    assert joined(limited(part.stream(START), None)) == whole


def test_pieces_from_a_position_equal_the_uninterrupted_pieces(directory, monkeypatch):
    monkeypatch.setattr(splits, "BLOCK", 11)
    part = documents.of_files(directory, None).train
    whole = list(pieces(part.stream(START), 40))
    assert joined(whole) == joined(part.stream(START)) and all(len(piece) >= 40 for _, piece in whole[:-1])
    for at, (position, _) in enumerate(whole):
        assert list(pieces(part.stream(position), 40)) == whole[at + 1 :]


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
    assert joined(source.valid.stream(START)) == (b"0123456789" * 13)[-123:] + b"\n"
    assert len(data.load(source.spec, cache=tmp_path).valid) == 1001


def test_a_corpus_too_large_for_memory_is_refused(tmp_path, monkeypatch):
    content = b"ten bytes\n" * 1000
    (tmp_path / "t.txt").write_bytes(content)
    monkeypatch.setattr(splits, "BLOCK", 500)
    monkeypatch.setattr(corpora, "_MOST", 9000)
    assert data.load(f"text:{tmp_path / 't.txt'}", cache=tmp_path).train == content[:9000]
    monkeypatch.setattr(corpora, "_MOST", 8999)
    with pytest.raises(InputError, match="too large to be held in memory"):
        data.load(f"text:{tmp_path / 't.txt'}", cache=tmp_path)


def test_a_block_without_a_whole_character_is_not_utf_8(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_bytes(b"\x80" * 1000)
    monkeypatch.setattr(splits, "BLOCK", 100)
    with pytest.raises(InputError, match=r"t.txt is not UTF-8 \(byte offset 0: 0x80\)"):
        list(documents.of_files(tmp_path / "t.txt", None).train.stream(START))


def test_the_identity_depends_on_the_files(directory):
    first = documents.of_files(directory, None).identity
    assert documents.of_files(directory, 10).identity == first
    (directory / "a.txt").write_bytes(b"another text")
    assert documents.of_files(directory, None).identity != first
