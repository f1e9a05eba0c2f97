"""Streams of text give every byte once, in blocks of bounded size, and go on from wherever one stopped."""

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
def test_every_byte_comes_once_and_no_block_is_large(directory, monkeypatch, block):
    monkeypatch.setattr(splits, "BLOCK", block)
    found = documents.of_files(directory, None)
    train, valid = ([b for _, b in part.stream(START)] for part in (found.train, found.valid))
    expected = [], []
    for content in map(str.encode, FILES.values()):
        head = splits.cut(content, len(content) - len(content) // 10)
        for into, part in zip(expected, (head, content[len(head) :]), strict=True):
            into.append(splits.ended(part))
    assert (b"".join(train), b"".join(valid)) == tuple(map(b"".join, expected))
    for part in train + valid:
        part.decode()  # no character is cut
        assert len(part) <= block + 1  # with the line end that was added
    if block == 64:
        assert train[0].endswith(b"\n") and train[1].endswith(b"\n")


@pytest.mark.parametrize("block", [5, 64])
def test_a_stream_goes_on_from_every_position(directory, monkeypatch, block):
    monkeypatch.setattr(splits, "BLOCK", block)
    found = documents.of_files(directory, None)
    held = documents.held("held", joined(found.train.stream(START)), b"x", "")
    for part in (found.train, found.valid, held.train):
        whole = list(part.stream(START))
        assert len(whole) > 3
        for at, (position, _) in enumerate(whole):
            assert list(part.stream(position)) == whole[at + 1 :]
        assert not list(part.stream(END))


def test_a_limit_is_kept_and_is_an_end(directory):
    part = documents.of_files(directory, None).train
    whole = joined(part.stream(START))
    for limit in (1, 6, 7, 8, 200, len(whole) - 1, len(whole), len(whole) + 5):
        found = list(limited(part.stream(START), limit))
        assert joined(found) == splits.cut(whole, limit)
        assert (found[-1][0] == END) == (limit <= len(whole))
    assert joined(limited(part.stream(START), None)) == whole


def test_pieces_after_a_piece_are_those_of_who_did_not_stop(directory, monkeypatch):
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
        ([10**9], 500, [500]),  # one file gives it all
        ([10**9, 3 * 10**9], 4 * 10**6, [10**6, 3 * 10**6]),  # large ones by their size
        ([5000] * 100, 1000, [0] * 49 + [500] + [0] * 49 + [500]),  # small ones a tenth of one in many
    ],
)
def test_shares_of_validation(sizes, valid_bytes, expected):
    assert documents._tails(sizes, valid_bytes) == expected


def test_how_much_is_kept_from_training_can_be_said(tmp_path):
    (tmp_path / "t.txt").write_bytes(b"0123456789" * 1000)
    found = corpora.source(f"text:{tmp_path / 't.txt'}", cache=tmp_path, valid_bytes=123)
    assert joined(found.valid.stream(START)) == (b"0123456789" * 13)[-123:] + b"\n"
    assert len(data.load(found.spec, cache=tmp_path).valid) == 1001


def test_what_fits_into_memory_is_held_and_what_does_not_is_refused_at_once(tmp_path, monkeypatch):
    content = b"ten bytes\n" * 1000
    (tmp_path / "t.txt").write_bytes(content)
    monkeypatch.setattr(splits, "BLOCK", 500)
    monkeypatch.setattr(corpora, "_MOST", 9000)
    assert data.load(f"text:{tmp_path / 't.txt'}", cache=tmp_path).train == content[:9000]
    monkeypatch.setattr(corpora, "_MOST", 8999)
    with pytest.raises(InputError, match="too large to be held in memory"):
        data.load(f"text:{tmp_path / 't.txt'}", cache=tmp_path)


def test_a_block_of_parts_of_characters_alone_is_no_text(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_bytes(b"\x80" * 1000)
    monkeypatch.setattr(splits, "BLOCK", 100)
    with pytest.raises(InputError, match=r"t.txt is not UTF-8 \(byte offset 0: 0x80\)"):
        list(documents.of_files(tmp_path / "t.txt", None).train.stream(START))


def test_the_identity_is_that_of_the_files(directory):
    first = documents.of_files(directory, None).identity
    assert documents.of_files(directory, 10).identity == first
    (directory / "a.txt").write_bytes(b"another text")
    assert documents.of_files(directory, None).identity != first
