"""Unusable input: one line that names the remedy, exit code 2, and nothing is written or trained."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from lvp import sweeps
from tests.marking import slow
from tests.sweeps.own_files import anew, executions, written  # noqa: F401  fixture
from tests.sweeps.running import LOCAL, ROOT

RUN = ("run", "width_vocab", "--preset", "smoke")
INLINE = ("--executor", "inline")


def refused(done, *says):
    """Asserts that a command has refused its input in one line with these words. Returns the line."""
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert all(re.search(word, done.stderr) for word in says), done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "words, settings, says",
    [
        ((*RUN, "--corpus", "text:/nowhere"), {}, "/nowhere"),
        ((*RUN, "--corpus", "wikitxt2"), {}, "did you mean wikitext2"),
        ((*RUN, "--corpus", "zipf"), {"corpus": "python-docs"}, "--set corpus=python-docs contradicts --corpus zipf"),
        ((*RUN, "--dry-run"), {"widths": "16,24", "vocab_per_width": "8"}, "vocab=128.* at least 256"),
        ((*RUN, "--dry-run"), {"slice_bytes": "0"}, "slice_bytes=0: must be a positive number"),
        ((*RUN, "--corpus", "text:s3://key:secret@bucket/texts"), {}, "credentials"),
        ((*RUN, "--out", "/dev/null/nowhere"), {}, "/dev/null is not a directory; name another"),
        slow((*RUN, "--out", "/proc/nowhere"), {}, "/proc/nowhere"),
        ((*RUN, "--out", "s3://"), {}, "bucket"),
        ((*RUN, "--out", "s3://key:secret@bucket/sweep"), {}, "credentials"),
        *(((name, "/nowhere"), {}, "/nowhere has no sweep.json: it is not") for name in ("resume", "status", "figure")),
        (RUN, {"slice_bytes": "5"}, "training slice holds 5 tokens|too small"),
        slow(RUN, {"vocab_per_width": "90000"}, "too large"),
        (RUN, {"widths": "33", "head_dim": "none"}, "33"),
        (RUN, {"rates": ""}, "rates is empty"),
        (RUN, {"stpes": "4"}, "did you mean steps"),
        (("run", "with_vocab"), {}, "did you mean width_vocab"),
        (("run", "width_vocab", "--teir", "smoke"), {}, "did you mean --preset|unknown argument"),
        (("run", "width_vocab", "--preset", "smole"), {}, "did you mean smoke"),
        (("rum",), {}, "did you mean run"),
        ((*RUN, "--executor", "lokal"), {}, "did you mean local"),
        ((*RUN, "--executor", "local", "--ray-address", "here:1"), {}, "--ray-address needs --executor ray, got local"),
        ((*RUN, "--budget", "1s"), {}, "budget=1s is less than the expected .*larger budget"),
        ((*RUN, "--budget", "2 hours"), {}, "budget='2 hours' is no duration: .* such as 2h"),
        ((*RUN, "--threads", "4096"), {}, "threads=4096 must be at most"),
        ((*RUN, "--pack", "0"), {}, "pack must be at least 1, got 0"),
        ((*RUN, "--pack", "2", "--mesh", "fsdp=2"), {}, "pack=2: a mesh trains one run at a time; omit --pack"),
        ((*RUN, "--mesh", "fdsp=1"), {}, "did you mean fsdp"),
        ((*RUN, *INLINE, "--mesh", "fsdp=3"), {}, "3 devices, but there "),
        ((*RUN, "--checkpoint-seconds", "nan"), {}, "checkpoint_seconds must not be negative, got nan"),
        ((*RUN, "--checkpoint-seconds", "-1"), {}, "checkpoint_seconds must not be negative, got -1"),
        ((*RUN, "--track", "tensorbord"), {}, "did you mean tensorboard"),
        ((*RUN, "--hosts", "2"), {}, "argument .--hosts"),
        (("resume", "/nowhere", "--preset", "smoke"), {}, "resume continues a sweep as it began; use run"),
    ],
)
def test_unusable_arguments(command_here, tmp_path, words, settings, says):
    out = tmp_path / "out"
    given = (*words, "--out", out) if words[0] == "run" and "--out" not in words else words
    done = command_here(*given, **settings)
    assert "secret" not in refused(done, says) + done.stdout
    assert not out.exists()


@pytest.mark.parametrize("corpus", ["text:missing", "text:empty", "tokens:missing"])
def test_a_dry_run_has_the_errors_of_a_run(command_here, corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    words = (*RUN, "--corpus", corpus, "--out", tmp_path / "out")
    assert refused(command_here(*words, "--dry-run")) == refused(command_here(*words))


def test_a_directory_with_other_content_is_not_changed(finished, command_here, tmp_path):
    out, _ = finished
    before = (out / "sweep.json").read_bytes()
    says = (
        r"another sweep: width_vocab, preset smoke \(steps=40, not 41\)",
        f"name another --out.*`python -m lvp.sweeps resume {out}`",
    )
    refused(command_here(*RUN, "--out", out, steps="41"), *says)
    assert (out / "sweep.json").read_bytes() == before
    (tmp_path / "mine").write_text("not a sweep")
    refused(command_here(*RUN, "--out", tmp_path), r"holds other files \(mine\); name an empty or new directory")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"{}")])
def test_an_unfinished_sweep_is_not_published(finished, command_here, tmp_path, damage):
    out = shutil.copytree(finished[0], tmp_path / "out")
    damage(next((out / "records").iterdir()))
    refused(command_here("publish", out), "is not finished: 1 runs have no intact record; `resume` it first")


def test_another_packing_is_refused_at_resume(command_here, finished):
    out, _ = finished
    lost = next((out / "records").iterdir())
    content = lost.read_bytes()
    lost.unlink()
    done = command_here("resume", out, *LOCAL, "--pack", "2")
    refused(done, "keeps its packing, on which bits depend: omit --pack, --threads and --mesh, or .*other-version")
    lost.write_bytes(content)


def test_a_strangers_directory_executes_nothing(command_here, tmp_path):
    """A directory holds a copy of the user's file. Only a file that the user names is executed."""
    path, out = written(tmp_path), tmp_path / "out"
    assert command_here("run", path, "--preset", "smoke", *INLINE, "--out", out).returncode == 0
    before = executions(tmp_path)
    page = tmp_path / "page.html"
    next((out / "records").iterdir()).unlink()
    for words in (("resume", out, *INLINE), ("figure", out), ("report", out, "--html", page)):
        refused(command_here(*words), "a sweep of a user's experiment: give its file, --experiment FILE.py")
    refused(command_here("publish", out), "only experiments of lvp can be published")
    assert command_here("status", out).returncode == command_here("track", out).returncode == 0
    assert len(sweeps.table_of(out)) == 2
    assert executions(tmp_path) == before and not page.exists()
    anew.__wrapped__()
    assert command_here("resume", out, *INLINE, "--experiment", path).returncode == 0
    assert command_here("report", out, "--html", page, "--experiment", path).returncode == 0 and page.exists()
    assert executions(tmp_path) == before + 1  # control: the file that the user names is executed


@pytest.mark.slow
def test_streams_in_latin_1_get_replaced_characters(cache, tmp_path):
    """The forecast has "–" and the summary "η" and "√", which Latin-1 lacks."""
    environment = os.environ | {"PYTHONIOENCODING": "latin-1", "LVP_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
    path = written(tmp_path, ('f"sum', 'f"η √ sum'))
    words = [sys.executable, "-m", "lvp.sweeps", "run", path, "--preset", "smoke", *INLINE, "--out", tmp_path / "out"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "sum 5" in done.stdout.decode("latin-1") and b"Traceback" not in done.stderr
