"""Tracking tools: one run per lane, named by the lane's hash, in OUT/TOOL.

The driver feeds the tools. Workers need no tracking package and do not wait for a tool. They write the curves of
unfinished lanes to OUT/curves (`sweeps.worker.curves`), and records hold everything else. A run follows from these
files alone. If a driver or a tool ends in the middle of a run, the run is begun again or continued from these files, so
the run has every step once.

OUT/TOOL/HASH.unfinished marks a run that does not hold the lane's outcome yet.
"""

import contextlib
import re
import shlex
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from experiments.common.experiment import Calculation
from lvp.cli.parser import need
from lvp.errors import InputError, unknown
from lvp.training import records
from sweeps.driver.background import background
from sweeps.driver.manifest import Entry, Manifest, lane_configs

LARGEST = (2 - 2**-23) * 2.0**127  # largest finite float32
PAUSE = 30.0  # seconds after which a tool that failed is tried again

Point = tuple[int, float, Mapping[str, float]]  # number of steps done, Unix time, tag → value


class Run(Protocol):
    """The run of a lane in a tool. It is open until `end` or `leave`."""

    def log(self, points: Iterable[Point]) -> None:
        """Adds points, in the order of their steps."""

    def end(self, succeeded: bool, ended: float) -> None:
        """Completes the run. A diverged lane has not succeeded."""

    def leave(self) -> None:
        """Closes the run of an unfinished lane."""


class Runs(Protocol):
    """The runs of a sweep in a tool."""

    def exists(self, cell: str, lane: str) -> bool: ...

    def begin(self, cell: str, lane: str, hparams: Mapping[str, float | bool | str], began: float) -> Run:
        """Opens the run of a lane. The caller logs all points since step 0. An earlier run of the lane is replaced, or
        continued: `log` then skips the points that the run has."""


class Tracker(NamedTuple):
    """A tracking tool."""

    package: str  # the package that must be installed
    extra: str  # the extra that installs it
    runs: Callable[[Path, str, Callable[[Path], None]], Runs]  # (directory, title of the sweep, makes a directory)
    shown_by: str  # the command that shows or uploads the directory {}


# The tools' modules are imported when they are used, because their packages are optional.


def _tensorboard(*arguments) -> Runs:
    from sweeps.reporting.event_files import EventFiles

    return EventFiles(*arguments)


def _wandb(*arguments) -> Runs:
    from sweeps.reporting.wandb_runs import WandbRuns

    return WandbRuns(*arguments)


def _mlflow(*arguments) -> Runs:
    from sweeps.reporting.mlflow_runs import MlflowRuns

    return MlflowRuns(*arguments)


TRACKERS: Mapping[str, Tracker] = {
    "tensorboard": Tracker("tensorboardX", "lab", _tensorboard, "tensorboard --logdir {}"),
    "wandb": Tracker("wandb", "wandb", _wandb, "wandb sync {}/offline-run-*"),
    "mlflow": Tracker("mlflow", "mlflow", _mlflow, "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {}"),
}


def tracker_named(name: str) -> Tracker:
    """The tracker of this name. Raises InputError if the name is unknown or the tracker's package is missing."""
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)
    need(f"--track {name}", TRACKERS[name].package, extra=TRACKERS[name].extra)
    return TRACKERS[name]


def track(manifest: Manifest, name: str, *, followed: bool = False) -> Path:
    """Completes the runs of all lanes with records and returns the tool's directory. Skips records that cannot be read.

    Args:
      name: a key of `TRACKERS`.
      followed: whether a driver may follow the sweep meanwhile (`following`). The runs that it has open are skipped.

    Raises:
      InputError: the tracker is unknown, its package is missing, or a record does not fit its cell.
      OSError: the disk is full. The error gives path and size.
      RuntimeError: the tool failed.
    """
    tracking = Tracking(manifest, name)
    try:
        tracking.complete(followed=followed)
    except (InputError, OSError):
        raise
    except Exception as error:  # tools define their own exceptions
        again = shlex.join(["python", "-m", "sweeps", "track", str(manifest.location), "--track", name])
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise RuntimeError(f"--track {name} failed: {reason}; `{again}` tries again") from error
    finally:
        tracking.leave()
    return tracking.folder


@contextlib.contextmanager
def following(manifest: Manifest, name: str | None, seconds: float = 1.0) -> Iterator[None]:
    """Feeds a tool in a thread during the block, at most once per `seconds`. Training does not wait for it.

    After an error the tool is tried again, at the latest when the block ends. `track` raises errors that stay.

    Args:
      name: a key of `TRACKERS`; None does nothing.
    """
    if name is None:
        yield
        return

    def follow(ended: threading.Event) -> None:
        tracking, wait, last = Tracking(manifest, name), seconds, False
        while not last:
            last = ended.wait(wait)
            try:
                tracking.follow()
                wait = seconds
            except Exception:  # no error of a tool may end the sweep
                wait = PAUSE
        tracking.leave()

    with background(follow):
        yield


class Tracking:
    """Feeds a tool from a sweep's directory."""

    def __init__(self, manifest: Manifest, name: str):
        self.manifest, self.folder, self.tracker = manifest, manifest.out / name, tracker_named(name)
        self.open: dict[str, tuple[Run, int]] = {}  # lane → its run and the last step in it
        self.completed: set[str] = set()

    @cached_property
    def runs(self) -> Runs:
        self.manifest.make_directory(self.folder)
        title = f"{self.manifest.experiment}-{self.manifest.tier}-{self.manifest.hash}"
        return self.tracker.runs(self.folder, title, self.manifest.make_directory)

    def follow(self) -> None:
        """Logs the new points of unfinished lanes and completes the runs of lanes with records."""
        started = {lane for progress in self.manifest.read_progress() for lane in progress["lanes"]}
        started -= {path.stem for path in self.manifest.record_files()}
        for entry in self.manifest.cells:
            for lane in started.intersection(entry.lanes):
                if (curve := self.manifest.read_curve(lane)) is not None:
                    by_step = curves(entry, curve["outcome"], curve["steps"][-1])
                    by_step.pop(entry.cell.steps, None)  # logged with the outcome, which has the same step
                    self._log(entry, lane, curve, by_step, ended=curve["times"][-1])
        self.complete()

    def complete(self, *, followed: bool = False) -> None:
        """Completes the runs of lanes with records. For `followed` see `track`."""
        recorded = self.manifest.finished() - self.completed
        for entry in self.manifest.cells:
            lanes = [lane for lane in entry.lanes if lane in recorded and not self._is_complete(entry, lane, followed)]
            for record in self.manifest.read_records(lanes):
                path = self.manifest.record_path(record["hash"])
                try:
                    self._complete(entry, record, path.stat().st_mtime)
                except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
                    raise InputError(f"{path}: the record does not fit cell {entry.label}: {error}") from None
        self.completed |= recorded

    def _is_complete(self, entry: Entry, lane: str, followed: bool) -> bool:
        return followed if self._mark(lane).exists() else self.runs.exists(_word(entry.label), lane)

    def _complete(self, entry: Entry, record: Mapping, ended: float) -> None:
        lane, outcome = record["hash"], record["outcome"]
        # Calculations and older sweeps have no curve. All their points have the time `ended`.
        without_times = {"steps": [-1], "times": [ended - record["provenance"]["seconds"]]}
        curve = self.manifest.read_curve(lane) or without_times
        self._log(entry, lane, curve, scalars(entry, outcome), ended)
        with self._closed_after_an_error(lane):
            self.open[lane][0].end(outcome["status"] == "finished", ended)
        del self.open[lane]
        self._mark(lane).unlink(missing_ok=True)

    def _log(self, entry: Entry, lane: str, curve: Mapping, by_step: Mapping[int, Mapping], ended: float) -> None:
        """Logs the steps that the lane's run does not have. Steps after the last one in `curve` have the time
        `ended`."""
        if lane not in self.open:
            (config,) = lane_configs(entry.cell, [entry.lanes[lane]], entry.dataset)
            runs = self.runs
            self._mark(lane).touch()
            self.open[lane] = runs.begin(_word(entry.label), lane, hparams(config), curve["times"][0]), -1
        run, last = self.open[lane]
        times = [*curve["times"], ended]
        new = [
            (step, times[bisect_left(curve["steps"], step)], by_step[step]) for step in sorted(by_step) if step > last
        ]
        if new:
            with self._closed_after_an_error(lane):
                run.log(new)
            self.open[lane] = run, new[-1][0]

    @contextlib.contextmanager
    def _closed_after_an_error(self, lane: str) -> Iterator[None]:
        """After an error the lane's run is closed, and the next call begins it again."""
        try:
            yield
        except BaseException:
            self._leave(lane)
            raise

    def _leave(self, lane: str) -> None:
        run, _ = self.open.pop(lane)
        with contextlib.suppress(Exception):  # the run is begun again anyway
            run.leave()

    def leave(self) -> None:
        """Closes the runs of unfinished lanes."""
        for lane in list(self.open):
            self._leave(lane)

    def _mark(self, lane: str) -> Path:
        return self.folder / f"{lane}.unfinished"


def _word(label: str) -> str:
    """A cell's label as a part of a path."""
    return re.sub(r"[^\w.=+-]+", "-", label)


def hparams(config: Mapping) -> dict[str, float | bool | str]:
    """The values of a configuration by dotted name, as in `lvp.training.records.table`, without None. Lists are
    text."""
    flat = records.flatten(config)
    return {k: records.dumps(v) if isinstance(v, list) else v for k, v in flat.items() if v is not None}


def scalars(entry: Entry, outcome: Mapping) -> dict[int, dict[str, float]]:
    """The numbers of an outcome: number of steps done → tag → value.

    Tags are those of `curves` and, after the last step, `final/NAME` and `final/diverged` (1 or 0). Values that are not
    finite are left out.
    """
    trained = not isinstance(entry.cell, Calculation)
    last = outcome["steps"] if trained else 0
    by_step: dict[int, dict[str, float]] = defaultdict(dict, curves(entry, outcome, last) if trained else {})
    for name, value in outcome.items():
        if not isinstance(value, list | Mapping):
            by_step[last] |= _numbers(f"final/{name}", value)
    by_step[last]["final/diverged"] = float(outcome["status"] == "diverged")
    return by_step


def curves(entry: Entry, outcome: Mapping, reached: int) -> dict[int, dict[str, float]]:
    """The curves of a lane that has done `reached` steps: number of steps done → tag → value.

    Tags are `curve/train_loss` and, at the measured steps, `measures/NAME`. A measure that is a list has a tag with an
    index for each entry.
    """
    assert not isinstance(entry.cell, Calculation)  # which has no curve
    by_step: dict[int, dict[str, float]] = defaultdict(dict)
    for step, loss in zip(outcome["curve_steps"], outcome["curve_losses"], strict=True):
        by_step[step] |= _numbers("curve/train_loss", loss)
    measured = [step for step in entry.cell.measured_steps if step < reached]
    for name, values in records.flatten(outcome.get("measures") or {}).items():
        for step, value in zip(measured, values, strict=True):
            by_step[step + 1] |= _numbers(f"measures/{name}", value)
    return by_step


def _numbers(tag: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yields the finite numbers in a value, each with its tag."""
    if isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _numbers(f"{tag}.{i}", inner)
    elif isinstance(value, int | float) and abs(value) <= LARGEST:
        yield tag, float(value)
