"""Texts of TensorFlow Datasets: documents in order with line ends, and one-line errors for unusable datasets."""

import sys

import pytest

from lvp import data
from lvp.data.text import corpora
from lvp.errors import InputError
from tests.lvp.data.text.tfds_texts import prepare

TRAIN = [f"document {i} é" + "\n" * (i % 3) for i in range(600)]


def ended(texts) -> bytes:
    return "".join(text if text.endswith("\n") else text + "\n" for text in texts if text).encode()


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    return tmp_path / "tfds"


def test_documents_are_in_order_and_end_with_a_line_end(directory, tmp_path):
    prepare(directory, {"train": TRAIN, "validation": ["a", "", "b\n"], "test": ["t"]})
    corpus = data.load("tfds:lvp_texts", cache=tmp_path / "cache")
    assert (corpus.train, corpus.valid) == (ended(TRAIN), b"a\nb\n")
    assert corpus.spec == "tfds:lvp_texts:1.0.0" and data.load(corpus.spec, cache=tmp_path) == corpus
    assert "tensorflow" not in sys.modules


def test_validation_is_test_or_the_end_of_train(directory, tmp_path):
    prepare(directory / "1", {"train": TRAIN, "test": ["t"]})
    prepare(directory / "2", {"train": TRAIN})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFDS_DATA_DIR", str(directory / "1"))
        source = corpora.source("tfds:lvp_texts", cache=tmp_path)
        assert data.load("tfds:lvp_texts", cache=tmp_path).valid == b"t\n" and source.validation == "the split test"
        patch.setenv("TFDS_DATA_DIR", str(directory / "2"))
        corpus = data.load("tfds:lvp_texts", cache=tmp_path)
        assert (corpus.train, corpus.valid) == (ended(TRAIN[:540]), ended(TRAIN[540:]))
        source = corpora.source("tfds:lvp_texts", cache=tmp_path, valid_bytes=30)
        assert "last 2 of 600 documents of train" in source.validation
        assert b"".join(block.ended for block in source.valid.blocks()) == ended(TRAIN[-2:])
        assert sum(1 for _ in source.train.blocks()) == 598


def test_one_of_several_texts_must_be_named(directory, tmp_path):
    prepare(directory, {"train": TRAIN[:30]}, names=("title", "text"))
    with pytest.raises(InputError, match=r"several texts \(text, title\): add #text, for example"):
        data.load("tfds:lvp_texts", cache=tmp_path)
    corpus = data.load("tfds:lvp_texts#title", cache=tmp_path)
    assert corpus.train == ended(TRAIN[:27]) and corpus.spec == "tfds:lvp_texts:1.0.0#title"
    with pytest.raises(InputError, match="unknown text feature 'titel'; did you mean title?"):
        data.load("tfds:lvp_texts#titel", cache=tmp_path)


@pytest.mark.parametrize(
    "splits, more, spec, message",
    [
        (
            {"train": ["a"] * 9},
            {},
            "lvp_texts",
            "only the split train, and its 9 documents are too few to hold a tenth out",
        ),
        ({"test": ["a"]}, {}, "lvp_texts", "needs a split train; its splits are test"),
        ({"train": ["a"]}, {"names": ()}, "lvp_texts", "needs a text feature; its features are n"),
        ({"train": ["a"]}, {}, "", "needs a dataset"),
        ({"train": ["a"]}, {}, "lvp_text:1.0.0", "TFDS has no dataset 'lvp_text:1.0.0' in .*"),
        (None, {}, "lvp_texts", r"cannot prepare tfds:lvp_texts here \(no way to the archive\); prepare it as array_r"),
    ],
)
def test_unusable_datasets_give_a_one_line_error(directory, tmp_path, splits, more, spec, message):
    if splits is not None:
        prepare(directory, splits, **more)
    with pytest.raises(InputError, match=message) as caught:
        data.load(f"tfds:{spec}", cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_a_corpus_too_large_for_memory_is_referred_to_tokenize(directory, tmp_path, monkeypatch):
    prepare(directory, {"train": TRAIN})
    monkeypatch.setattr(corpora, "_MOST", 2000)
    with pytest.raises(
        InputError,
        match="limit of texts in memory: run `python -m lvp tokenize tfds:lvp_texts:1.0.0 --vocab M --out DIR`",
    ):
        data.load("tfds:lvp_texts", cache=tmp_path)
