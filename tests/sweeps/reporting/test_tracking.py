"""TensorBoard reads from the event files what the records contain."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups
from tensorboardX.event_file_writer import EventsWriter

import experiments
import sweeps
from lvp.errors import InputError
from lvp.training import records
from sweeps.driver import api
from sweeps.driver.manifest import Entry, Manifest
from sweeps.driver.options import Options
from sweeps.reporting import tracking
from sweeps.reporting.results import COMMITTED
from tests.faults.damage import contents, examples, of_json, result_or_one_line
from tests.sweeps.planted_secrets import SECRETS, files_with_secrets
from tests.sweeps.reporting.readers import tensorboard
from tests.sweeps.running import ROOT
from tests.sweeps.small_disk import fill, named

RUN = ("run", "width_vocab", "--tier", "smoke")
LOCAL = ("--executor", "local", "--threads", "1", "--quiet")
TRACK = ("--track", "tensorboard")
# Three embedding rates and two hidden rates; lanes with the second hidden rate diverge.
DIVERGING = {"widths": "16", "hidden_rates": "0.2,9e15", "output_rate_factors": "1", "output_std_factors": "1"}
DIVERGING |= {"seeds": "0,1", "steps": "40", "layers": "1", "context": "16", "head_dim": "8"}


@pytest.fixture(scope="module")
def tracked(command, tmp_path_factory):
    """The directory of a sweep of twelve lanes with `--track`. Six lanes diverge."""
    out = tmp_path_factory.mktemp("tracked") / "out"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SECRETS.items():
            patch.setenv(name, value)
        words = ("run", "width_fixed_vocab", "--tier", "smoke", *LOCAL, *TRACK, "--out", out)
        done = command(*words, **DIVERGING)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def copy(finished, tmp_path):
    """A finished sweep without tracking files."""
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    return out


def read(folder, multiplexer=EventMultiplexer):
    """All runs in a directory, loaded by TensorBoard."""
    runs = multiplexer()
    runs.AddRunsFromDirectory(str(folder))
    runs.Reload()
    return runs


def lanes(folder):
    return {Path(run).name for run in read(folder).Runs()}


def series(runs, run):
    """The scalars of a run: {tag: [(step, value)]}."""
    tags = runs.GetAccumulator(run).Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in runs.Scalars(run, tag)] for tag in tags}


def expected_series(outcome):
    """The scalars of a record without measures, in the form of `series`: finite numbers as float32."""
    curve = zip(outcome["curve_steps"], outcome["curve_losses"], strict=True)
    scalars = {"curve/train_loss": [(step, loss) for step, loss in curve if loss is not None]}
    for name in outcome.keys() - {"curve_steps", "curve_losses", "status", "measures"}:
        scalars[f"final/{name}"] = [(outcome["steps"], x) for x in (outcome[name],) if x is not None]
    scalars["final/diverged"] = [(outcome["steps"], float(outcome["status"] != "finished"))]
    return {tag: [(step, float(np.float32(x))) for step, x in points] for tag, points in scalars.items() if points}


def files(out):
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (out / "tensorboard").rglob("*tfevents*")}


@pytest.mark.slow
def test_curves_agree_with_the_records(tracked):
    runs, rows = read(tracked / "tensorboard"), records.read(tracked / "records")
    assert sorted(r["outcome"]["status"] for r in rows) == ["diverged"] * 6 + ["finished"] * 6
    by_lane = {Path(run).name: series(runs, run) for run in runs.Runs()}
    assert by_lane == {r["hash"]: expected_series(r["outcome"]) for r in rows}
    assert any(loss is None for r in rows for loss in r["outcome"]["curve_losses"])  # not finite, so not in the curve
    finished = [by_lane[r["hash"]] for r in rows if r["outcome"]["status"] == "finished"]
    assert len({str(x) for x in finished}) == 6  # no two lanes have the same curves
    assert {str(Path(run).parent) for run in runs.Runs()} == {"d-16-m-300"}  # the cell's label


@pytest.mark.slow
def test_hyperparameters_and_metrics_agree_with_the_records(tracked):
    """The requests are those of TensorBoard's HParams page: all lanes with configuration and metrics."""
    folder = tracked / "tensorboard"
    provider = MultiplexerDataProvider(read(folder, plugin_event_multiplexer.EventMultiplexer), str(folder))
    context = backend_context.Context(base_plugin.TBContext(data_provider=provider))
    experiment_request = api_pb2.GetExperimentRequest(include_metrics=True)
    experiment = get_experiment.Handler(RequestContext(), context, "", experiment_request).run()
    metrics = [m.name for m in experiment.metric_infos]
    states = [api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE]
    request = api_pb2.ListSessionGroupsRequest(slice_size=100, allowed_statuses=states)
    request.col_params.extend(api_pb2.ColParams(metric=m) for m in metrics)
    response = list_session_groups.Handler(RequestContext(), context, "", request).run()
    groups = {Path(g.name).name: g for g in response.session_groups}
    manifest, rows = Manifest.read(tracked), records.read(tracked / "records")
    assert set(groups) == {r["hash"] for r in rows}
    differing = {h.name for h in experiment.hparam_infos if h.differs}
    assert {"lane.seed", *(f"lane.learning_rates.{role}" for role in ("embedding", "hidden"))} <= differing
    equal = {h.name for h in experiment.hparam_infos} - differing
    assert {"cell.model.width", "cell.model.vocab", "cell.optimizer.kind"} <= equal
    for row in rows:
        group = groups[row["hash"]]
        hparams = {k: getattr(v, v.WhichOneof("kind")) for k, v in group.hparams.items()}
        flat = records.flatten(row["config"])
        as_text = {k: json.dumps(v, separators=(",", ":")) for k, v in flat.items() if isinstance(v, list)}
        assert hparams == {k: v for k, v in flat.items() if v is not None} | as_text
        assert {m.name.tag: m.value for m in group.metric_values} == {
            tag: points[-1][1] for tag, points in expected_series(row["outcome"]).items()
        }
        success = row["outcome"]["status"] == "finished"
        (session,) = group.sessions
        assert session.status == states[not success]
        curve, record = manifest.read_curve(row["hash"]), manifest.record_path(row["hash"])
        assert (session.start_time_secs, session.end_time_secs) == (curve["times"][0], record.stat().st_mtime)


@pytest.mark.slow
def test_existing_files_are_not_written_again(tracked, command):
    before = files(tracked)
    assert len(before) == 12
    assert command("resume", tracked, *LOCAL, *TRACK).returncode == 0
    done = command("track", tracked)
    assert done.returncode == 0 and done.stdout == f"tensorboard: tensorboard --logdir {tracked / 'tensorboard'}\n"
    assert files(tracked) == before
    lost = next(iter(before))
    lost.unlink()
    sweeps.track(tracked, quiet=True)
    after = files(tracked)
    assert [path for path in before if after[path] != before[path]] == [lost]
    assert after[lost][1] == before[lost][1]


@pytest.mark.slow
def test_a_resumed_sweep_tracks_every_lane_once(copy, command, finished):
    """After tracking, two lanes are trained again: the record of the first was lost, that of the second damaged."""
    manifest = Manifest.read(copy)
    lost, damaged = sorted(copy.glob("records/*.jsonl"))[:2]
    lost.unlink()
    damaged.write_bytes(damaged.read_bytes()[:100])
    api.track(copy, quiet=True)
    before = files(copy)
    assert lanes(copy / "tensorboard") == manifest.finished() - {damaged.stem} and len(before) == 10
    done = command("resume", copy, *LOCAL, *TRACK)
    assert done.returncode == 0, done.stderr
    after = files(copy)
    assert len(after) == 12 and {path: after[path] for path in before} == before
    runs = read(copy)  # the sweep's directory has no other event files
    by_lane = {Path(run).name: series(runs, run) for run in runs.Runs()}
    assert by_lane == {r["hash"]: expected_series(r["outcome"]) for r in records.read(finished[0] / "records")}


KILLED = """
import os, signal, sys
from sweeps.driver import api
calls, sync = [], os.fsync
def killing(number):
    calls.append(number)
    if len(calls) == 5:  # a file is synced with its points and at its end: the third file has no end
        os.kill(os.getpid(), signal.SIGKILL)
    sync(number)
os.fsync = killing
api.track(sys.argv[1], quiet=True)
"""


@pytest.mark.slow
def test_a_killed_command_leaves_a_run_that_is_written_again(copy):
    done = subprocess.run([sys.executable, "-c", KILLED, copy], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    (mark,) = copy.rglob("*.unfinished")
    cut = {lane for lane, run in tensorboard(copy / "tensorboard").items() if run.status is None}
    assert len(lanes(copy)) == 3 and cut == {mark.stem}
    api.track(copy, quiet=True)
    runs = tensorboard(copy / "tensorboard")
    assert {lane for lane, run in runs.items() if run.status} == set(runs) == Manifest.read(copy).finished()
    assert not list(copy.rglob("*.unfinished"))


def test_any_outcome_is_tracked_or_refused_with_a_one_line_error(copy):
    """Old records have no digests, so they can hold any values."""
    manifest = Manifest.read(copy)
    path = next(copy.glob("records/*.jsonl"))
    (whole,), refused = records.read(path), []
    for other in copy.glob("records/*.jsonl"):
        if other != path:
            other.unlink()

    @examples(50)
    @given(of_json({name: whole[name] for name in ("outcome", "provenance")}))
    def check(damaged):
        path.write_text(json.dumps(whole | (damaged if isinstance(damaged, dict) else {})))
        shutil.rmtree(copy / "tensorboard", ignore_errors=True)
        refused.append(isinstance(result_or_one_line(lambda: tracking.track(manifest, "tensorboard")), InputError))

    check()
    assert {True, False} <= set(refused)


@pytest.mark.slow
def test_a_full_disk_gives_a_one_line_error(finished, command, disk):
    out = disk / "out"
    shutil.copytree(finished[0], out, ignore=shutil.ignore_patterns("checkpoints", "workers"))
    filler = fill(disk)
    done = command("track", out)
    assert done.returncode == 1 and named(done.stderr).parents[2] == out / "tensorboard"
    assert all(run.status is None for run in tensorboard(out / "tensorboard").values())
    filler.unlink()
    api.track(out, quiet=True)
    assert lanes(out) == Manifest.read(out).finished()


@pytest.mark.slow
def test_files_contain_nothing_about_the_machine(tracked, monkeypatch, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(tracked, out, ignore=shutil.ignore_patterns("tensorboard"))
    monkeypatch.setattr(socket, "gethostname", lambda: "planted-host")
    again = api.track(out, quiet=True)
    words = ["planted", str(tmp_path), str(tracked), str(Path.home()), str(ROOT)]

    def words_in(folder):
        text = b"".join(bytes(path.relative_to(folder)) + content for path, content in contents(folder).items())
        return [word for word in words if word.encode() in text]

    for folder in (tracked / "tensorboard", again):
        assert len(contents(folder)) == 12 and files_with_secrets(folder) == set() and words_in(folder) == []
    EventsWriter(str(again / "control")).close()  # control: tensorboardX puts the host's name into the file's name
    assert words_in(again) == ["planted"]
    (again / "control").write_text(" ".join(words[1:]))
    assert words_in(again) == words


@pytest.mark.slow
def test_unknown_tool_and_missing_package_give_one_line_errors(tracked, command, monkeypatch, tmp_path):
    before = files(tracked)
    done = command(*RUN, "--out", tmp_path / "out", "--track", "aim")
    message = "unknown tracker 'aim'; known: tensorboard, wandb, mlflow"
    assert (done.returncode, done.stderr) == (2, f"sweeps: {message}\n")
    for call in (lambda: api.track(tracked, "aim"), lambda: sweeps.run("muon", "smoke", track="aim")):
        with pytest.raises(InputError, match=message):
            call()
    assert not (tmp_path / "out").exists() and files(tracked) == before
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for tool, package, extra in (("tensorboard", "tensorboardX", "lab"), ("wandb",) * 3, ("mlflow",) * 3):
        with pytest.raises(InputError, match=rf"--track {tool} needs {package}: pip install -e '.\[{extra}\]'"):
            Options(track=tool)


def committed(name):
    """The first record of a committed result, and an entry with an equal cell."""
    sweep, row = json.loads((COMMITTED / name / "sweep.json").read_text()), records.read(COMMITTED / name)[0]
    experiment = experiments.load(sweep["experiment"])
    cell = experiment.cells(experiments.restored(experiment, sweep["tier"], sweep["config"]))[0].cell
    return row, Entry("", replace(cell, **{k: row["outcome"][k] for k in ("steps",) if k in row["outcome"]}), None, {})


def points(scalars, tag):
    return [(step, values[tag]) for step, values in sorted(scalars.items()) if tag in values]


def test_measures_are_at_the_measured_steps():
    row, entry = committed("pretrain_1b/laptop-wikitext2")
    losses, steps = row["outcome"]["measures"]["validation"]["loss"], row["config"]["cell"]["measured_steps"]
    expected = [(step + 1, loss) for step, loss in zip(steps, losses, strict=True)]
    scalars = tracking.scalars(entry, row["outcome"])
    assert points(scalars, "measures/validation.loss") == expected
    assert points(scalars, "curve/train_loss")[-1][0] == expected[-1][0] == row["outcome"]["steps"]
    nested = row["outcome"] | {"measures": {"a": {"b": [[x, None] for x in losses]}}}
    scalars = tracking.scalars(entry, nested)
    assert points(scalars, "measures/a.b.0") == expected and points(scalars, "measures/a.b.1") == []
    with pytest.raises(ValueError, match="zip"):
        tracking.scalars(entry, row["outcome"] | {"measures": {"a": losses[1:]}})

    row, entry = committed("large_updates/laptop-digits")
    dead = points(tracking.scalars(entry, row["outcome"]), "measures/dead.all")
    assert [x for _, x in dead] == row["outcome"]["measures"]["dead"]["all"]
    assert dead[-1][0] == row["outcome"]["steps"]


def test_a_calculation_has_final_numbers_at_step_0():
    row, entry = committed("token_frequencies/laptop-wikitext2")
    numbers = {f"final/{k}": v for k, v in row["outcome"].items() if isinstance(v, int | float)}
    assert len(numbers) > 5
    assert tracking.scalars(entry, row["outcome"]) == {0: numbers | {"final/diverged": 0.0}}
