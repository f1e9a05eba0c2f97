"""Tokenization writes all tokens of a text or an unfinished directory, and the same bytes after any number of kills."""

import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from lvp.cli import main
from lvp.data.text import corpora, splits
from lvp.data.tokens import files as token_files
from lvp.data.tokens import tokenization
from lvp.data.tokens.tokenization import Settings, tokenize
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError
from tests.lvp.data.text.tfds_texts import prepare
from tests.lvp.data.tokens.texts import some_text

RANGE = 3000
NAMES = {"meta.json", "tokenizer.model", "train.npy", "valid.npy"}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Returns a directory with one large file and small ones, some without a line end."""
    directory = tmp_path_factory.mktemp("corpus")
    whole = some_text(30_000)
    (directory / "a.txt").write_text(whole[:90_000])
    for i in range(20):
        (directory / f"b{i:02}.txt").write_text(whole[90_000 + 1000 * i :][:1000])
    return directory


@pytest.fixture(scope="module")
def settings(text):
    return Settings(f"text:{text}", 300, valid_bytes=4000, tokenizer_bytes=50_000)


def run(settings, out, workers=1):
    """Runs `tokenize` with small ranges and a saved state after each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenization, "_RANGE", RANGE)
        patch.setattr(tokenization, "_SAVE_SECONDS", 0.0)
        return tokenize(settings, out, cache=out.parent / "cache", workers=workers)


@pytest.fixture(scope="module")
def whole(settings, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "out"
    return out, run(settings, out)


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_tokens_decode_to_the_text(text, settings, whole):
    out, meta = whole
    tokenizer = Tokenizer.load(out / "tokenizer.model")
    contents = [path.read_bytes() for path in sorted(text.iterdir())]
    train, valid = (np.load(out / f"{split}.npy") for split in ("train", "valid"))
    assert set(files(out)) == NAMES and train.dtype == valid.dtype == np.uint16
    decoded = tokenizer.decode(train), tokenizer.decode(valid)
    assert meta["text_bytes"] == dict(zip(("train", "valid"), map(len, decoded), strict=True))
    assert meta["tokens"] == {"train": train.size, "valid": valid.size}
    assert meta["tokenizer_fingerprint"] == tokenizer.fingerprint and meta["vocab"] == tokenizer.vocab_size == 300
    assert meta == token_files.read(out) and 3500 < len(decoded[1]) <= 4000
    at = 0
    # the head of every file is in the training part, in order, and its tail in the validation part
    for content in contents:
        head = content[: len(content) - len(content) // 10]
        at = decoded[0].index(head, at)
        assert content[-30:].strip(b"\n") in decoded[0] + decoded[1]
    np.testing.assert_array_equal(train, tokenizer.encode(decoded[0]))
    assert Tokenizer.train(decoded[0][:50_000], 300).fingerprint == tokenizer.fingerprint


LINES = ("word words é€\r\n", "𝄞" * 40 + "\n", "\n", "a b  c\n", "ü" * 7)


@pytest.fixture(scope="module")
def awkward(tmp_path_factory):
    """Returns a directory with an empty file, a large one, CRLF, files without a final line end, and a line of many
    ranges."""
    directory, chance = tmp_path_factory.mktemp("awkward"), random.Random(1)
    contents = [some_text(20_000), "", *("".join(chance.choices(LINES, k=60)) for _ in range(30)), "é" * 5000, "last"]
    for number, content in enumerate(contents):
        (directory / f"{number:02}.txt").write_bytes(content.encode())
    return directory


@pytest.mark.slow
def test_workers_change_no_byte(awkward, tmp_path):
    settings = Settings(f"text:{awkward}", 300, valid_bytes=2000, tokenizer_bytes=30_000)
    for workers in (1, 2, 3):
        run(settings, tmp_path / str(workers), workers)
    assert files(tmp_path / "1") == files(tmp_path / "2") == files(tmp_path / "3")
    tokenizer = Tokenizer.load(tmp_path / "1" / "tokenizer.model")
    source = corpora.source(settings.spec, cache=tmp_path, valid_bytes=2000)
    for name, text in (("train.npy", source.train), ("valid.npy", source.valid)):
        decoded = tokenizer.decode(np.load(tmp_path / "1" / name))
        content = b"".join(text.blocks())
        assert decoded == (content if name == "train.npy" else splits.cut(content, 2000))


def test_ranges_change_no_byte_of_short_lines(settings, whole, tmp_path):
    tokenize(settings, tmp_path / "large", cache=tmp_path, workers=1)
    assert files(tmp_path / "large") == files(whole[0])


def test_a_limit_and_a_given_tokenizer(settings, whole, tmp_path):
    given = replace(settings, limit=20_001, tokenizer=whole[0] / "tokenizer.model")
    meta = run(given, tmp_path / "out")
    train = np.load(tmp_path / "out" / "train.npy")
    assert 20_000 <= meta["text_bytes"]["train"] <= 20_001 and meta["text_bytes"]["valid"] <= 4000
    np.testing.assert_array_equal(train[:-3], np.load(whole[0] / "train.npy")[: train.size - 3])
    assert meta["tokenizer_fingerprint"] == whole[1]["tokenizer_fingerprint"]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("seed", range(3))
def test_tokenization_resumes_after_any_kill(settings, whole, tmp_path, monkeypatch, seed):
    """Kills before and in the middle of calls that change the disk, at random."""
    out, chance, calls = tmp_path / "out", random.Random(seed), 0

    def dying(function, tear):
        def call(*arguments):
            if chance.random() < 0.1:
                tear(*arguments)
                raise Killed
            return function(*arguments)

        return call

    def half(file, ids):
        file._file.write(ids.astype(file.dtype).tobytes()[: ids.size // 2 * 2 + 1])
        file._file.flush()

    def nothing(*arguments):
        pass

    def temporary(path, content):
        (path.parent / f".{path.name}.0123.tmp").write_bytes(b"half")

    monkeypatch.setattr(token_files.Appender, "append", dying(token_files.Appender.append, half))
    monkeypatch.setattr(token_files.Appender, "sync", dying(token_files.Appender.sync, nothing))
    monkeypatch.setattr(token_files.Appender, "finish", dying(token_files.Appender.finish, nothing))
    monkeypatch.setattr(token_files, "write_whole", dying(token_files.write_whole, temporary))
    monkeypatch.setattr(tokenization, "write_whole", dying(tokenization.write_whole, temporary))
    while True:
        calls += 1
        try:
            run(settings, out)
            break
        except Killed:
            assert not (out / "meta.json").exists()
            with pytest.raises(InputError, match="unfinished|no tokens in"):
                token_files.read(out)
    assert calls > 5 and files(out) == files(whole[0])


@pytest.mark.parametrize("lost", ["state", "tokens", "bits", "finished bits"])
def test_a_state_that_differs_from_its_tokens_is_noticed(settings, whole, tmp_path, monkeypatch, lost):
    """Negative control for the test above: the state is one range behind its tokens, or the tokens are damaged."""
    out = tmp_path / "out"
    with monkeypatch.context() as patch, pytest.raises(Killed):
        calls = iter(range(100))
        encode = Tokenizer.encode
        die = lambda t, x: encode(t, x) if next(calls) < 20 else (_ for _ in ()).throw(Killed())  # noqa: E731
        patch.setattr(Tokenizer, "encode", die)
        run(settings, out)
    part = out / "train.npy.part"
    if lost == "tokens":
        os.truncate(part, part.stat().st_size - 1)
        with pytest.raises(InputError, match=r"train.npy.part is truncated: \d+ bytes expected, got \d+; delete"):
            run(settings, out)
        return
    if "bits" in lost:
        path = out / "valid.npy" if lost == "finished bits" else part
        with open(path, "r+b") as file:
            file.seek(200)
            file.write(b"\1\1")
        with pytest.raises(InputError, match=f"{path.name} is damaged: its tokens differ from their digest; delete"):
            run(settings, out)
        return
    state = token_files.unfinished(out)
    state["splits"]["train"]["ranges"] -= 1
    token_files.write_unfinished(out, {k: v for k, v in state.items() if k != "format"})
    run(settings, out)
    assert files(out)["train.npy"] != files(whole[0])["train.npy"]


DRIVER = """
import sys
from lvp.cli.main import main
from lvp.data.tokens import tokenization
tokenization._RANGE, tokenization._SAVE_SECONDS = 3000, 0.0
sys.exit(main(sys.argv[1:]))
"""


def command(settings, out, workers=1):
    words = settings.command(out).split()[3:]
    return [sys.executable, "-c", DRIVER, *words, "--workers", str(workers)]


def killed_until_done(settings, out, chance, longest, workers=1) -> int:
    """Returns the number of processes until the tokens are complete. Each process is killed some time after its first
    change on disk."""
    state, rounds = out / "unfinished.json", 0

    def saved():
        try:
            return state.read_bytes()
        except FileNotFoundError:  # not written yet, or removed at the end
            return b""

    while True:
        rounds += 1
        pipe = subprocess.Popen(command(settings, out, workers), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        before, end = saved(), time.monotonic() + 60
        while pipe.poll() is None and saved() == before:
            assert time.monotonic() < end
            time.sleep(0.001)
        try:
            pipe.wait(chance.uniform(0, longest))
        except subprocess.TimeoutExpired:
            pipe.send_signal(signal.SIGKILL)
            pipe.communicate()
            continue
        error = pipe.communicate()[1].decode()
        assert pipe.returncode == 0, error
        return rounds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_many_killed_processes_are_resumed(settings, whole, tmp_path, seed):
    assert killed_until_done(settings, tmp_path / "out", random.Random(seed), 0.04, workers=1 + seed % 2) > 2
    assert files(tmp_path / "out") == files(whole[0])


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


def test_an_error_in_a_worker_is_one_line(tmp_path, capfd):
    """The first error in the order of the text is reported."""
    text, out = tmp_path / "text", tmp_path / "out"
    text.mkdir()
    for name, content in (("a", b"a line\n" * 3000), ("b", b"\xff" * 9000), ("c", b"\0" * 9000)):
        (text / name).write_bytes(content)
    words = Settings(f"text:{text}", 260, valid_bytes=300, tokenizer_bytes=10_000).command(out).split()[3:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenization, "_RANGE", 3000)
        assert main.main([*words, "--workers=2"]) == 2
    err = [line for line in capfd.readouterr().err.splitlines() if line.startswith("lvp: ")]
    assert err == [f"lvp: {text / 'b'} is not UTF-8 (byte offset 0: 0xff); convert it first"]


@pytest.mark.slow
def test_tfds_tokenization_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    prepare(tmp_path / "tfds", {"train": some_text(5000).split("\n")})
    settings = Settings("tfds:lvp_texts", 280, valid_bytes=1000)
    meta = run(settings, tmp_path / "whole")
    assert "documents of train" in meta["validation"] and meta["spec"] == "tfds:lvp_texts:1.0.0"
    with monkeypatch.context() as patch, pytest.raises(Killed):
        written = token_files.write_unfinished
        calls = iter(range(5))
        die = lambda *a: written(*a) if next(calls, None) is not None else (_ for _ in ()).throw(Killed())  # noqa: E731
        patch.setattr(token_files, "write_unfinished", die)
        run(settings, tmp_path / "killed")
    assert token_files.unfinished(tmp_path / "killed")["splits"]["train"]["ranges"] > 0
    run(settings, tmp_path / "killed", workers=2)
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


def test_a_complete_directory_is_verified_and_not_rebuilt(settings, whole, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole[0], out)
    before = files(out)
    (out / "unfinished.json").write_bytes(b"{}")  # killed at the very end
    assert run(settings, out) == whole[1] and files(out) == before
    with open(out / "train.npy", "r+b") as file:
        file.seek(5000)
        file.write(b"\1\0")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(InputError, match="train.npy is damaged"):
        patch.setattr(token_files, "_SMALL", 0)  # like a large file: only this call checks every token
        token_files.read(out)
        run(settings, out)


def test_unusable_input_gives_a_one_line_error_and_overwrites_nothing(settings, whole, tmp_path, capfd):
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
        ([f"text:{large}", "--vocab=5000", "--out", new], "5000 is too large: this corpus supports at most"),
        ([f"text:{tiny}", "--vocab=256", "--out", new, "--limit=1"], "training text is too small: 1 bytes make 1 tok"),
        ([f"text:{binary}", "--vocab=256", "--out", new], "binary.txt is binary"),
        ([spec, vocab, "--out", new, "--workers=0"], "--workers 0: must be at least 1"),
        ([spec, "--vocab=255", "--out", new], "must be at least 256, the number of bytes"),
        ([spec, vocab, "--out", new, "--limit=0"], "--limit 0: must be a positive"),
        ([spec, vocab, "--out", new, "--tokenizer", model], "is not a tokenizer made by lvp"),
        ([spec, vocab, "--out", new, "--tokenizer", new], "cannot read --tokenizer"),
        ([spec, "--vocab=301", "--out", new, given], "has 300 tokens, but --vocab says 301"),
    ):
        assert main.main(["tokenize", "--workers=1", *map(str, words)]) == 2, words
        err = [line for line in capfd.readouterr().err.splitlines() if line.startswith("lvp: ")]
        assert len(err) == 1 and message in err[0], err
        assert not new.exists()
    assert files(out) | files(other) == before


def test_a_directory_in_use_by_another_process_is_left_alone(settings, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    held = os.open(out, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(InputError, match="is being written by another process"):
        run(settings, out)
    os.close(held)
    assert out.is_dir() and not list(out.iterdir())  # the other process has not written yet


def test_a_text_that_changed_since_the_start_is_refused(settings, whole, tmp_path, monkeypatch):
    path = tmp_path / "t.txt"
    path.write_text(some_text(5000))
    changing = replace(settings, spec=f"text:{path}")
    with (
        monkeypatch.context() as patch,
        pytest.raises(KeyboardInterrupt, match="continue with: python -m lvp tokenize text:"),
    ):
        patch.setattr(token_files.Appender, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
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
    assert "\r" not in err and [line.split(":")[0] for line in err.splitlines()[1:]] == ["valid", "train", "digests"]
    assert "100%" in err and out.splitlines()[-1].endswith(f"--corpus tokens:{tmp_path / 'out'}")
    assert json.loads((tmp_path / "out" / "meta.json").read_text())["tokens"]["train"] > 0
