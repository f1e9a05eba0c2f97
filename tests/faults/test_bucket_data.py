"""Texts, tokens and the cache in a bucket of an S3-compatible server."""

import re
from pathlib import Path

import pytest

from lvp import data, sweeps
from lvp.cli.main import main
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.files import cache_dir
from lvp.files.buckets import Bucket
from tests.faults.conftest import refused
from tests.faults.s3 import BUCKET, SECRET
from tests.lvp.data.tokens.texts import some_text

TEXTS = {"a.txt": some_text(30_000), "folder/b.txt": some_text(20_000)[7:], ".hidden/c.txt": "left out"}
VOCAB = 300


@pytest.fixture
def address(proxy, tmp_path):
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def texts(address, tmp_path):
    """The address and the directory of the same texts."""
    for name, text in TEXTS.items():
        (path := tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        Bucket(f"{address}/texts").write(name, text.encode())
    return f"{address}/texts", tmp_path / "texts"


def prepared(spec: str, cache: Path):
    return data.prepare(spec, vocab=VOCAB, slice_bytes=None, valid_bytes=None, cache=cache)


def fingerprints(dataset) -> tuple:
    return dataset.corpus_fingerprint, dataset.tokenizer_fingerprint, dataset.num_tokens, dataset.num_valid_tokens


def tokenize(spec, out, *words) -> int:
    return main(["tokenize", spec, "--vocab", str(VOCAB), "--out", str(out), "--workers", "1", *words])


@pytest.mark.parametrize("below", ["", "/folder", "/a.txt"])
def test_a_text_in_a_bucket_is_the_text_in_files(texts, tmp_path, below):
    address, directory = texts
    ours = prepared(f"text:{address}{below}", tmp_path / "first")
    assert fingerprints(ours) == fingerprints(prepared(f"text:{directory}{below}", tmp_path / "second"))
    assert ours.spec == f"text:{address}{below}"


def test_tokens_in_a_bucket(texts, address, proxy, tmp_path, capfd, monkeypatch):
    """They are made from a text in a bucket, continued after a refused upload, kept, and downloaded once."""
    (text, directory), out = texts, f"{address}/tokens"
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    assert tokenize(f"text:{directory}", tmp_path / "tokens") == 0
    assert tokenize(f"text:{text}/none", out) == 2 and not list(Bucket(out).objects())
    proxy.fault = lambda request: "403 AccessDenied" if request.name.endswith("meta.json") else None
    assert tokenize(f"text:{text}", out) == 2
    proxy.fault = lambda request: "403 AccessDenied" if "PUT" in request.method and "meta" in request.name else None
    assert tokenize(f"text:{text}", out) == 2
    assert "the server refuses" in capfd.readouterr().err
    proxy.fault = lambda request: None
    with refused() as message:
        prepared(f"tokens:{out}", tmp_path / "cache")
    assert "no complete tokens at" in message[0]
    with monkeypatch.context() as patched:
        patched.setattr(Tokenizer, "encode", lambda *_: pytest.fail("the shards are whole"))
        assert tokenize(f"text:{text}", out) == 0
    assert f"--corpus tokens:{out}" in capfd.readouterr().out

    expected = fingerprints(prepared(f"tokens:{tmp_path / 'tokens'}", tmp_path / "cache"))
    proxy.requests = []
    for _ in range(2):
        assert fingerprints(prepared(f"tokens:{out}", tmp_path / "cache")) == expected
    assert proxy.times("GET", "train-00000.npy") == 1

    proxy.requests = []
    assert tokenize(f"text:{text}", out) == 0 and not proxy.times("PUT", "")
    assert tokenize(f"text:{text}", out, "--limit", "9000") == 2
    assert tokenize(f"text:{text}", text) == 2
    proxy.fault = lambda request: "403 AccessDenied" if "PUT" in request.method and "meta" in request.name else None
    assert tokenize(f"text:{text}", f"{out}-2") == tokenize(f"text:{text}", f"{out}-2", "--limit", "9000") == 2
    shown = capfd.readouterr()
    assert shown.err.count("limit None, not 9000") == 2 and "holds other files" in shown.err
    assert SECRET not in shown.out + shown.err


def test_the_tokens_of_a_vocabulary(address, texts, tmp_path, monkeypatch):
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    assert tokenize(f"text:{texts[1]}", f"{address}/all/{VOCAB}") == 0
    assert prepared(f"tokens:{address}/all", tmp_path / "cache").vocab == VOCAB


def test_an_interrupted_download_continues(address, texts, proxy, tmp_path, monkeypatch):
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    assert tokenize(f"text:{texts[1]}", address + "/tokens") == 0
    proxy.fault = lambda request: "403 AccessDenied" if request.name.endswith("valid-00000.npy") else None
    with refused() as message:
        prepared(f"tokens:{address}/tokens", tmp_path / "cache")
    assert "the server refuses" in message[0]
    proxy.fault, proxy.requests = lambda request: None, []
    assert prepared(f"tokens:{address}/tokens", tmp_path / "cache").num_tokens > 1000
    assert not proxy.times("GET", "train-00000.npy") and proxy.times("GET", "valid-00000.npy") == 1


def test_a_cache_in_a_bucket_is_shared(address, texts, tmp_path, monkeypatch):
    """A second machine trains no tokenizer. A damaged object is made again."""
    monkeypatch.setenv("LVP_CACHE", f"{address}/cache")
    spec, made = f"text:{texts[1]}", {}
    for machine in ("first", "second", "third"):
        monkeypatch.setenv("HOME", str(tmp_path / machine))
        if machine == "third":
            bucket = Bucket(f"{address}/cache")
            (tokens,) = (entry.name for entry in bucket.objects() if entry.name.endswith("train.npy"))
            bucket.write(tokens, b"damaged")
        with monkeypatch.context() as patched:
            if machine != "first":
                patched.setattr(Tokenizer, "train", lambda *_: pytest.fail("the tokenizer is in the bucket"))
            made[machine] = prepared(spec, cache_dir() / "data")
        assert made[machine].tokens_train.is_relative_to(tmp_path / machine)
        assert fingerprints(made[machine]) == fingerprints(made["first"])
    assert bucket.read(tokens)[0] == made["first"].tokens_train.read_bytes()


@pytest.mark.parametrize(
    "spec, problem",
    [
        ("text:{}/none", "there is no object"),
        ("tokens:{}/none", "there is no object|no complete tokens at"),
        ("text:s3://", "names no bucket"),
        ("text:s4://bucket/x", "did you mean s3"),
        ("text:s3://key:secret@bucket/x", "contains credentials"),
        ("wikitext2:s3://key:secret@bucket/x", "contains credentials"),
        ("wikitext2:{}/none", "cannot be read from a bucket"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_an_unusable_corpus_is_refused_before_the_start(address, spec, problem, dry_run, tmp_path, capfd):
    out, corpus = tmp_path / "out", spec.format(address)
    with refused() as message:
        sweeps.run("width_vocab", "smoke", out=out, corpus=corpus, dry_run=dry_run, quiet=True)
    shown = capfd.readouterr()
    assert re.search(problem, message[0]) and not out.exists() and "secret" not in message[0] + shown.out + shown.err
