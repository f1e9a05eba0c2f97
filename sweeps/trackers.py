"""Trackers: the runs of a sweep in TensorBoard, Weights & Biases or MLflow.

A worker calls `begin`, `log` and `end` for each run that it trains. If the worker is killed, another process begins the
run again from the step of its checkpoint. `log_records` logs finished runs afterwards.
"""

import os
import re
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

from lvp.cli.parser import need
from lvp.errors import InputError, printable, unknown
from lvp.training import records, steps_of_parts

LARGEST = (2 - 2**-23) * 2.0**127  # largest finite float32, which TensorBoard stores
Config = Mapping[str, float | bool | str]  # by dotted names


class Tracker:
    """The runs of a sweep in a tool. Several runs may be open.

    The methods do not catch the tool's exceptions; see `quietly`.

    Names of runs, groups and metrics keep ASCII letters, digits and "_.-"; other characters become "-".
    """

    package: ClassVar[str]  # that must be installed
    extra: ClassVar[str]  # that installs the package
    shown_by: ClassVar[str]  # the command that shows or uploads the runs in {folder}

    # A tool defines these methods with the arguments of `begin`, `log` and `end`. Instead of a run, the last two take
    # what `_begin` returned. `_end` also takes the last step, and `finished` is None for an unfinished run.
    _begin: Callable[[str, str, Config, int], Any]
    _log: Callable[[Any, int, dict[str, float]], None]
    _end: Callable[[Any, int, dict[str, float], bool | None], None]

    def __init__(self, folder: Path, sweep: str):
        """Makes the folder for the tool's files. `sweep` names the sweep in the tool."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.sweep = folder, _word(sweep)
        self.open: dict[str, tuple[Any, int]] = {}  # run → what `_begin` returned, last step

    def begin(self, run: str, group: str, config: Config, step: int) -> None:
        """Begins a run, or continues it after `step` steps (0 for a new run).

        TensorBoard replaces later points of an earlier process. W&B and MLflow keep them and ignore new ones of their
        steps. So every step is there once.

        Args:
          group: the label of the run's configuration.
          config: the configuration, from `hparams`.
        """
        if run in self.open:
            self._end(*self.open.pop(run), {}, None)
        config = {_word(name): printable(x) if isinstance(x, str) else x for name, x in config.items()}
        self.open[run] = self._begin(_word(run), _word(group), config, step), step

    def log(self, run: str, step: int, metrics: Mapping[str, Any]) -> None:
        """Logs numbers of an open run after `step` steps. Leaves out values that are not finite in float32."""
        self.open[run] = self.open[run][0], step
        if finite := _finite(metrics):
            self._log(self.open[run][0], step, finite)

    def end(self, run: str, finished: bool, metrics: Mapping[str, Any]) -> None:
        """Ends a run, as failed if it has diverged.

        Args:
          metrics: numbers, for example those of an outcome. They are logged as `final/NAME` at the last step.
        """
        self._end(*self.open.pop(run), _finite(metrics, "final/"), finished)

    def close(self) -> None:
        """Closes the open runs as unfinished."""
        while self.open:
            self._end(*self.open.popitem()[1], {}, None)


class TensorBoard(Tracker):
    """Event files in FOLDER/GROUP/RUN. A finished run has the status "success", another one "unknown"."""

    package, extra, shown_by = "tensorboardX", "lab", "tensorboard --logdir {folder}"

    def _begin(self, run: str, group: str, config: Config, step: int) -> Any:
        import tensorboardX

        writer = tensorboardX.SummaryWriter(
            logdir=str(self.folder / group / run),
            purge_step=step + 1 if step else 0,
            max_queue=0,  # no limit: a full queue would block training after the thread that writes has failed
            filename_suffix=f".{time.time_ns()}",  # two files of a run may begin in the same second
        )
        # `add_hparams` would also write a list of columns. TensorBoard takes the first run's list for all runs.
        _, start, success = tensorboardX.summary.hparams({**config}, {})
        writer.file_writer.add_summary(start)
        return writer, success

    def _log(self, handle: Any, step: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            handle[0].add_scalar(name, value, step)
        handle[0].flush()  # raises the errors of the disk here

    def _end(self, handle: Any, step: int, metrics: dict[str, float], finished: bool | None) -> None:
        self._log(handle, step, metrics)
        if finished:
            handle[0].file_writer.add_summary(handle[1])
        handle[0].close()


class Wandb(Tracker):
    """Runs of Weights & Biases in FOLDER/wandb, online or offline as WANDB_MODE says."""

    package, extra, shown_by = "wandb", "wandb", "wandb sync {folder}/wandb"

    def _begin(self, run: str, group: str, config: Config, step: int) -> Any:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read at import
        import wandb

        if step == 0:  # W&B cannot continue an offline run, and the new one has all steps
            for earlier in self.folder.glob(f"wandb/offline-run-*-{run}"):
                shutil.rmtree(earlier)
        names = {"project": self.sweep, "group": group, "id": run, "name": run}
        private = {"host": "", "save_code": False, "x_disable_machine_info": True, "x_save_requirements": False}
        several = {"resume": "allow", "reinit": "create_new"}  # runs are open in this process
        settings = wandb.Settings(silent=True, console="off", **private)
        return wandb.init(**names, **several, config={**config}, dir=self.folder, settings=settings)

    def _log(self, handle: Any, step: int, metrics: dict[str, float]) -> None:
        handle.log(metrics, step=step)

    def _end(self, handle: Any, step: int, metrics: dict[str, float], finished: bool | None) -> None:
        handle.summary.update(metrics)  # a point would be ignored where W&B has its step already
        handle.finish(exit_code=0 if finished else 1)


class Mlflow(Tracker):
    """Runs of MLflow at MLFLOW_TRACKING_URI, by default in a file store in the folder.

    The driver makes a tracker first, because workers that begin at the same time would make the sweep's experiment
    twice.
    """

    package, extra = "mlflow", "mlflow"
    shown_by = "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {folder}"

    def __init__(self, folder: Path, sweep: str):
        super().__init__(folder, sweep)
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # SQLite does not work on shared file systems
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read at import
        import mlflow

        self.entities = mlflow.entities
        self.client = mlflow.MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or folder.resolve().as_uri())
        found = self.client.get_experiment_by_name(self.sweep)
        self.experiment = found.experiment_id if found else self.client.create_experiment(self.sweep)

    def _begin(self, run: str, group: str, config: Config, step: int) -> Any:
        logged = set()
        if found := self.client.search_runs([self.experiment], f"attributes.run_name = '{run}'", max_results=1):
            id, names = found[0].info.run_id, found[0].data.metrics
            self.client.update_run(id, status="RUNNING")
            logged = {(name, point.step) for name in names for point in self.client.get_metric_history(id, name)}
        else:
            id = self.client.create_run(self.experiment, tags={"group": group}, run_name=run).info.run_id
        params = [self.entities.Param(name, str(value)) for name, value in config.items()]
        for i in range(0, len(params), 100):  # the most that MLflow takes at once
            self.client.log_batch(id, params=params[i : i + 100])
        return id, logged

    def _log(self, handle: Any, step: int, metrics: dict[str, float]) -> None:
        (id, logged), now = handle, round(1000 * time.time())
        new = {name: value for name, value in metrics.items() if (name, step) not in logged}
        self.client.log_batch(id, metrics=[self.entities.Metric(name, x, now, step) for name, x in new.items()])

    def _end(self, handle: Any, step: int, metrics: dict[str, float], finished: bool | None) -> None:
        self._log(handle, step, metrics)
        self.client.set_terminated(handle[0], {True: "FINISHED", False: "FAILED", None: "KILLED"}[finished])


TRACKERS: Mapping[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": Wandb, "mlflow": Mlflow}


def known(name: str) -> type[Tracker]:
    """The class of a tracker.

    Raises:
      InputError: the name is not in `TRACKERS`, or the package of the tool is not installed.
    """
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)
    need(f"--track {name}", TRACKERS[name].package, extra=TRACKERS[name].extra)
    return TRACKERS[name]


def tracker(name: str, folder: Path, sweep: str) -> Tracker:
    """A tracker of a sweep.

    Raises:
      InputError: the name is not in `TRACKERS`, the package of the tool is not installed, or the tool cannot begin.
    """
    make = known(name)
    try:
        return make(folder, sweep)
    except Exception as error:  # tools define their own exceptions
        raise InputError(f"--track {name}: {_line(error)}; repair it, or choose another tool") from None


def quietly(tracker: Tracker) -> Tracker:
    """The tracker, which from now on catches the exceptions of its tool.

    The first exception becomes a warning of one line on standard error. After it the methods do nothing.
    """

    def quiet(method: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            try:
                method(*arguments)
            except Exception as error:  # tools define their own exceptions
                print(f"tracking stopped, training continues: {_line(error)}", file=sys.stderr)
                vars(tracker).update(dict.fromkeys(methods, lambda *arguments: None))

        return call

    methods = ("begin", "log", "end", "close")
    vars(tracker).update({name: quiet(getattr(tracker, name)) for name in methods})
    return tracker


def _line(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {error}".splitlines()[0])


def hparams(config: Mapping) -> dict[str, float | bool | str]:
    """The values of a configuration by dotted name, without None. Lists are text in JSON."""
    flat = records.flatten(config).items()
    return {name: records.dumps(x) if isinstance(x, list) else x for name, x in flat if x is not None}


def metrics_of(outcome: Mapping[str, Any], steps: Sequence[int]) -> Iterator[tuple[int, dict[str, float]]]:
    """Yields the points of a record's outcome in the order of steps: the number of steps done, and the metrics.

    `train_loss`, `gradient_norm` and `learning_rate` are the curves; records of earlier versions have only the first.
    `measures/NAME` are values at the measured `steps`, which count from 0, with an index for each entry of a list.
    `final/NAME` are values after the last step. A calculation has at most one point, at step 0.
    """
    by_step: dict[int, dict[str, Any]] = defaultdict(dict)
    last = outcome["steps"] if "curve_steps" in outcome else 0
    curves = {"train_loss": "losses", "gradient_norm": "gradient_norms", "learning_rate": "rates"}
    for name, key in curves.items():
        for step, value in zip(outcome.get("curve_steps", ()), outcome.get(f"curve_{key}", ()), strict=False):
            by_step[step][name] = value
    for name, values in records.flatten(outcome.get("measures") or {}).items():
        for step, value in zip([step for step in steps if step < last], values, strict=True):
            by_step[step + 1] |= _entries(f"measures/{name}", value)
    by_step[last] |= _finite(outcome, "final/")
    yield from ((step, _finite(by_step[step])) for step in sorted(by_step))


def log_records(tracker: Tracker, rows: Iterable[Mapping], groups: Mapping[str, str] | None = None) -> None:
    """Logs finished runs from their records.

    Args:
      groups: run → label of its setting; the default is the hash of the setting.
    """
    for row in rows:
        run, outcome, setting = row["hash"], row["outcome"], row["config"]["cell"]
        steps = setting.get("measured_steps") or steps_of_parts(
            setting.get("measured_parts", ()), outcome.get("steps", 0)
        )
        tracker.begin(run, (groups or {}).get(run) or records.config_hash(setting), hparams(row["config"]), 0)
        for step, metrics in metrics_of(outcome, steps):
            tracker.log(run, step, metrics)
        tracker.end(run, outcome["status"] == "finished", {})


def _entries(name: str, value: Any) -> dict[str, Any]:
    """The entries of a nested list by name and indices; another value by its name."""
    if not isinstance(value, list):
        return {name: value}
    return {k: x for i, entry in enumerate(value) for k, x in _entries(f"{name}.{i}", entry).items()}


def _finite(metrics: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers that a tool can store. NaN fails the comparison."""
    numbers = {f"{prefix}{k}": float(x) for k, x in metrics.items() if isinstance(x, Real)}
    return {"/".join(map(_word, k.split("/"))): x for k, x in numbers.items() if abs(x) <= LARGEST}


def _word(text: str) -> str:
    """The text as a name in a path, in ASCII."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:100].lstrip(".") or "-"
