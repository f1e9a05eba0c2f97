"""Runs in tracking tools, as the tools' own readers give them."""

import json
import math
import signal
import struct
import subprocess
import sys
import time
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

from lvp.errors import InputError
from lvp.sweeps import trackers
from lvp.sweeps.trackers import TRACKERS, hparams, log_records, metrics_of, quietly, tracker
from lvp.training import records
from tests.docs.sources import ROOT
from tests.sweeps.small_disk import fill

RESULTS = ROOT / "experiments/results"
CONFIG = {"setting.width": 32, "setting.kind": "adamw", "run.frozen": False}
HOSTILE = "../../x\ny\ud800 /'\"$(z)"


@pytest.fixture(params=TRACKERS)
def tool(request, monkeypatch, tmp_path):
    """The name of a tool. Skips the test if its package is missing; the reason is the command that installs it."""
    for name in ("MLFLOW_TRACKING_URI", "WANDB_SERVICE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_MODE", "offline")
    try:
        tracker(request.param, tmp_path / "trial", "trial")
    except InputError as missing:
        pytest.skip(str(missing))
    return request.param


def read_tensorboard(folder, purge=True):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    runs = {}
    for path in {file.parent for file in folder.rglob("*tfevents*")}:
        events = EventAccumulator(str(path), {"scalars": 0}, purge_orphaned_data=purge)
        events.Reload()
        points = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        plugin = {k: HParamsPluginData.FromString(v) for k, v in events.PluginTagToContent("hparams").items()}
        values = plugin["_hparams_/session_start_info"].session_start_info.hparams
        config = {k: getattr(v, v.WhichOneof("kind")) for k, v in values.items()}
        runs[path.name] = points, config, "_hparams_/session_end_info" in plugin
    return runs


def read_wandb(folder):
    paths, until = list(folder.glob("wandb/offline-run-*/run-*.wandb")), time.monotonic() + 20
    runs = {path.stem[4:]: read_wandb_file(path) for path in paths}
    while any(finished is None for *_, finished in runs.values()) and time.monotonic() < until:
        time.sleep(0.1)  # W&B writes the end of a run shortly after it has closed the run
        runs = {path.stem[4:]: read_wandb_file(path) for path in paths}
    assert len(runs) == len(paths)
    return runs


def read_wandb_file(path):
    from wandb.proto.wandb_internal_pb2 import Record

    points, summary, config, finished = defaultdict(list), {}, {}, None
    for record in map(Record.FromString, leveldb_records(path.read_bytes())):
        config |= {i.key: json.loads(i.value_json) for i in record.run.config.update if i.key != "_wandb"}
        row = {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
        for tag in row.keys() - {"_step", "_timestamp", "_runtime"}:
            points[tag].append((row["_step"], row[tag]))
        summary |= {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.summary.update}
        if record.WhichOneof("record_type") == "exit":
            finished = record.exit.exit_code == 0
    last = max((step for series in points.values() for step, _ in series), default=0)
    final = {k: [(last, x)] for k, x in summary.items() if k.startswith("final/")}
    return final | points, config, finished


def leveldb_records(log):
    """The records of W&B's file: blocks of 32 KiB with parts of records (checksum, size, kind), after a header."""
    at, parts = 7, []
    while at + 7 <= len(log):
        if (room := 32768 - at % 32768) < 7:  # the end of a block
            at += room
            continue
        _, size, kind = struct.unpack("<IHB", log[at : at + 7])
        if at + 7 + size > len(log):  # still being written
            return
        parts.append(log[at + 7 : at + 7 + size])
        at += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            yield b"".join(parts)
            parts = []


def read_mlflow(folder):
    from mlflow import MlflowClient

    client, runs = MlflowClient(folder.as_uri()), {}
    for run in client.search_runs([e.experiment_id for e in client.search_experiments()]):
        histories = {tag: client.get_metric_history(run.info.run_id, tag) for tag in run.data.metrics}
        points = {tag: [(p.step, p.value) for p in history] for tag, history in histories.items()}
        config = {k: type(CONFIG.get(k, ""))(v if v != "False" else "") for k, v in run.data.params.items()}
        assert run.info.run_name not in runs
        runs[run.info.run_name] = points, config, run.info.status == "FINISHED"
    return runs


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "mlflow": read_mlflow}


def float32(points):
    return {tag: [(step, float(np.float32(value))) for step, value in series] for tag, series in points.items()}


def test_two_runs_are_open_at_once(tool, tmp_path):
    runs = tracker(tool, tmp_path / "a b", "sweep")
    for run in ("one", "two"):
        runs.begin(run, "group", CONFIG, 0)
    for step in (1, 2, 3):
        runs.log("one", step, {"train_loss": 1 / step, "nan": math.nan, "large": 1e39, "text": "x"})
        runs.log("two", step, {"train_loss": math.inf if step == 2 else np.float32(step)})
    runs.end("one", True, {"valid_loss": 0.25, "status": "finished", "curve": [1.0], "none": None})
    runs.end("two", False, {"valid_loss": math.nan})
    seen = READERS[tool](tmp_path / "a b")
    assert not list(tmp_path.glob("a b/wandb/*/files/*"))  # W&B's files about machine, code and packages
    one = {"train_loss": [(1, 1.0), (2, 0.5), (3, 1 / 3)], "final/valid_loss": [(3, 0.25)]}
    two = {"train_loss": [(1, 1.0), (3, 3.0)]}
    assert {run: (float32(points), *rest) for run, (points, *rest) in seen.items()} == {
        "one": (float32(one), CONFIG, True),
        "two": (float32(two), CONFIG, False),
    }


KILLED = """
import os, signal, sys, time
from pathlib import Path
from lvp.sweeps.trackers import tracker
runs = tracker(sys.argv[1], Path(sys.argv[2]), "sweep")
for run in ("one", "two"):
    runs.begin(run, "group", {"seed": 1}, 0)
    for step in range(1, 6):
        runs.log(run, step, {"train_loss": -step})
        time.sleep(0.1)
time.sleep(sys.argv[1] == "wandb")  # it names directories by the second
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_is_continued_with_every_step_once(tool, tmp_path):
    """The process logged five steps and ended without notice. The next one begins after step 3."""
    done = subprocess.run([sys.executable, "-c", KILLED, tool, tmp_path], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    runs = tracker(tool, tmp_path, "sweep")
    for run in ("one", "two"):
        runs.begin(run, "group", {"seed": 1}, 3)
        for step in range(4, 8):
            runs.log(run, step, {"train_loss": step})
        runs.end(run, True, {})
    if tool == "wandb":  # a run that is continued offline has a second directory with the later steps
        for run in ("one", "two"):
            killed, _ = sorted(tmp_path.glob(f"wandb/offline-run-*-{run}"))
            killed.rename(tmp_path / run)
    replaced = {"tensorboard": [-1, -2, -3, 4, 5, 6, 7], "wandb": [4, 5, 6, 7], "mlflow": [-1, -2, -3, -4, -5, 6, 7]}
    for points, _, finished in READERS[tool](tmp_path).values():
        assert points["train_loss"] == [(abs(x), x) for x in replaced[tool]] and finished
    if tool == "tensorboard":  # control: the first process had logged later steps
        assert all((4, -4) in p["train_loss"] for p, *_ in read_tensorboard(tmp_path, purge=False).values())


def test_records_are_logged_once_however_often(tool, tmp_path):
    """Partial runs with the same ids exist already."""
    rows = records.read(RESULTS / "pretrain_1b/laptop-wikitext2")[:2]
    runs = tracker(tool, tmp_path, "sweep")
    runs.begin(rows[0]["hash"], "group", hparams(rows[0]["config"]), 0)
    runs.close()
    for _ in range(2):
        log_records(runs, rows, {row["hash"]: "group" for row in rows})
    seen = READERS[tool](tmp_path)
    assert seen.keys() == {row["hash"] for row in rows}
    for row in rows:
        points, config, finished = seen[row["hash"]]
        wanted = defaultdict(list)
        for step, metrics in metrics_of(row["outcome"], row["config"]["cell"]["measured_steps"]):
            for tag, value in metrics.items():
                wanted[tag].append((step, value))
        assert float32(points) == float32(wanted) and finished
        assert len(config) == len(hparams(row["config"])) > 20


def test_hostile_text_stays_in_the_folder(tool, tmp_path):
    before = {*tmp_path.iterdir(), *tmp_path.parent.iterdir()}
    runs = tracker(tool, tmp_path / "folder", HOSTILE)
    for run in (HOSTILE, ".."):
        runs.begin(run, HOSTILE, {HOSTILE: HOSTILE, "..": True}, 0)
        runs.log(run, 1, {HOSTILE: 1.0, "train_loss": 2.0, "../../up": 3.0})
        runs.end(run, True, {"../..": 4.0})
    assert len(READERS[tool](tmp_path / "folder")) == 2
    assert {*tmp_path.iterdir(), *tmp_path.parent.iterdir()} == before | {tmp_path / "folder"}


def test_an_unknown_tool_and_a_missing_package_give_one_line(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="^unknown tracker 'aim'; known: tensorboard, wandb, mlflow$"):
        tracker("aim", tmp_path, "sweep")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name, package, extra in (("tensorboard", "tensorboardX", "lab"), ("wandb",) * 3, ("mlflow",) * 3):
        with pytest.raises(InputError, match=rf"^--track {name} needs {package}: pip install 'lvp\[{extra}\]'$"):
            tracker(name, tmp_path, "sweep")


def test_after_an_error_tracking_stops_with_one_line(tmp_path, capsys):
    loud, quiet = (tracker("tensorboard", tmp_path, "sweep") for _ in range(2))
    quietly(quiet)
    with pytest.raises(KeyError):  # the run is not open
        loud.log("run", 1, {"train_loss": 1.0})
    for step in (1, 2):
        quiet.log("run", step, {"train_loss": 1.0})
    quiet.begin("run", "group", CONFIG, 0)
    assert capsys.readouterr().err == "tracking stopped, training continues: KeyError: 'run'\n"
    assert not list(tmp_path.iterdir())


@pytest.fixture
def broken(monkeypatch):
    """A tool whose server does not answer."""

    def fail(*arguments):
        raise RuntimeError("no answer\nmore lines")

    monkeypatch.setattr(trackers.TensorBoard, "__init__", fail)


def test_a_tool_that_cannot_begin_is_refused_before_training(small, broken, tmp_path):
    with pytest.raises(
        InputError, match="^--track tensorboard: RuntimeError: no answer; repair it, or choose another tool$"
    ):
        small.run(tmp_path / "out", track="tensorboard")
    assert not list(tmp_path.glob("out/records/*"))
    assert len(small.run(tmp_path / "out")) == 4


def test_a_tool_that_cannot_begin_in_a_worker_stops_nothing(small, broken, tmp_path, monkeypatch, capsys):
    opened = iter([SimpleNamespace(close=lambda: None)])  # the driver's
    monkeypatch.setattr(trackers, "tracker", lambda *of, original=trackers.tracker: next(opened, None) or original(*of))
    assert len(small.run(tmp_path / "out", track="tensorboard")) == 4
    assert "no tracking, training continues: --track tensorboard: RuntimeError: no answer" in capsys.readouterr().err


def test_a_full_disk_is_an_error_of_log_and_blocks_nothing(disk):
    runs = tracker("tensorboard", disk, "sweep")
    runs.begin("run", "group", CONFIG, 0)
    filler = fill(disk)
    with pytest.raises(OSError, match="No space left"):
        for step in range(1000):
            runs.log("run", step, {"train_loss": 1.0})
    filler.unlink()
    runs.close()


def test_points_of_committed_outcomes():
    row = records.read(RESULTS / "pretrain_1b/laptop-wikitext2")[0]
    outcome, steps = row["outcome"], row["config"]["cell"]["measured_steps"]
    points = dict(metrics_of(outcome, steps))
    assert list(points) == sorted(points) and list(points)[-1] == outcome["steps"]
    curve = {step: metrics["train_loss"] for step, metrics in points.items() if "train_loss" in metrics}
    assert curve == dict(zip(outcome["curve_steps"], outcome["curve_losses"], strict=True))
    losses = {s - 1: m["measures/validation.loss"] for s, m in points.items() if "measures/validation.loss" in m}
    assert losses == dict(zip(steps, outcome["measures"]["validation"]["loss"], strict=True))
    nested = outcome | {"measures": {"a": {"b": [[step, None] for step in steps]}}}
    indexed = [metrics for _, metrics in metrics_of(nested, steps)]
    assert [m["measures/a.b.0"] for m in indexed if "measures/a.b.0" in m] == steps
    assert not any("measures/a.b.1" in metrics for metrics in indexed)
    with pytest.raises(ValueError, match="zip"):
        list(metrics_of(outcome, steps[1:]))


def test_a_calculation_has_final_numbers_at_step_0():
    outcome = records.read(RESULTS / "token_frequencies/laptop-wikitext2")[0]["outcome"]
    numbers = {f"final/{k}": v for k, v in outcome.items() if isinstance(v, int | float)}
    assert dict(metrics_of(outcome, ())) == {0: numbers} and len(numbers) > 5
