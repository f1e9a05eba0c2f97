"""A sweep from its command to its results: what is printed, written and returned, and what a second command does."""

import json
import os
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import pandas as pd
import pytest

from lvp import sweeps
from lvp.sweeps import progress
from lvp.training import records
from tests.sweeps.own_files import anew, written  # noqa: F401  fixture
from tests.sweeps.running import ROOT, outcomes

RUN = ("run", "width_vocab", "--preset", "smoke")
INLINE = ("--preset", "smoke", "--executor", "inline")


def times(out):
    """The modification times of a sweep's records: a record that is written again has another."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "records").iterdir()}


def test_a_sweep_writes_table_figure_and_claims(finished):
    out, process = finished
    assert process.returncode == 0, process.stderr
    assert process.stdout.index("expected:") < process.stdout.index("slope of ln(best η_E) over ln(width)")
    assert {"sweep.json", "records", "table.csv", "figure.png", "figure.svg", "claims.md"} <= {
        path.name for path in out.iterdir()
    }
    assert not list(out.glob("checkpoints/*/*")) and not (out / "failed").exists()
    table = pd.read_csv(out / "table.csv")
    assert len(table) == 12 and set(table["status"]) == {"finished"}
    assert (table["train_loss"] < 6.2).all() and table["valid_bits_per_byte"].between(1, 8).all()


def test_records_have_configuration_and_provenance(finished):
    out, _ = finished
    sweep = json.loads((out / "sweep.json").read_text())
    rows = records.read(out / "records")
    assert {row["hash"] for row in rows} == {run for setting in sweep["settings"] for run in setting["runs"]}
    for row in rows:
        provenance, outcome = row["provenance"], row["outcome"]
        assert row["hash"] == records.config_hash(row["config"]) and row["sweep"] == sweep["hash"]
        assert provenance["versions"]["jax"] and provenance["tokens_per_second"] > 0
        assert provenance["mfu"] is None and provenance["peak_bytes"] > 0  # a CPU has no listed peak
        assert len(provenance["environments"]) == 1 and len(row["config"]["data"]["corpus"]) == 64
        assert outcome["curve_losses"][-1] < outcome["curve_losses"][0]


def test_the_last_lines_are_summary_claim_and_paths(command_here, tmp_path):
    """Of two claims one is printed. The paths are the last lines."""
    out = tmp_path / "out"
    done = command_here("run", written(tmp_path), *INLINE, "--out", out)
    assert done.returncode == 0, done.stderr
    head, *table, summary, claim, one, two, three = done.stdout.splitlines()
    assert head == "squares, preset smoke, corpus none: what are the squares?"
    assert table[0].startswith("setting") and table[-1].startswith("expected: ") and len(table) == 4
    assert summary == "sum 5" and claim.startswith("supported: 2 squared is 4")
    assert [one, two, three] == [
        f"table:  {out}/table.csv",
        f"figure: {out}/figure.png",
        f"claims: {out}/claims.md",
    ]
    assert (out / "claims.md").read_text().count("2 squared is 4") == 1  # equal claims are one row


def test_only_missing_runs_are_trained(command_here, tmp_path):
    path, out = written(tmp_path), tmp_path / "out"
    run, resume = ("run", path, *INLINE, "--out", out), ("resume", out, *INLINE[2:], "--experiment", path)
    first = command_here(*run)
    before, table = times(out), (out / "table.csv").read_bytes()
    for words in (run, resume):
        (out / "table.csv").unlink()
        again = command_here(*words)
        assert again.returncode == 0 and "all runs have records: nothing to train" in again.stdout
        assert times(out) == before and (out / "table.csv").read_bytes() == table
        assert again.stdout.splitlines()[-3:] == first.stdout.splitlines()[-3:]
    assert list(sweeps.table_of(out)["hash"]) == list(pd.read_csv(out / "table.csv")["hash"])
    lost = next((out / "records").iterdir())  # control: without a record its run is trained
    content = json.loads(lost.read_text())["outcome"]
    lost.unlink()
    kept = times(out)
    assert command_here(*resume).returncode == 0
    assert json.loads(lost.read_text())["outcome"] == content and times(out).items() > kept.items()


def test_quiet_prints_nothing(command_here, tmp_path):
    path, out = written(tmp_path), tmp_path / "out"
    for words in (("run", path, *INLINE, "--out", out), ("resume", out, *INLINE[2:], "--experiment", path)):
        done = command_here(*words, "--quiet")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (out / "table.csv").exists()


def test_the_default_directory_has_preset_and_hash(command_here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command_here("run", written(tmp_path), *INLINE).returncode == 0
    assert command_here("run", tmp_path / "mine.py", *INLINE, count="2").returncode == 0
    folders = sorted((tmp_path / "runs").iterdir())
    hashes = [json.loads((folder / "sweep.json").read_text())["hash"] for folder in folders]
    assert [folder.name for folder in folders] == [f"squares-smoke-{each}" for each in hashes] and len(hashes) == 2


def test_dry_run_prints_the_forecast_and_writes_nothing(command_here, tmp_path):
    done = command_here(*RUN, "--dry-run", "--quiet", "--out", tmp_path / "out")
    assert done.returncode == 0 and not (tmp_path / "out").exists()
    for word in ("setting", "runs", "tokens", "FLOPs", "expected: "):
        assert word in done.stdout


def test_watch_gets_growing_tables(tmp_path, monkeypatch):
    seconds = iter(range(0, 1000, 2)).__next__  # watch is called at most once per second
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=seconds))
    seen = []
    table = sweeps.run(
        written(tmp_path),
        "smoke",
        out=tmp_path / "out",
        executor="inline",
        quiet=True,
        watch=lambda table: seen.append(len(table)),
    )
    *growing, last = seen
    assert growing == sorted(set(growing)) and len(growing) > 1 and last == len(table) == 3
    del seen[:]
    again = {"executor": "inline", "quiet": True, "watch": lambda table: seen.append(len(table))}
    sweeps.resume(tmp_path / "out", experiment=tmp_path / "mine.py", **again)
    assert seen == [3]  # of a finished sweep


def test_silent_workers_are_mentioned(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SILENT", 0.2)
    news = progress.News(None, [], set(), False, None)
    assert "no report" not in news.line()
    deadline = time.monotonic() + 20
    while "no report of a worker" not in (seen := capsys.readouterr().err) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "no report of a worker" in seen
    news.end()
    capsys.readouterr()
    time.sleep(0.6)
    assert capsys.readouterr().err == ""  # the reminder has ended


def test_the_time_left_is_shown_once_the_speed_is_stable():
    begins_late = [(t, max(0.0, 7.0 * (t - 20))) for t in map(float, range(200))]
    shown = [progress.stable_speed(begins_late[:n]) for n in range(1, 201)]
    assert set(shown[:60]) == {None} and shown[120:] == pytest.approx([7.0] * 80)
    slows_down = [(t, t**0.25) for t in map(float, range(200))]
    assert {progress.stable_speed(slows_down[:n]) for n in range(1, 201)} == {None}
    stands = [(t, min(t, 10.0)) for t in map(float, range(200))]
    assert {progress.stable_speed(stands[:n]) for n in range(30, 201)} == {None}


def test_an_exception_of_watch_is_raised_after_the_sweep(tmp_path):
    def watch(table):
        raise ValueError("cannot draw")

    path, out = written(tmp_path), tmp_path / "out"
    with pytest.raises(ValueError, match="cannot draw"):
        sweeps.run(path, "smoke", out=out, executor="inline", quiet=True, watch=watch)
    assert len(times(out)) == 3 and (out / "table.csv").exists() and (out / "figure.png").exists()


def test_a_failing_figure_is_one_line_and_leaves_the_table(command_here, tmp_path):
    path = written(tmp_path, ("return Figure(figsize=(1, 1))", "raise ValueError('no axis')"))
    line = path.read_text().splitlines().index("    raise ValueError('no axis')") + 1
    done = command_here("run", path, *INLINE, "--out", tmp_path / "out")
    problem = f"sweeps: no figure: ValueError: no axis ({path}:{line})"
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == problem and "Traceback" not in done.stderr
    assert "sum 5" in done.stdout and "supported: 2 squared is 4" in done.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names >= {"table.csv", "claims.md"} and "figure.png" not in names


def test_failed_runs_are_named_and_tried_again(command_here, tmp_path):
    """Run 1 fails. The others have records, and the printed command trains the failed run alone."""
    broken = ('return {"y": run["x"]', 'return {"y": 1 // (run["x"] - 1) * 0 + run["x"]')
    path, out = written(tmp_path, broken), tmp_path / "out"
    done = command_here("run", path, *INLINE, "--out", out)
    again = f"`python -m lvp.sweeps resume {out} --executor inline --experiment {path}` tries again"
    assert done.returncode == 1
    line = path.read_text()[: path.read_text().index("1 // (run")].count("\n") + 1
    assert done.stderr.splitlines()[-1].startswith("sweeps: 1 runs failed: ZeroDivisionError: ")
    assert (
        done.stderr.rstrip().endswith(f"({path.name}:{line}); {again}")
        and "PARTIAL: 2 of 3 runs have a record" in done.stdout
    )
    before = times(out)
    assert command_here("resume", out, *INLINE[2:], "--experiment", path).returncode == 1 and times(out) == before


def test_records_of_another_sweep_are_reused(command_here, tmp_path):
    """A sweep with two of the three runs trains no run: its records are those of the other sweep."""
    path, first, out = written(tmp_path), tmp_path / "first", tmp_path / "out"
    assert command_here("run", path, *INLINE, "--out", first).returncode == 0
    for source in (first, first / "records"):
        done = command_here("run", path, *INLINE, "--out", out, "--reuse", source, count="2")
        assert done.returncode == 0 and "0 of these runs have no record in --reuse" in done.stdout
    assert "all runs have records" in done.stdout
    held = {file.name: file.read_bytes() for file in (out / "records").iterdir()}
    assert len(held) == 2 and all((first / "records" / name).read_bytes() == held[name] for name in held)
    (tmp_path / "empty").mkdir()
    for source, says in (("missing.jsonl", "missing.jsonl"), ("empty", "empty has no records")):
        done = command_here("run", path, *INLINE, "--out", tmp_path / "other", "--reuse", tmp_path / source)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and says in done.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_missing_package_names_the_extra_that_installs_it():
    without_flax = "import sys; sys.modules['flax'] = None; from lvp import sweeps; sweeps.run"
    done = subprocess.run([sys.executable, "-c", without_flax], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.rstrip().endswith("sweeps needs the packages of the extra lab: pip install 'lvp[lab]'")


DRIVER = """
import sys
from lvp import sweeps
from jax._src import xla_bridge
sweeps.resume(sys.argv[1], executor="local", quiet=True)
sys.exit(3 if xla_bridge.backends_are_initialized() else 0)
"""


@pytest.mark.slow
def test_the_driver_never_initialises_a_device(finished, cache, tmp_path):
    shutil.copytree(finished[0], tmp_path / "out")
    next((tmp_path / "out" / "records").iterdir()).unlink()  # one run must be trained
    environment = os.environ | {"LVP_CACHE": str(cache)}
    done = subprocess.run([sys.executable, "-c", DRIVER, tmp_path / "out"], cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0
    assert outcomes(tmp_path / "out") == outcomes(finished[0])
