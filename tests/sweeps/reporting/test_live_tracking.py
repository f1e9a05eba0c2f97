"""Tracking tools show the curves of lanes while the lanes train. After a driver has ended, a run still has each step
once."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import experiments
from lvp.training import Preempted, records
from lvp.training.outcome import outcome as outcome_of
from lvp.training.outcome import so_far
from sweeps.driver.manifest import Manifest
from sweeps.reporting import tracking
from sweeps.worker import curves
from sweeps.worker.tasks import task_for
from sweeps.worker.worker import Settings, Worker
from tests.faults.damage import contents, examples
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.reporting.readers import READERS, same_hparams, skip_without
from tests.sweeps.running import ROOT, TINY

STEPS = 300
STOPPED = 3  # number of the chunk after which the worker is stopped
TOOLS = list(tracking.TRACKERS)


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """Returns the directory of a finished sweep, and its copies: one after each chunk of the first pack.

    The sweep has three lanes in packs of two. The worker is stopped after a chunk, its checkpoints are lost, and the
    next worker trains the pack again.
    """
    folder = tmp_path_factory.mktemp("live")
    (folder / "text.txt").write_text(some_text(20_000))
    values = TINY | {"corpus": f"text:{folder / 'text.txt'}", "widths": "16", "seeds": "0", "steps": str(STEPS)}
    config = experiments.configured("width_vocab", "smoke", values)
    (planned,) = experiments.load("width_vocab").cells(config)
    datasets = {planned.label: task_for(planned.cell).prepare(folder / "cache").to_dict()}
    manifest = Manifest(folder / "out", "width_vocab", "smoke", experiments.to_dict(config), datasets)
    manifest.begin()
    manifest.make_lane_directories()
    copies: list[Path] = []
    add = curves.Curves.add

    def add_and_copy(self, step, state):
        self.duration = 0.0  # otherwise these chunks, which take milliseconds, are too short to be written
        add(self, step, state)
        if self.lanes == first:
            copies.append(folder / str(len(copies)))
            shutil.copytree(manifest.out, copies[-1])
            if len(copies) == STOPPED:
                manifest.leave_path.touch()

    lanes = list(manifest.cells[0].lanes)
    first = lanes[:2]
    trial = {"id": "0", "cell": 0, "lanes": lanes, "pack": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves.Curves, "add", add_and_copy)
        with pytest.raises(Preempted):
            Worker(manifest.out, Settings(pin=False)).run_trial(trial)
        manifest.leave_path.unlink()
        for lane in first:
            shutil.rmtree(manifest.checkpoint_path(lane))
        Worker(manifest.out, Settings(pin=False)).run_trial(trial)
    return manifest, copies


@pytest.fixture
def arrive(stages, tmp_path):
    """arrive(i) brings the files of stage i into a directory and returns its manifest. Without i: the last stage."""
    manifest, copies = stages
    out = tmp_path / "out"

    def bring(i: int | None = None) -> Manifest:
        shutil.copytree(manifest.out if i is None else copies[i], out, dirs_exist_ok=True)
        return dataclasses.replace(manifest, out=out)

    return bring


def times(manifest, lane, steps):
    curve = manifest.read_curve(lane)
    ended = manifest.record_path(lane).stat().st_mtime if manifest.record_path(lane).exists() else None
    return [next((t for s, t in zip(curve["steps"], curve["times"], strict=True) if s >= x), ended) for x in steps]


def expected(manifest, lane):
    """The points of a lane with a record, as a reader gives them."""
    (record,) = manifest.read_records([lane])
    scalars = tracking.scalars(manifest.cells[0], record["outcome"])
    tags = {tag for values in scalars.values() for tag in values}
    steps = {tag: [step for step in sorted(scalars) if tag in scalars[step]] for tag in tags}
    return {
        tag: [(s, scalars[s][tag], t) for s, t in zip(of_tag, times(manifest, lane, of_tag), strict=True)]
        for tag, of_tag in steps.items()
    }


def agrees(points, wanted):
    """Whether the points are the same: steps exactly, values as float32, times in milliseconds."""
    return points.keys() == wanted.keys() and all(
        [step for step, *_ in points[tag]] == [step for step, *_ in wanted[tag]]
        and np.allclose([p[1] for p in points[tag]], [p[1] for p in wanted[tag]], rtol=1e-6, atol=0)
        and np.allclose([p[2] for p in points[tag]], [p[2] for p in wanted[tag]], rtol=0, atol=2e-3)
        for tag in wanted
    )


@pytest.mark.slow
def test_a_curve_is_the_beginning_of_its_record(stages):
    """Each stage has the losses of the record up to its step. A lane that is trained again keeps its times."""
    manifest, copies = stages
    first = list(manifest.cells[0].lanes)[:2]
    reached = []
    for copy in copies:
        at_stage = dataclasses.replace(manifest, out=copy)
        for lane in first:
            (record,) = manifest.read_records([lane])
            curve, last = at_stage.read_curve(lane), manifest.read_curve(lane)
            if curve is None:  # the first part of the steps is not complete
                n = 0
                continue
            n = len(curve["outcome"]["curve_steps"])
            assert curve["outcome"]["curve_steps"] == record["outcome"]["curve_steps"][:n]
            assert curve["outcome"]["curve_losses"] == record["outcome"]["curve_losses"][:n]
            assert curve["steps"] == last["steps"][: len(curve["steps"])] == sorted(set(curve["steps"]))
            assert curve["times"] == last["times"][: len(curve["times"])] == sorted(curve["times"])
        reached.append(n)
    assert 0 < reached[STOPPED - 1] < reached[-1] == 50 and reached == sorted(reached)
    assert len(copies) > STOPPED + 2 and reached[STOPPED] == reached[STOPPED - 1]  # trained again


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_curves_are_shown_while_a_lane_trains(tool, arrive):
    skip_without(tool)
    manifest = arrive(STOPPED - 1)
    live = tracking.Tracking(manifest, tool)
    live.follow()
    if tool == "wandb":  # it writes whole blocks of 32 KiB, and the rest when the run is closed
        live.leave()
    seen = READERS[tool](manifest.out / tool)
    first = list(manifest.cells[0].lanes)[:2]
    assert sorted(seen) == sorted(first)
    for lane in first:
        outcome = manifest.read_curve(lane)["outcome"]
        steps, losses = outcome["curve_steps"], outcome["curve_losses"]
        wanted = {"curve/train_loss": list(zip(steps, losses, times(manifest, lane, steps), strict=True))}
        assert agrees(seen[lane].points, wanted) and 0 < len(steps) < 50  # part of the lane
        assert seen[lane].status != "finished"
    live.leave()


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_a_resumed_run_has_every_step_once(tool, arrive, stages, tmp_path):
    """The driver ends without notice after each stage. The runs are those of a driver that saw the finished sweep."""
    skip_without(tool)
    lanes = list(stages[0].cells[0].lanes)
    for i in [*range(len(stages[1])), None]:
        manifest = arrive(i)
        driver = tracking.Tracking(manifest, tool)
        driver.follow()
        if tool == "wandb":  # in one process, W&B refuses a second run of the same name
            driver.leave()
    resumed = READERS[tool](manifest.out / tool)
    shutil.rmtree(manifest.out / tool)
    tracking.track(manifest, tool)
    at_once = READERS[tool](manifest.out / tool)
    assert sorted(resumed) == sorted(at_once) == sorted(lanes)
    for lane in lanes:
        wanted = expected(manifest, lane)
        assert agrees(resumed[lane].points, wanted) and agrees(at_once[lane].points, wanted)
        assert same_hparams(resumed[lane].hparams, at_once[lane].hparams) and len(at_once[lane].hparams) > 20
        assert resumed[lane].status == at_once[lane].status == "finished"
    assert not list((manifest.out / tool).glob("*.unfinished"))
    # Control: a point that is written twice is noticed.
    wanted["curve/train_loss"].insert(1, wanted["curve/train_loss"][0])
    assert not agrees(resumed[lane].points, wanted)


KILLED = """
import os, signal, sys
from sweeps.driver.manifest import Manifest
from sweeps.reporting import tracking
tracking.Tracking(Manifest.read(sys.argv[1]), sys.argv[2]).follow()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("tool", tracking.TRACKERS)
def test_a_killed_driver_leaves_runs_that_the_next_one_continues(tool, arrive, stages):
    skip_without(tool)
    # Each driver has its own service of W&B, unless it inherits the address of another service.
    environment = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    for i in (STOPPED - 1, len(stages[1]) - 1):
        manifest = arrive(i)
        words = [sys.executable, "-c", KILLED, manifest.out, tool]
        done = subprocess.run(words, cwd=ROOT, env=environment, check=False)
        assert done.returncode == -signal.SIGKILL
    manifest = arrive()
    tracking.track(manifest, tool)
    seen = READERS[tool](manifest.out / tool)
    assert sorted(seen) == sorted(manifest.cells[0].lanes)
    assert all(agrees(seen[lane].points, expected(manifest, lane)) for lane in seen)


@pytest.mark.slow
def test_event_files_have_the_same_bytes_however_they_were_cut(arrive, stages):
    """A killed driver leaves any part of a file. The next one makes the file that an undisturbed driver makes."""
    manifest = arrive()
    tracking.track(manifest, "tensorboard")
    whole = contents(manifest.out / "tensorboard")

    @examples(15)
    @given(st.integers(0, len(stages[1]) - 1), st.floats(0, 1))
    def check(stage, part):
        shutil.rmtree(manifest.out)
        tracking.Tracking(arrive(stage), "tensorboard").follow()
        for path in (manifest.out / "tensorboard").rglob("*tfevents*"):
            os.truncate(path, round(part * path.stat().st_size))
        arrive()
        tracking.track(manifest, "tensorboard")
        assert contents(manifest.out / "tensorboard") == whole

    check()
    # Control: without its mark, an unfinished run is taken for a complete one.
    shutil.rmtree(manifest.out)
    tracking.Tracking(arrive(STOPPED), "tensorboard").follow()
    for mark in (manifest.out / "tensorboard").glob("*.unfinished"):
        mark.unlink()
    arrive()
    tracking.track(manifest, "tensorboard")
    assert contents(manifest.out / "tensorboard") != whole


@pytest.mark.slow
def test_the_runs_of_another_driver_are_skipped(arrive):
    """`python -m sweeps track` leaves the open runs of a driver alone."""
    manifest = arrive(STOPPED)
    driver = tracking.Tracking(manifest, "tensorboard")
    driver.follow()
    open_runs = contents(manifest.out / "tensorboard")
    manifest = arrive()
    tracking.track(manifest, "tensorboard", followed=True)
    after = contents(manifest.out / "tensorboard")
    assert open_runs.items() <= after.items() and len(after) == len(open_runs) + 1  # the third lane's file
    driver.follow()
    assert not list((manifest.out / "tensorboard").glob("*.unfinished"))


@pytest.mark.slow
def test_a_tool_that_fails_is_tried_again_and_stops_nothing(arrive, monkeypatch):
    manifest = arrive()
    calls = []

    def failing(*arguments):
        calls.append(arguments)
        raise ConnectionError("no answer")

    works = tracking.TRACKERS["tensorboard"]
    monkeypatch.setitem(tracking.TRACKERS, "tensorboard", works._replace(runs=failing))
    with tracking.following(manifest, "tensorboard", seconds=0.01):
        while not calls:
            pass
    assert len(calls) == 2  # the second call is that at the end of the block
    with pytest.raises(OSError, match="no answer"):
        tracking.track(manifest, "tensorboard")
    monkeypatch.setitem(tracking.TRACKERS, "tensorboard", works)
    with tracking.following(manifest, "tensorboard", seconds=0.01):
        pass
    assert sorted(READERS["tensorboard"](manifest.out / "tensorboard")) == sorted(manifest.cells[0].lanes)


def test_measures_so_far_are_those_of_the_outcome():
    """The steps 0, 4 and 9 of 20 are measured."""
    losses = np.linspace(3, 2, 20, dtype=np.float32)
    losses[15] = np.inf
    measures = {"a": {"b": np.array([1.0, np.nan, 3.0], np.float32), "c": np.arange(6.0).reshape(3, 2)}}
    state = {"losses": losses, "diverged": -1, "valid_loss": 1.0, "measures": measures}
    whole = dataclasses.asdict(outcome_of(5, state))
    for step in range(1, 21):
        measured = sum(s < step for s in (0, 4, 9))
        # Losses and measures from `step` on are not known yet.
        known = state | {"losses": np.where(np.arange(20) < step, losses, np.nan)}
        part = so_far(step, measured, known)
        assert part["curve_steps"] == whole["curve_steps"][:step]
        assert part["curve_losses"] == whole["curve_losses"][:step]
        flat = records.flatten(part["measures"])
        assert flat == {k: v[:measured] for k, v in records.flatten(whole["measures"]).items()}


def test_writing_curves_takes_a_hundredth_of_the_time(monkeypatch):
    """A clock that the test moves: a chunk takes a second, and writing takes a second as well."""
    clock, writes = [0.0], []

    class Slow:
        def read_curve(self, lane):
            return None

        def write_curve(self, lane, curve):
            clock[0] += 1
            writes.append((clock[0], curve["steps"]))

    cell = type("Cell", (), {"steps": 500, "measured_steps": tuple(range(500))})()
    program = type("Program", (), {"cell": cell, "lanes": 1})()
    monkeypatch.setattr(curves.time, "perf_counter", lambda: clock[0])
    writer = curves.Curves(Slow(), program, ["lane"])
    for step in range(1, 501):
        clock[0] += 1
        writer.add(step, {"losses": np.ones(500, np.float32)})
    assert len(writes) == 6  # after the steps 1, 101, …, 401, and at the end
    assert writes[-1][1] == list(range(501))  # no time is lost
