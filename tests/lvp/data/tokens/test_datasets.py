"""Prepared datasets have the requested slice and vocabulary, are cached, and can be prepared concurrently."""

import dataclasses
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from lvp import data
from lvp.data.text import zipf
from lvp.data.tokens import tokenizers
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError
from tests.lvp.data.tokens.texts import some_text


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(some_text(8000), encoding="utf-8")
    return f"text:{path}"


@pytest.fixture(scope="module")
def warm(spec, tmp_path_factory):
    """Returns a cache in which `spec` was prepared with vocab 300, slice 5001 and valid 1000, and the dataset."""
    cache = tmp_path_factory.mktemp("cache")
    return cache, data.prepare(spec, vocab=300, slice_bytes=5001, valid_bytes=1000, cache=cache)


def files(cache):
    return {path.relative_to(cache): path.read_bytes() for path in cache.rglob("*") if path.is_file()}


def test_tokens_decode_to_the_head_of_the_corpus(spec, warm):
    cache, dataset = warm
    corpus = data.load(spec, cache=cache)
    tokenizer = Tokenizer.train(corpus.train, 300)
    train, valid = np.load(dataset.tokens_train), np.load(dataset.tokens_valid)
    assert train.dtype == valid.dtype == np.int32 and train.ndim == 1
    assert dataset.vocab == tokenizer.vocab_size == 300
    assert tokenizer.decode(train) == corpus.train[: dataset.train_bytes]
    assert tokenizer.decode(valid) == corpus.valid[: dataset.valid_bytes]
    assert 4999 <= dataset.train_bytes <= 5001 and 999 <= dataset.valid_bytes <= 1000
    assert dataset.bytes_per_token == dataset.train_bytes / train.size
    assert dataset.tokenizer_fingerprint == tokenizer.fingerprint
    assert (dataset.spec, dataset.corpus_fingerprint) == (corpus.spec, corpus.fingerprint)


def test_slices_are_cut_between_characters(spec, warm):
    corpus = data.load(spec, cache=warm[0])
    inside = corpus.train.index("é".encode()) + 1
    dataset = data.prepare(spec, vocab=300, slice_bytes=inside, valid_bytes=50, cache=warm[0])
    assert dataset.train_bytes == inside - 1


def test_none_or_an_excessive_size_means_the_whole_corpus(spec, warm):
    corpus = data.load(spec, cache=warm[0])
    for size in (None, 10**9):
        dataset = data.prepare(spec, vocab=300, slice_bytes=size, valid_bytes=size, cache=warm[0])
        assert (dataset.train_bytes, dataset.valid_bytes) == (len(corpus.train), len(corpus.valid))


def test_vocabularies_share_a_slice(spec, warm):
    cache, first = warm
    larger = data.prepare(spec, vocab=350, slice_bytes=5001, valid_bytes=1000, cache=cache)
    assert (larger.train_bytes, larger.valid_bytes) == (first.train_bytes, first.valid_bytes)
    assert larger.bytes_per_token > first.bytes_per_token
    longer = data.prepare(spec, vocab=300, slice_bytes=9000, valid_bytes=1000, cache=cache)
    assert longer.tokenizer_fingerprint == first.tokenizer_fingerprint != larger.tokenizer_fingerprint


def test_the_cache_key_contains_every_argument(spec, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(some_text(3000), encoding="utf-8")
    asked = {"spec": spec, "vocab": 300, "slice_bytes": 5001, "valid_bytes": 1000, "cache": tmp_path}
    changes = [{}, {"spec": f"text:{other}"}, {"vocab": 301}, {"slice_bytes": 4000}, {"valid_bytes": 800}]
    datasets = [data.prepare(**asked | change) for change in changes]
    contents = [(x.tokens_train.read_bytes(), x.tokens_valid.read_bytes()) for x in datasets]
    assert len(set(contents)) == len({x.tokens_train for x in datasets}) == len(changes)
    other.write_text(some_text(3001), encoding="utf-8")  # same name, other text
    assert data.prepare(**asked | changes[1]).corpus_fingerprint != datasets[1].corpus_fingerprint


def test_a_second_call_changes_no_byte(spec, warm):
    cache, dataset = warm
    before = files(cache)
    program = (
        "import json, sys; from lvp import data\n"
        "d = data.prepare(sys.argv[1], vocab=300, slice_bytes=5001, valid_bytes=1000, cache=sys.argv[2])\n"
        "d.frequencies()\n"
        "print(json.dumps(d.to_dict()))\n"
        "print({'jax', 'sentencepiece', 'tensorflow_datasets', 'tensorflow'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program, spec, cache], capture_output=True, check=True, text=True)
    described, imported = run.stdout.splitlines()
    assert data.Dataset.from_dict(json.loads(described)) == dataset
    assert imported == "set()"
    assert files(cache) == before


def test_preparing_again_gives_the_same_bytes(spec, warm, tmp_path):
    again = data.prepare(spec, vocab=300, slice_bytes=5001, valid_bytes=1000, cache=tmp_path)
    assert again.tokens_train.read_bytes() == warm[1].tokens_train.read_bytes()
    assert again.tokens_valid.read_bytes() == warm[1].tokens_valid.read_bytes()
    elsewhere = {"tokens_train": warm[1].tokens_train, "tokens_valid": warm[1].tokens_valid}
    assert dataclasses.replace(again, **elsewhere) == warm[1]


def test_damaged_files_are_rebuilt(spec, warm, tmp_path):
    cache = tmp_path / "cache"
    shutil.copytree(warm[0], cache)
    whole = data.prepare(spec, vocab=300, slice_bytes=5001, valid_bytes=1000, cache=cache)
    content = whole.tokens_train.read_bytes()
    whole.tokens_train.write_bytes(content[:-4] + b"\x01\x00\x00\x00")
    for model in (cache / "tokenizers").glob("*/model"):
        model.write_bytes(model.read_bytes()[:100])
    assert data.prepare(spec, vocab=300, slice_bytes=5001, valid_bytes=1000, cache=cache) == whole
    assert whole.tokens_train.read_bytes() == content


def test_frequencies_are_of_the_training_tokens(warm):
    frequencies = warm[1].frequencies()
    tokens = np.load(warm[1].tokens_train)
    assert frequencies.shape == (300,) and frequencies.dtype == np.float64
    assert frequencies.sum() == pytest.approx(1) and frequencies[7] == (tokens == 7).mean()


def test_zipf_has_any_vocabulary_and_its_exact_frequencies(tmp_path):
    dataset = data.prepare("zipf:1.2", vocab=50, slice_bytes=4003, valid_bytes=400, cache=tmp_path)
    np.testing.assert_array_equal(np.load(dataset.tokens_train), zipf.sample(1000, 50, 1.2, "train"))
    np.testing.assert_array_equal(np.load(dataset.tokens_valid), zipf.sample(100, 50, 1.2, "valid"))
    np.testing.assert_array_equal(dataset.frequencies(), zipf.frequencies(50, 1.2))
    assert (dataset.train_bytes, dataset.valid_bytes, dataset.tokenizer_fingerprint) == (4000, None, None)
    assert data.Dataset.from_dict(json.loads(json.dumps(dataset.to_dict()))) == dataset
    assert data.prepare("zipf:1.2", vocab=50, slice_bytes=4003, valid_bytes=400, cache=tmp_path) == dataset


@pytest.mark.slow
def test_the_default_corpus_supports_the_laptop_preset(tmp_path):
    dataset = data.prepare("python-docs", vocab=1024, slice_bytes=100_000, valid_bytes=40_000, cache=tmp_path)
    assert np.load(dataset.tokens_train).size >= 20_000 and dataset.vocab == 1024
    assert 2.0 < dataset.bytes_per_token < 4.0


GOOD = {"vocab": 300, "slice_bytes": 5000, "valid_bytes": 500}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"vocab": 255}, "vocab=255: .* at least 256"),
        ({"vocab": 0}, "at least 256"),
        ({"vocab": 300.0}, "whole number"),
        ({"vocab": True}, "whole number"),
        ({"vocab": 10**6}, r"1000000 is too large: this corpus supports at most \d+"),
        ({"slice_bytes": 0}, "slice_bytes=0: must be a positive"),
        ({"slice_bytes": -5}, "slice_bytes=-5"),
        ({"valid_bytes": 1.5}, "valid_bytes=1.5"),
        ({"slice_bytes": 1}, "training text .* too small"),
        ({"valid_bytes": 1}, "validation text .* too small"),
        ({"spec": "zipf", "vocab": 1}, "at least 2"),
        ({"spec": "zipf", "slice_bytes": 7}, "7 bytes of zipf are 1 tokens"),
        ({"spec": "nonsense"}, "unknown corpus"),
    ],
)
def test_bad_settings_are_one_line_and_leave_no_dataset(spec, tmp_path, change, message):
    settings = {"spec": spec, **GOOD, **change}
    with pytest.raises(InputError, match=message) as caught:
        data.prepare(settings.pop("spec"), **settings, cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache" / "datasets").glob("[!.]*"))


def test_an_unwritable_cache_is_named(spec, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot write .*file.*; choose another cache directory"):
        data.prepare(spec, **GOOD, cache=tmp_path / "file" / "cache")


def test_an_interrupted_run_leaves_no_partial_dataset(spec, tmp_path, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(tokenizers.Tokenizer, "encode", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        data.prepare(spec, **GOOD, cache=tmp_path)
    assert not list(tmp_path.rglob("*.npy"))
    dataset = data.prepare(spec, **GOOD, cache=tmp_path)
    assert np.load(dataset.tokens_train).max() < 300
