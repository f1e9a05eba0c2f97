"""Tokenization writes all tokens of a text in order, and the same bytes after any interruptions."""

import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import numpy as np
import pytest

from lvp import data
from lvp.cli import main
from lvp.data.text import corpora, splits
from lvp.data.tokens import encoding, loading, shards, tokenization
from lvp.data.tokens.tokenization import Settings, tokenize
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError
from lvp.files.places import Directory
from tests.lvp.data.text.tfds_texts import prepare
from tests.lvp.data.tokens.foreign import gpt2_json, llama_model
from tests.lvp.data.tokens.texts import some_text

SHARD = 3000
LINES = ("word words é€\r\n", "𝄞" * 40 + "\n", "\n", "a b  c\n", "ü" * 7)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A directory with an empty file, large ones, small ones, CRLF, a byte-order mark, files without a final line end,
    and a line of many shards."""
    directory, chance = tmp_path_factory.mktemp("corpus"), random.Random(1)
    small = ["".join(chance.choices(LINES, k=60)) for _ in range(30)]
    contents = [some_text(10_000), "", *small, "\ufeffbyte-order mark" * 9, "é" * 5000, "last"]
    for number, content in enumerate(contents):
        (directory / f"{number:02}.txt").write_bytes(content.encode())
    return directory


@pytest.fixture(scope="module")
def settings(text):
    return Settings(f"text:{text}", 300, valid_bytes=4000, tokenizer_bytes=50_000)


def run(settings, out, workers=1):
    """Runs `tokenize` with small shards."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((tokenization, "_SHARD"), (splits, "BLOCK")):
            patch.setattr(module, name, SHARD)
        return tokenize(settings, out, cache=out.parent / "cache", workers=workers)


@pytest.fixture(scope="module")
def whole(settings, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "out"
    return out, run(settings, out)


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def tokens(out, split):
    return np.concatenate([np.load(path) for path in sorted(out.glob(f"{split}-*.npy"))])


def test_tokens_decode_to_the_text(settings, whole, tmp_path):
    out, meta = whole
    tokenizer = Tokenizer.load(out / "tokenizer.model")
    source = corpora.source(settings.spec, cache=tmp_path, valid_bytes=4000)
    for split, part in (("train", source.train), ("valid", source.valid)):
        records, ids = meta["shards"][split], tokens(out, split)
        content = b"".join(block.ended for block in part.blocks())
        assert tokenizer.decode(ids) == content and ids.dtype == np.uint16
        assert sum(record["bytes"] for record in records) == len(content)
        assert [record["tokens"] for record in records] == [np.load(p).size for p in sorted(out.glob(f"{split}-*.npy"))]
    assert len(meta["shards"]["train"]) > 20 and meta["settings"]["vocab"] == 300
    head = b"".join(block.ended for block in source.train.blocks())[:50_000]
    assert meta["settings"]["tokenizer"]["fingerprint"] == Tokenizer.train(head, 300).fingerprint


@pytest.mark.slow
def test_workers_change_no_byte(settings, whole, tmp_path):
    for workers in (2, 3):
        run(settings, tmp_path / str(workers), workers)
        assert files(tmp_path / str(workers)) == files(whole[0])


def test_a_limit(settings, whole, tmp_path):
    for limit in (2000, 20_001):
        given = replace(settings, limit=limit, tokenizer=whole[0] / "tokenizer.model", vocab=None)
        meta = run(given, tmp_path / str(limit))
        size = sum(record["bytes"] for record in meta["shards"]["train"])
        assert limit - 3 <= size <= limit  # up to the end of a character
        ids = tokens(tmp_path / str(limit), "train")
        whole_words = ids[:-10]
        np.testing.assert_array_equal(whole_words, tokens(whole[0], "train")[: whole_words.size])


class Killed(BaseException):
    pass


@pytest.mark.parametrize("seed", range(3))
def test_tokenization_continues_after_any_kill(settings, whole, tmp_path, monkeypatch, seed):
    """Kills before and after any file is written, at random."""
    out, chance, calls, written = tmp_path / "out", random.Random(seed), 0, []
    write = Directory.write

    def dying(place, name, content):
        if chance.random() < 0.05:
            raise Killed
        write(place, name, content)
        written.append(name)
        if chance.random() < 0.05:
            raise Killed

    monkeypatch.setattr(Directory, "write", dying)
    while True:
        calls += 1
        try:
            run(settings, out)
            break
        except Killed:
            if not (out / "meta.json").exists():
                with pytest.raises(InputError, match="unfinished; repeat the command|no tokens in"):
                    data.prepare(f"tokens:{out}", vocab=300, slice_bytes=None, valid_bytes=None, cache=tmp_path)
    assert calls > 3 and files(out) == files(whole[0])
    assert len(written) < 2 * len(files(out))  # whole shards are not made again


def test_a_damaged_shard_is_made_again(settings, whole, tmp_path):
    out = shutil.copytree(whole[0], tmp_path / "out")
    (out / "meta.json").unlink()
    content = bytearray((out / "train-00003.npy").read_bytes())
    content[-1] ^= 1
    (out / "train-00003.npy").write_bytes(content)
    (out / "train-00004.npy").unlink()
    (out / "train-00005.json").write_bytes(b"{")
    run(settings, out)
    assert files(out) == files(whole[0])


DRIVER = """
import sys
from lvp.cli.main import main
from lvp.data.text import splits
from lvp.data.tokens import tokenization
tokenization._SHARD = splits.BLOCK = 3000
sys.exit(main(sys.argv[1:]))
"""


def command(settings, out, workers=1):
    words = settings.command(out).split()[3:]
    return [sys.executable, "-c", DRIVER, *words, "--workers", str(workers)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_processes_are_continued(settings, whole, tmp_path, seed):
    """Each process is killed after it has made a few shards; two processes work at the same time in the end."""
    out, chance = tmp_path / "out", random.Random(seed)
    for _ in range(3):
        count = len(list(out.glob("*.npy"))) + chance.randrange(1, 6)
        pipe = subprocess.Popen(command(settings, out, 1 + seed % 2), stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while pipe.poll() is None and len(list(out.glob("*.npy"))) < count and time.monotonic() < end:
            time.sleep(0.001)
        pipe.send_signal(signal.SIGKILL)
        pipe.wait()
    pair = [subprocess.Popen(command(settings, out), stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [pipe.wait() for pipe in pair] == [0, 0]
    assert {name: content for name, content in files(out).items() if name[0] != "."} == files(whole[0])


@pytest.mark.slow
def test_encoders_end_with_a_killed_parent(settings, tmp_path):
    import psutil

    pipe = subprocess.Popen(command(replace(settings, tokenizer_bytes=10_000), tmp_path / "out", 2))
    end, children = time.monotonic() + 60, []
    # two encoders and multiprocessing's tracker
    while len(children) < 3 and pipe.poll() is None and time.monotonic() < end:
        children = psutil.Process(pipe.pid).children()
        time.sleep(0.001)
    pipe.kill()
    pipe.wait()
    assert children and not psutil.wait_procs(children, timeout=20)[1]


def documents_of(text):
    return [content for path in sorted(text.iterdir()) if (content := path.read_bytes())]


@pytest.mark.parametrize("make", [llama_model, gpt2_json])
@pytest.mark.parametrize("kind", ["bos", "eos", None])
def test_separators_of_other_tokenizers(text, tmp_path, make, kind):
    """One token for every document, also if its text has many shards; the text between them is unchanged."""
    if make is gpt2_json:
        pytest.importorskip("tokenizers")
        kind = kind and "eos"
    model = tmp_path / "model"
    model.write_bytes(make())
    tokenizer = loading.load(model)
    settings = Settings(f"text:{text}", tokenizer=model, valid_bytes=2000, separator=kind)
    meta = run(settings, tmp_path / "out")
    kind, number = meta["settings"]["separator"]
    assert number == tokenizer.separators[kind]
    ids = tokens(tmp_path / "out", "train")
    source = corpora.source(settings.spec, cache=tmp_path, valid_bytes=2000)
    blocks = list(source.train.blocks())
    assert (ids == number).sum() == sum(block.ends for block in blocks) == len(documents_of(text))
    assert ids[0 if kind == "bos" else -1] == number
    parts = np.split(ids, np.flatnonzero(ids == number) + (kind == "eos"))
    decoded = [tokenizer.decode(part[part != number]) for part in parts if part.size]
    first = next(part.read_bytes() for part in sorted(text.iterdir()))
    assert first.startswith(decoded[0].strip()[:1000]) and decoded[-1].strip(b"\n") == b"last"
    dataset = data.prepare(f"tokens:{tmp_path / 'out'}", vocab=512, slice_bytes=None, valid_bytes=None, cache=tmp_path)
    assert dataset.vocab == 512 and dataset.tokenizer_fingerprint == tokenizer.fingerprint
    assert dataset.frequencies().shape == (512,) and not dataset.frequencies()[400:].any()


def test_without_separators_documents_end_with_line_ends(text, tmp_path):
    (tmp_path / "model").write_bytes(llama_model())
    meta = run(Settings(f"text:{text}", tokenizer=tmp_path / "model", separator="none"), tmp_path / "out")
    assert meta["settings"]["separator"] is None and not np.isin(tokens(tmp_path / "out", "train"), (1, 2)).any()


def test_a_line_of_many_megabytes_is_tokenized_in_parts(tmp_path, monkeypatch):
    """The same as a line of 100 MB, in smaller units."""
    (tmp_path / "t.txt").write_bytes(b"some words " * 20_000)
    meta = run(Settings(f"text:{tmp_path / 't.txt'}", 260, tokenizer_bytes=5000), tmp_path / "out")
    assert max(record["bytes"] for record in meta["shards"]["train"]) <= 2 * SHARD + 4
    tokenizer = Tokenizer.load(tmp_path / "out" / "tokenizer.model")
    assert tokenizer.decode(tokens(tmp_path / "out", "train")) == b"some words " * 18_000 + b"\n"


def test_an_error_in_a_worker_is_one_line(tmp_path, capfd):
    """The first error in the order of the text is reported."""
    text, out = tmp_path / "text", tmp_path / "out"
    text.mkdir()
    for name, content in (("a", b"a line\n" * 3000), ("b", b"\xff" * 9000), ("c", b"\0" * 9000)):
        (text / name).write_bytes(content)
    words = Settings(f"text:{text}", 260, valid_bytes=300, tokenizer_bytes=10_000).command(out).split()[3:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenization, "_SHARD", SHARD)
        patch.setattr(splits, "BLOCK", SHARD)
        assert main.main([*words, "--workers=2"]) == 2
    err = [line for line in capfd.readouterr().err.splitlines() if line.startswith("lvp: ")]
    assert err == [f"lvp: {text / 'b'} is not UTF-8 (byte offset 0: 0xff); convert it first"]


@pytest.mark.parametrize(
    "error, expected, message",
    [
        (InputError("a.txt is binary"), InputError, "^a.txt is binary$"),
        (OSError(28, "No space left"), OSError, "No space left"),
        (MemoryError("8 GiB\nand more"), RuntimeError, r"worker failed \(MemoryError: 8 GiB\); the same command"),
        (BrokenProcessPool(), RuntimeError, r"worker failed \(BrokenProcessPool: \); the same command continues"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_failure_of_a_worker_is_one_line(error, expected, message, wrapped):
    """`wrapped`: within an error with the attribute `cause`, as Ray raises it."""
    outer = ValueError("a traceback\nof many lines")
    outer.cause = error
    explained = encoding.explained(outer if wrapped else error)
    with pytest.raises(expected, match=message) as caught:
        raise explained
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_tfds_tokenization_is_continued(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    prepare(tmp_path / "tfds", {"train": some_text(5000).split("\n")})
    settings = Settings("tfds:lvp_texts", 280, valid_bytes=1000)
    meta = run(settings, tmp_path / "whole")
    assert "documents of train" in meta["validation"] and meta["settings"]["text"]["spec"] == "tfds:lvp_texts:1.0.0"
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    for path in (tmp_path / "killed" / "meta.json", *sorted((tmp_path / "killed").glob("train-*"))[5:]):
        path.unlink()
    run(settings, tmp_path / "killed", workers=2)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_a_complete_directory_is_verified_and_not_rebuilt(settings, whole, tmp_path, monkeypatch):
    out = shutil.copytree(whole[0], tmp_path / "out")
    monkeypatch.setattr(shards, "make", lambda shard: pytest.fail("the directory is complete"))
    assert run(settings, out) == whole[1] and files(out) == files(whole[0])
    content = bytearray((out / "train-00000.npy").read_bytes())
    content[-2] ^= 1
    (out / "train-00000.npy").write_bytes(content)
    with pytest.raises(InputError, match="train-00000.npy is damaged: it differs from its digest; delete it"):
        run(settings, out)


def test_unusable_input_is_one_line_and_overwrites_nothing(settings, whole, tmp_path, capfd):
    out, other, model = tmp_path / "out", tmp_path / "other", tmp_path / "model"
    shutil.copytree(whole[0], out)
    other.mkdir()
    (other / "mine.txt").write_text("keep")
    model.write_bytes(b"no model")
    large, tiny, binary = tmp_path / "large.txt", tmp_path / "tiny.txt", tmp_path / "binary.txt"
    for path, content in ((large, b"ab\n" * 1000), (tiny, b"x" * 11), (binary, b"abc\n" * 50 + b"\0" * 9)):
        path.write_bytes(content)
    given = f"--tokenizer={whole[0] / 'tokenizer.model'}"
    spec, vocab, new = settings.spec, "--vocab=300", tmp_path / "new"
    before = files(out) | files(other)
    for words, message in (
        (["text:" + str(large), vocab, "--out", out], "holds tokens made with other settings (spec text:"),
        ([spec, "--vocab=301", "--out", out], "other settings (vocab 300, not 301)"),
        ([spec, vocab, "--out", out, "--limit=5"], "(valid-bytes 4000, not 10000000)"),
        ([spec, vocab, "--out", other], "holds other files (mine.txt)"),
        ([spec, vocab, "--out", large], "is not a directory"),
        ([spec, vocab, "--out", large / "below"], "cannot write --out"),
        (["text:/no/such", vocab, "--out", new], "/no/such: No such file"),
        (["zipf", vocab, "--out", new], "zipf has tokens, but a text is needed"),
        (["tokens:x", vocab, "--out", new], "has tokens, but a text is needed"),
        (["txt:x", vocab, "--out", new], "did you mean text?"),
        ([spec, "--out", new], "give --vocab M, the size of the vocabulary to train, or --tokenizer FILE"),
        ([f"text:{large}", "--vocab=5000", "--out", new], "5000 is too large: this corpus supports at most"),
        ([spec, vocab, "--out", new, "--workers=0"], "--workers 0: must be at least 1"),
        ([spec, "--vocab=255", "--out", new], "must be at least 256, the number of bytes"),
        ([spec, vocab, "--out", new, "--limit=0"], "--limit 0: must be a positive"),
        ([spec, vocab, "--out", new, "--tokenizer", model], "is neither a SentencePiece model nor"),
        ([spec, vocab, "--out", new, "--tokenizer", new], "cannot read"),
        ([spec, "--vocab=299", "--out", new, given], "has 300 tokens, but --vocab says 299"),
        ([spec, vocab, "--out", new, "--separator=bos"], "--separator bos: the tokenizer has no separator; write none"),
    ):
        assert main.main(["tokenize", "--workers=1", *map(str, words)]) == 2, words
        err = [line for line in capfd.readouterr().err.splitlines() if line.startswith("lvp: ")]
        assert len(err) == 1 and message in err[0], err
        assert not new.exists()
    assert files(out) | files(other) == before
    words = ["tokenize", "--workers=1", f"text:{binary}", "--vocab=256", "--out", str(new)]
    assert main.main(words) == 2 and "binary.txt is binary" in capfd.readouterr().err
    binary.write_bytes(b"abc\n" * 50)  # the text can be corrected while no shard exists
    assert main.main(words) == 0
    words = ["tokenize", "--workers=1", f"text:{tiny}", "--vocab=256", "--limit=1", f"--out={tmp_path / 'small'}"]
    assert main.main(words) == 2
    assert "training text is too small: 1 bytes make 1 tokens" in capfd.readouterr().err


def test_a_text_that_changed_since_the_start_is_refused(settings, tmp_path, monkeypatch):
    path = tmp_path / "t.txt"
    path.write_text(some_text(5000))
    changing = replace(settings, spec=f"text:{path}")
    with (
        monkeypatch.context() as patch,
        pytest.raises(KeyboardInterrupt, match="continue with: python -m lvp tokenize text:"),
    ):
        make = shards.make
        patch.setattr(
            shards, "make", lambda s: make(s) if "valid" in s.name else (_ for _ in ()).throw(KeyboardInterrupt)
        )
        run(changing, tmp_path / "out")
    path.write_text(some_text(5001))
    before = files(tmp_path / "out")
    with pytest.raises(InputError, match="has changed since .* was begun"):
        run(changing, tmp_path / "out")
    assert files(tmp_path / "out") == before


def test_the_log_has_complete_lines(settings, tmp_path, capfd):
    words = settings.command(tmp_path / "out").split()[3:]
    assert main.main([*words, "--workers=1"]) == 0
    out, err = capfd.readouterr()
    assert "\r" not in err and [line.split(":")[0] for line in err.splitlines()[1:]] == ["valid", "train"]
    assert out.splitlines()[-1].endswith(f"--corpus tokens:{tmp_path / 'out'}")
