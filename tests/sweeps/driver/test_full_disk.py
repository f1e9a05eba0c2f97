"""A full disk stops a sweep. The message names the path and the size of the content, no incomplete file is read,
and the sweep can be resumed after space is made."""

import shutil
import time

import numpy as np
import pytest

from lvp import data
from lvp.errors import InputError
from lvp.training import checkpoints, records
from sweeps.driver.manifest import Manifest
from sweeps.reporting import results
from tests.faults.ledger import record
from tests.sweeps.small_disk import fill, named

RUN = ("run", "width_vocab", "--preset", "smoke", "--threads", "1", "--quiet")


def stopped_by_a_full_disk(command, out, disk, when, *words, **settings):
    """Runs a sweep and fills the disk when `when()` is true. Returns exit code, standard error and the filling file."""
    process = command(*RUN, *words, "--out", out, start=True, **settings)
    began = time.time()
    while not when():
        assert process.poll() is None and time.time() - began < 200, process.communicate()
        time.sleep(0.01)
    filler = fill(disk)
    _, stderr = process.communicate(timeout=120)
    return process.returncode, stderr, filler


def outcomes(out):
    files = out.glob("records/*.jsonl")
    return {r["hash"]: r["outcome"] for path in files for r in records.read(path)}


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
@pytest.mark.parametrize("writes, every", [("records", "1e9"), ("checkpoints", "0")])
def test_the_sweep_stops_and_continues_after_space_is_made(finished, command, disk, writes, every, executor):
    out = disk / "out"
    begun = lambda: any(out.glob(f"{writes}/*"))  # noqa: E731
    words = ("--checkpoint-seconds", every, "--executor", executor)
    code, stderr, filler = stopped_by_a_full_disk(command, out, disk, begun, *words)
    assert code == 1
    path = named(stderr)
    assert out in path.parents
    before = {p: p.stat().st_mtime_ns for p in out.glob("records/*.jsonl")}
    assert all(finished_record in outcomes(finished[0]) for finished_record in outcomes(out))
    assert not list(out.glob("records/.*")) and not list(out.glob("checkpoints/*/*-tmp"))
    filler.unlink()
    done = command("resume", out, "--executor", executor, "--quiet")
    assert done.returncode == 0, done.stderr
    resumed, undisturbed = outcomes(out), outcomes(finished[0])
    repeated = sum(p.stat().st_mtime_ns != t for p, t in before.items())
    wrong = sum(resumed[h] != undisturbed[h] for h in resumed)
    fault = f"the disk is full when a {writes[:-1]} is written" + (" (Ray)" if executor == "ray" else "")
    record(fault, injected=1, lost=12 - len(resumed), repeated=repeated, wrong=wrong)
    assert (len(resumed), repeated, wrong) == (12, 0, 0)


@pytest.mark.slow
def test_no_space_for_a_tokenizer_gives_a_one_line_error(disk):
    (disk / "cache").mkdir()
    filler, sizes = fill(disk), {"vocab": 300, "slice_bytes": 20_000, "valid_bytes": 4_000}
    with pytest.raises(InputError, match=f"cannot write {disk}.*no space left") as problem:
        data.prepare("python-docs", cache=disk / "cache", **sizes)
    assert "\n" not in str(problem.value)
    filler.unlink()
    assert data.prepare("python-docs", cache=disk / "cache", **sizes).num_tokens > 1000


def test_no_space_for_a_figure_gives_a_one_line_error_and_keeps_the_old_figure(finished, disk):
    out = disk / "out"
    shutil.copytree(finished[0], out, ignore=shutil.ignore_patterns("checkpoints", "workers"))
    before = (out / "figure.png").read_bytes()
    fill(disk)
    with pytest.raises((OSError, ValueError), match="no space left for") as problem:
        results.draw(Manifest.read(out), say=lambda *_: None)
    assert str(out) in str(problem.value)
    assert (out / "figure.png").read_bytes() == before and not list(out.glob(".*.tmp"))


def test_no_space_for_a_checkpoint_keeps_the_last_checkpoint(disk):
    state = {"a": np.random.default_rng(0).normal(size=200_000)}
    checkpoints.save(disk / "lane", 1, state, "a")
    fill(disk)
    with pytest.raises(OSError, match="no space left for 1,600,000 bytes"):
        checkpoints.save(disk / "lane", 2, state, "a")
    assert [p.name for p in (disk / "lane").iterdir()] == ["step_000000001"]
