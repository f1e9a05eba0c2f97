"""The corpus `tokens:DIR`: it has the tokens of its text, is not copied, and its damage is detected."""

import json
import os
import shutil

import numpy as np
import pytest

from lvp import data
from lvp.data.tokens import shards
from lvp.data.tokens.tokenization import Settings, tokenize
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError
from lvp.files import storage
from tests.lvp.data.tokens.texts import some_text

WHOLE_TEXT = {"vocab": 300, "slice_bytes": None, "valid_bytes": None}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "t.txt"
    path.write_text(some_text(8000))
    return path


@pytest.fixture(scope="module")
def token_dirs(text, tmp_path_factory):
    """Returns a directory with the token directories of `text` for the vocabularies 300 and 350."""
    parent = tmp_path_factory.mktemp("tokens")
    for vocab in (300, 350):
        tokenize(Settings(f"text:{text}", vocab), parent / str(vocab), cache=parent / "cache", workers=1)
    return parent


@pytest.fixture
def out(token_dirs, tmp_path):
    """Returns a copy of the token directory of vocabulary 300, for a test to damage."""
    shutil.copytree(token_dirs / "300", tmp_path / "out")
    return tmp_path / "out"


def test_tokens_of_a_directory_equal_those_of_the_text(text, token_dirs, tmp_path):
    from_text = data.prepare(f"text:{text}", **WHOLE_TEXT, cache=tmp_path)
    dataset = data.prepare(f"tokens:{token_dirs / '300'}", **WHOLE_TEXT, cache=tmp_path)
    for split in ("train", "valid"):
        tokens = dataset.tokens(split)
        assert tokens.dtype == np.uint16
        np.testing.assert_array_equal(tokens, from_text.tokens(split))
        np.testing.assert_array_equal(dataset.tokens(split, mapped=True), tokens)
    np.testing.assert_array_equal(dataset.frequencies(), from_text.frequencies())
    for name in ("num_tokens", "num_valid_tokens", "train_bytes", "valid_bytes", "tokenizer_fingerprint", "vocab"):
        assert getattr(dataset, name) == getattr(from_text, name)
    assert dataset.tokens_train == token_dirs / "300" and dataset.spec == f"tokens:{token_dirs / '300'}"
    assert data.Dataset.from_dict(json.loads(json.dumps(dataset.to_dict()))) == dataset
    assert isinstance(dataset.tokens("train", mapped=True), np.memmap)


def test_a_limit_in_bytes_takes_the_first_tokens(token_dirs, tmp_path):
    tokenizer = Tokenizer.load(token_dirs / "300" / "tokenizer.model")
    tokens = np.load(token_dirs / "300" / "train-00000.npy")
    for limit in (100, 5000, 20_000):
        sizes = {"vocab": 300, "slice_bytes": limit, "valid_bytes": 570}
        dataset = data.prepare(f"tokens:{token_dirs / '300'}", **sizes, cache=tmp_path)
        train = dataset.tokens("train")
        np.testing.assert_array_equal(train, tokens[: train.size])
        assert dataset.num_tokens == train.size and (dataset.train_bytes, dataset.valid_bytes) == (limit, 570)
        assert len(tokenizer.decode(train)) == pytest.approx(limit, rel=0.2)
        assert dataset.frequencies().sum() == pytest.approx(1)
        assert dataset.bytes_per_token == dataset.train_bytes / train.size


def test_a_directory_of_vocabularies_provides_each_of_them(token_dirs, tmp_path):
    for vocab in (300, 350):
        dataset = data.prepare(f"tokens:{token_dirs}", **(WHOLE_TEXT | {"vocab": vocab}), cache=tmp_path)
        assert dataset.tokens_train == token_dirs / str(vocab) and dataset.spec == f"tokens:{token_dirs}"
    with pytest.raises(
        InputError, match=r"no tokens in .*/400: .*; `python -m lvp tokenize SPEC --vocab 400 --out .*/400`"
    ):
        data.prepare(f"tokens:{token_dirs}", **(WHOLE_TEXT | {"vocab": 400}), cache=tmp_path)


def test_a_scored_text_is_encoded_by_the_directorys_tokenizer(text, token_dirs, tmp_path):
    scored = tmp_path / "scored.txt"
    scored.write_text("some words here\nand more\n")
    settings = WHOLE_TEXT | {"scored_spec": f"text:{scored}"}
    dataset = data.prepare(f"tokens:{token_dirs / '300'}", **settings, cache=tmp_path / "cache")
    from_text = data.prepare(f"text:{text}", **settings, cache=tmp_path / "cache")
    np.testing.assert_array_equal(np.load(dataset.tokens_scored), np.load(from_text.tokens_scored))
    assert dataset.scored_words == from_text.scored_words and dataset.scored_fingerprint == from_text.scored_fingerprint
    assert data.prepare(f"tokens:{token_dirs / '300'}", **settings, cache=tmp_path / "cache") == dataset


def test_fingerprints_depend_on_tokens_and_tokenizer(token_dirs, tmp_path):
    dataset, larger = (
        data.prepare(f"tokens:{token_dirs}", **(WHOLE_TEXT | {"vocab": vocab}), cache=tmp_path) for vocab in (300, 350)
    )
    assert dataset.corpus_fingerprint != larger.corpus_fingerprint
    moved = shutil.copytree(token_dirs / "300", tmp_path / "elsewhere")
    again = data.prepare(f"tokens:{moved}", **WHOLE_TEXT, cache=tmp_path)
    assert again.corpus_fingerprint == dataset.corpus_fingerprint
    assert again.tokenizer_fingerprint == dataset.tokenizer_fingerprint


def truncate(out):
    os.truncate(out / "train-00000.npy", (out / "train-00000.npy").stat().st_size - 10)


def lengthen(out):
    with open(out / "valid-00000.npy", "ab") as file:
        file.write(b"\0\0")


def remove_tokens(out):
    (out / "valid-00000.npy").unlink()


def add_tokens(out):
    shutil.copy(out / "train-00000.npy", out / "train-00001.npy")


def change_tokenizer(out):
    shutil.copy(out.parent / "other.model", out / "tokenizer.model")


def remove_tokenizer(out):
    (out / "tokenizer.model").unlink()


def write_a_token_outside_the_vocabulary(out):
    tokens = np.load(out / "train-00000.npy")
    tokens[7] = 300
    np.save(out / "train-00000.npy", tokens)


def change_a_token(out):
    tokens = np.load(out / "train-00000.npy")
    tokens[7] = (tokens[7] + 1) % 300
    np.save(out / "train-00000.npy", tokens)


def change_meta(out):
    path = out / "meta.json"
    path.write_text(path.read_text().replace('"vocab": 300', '"vocab": 301'))


def empty_meta(out):
    (out / "meta.json").write_bytes(b"")


def change_types(out):
    meta = json.loads((out / "meta.json").read_text())
    del meta["digest"]
    content = meta | {"shards": {"train": "x", "valid": []}}
    (out / "meta.json").write_text(json.dumps(content | {"digest": storage.digest(storage.as_json(content))}))


def mark_as_unfinished(out):
    (out / "meta.json").unlink()


@pytest.mark.parametrize(
    "damage, message",
    [
        (truncate, "train-00000.npy is not an array of numbers: mmap length is greater than file size"),
        (lengthen, r"valid-00000.npy is longer than expected: its header states \d+ tokens"),
        (remove_tokens, r"has other shards than its meta.json states \(valid-00000.npy\); delete it and make it again"),
        (add_tokens, r"has other shards than its meta.json states \(train-00001.npy\)"),
        (change_tokenizer, "tokenizer.model is not the tokenizer that made the tokens .*fingerprint"),
        (remove_tokenizer, "tokenizer.model is missing"),
        (write_a_token_outside_the_vocabulary, "train-00000.npy has token 300 at position 7, outside"),
        (change_a_token, "train-00000.npy is damaged: it differs from its digest"),
        (change_meta, "meta.json is damaged"),
        (empty_meta, "meta.json is damaged"),
        (change_types, "meta.json is damaged"),
        (mark_as_unfinished, "are unfinished; repeat the command that began them"),
        (shutil.rmtree, "no tokens in"),
    ],
)
def test_damage_gives_a_one_line_error_and_no_file_changes(token_dirs, out, damage, message):
    shutil.copy(token_dirs / "350" / "tokenizer.model", out.parent / "other.model")
    damage(out)
    kept = lambda: {p: p.read_bytes() for p in out.parent.rglob("*") if p.is_file() and "cache" not in p.parts}  # noqa: E731
    before = kept()
    with pytest.raises(InputError, match=message) as caught:
        data.prepare(f"tokens:{out}", **WHOLE_TEXT, cache=out.parent / "cache")
    assert "\n" not in str(caught.value)
    assert kept() == before


@pytest.mark.parametrize(
    "change, message",
    [
        ({"vocab": 299}, "are of a vocabulary of 300, not 299: set vocab to 300 or more, or tokenize again"),
        ({"slice_bytes": 1}, "the training part of .* is too small: 0 tokens; give more, or raise slice_bytes"),
        ({"valid_bytes": 0}, "valid_bytes=0"),
        ({"spec": "tokens:"}, "needs a path"),
        ({"spec": "token:x"}, r"unknown corpus 'token'; did you mean tokens\?"),
    ],
)
def test_unsuitable_settings_are_refused(token_dirs, tmp_path, change, message):
    settings = {"spec": f"tokens:{token_dirs / '300'}", **WHOLE_TEXT, "cache": tmp_path / "cache"} | change
    with pytest.raises(InputError, match=message):
        data.prepare(**settings)
    assert not (tmp_path / "cache" / "datasets").exists()


def test_tokens_cannot_be_loaded_as_text(token_dirs, tmp_path):
    with pytest.raises(InputError, match="has tokens, but a text is needed"):
        data.load(f"tokens:{token_dirs / '300'}", cache=tmp_path)


def test_large_vocabularies_use_wider_integers():
    assert [shards.dtype_of(m) for m in (256, 1 << 16, (1 << 16) + 1)] == [np.uint16, np.uint16, np.int32]
