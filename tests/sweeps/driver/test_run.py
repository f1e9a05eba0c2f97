"""Sweeps in worker processes: table and figure, interrupts, resume, Ray, errors of the command line."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

import sweeps
from lvp.training import checkpoints, records
from sweeps.driver import api
from sweeps.driver.lock import only_driver
from sweeps.driver.manifest import Manifest
from tests.marking import slow
from tests.sweeps.running import LOCAL, ROOT, TINY, outcomes

RUN = ("run", "width_vocab", "--preset", "smoke")


@pytest.mark.slow
def test_a_missing_package_names_the_extra_that_installs_it():
    without_flax = "import sys; sys.modules['flax'] = None; import sweeps"
    process = subprocess.run([sys.executable, "-c", without_flax], cwd=ROOT, capture_output=True, text=True)
    assert process.stderr.rstrip().endswith("sweeps needs the packages of the extra lab: pip install -e '.[lab]'")


@pytest.mark.slow
def test_records_of_another_sweep_are_reused(finished, command, tmp_path):
    """A sweep with one of the two seeds trains no lane. Its records are those of the other sweep."""
    out = tmp_path / "out"
    done = command(*RUN, *LOCAL, "--out", out, "--reuse", finished[0] / "records", seeds="1")
    assert done.returncode == 0, done.stderr
    assert "6 lanes have a record of another sweep (commit " in done.stdout and not (out / "trials.jsonl").exists()
    reused, earlier = outcomes(out), outcomes(finished[0])
    assert len(reused) == 6 and all(earlier[lane] == outcome for lane, outcome in reused.items())
    done = command(*RUN, *LOCAL, "--out", tmp_path / "other", "--reuse", tmp_path / "missing.jsonl")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "missing.jsonl" in done.stderr
    assert not (tmp_path / "other").exists()


def test_a_sweep_writes_table_figure_and_claims(finished):
    out, process = finished
    assert process.returncode == 0, process.stderr
    assert process.stdout.index("expected:") < process.stdout.index("slope of")
    assert process.stdout.rstrip().endswith(f"figure: {out / 'figure.png'} (and .svg)")
    assert "slope of ln(best η_E) over ln(width)" in process.stdout
    assert (out / "figure.png").stat().st_size > 10_000 and (out / "figure.svg").exists()
    table = pd.read_csv(out / "table.csv")
    assert len(table) == 12 and set(table["status"]) == {"finished"}
    assert (table["train_loss"] < 6.2).all() and table["valid_bits_per_byte"].between(1, 8).all()


@pytest.mark.slow
def test_threads_are_measured_unless_given(command, tmp_path):
    process = command(*RUN, "--executor", "local", "--out", tmp_path / "out")
    assert process.returncode == 0, process.stderr
    assert "expected:" in process.stdout.split("measured:")[0]  # the forecast precedes the measurement
    assert len(outcomes(tmp_path / "out")) == 12


def test_records_have_configuration_and_provenance(finished):
    out, _ = finished
    manifest = Manifest.read(out)
    for record in records.read(out / "records"):
        assert record["hash"] == records.config_hash(record["config"])
        assert record["sweep"] == manifest.hash
        assert record["provenance"]["versions"]["jax"] and record["provenance"]["tokens_per_second"] > 0
        assert record["provenance"]["mfu"] is None and record["provenance"]["peak_bytes"] > 0
        assert len(record["config"]["data"]["corpus"]) == 64
        assert record["outcome"]["curve_losses"][-1] < record["outcome"]["curve_losses"][0]


def test_a_cells_program_is_compiled_until_a_trial_has_cached_it(finished):
    """There are two cells of six lanes each, and two workers. JAX counts a program that is read from the cache as a
    compilation too, so each worker has at most one compilation per cell. Both workers may compile a cell at the same
    time."""
    out, _ = finished
    trials = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    assert sum(t["lanes"] for t in trials) == 12
    assert sum(t["compilations"] for t in trials) <= 4
    compiled = [t for t in trials if t["compilations"] > t["cache_hits"]]
    assert {t["cell"] for t in compiled} == {0, 1}
    cached = {cell: min(t["time"] for t in compiled if t["cell"] == cell) for cell in (0, 1)}
    assert all(t["time"] - t["seconds"] <= cached[t["cell"]] for t in compiled)


@pytest.mark.slow
def test_a_second_run_trains_no_lane_again(finished, command):
    out, _ = finished
    before = {p: p.stat().st_mtime_ns for p in (out / "records").iterdir()}
    again = command(*RUN, *LOCAL, "--out", out)
    assert again.returncode == 0
    assert {p: p.stat().st_mtime_ns for p in (out / "records").iterdir()} == before
    assert "lanes have a record" in command("status", out).stdout


def test_ray_gives_the_same_bits(finished, command, tmp_path):
    """Three of the lanes of the sweep without Ray."""
    words = (*RUN, "--executor", "ray", "--threads", "1", "--out", tmp_path / "out")
    process = command(*words, widths="16", seeds="0")
    assert process.returncode == 0, process.stderr
    ours = outcomes(tmp_path / "out")
    assert len(ours) == 3 and ours.items() <= outcomes(finished[0]).items()


def _suspend_between_checkpoint_and_record(process, out):
    """Suspends the workers at a moment when a lane has a checkpoint and no record, and returns the workers.

    The lane is then interrupted between its checkpoints, however long the signal takes.
    """
    deadline = time.time() + 120
    while True:
        assert time.time() < deadline and process.poll() is None
        workers = psutil.Process(process.pid).children()
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.suspend()
        recorded = {p.stem for p in out.glob("records/*.jsonl")}
        begun = {p.name for p in out.glob("checkpoints/*") if checkpoints.steps(p)}
        if recorded and begun - recorded:
            return workers
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.resume()
        time.sleep(0.02)


@pytest.mark.slow
def test_interrupted_and_resumed_gives_the_same_bits(finished, command, tmp_path):
    """Workers are killed after Ctrl-C before they can save. The exit code is 130, and resume uses a checkpoint."""
    out = tmp_path / "out"
    options = (*LOCAL, "--checkpoint-seconds", "0", "--quiet")
    process = command(*RUN, *options, "--out", out, start=True)
    workers = _suspend_between_checkpoint_and_record(process, out)
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    for worker in workers:
        worker.kill()
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stderr.startswith("sweeps: interrupted; `python -m sweeps resume")
    done = outcomes(out)
    assert 0 < len(done) < 12
    before = {p: p.stat().st_mtime_ns for p in (out / "records").iterdir()}
    resumed = command("resume", out, *options)
    assert resumed.returncode == 0, resumed.stderr
    assert outcomes(out) == outcomes(finished[0])
    assert all(p.stat().st_mtime_ns == t for p, t in before.items())
    assert any(r["provenance"]["resumed_at_step"] > 0 for r in records.read(out / "records"))


@pytest.mark.slow
def test_a_sweep_with_a_killed_worker_gives_the_same_bits(finished, command, tmp_path):
    out = tmp_path / "out"
    process = command(*RUN, *LOCAL, "--quiet", "--out", out, start=True)
    deadline, victims = time.time() + 120, []
    while not victims:
        assert time.time() < deadline and process.poll() is None
        # Before the first progress, the children are workers that report the machine and are not retried.
        started = out.glob("progress/*.json")
        victims = [p for p in psutil.Process(process.pid).children() if list(started)]
        time.sleep(0.01)
    victims[0].kill()
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 0, stderr
    assert outcomes(out) == outcomes(finished[0])


@pytest.mark.slow
def test_a_process_that_holds_the_accelerator_trains_in_itself(finished, cache, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(api, "_holds_accelerator", lambda: "gpu")
    monkeypatch.setenv("LVP_CACHE", str(cache))
    seen, options = [], {"executor": "ray", "pack": 4}
    watch = lambda table: seen.append(len(table))  # noqa: E731
    table = sweeps.run("width_vocab", "smoke", out=tmp_path / "out", watch=watch, **options, **TINY)
    assert seen == sorted(seen) and seen[-1] == len(table)
    assert "already holds the GPU" in capsys.readouterr().out
    solo = pd.read_csv(finished[0] / "table.csv").set_index("hash")["train_loss"]
    packed = table.set_index("hash")["train_loss"]
    # A cell's six lanes are two programs of four lanes; the second program has two copies, which are discarded.
    assert packed.to_numpy() == pytest.approx(solo[packed.index].to_numpy(), rel=1e-4)


@pytest.mark.parametrize(
    "words, settings, says",
    [
        ((*RUN, "--corpus", "text:/nowhere"), {}, "/nowhere"),
        ((*RUN, "--out", "/proc/nowhere"), {}, "/proc/nowhere"),
        (("resume", "/nowhere"), {}, "not the directory of a sweep"),
        (RUN, {"slice_bytes": "5"}, "training slice holds 5 tokens|too small"),
        (("run", "with_vocab"), {}, "did you mean width_vocab"),
        ((*RUN, "--corpus", "wikitxt2"), {}, "did you mean wikitext2"),
        slow(RUN, {"vocab_per_width": "90000"}, "too large"),
        (RUN, {"widths": "33", "head_dim": "none"}, "33"),
        (RUN, {"rates": ""}, "rates is empty"),
        (("run", "width_vocab", "--teir", "smoke"), {}, "did you mean --preset"),
        (("run", "width_vocab", "--preset", "smole"), {}, "did you mean smoke"),
        (("rum",), {}, "did you mean run"),
    ],
)
def test_bad_input_gives_a_one_line_error_and_writes_nothing(command_here, tmp_path, words, settings, says):
    out = tmp_path / "out"
    given = (*words, "--out", out) if words[0] == "run" and "--out" not in words else words
    process = command_here(*given, **settings)
    assert process.returncode == 2, process.stderr
    assert process.stderr.count("\n") == 1
    assert re.search(says, process.stderr), process.stderr
    assert not out.exists()


def test_a_directory_with_another_sweep_or_other_files_is_not_changed(finished, command_here, tmp_path):
    out, _ = finished
    before = (out / "manifest.json").read_bytes()
    process = command_here(*RUN, "--out", out, steps="41")
    assert process.returncode == 2 and "holds another sweep: width_vocab" in process.stderr
    assert (out / "manifest.json").read_bytes() == before
    (tmp_path / "mine").write_text("not a sweep")
    process = command_here(*RUN, "--out", tmp_path)
    assert process.returncode == 2 and "do not belong to this sweep" in process.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


DRIVER = """
import sys, jax
from sweeps.driver import api
from sweeps.driver.options import Options
from jax._src import xla_bridge
api.resume(sys.argv[1], options=Options(executor="local"), quiet=True)
sys.exit(3 if xla_bridge.backends_are_initialized() else 0)
"""


@pytest.mark.slow
def test_the_driver_never_initialises_a_device(finished, cache, tmp_path):
    shutil.copytree(finished[0], tmp_path / "out")
    next((tmp_path / "out" / "records").iterdir()).unlink()  # one lane must be trained
    environment = os.environ | {"LVP_CACHE": str(cache)}
    done = subprocess.run([sys.executable, "-c", DRIVER, tmp_path / "out"], cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0
    assert outcomes(tmp_path / "out") == outcomes(finished[0])


def _interrupt_when_under_way(process, out):
    deadline = time.time() + 200
    while not list(out.glob("records/*.jsonl")):
        assert time.time() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=100)


@pytest.mark.slow
def test_interrupted_under_ray_and_resumed_gives_the_same_bits(finished, command, tmp_path):
    out = tmp_path / "out"
    process = command(*RUN, "--threads", "1", "--quiet", "--out", out, start=True)
    _, stderr = _interrupt_when_under_way(process, out)
    assert process.returncode == 130 and 0 < len(outcomes(out)) < 12, stderr
    assert command("resume", out, "--quiet").returncode == 0
    assert outcomes(out) == outcomes(finished[0])


@pytest.mark.slow
def test_on_a_running_cluster(finished, command, tmp_path, monkeypatch):
    """Ray is started in another directory, so its workers get the packages from the driver."""
    # `ray start` would require a token if an earlier Ray has left one, and the driver would not send it.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray = Path(sys.executable).with_name("ray")
    folder = Path(tempfile.mkdtemp(prefix="lvp-"))  # short: Unix sockets allow 107 bytes
    head = subprocess.Popen(
        [ray, "start", "--head", "--port=6399", "--num-cpus=2", f"--temp-dir={folder}", "--block"]
        + ["--include-dashboard=false"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        time.sleep(15)
        out = tmp_path / "out"
        done = command(*RUN, "--ray-address", "127.0.0.1:6399", "--threads", "1", "--quiet", "--out", out)
        assert done.returncode == 0, done.stderr
        assert outcomes(out) == outcomes(finished[0])
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        head.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_a_second_driver_gets_an_error_with_the_pid_of_the_first(finished, command):
    out, _ = finished
    with only_driver(out):
        process = command("resume", out)
    assert process.returncode == 2 and process.stderr.count("\n") == 1
    assert f"pid {os.getpid()}" in process.stderr
    assert command("resume", out).returncode == 0


def test_a_missing_cluster_gives_a_one_line_error(command_here, tmp_path):
    done = command_here(*RUN, "--ray-address", "127.0.0.1:6398", "--threads", "1", "--quiet", "--out", tmp_path / "out")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "no Ray cluster answers at 127.0.0.1:6398" in done.stderr
    assert not (tmp_path / "out").exists()


def test_dry_run_prints_the_forecast_and_writes_nothing(command_here, tmp_path):
    process = command_here(*RUN, "--dry-run", "--out", tmp_path / "out")
    assert process.returncode == 0 and not (tmp_path / "out").exists()
    for word in ("cell", "lanes", "tokens", "FLOPs", "expected"):
        assert word in process.stdout
