"""Tokenizers are lossless, have the requested size, and are equal in every process."""

import hashlib
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lvp.data.tokens import tokenizers
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError

TEXT = Path(tokenizers.__file__).read_bytes() + "\n\tnaïve ▁ “Œuvre”   of\r\n the <unk> \n".encode() * 9
TOKENIZERS = [Tokenizer.train(TEXT, size) for size in (256, 300, 700)]
NASTY = [b" ", b"   ", b"\n", b"\t", b"\r", b"\0", "▁".encode(), "⁇".encode(), b"<unk>", b"\xff", b"\xe2\x96"]
NASTY += ["␊".encode(), "ƀ".encode(), b"tokenizer", b" the", b"self."]


def test_every_byte_has_its_own_character():
    every = bytes(range(256))
    characters = tokenizers.to_characters(every)
    assert len(set(characters)) == 256 and tokenizers.to_bytes(characters) == every
    printable = bytes(range(0x20, 0x7F))
    assert tokenizers.to_characters(printable) == printable.decode()
    assert not {"▁", "⁇", "\n", "\0"} & set(characters)  # characters with a special meaning in SentencePiece


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode) | st.lists(st.sampled_from(NASTY)).map(b"".join))
@example(bytes(range(256)))
@example(TEXT)
@settings(deadline=None, max_examples=150)
def test_decoding_is_lossless_for_every_byte_string(text):
    for tokenizer in TOKENIZERS:
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int32 and ids.ndim == 1
        assert tokenizer.decode(ids) == text
        assert not ids.size or 0 <= ids.min() <= ids.max() < tokenizer.vocab_size


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda t: str(t.vocab_size))
def test_the_vocabulary_consists_of_bytes_and_merges(tokenizer):
    assert len(tokenizer.pieces) == len(set(tokenizer.pieces)) == tokenizer.vocab_size
    single = {piece for piece in tokenizer.pieces if len(piece) == 1}
    assert len(single) == 256 and all(tokenizer.pieces)


def test_sizes_are_as_requested_and_256_has_no_merges():
    assert [tokenizer.vocab_size for tokenizer in TOKENIZERS] == [256, 300, 700]
    lengths = [tokenizer.encode(TEXT).size for tokenizer in TOKENIZERS]
    assert lengths[0] == len(TEXT) and lengths[0] > lengths[1] > lengths[2]


def test_bytes_absent_from_the_training_text_are_tokens():
    tokenizer = Tokenizer.train(b"aaaa bbbb " * 20, 260)
    assert tokenizer.decode(tokenizer.encode(bytes(range(256)))) == bytes(range(256))
    assert Tokenizer.train(b"", 256).vocab_size == 256


def test_words_do_not_merge_with_line_ends():
    paragraph = b"unprecedented " * 1000  # above SentencePiece's default limit, which drops it silently
    tokenizer = Tokenizer.train(paragraph + b"\n" + b"word\n" * 500 + TEXT, 400)
    assert b" unprecedented" in tokenizer.pieces
    assert b"    " in tokenizer.pieces  # indentation is frequent enough for a token
    assert not any(b"\n" in piece[:-1] for piece in tokenizer.pieces)
    assert not any(piece[:-1].isalpha() and piece.endswith(b"\n") for piece in tokenizer.pieces)


def test_encoding_does_not_depend_on_chunk_borders(monkeypatch):
    whole = TOKENIZERS[2].encode(TEXT)
    for chunk in (1, 100, 5000):
        monkeypatch.setattr(tokenizers, "_CHUNK", chunk)
        np.testing.assert_array_equal(TOKENIZERS[2].encode(TEXT), whole)


def by_line(tokenizer, text):
    """The ids from SentencePiece, which encodes whole lines."""
    lines = [tokenizers.to_characters(line) for line in re.findall(rb"[^\n]*\n|[^\n]+", text)]
    return [index - 1 for ids in tokenizer._processor.encode(lines, out_type=int) for index in ids]


@given(st.binary(max_size=200) | st.lists(st.sampled_from([*NASTY, b"a", b"b", b".", b"  ", b"\n\n"])).map(b"".join))
@example(TEXT)
@example(b" " * 1000 + b"x" * 1000 + b" ")
@settings(deadline=None, max_examples=150)
def test_words_have_the_tokens_that_they_have_in_their_line(text):
    for tokenizer in TOKENIZERS:
        assert tokenizer._part is tokenizers._WORD
        assert tokenizer.encode(text).tolist() == by_line(tokenizer, text)


def test_a_model_whose_tokens_span_words_encodes_whole_lines(monkeypatch):
    text = b"of the house of the lake of the sea\n" * 50 + bytes(range(256))
    trainer = sentencepiece.SentencePieceTrainer.train
    monkeypatch.setattr(sentencepiece.SentencePieceTrainer, "train", partial(trainer, split_by_whitespace=False))
    tokenizer = Tokenizer.train(text, 300)
    assert any(b"of the" in piece for piece in tokenizer.pieces)
    assert tokenizer.encode(text).tolist() == by_line(tokenizer, text)
    # Control: word by word, the tokens differ.
    words = Tokenizer(tokenizer.model)
    words._part = tokenizers._WORD
    assert words.encode(text).tolist() != by_line(tokenizer, text)


def test_long_words_are_cut_for_training():
    """SentencePiece 0.2.1 and 0.2.2 abort on words of 65,536 characters. Nothing else is cut, and nothing is lost."""
    longest = tokenizers._LONGEST_TRAINED
    word, spaced = "x" * (2 * longest + 5), "ab " * longest
    for line, words in ((f"a {word} b\n", 3), (spaced, 1), ("short\n", 1), ("", 0)):
        parts = list(tokenizers._with_short_words(line))
        assert "".join(parts) == line and len(parts) == words
        assert max((len(w) for part in parts for w in part.split(" ")), default=0) <= longest


def test_few_words_are_kept_in_memory(monkeypatch):
    tokenizer = Tokenizer(TOKENIZERS[2].model)
    monkeypatch.setattr(tokenizers, "_MOST_KNOWN", 50)
    monkeypatch.setattr(tokenizers, "_CHUNK", 100)
    text = TEXT + b"x" * 1000 + b"\n" + TEXT
    np.testing.assert_array_equal(tokenizer.encode(text), TOKENIZERS[2].encode(text))
    assert len(tokenizer._known) < 200 and max(map(len, tokenizer._known)) <= tokenizers._LONGEST_KNOWN


def test_a_too_large_size_names_the_largest_possible_one():
    with pytest.raises(InputError, match="at most") as caught:
        Tokenizer.train(TEXT, 1_000_000)
    largest = int(re.search(r"at most (\d+)", str(caught.value))[1])
    assert Tokenizer.train(TEXT, largest).vocab_size == largest
    with pytest.raises(InputError, match=f"at most {largest}"):
        Tokenizer.train(TEXT, largest + 1)


def test_a_too_small_size_is_refused():
    with pytest.raises(InputError, match="256"):
        Tokenizer.train(TEXT, 255)


@pytest.mark.parametrize("ids", [[-1], [700], [3, 2**31]])
def test_decoding_refuses_invalid_ids(ids):
    with pytest.raises(ValueError, match="0 to 699"):
        TOKENIZERS[2].decode(ids)


def test_a_saved_tokenizer_is_loaded_unchanged(tmp_path):
    TOKENIZERS[1].save(tmp_path / "model")
    loaded = Tokenizer.load(tmp_path / "model")
    assert loaded.fingerprint == TOKENIZERS[1].fingerprint and loaded.pieces == TOKENIZERS[1].pieces
    np.testing.assert_array_equal(loaded.encode(TEXT), TOKENIZERS[1].encode(TEXT))
    assert len({tokenizer.fingerprint for tokenizer in TOKENIZERS}) == 3


def test_training_gives_the_same_tokenizer_in_another_process():
    program = (
        "import sys, hashlib; from lvp.data.tokens.tokenizers import Tokenizer\n"
        "text = sys.stdin.buffer.read(); t = Tokenizer.train(text, 700)\n"
        "print(t.fingerprint, hashlib.sha256(t.encode(text).tobytes()).hexdigest())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "77"}
    run = subprocess.run([sys.executable, "-c", program], input=TEXT, capture_output=True, check=True, env=environment)
    ids = hashlib.sha256(TOKENIZERS[2].encode(TEXT).tobytes()).hexdigest()
    assert run.stdout.decode().split() == [TOKENIZERS[2].fingerprint, ids]
    assert run.stderr == b""  # training prints nothing


@pytest.mark.slow
def test_wikitext2_is_encoded_losslessly_at_two_sizes(wikitext2):
    train, valid = ((wikitext2 / f"{split}.txt").read_bytes() for split in ("train", "valid"))
    per_token = []
    for size in (256, 2048):
        tokenizer = Tokenizer.train(train, size)
        ids = tokenizer.encode(valid)
        assert tokenizer.vocab_size == size and tokenizer.decode(ids) == valid
        per_token.append(len(valid) / ids.size)
    assert per_token[0] == 1.0 and 2.8 < per_token[1] < 3.4
