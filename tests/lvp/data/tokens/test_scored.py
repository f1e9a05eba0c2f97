"""Scored texts: the whole text, encoded by the corpus' own tokenizer."""

import numpy as np
import pytest

from lvp import data
from lvp.data.tokens import scored
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError

TEXT = "ein Satz und noch einer\n\näöü = 3\n"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    (folder / "train.txt").write_text("ein Satz, ein Wort und noch ein Satz\n" * 300)
    (folder / "test.txt").write_text(TEXT)

    def prepare(name="test.txt"):
        spec = None if name is None else f"text:{folder / name}"
        sizes = {"vocab": 270, "slice_bytes": 2000, "valid_bytes": 300}
        return data.prepare(f"text:{folder / 'train.txt'}", cache=folder / "cache", scored_spec=spec, **sizes)

    return folder, prepare


def test_a_scored_text_follows_one_line_end(prepared):
    folder, prepare = prepared
    dataset = prepare()
    (model,) = (folder / "cache" / "tokenizers").glob("*/model")
    assert Tokenizer.load(model).decode(np.load(dataset.tokens_scored)) == b"\n" + TEXT.encode()
    assert dataset.scored_words == (11, 8)
    assert data.Dataset.from_dict(dataset.to_dict()) == dataset == prepare()


def test_the_scored_text_changes_only_the_scored_tokens(prepared):
    folder, prepare = prepared
    (folder / "other.txt").write_text("etwas anderes\n")
    plain, other = prepare(None), prepare("other.txt")
    assert plain.tokens_scored is None and plain.scored_fingerprint is None
    assert data.Dataset.from_dict(plain.to_dict()) == plain
    assert other.scored_fingerprint != prepare().scored_fingerprint and other.tokens_scored != prepare().tokens_scored
    np.testing.assert_array_equal(np.load(plain.tokens_train), np.load(other.tokens_train))


def test_wikitext2_is_scored_on_its_test_split(wikitext2, tmp_path):
    assert scored.load(f"wikitext2:{wikitext2}", cache=tmp_path) == (wikitext2 / "test.txt").read_bytes()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("zipf:1", "must be wikitext2"),
        ("text", "must be wikitext2"),
        ("wikitext2:", "needs a path"),
        ("text:missing.txt", "missing.txt"),
        ("text:empty.txt", "empty.txt is empty"),
    ],
)
def test_unusable_texts_are_named(spec, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(InputError, match=words):
        scored.load(spec, cache=tmp_path)


def test_zipf_has_no_tokenizer_for_a_text(tmp_path):
    (tmp_path / "test.txt").write_text(TEXT)
    sizes = {"vocab": 50, "slice_bytes": 400, "valid_bytes": 400}
    with pytest.raises(InputError, match="zipf has no tokenizer"):
        data.prepare("zipf:1", cache=tmp_path, scored_spec=f"text:{tmp_path / 'test.txt'}", **sizes)


def test_words_and_line_ends():
    assert scored.WordCounts.from_text(b" \n = A <unk> = \n\n one  two \n") == (10, 6)
    assert scored.WordCounts.from_text("ein Wort äöü".encode()) == (3, 3)


def test_wikitext2_has_the_published_counts(wikitext2):
    assert scored.WordCounts.from_text((wikitext2 / "test.txt").read_bytes()) == (245_569, 241_211)
