"""Ray Tune: the executor `ray`, and `trainable`, which puts an experiment into a user's own `tune.Tuner`.

The executor uses Tune only to schedule packs (runs that are trained together). An interrupted pack continues from its
checkpoints in the store. Tune's own restore is not exact and is not used.
"""

import contextlib
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import tune

from lvp import experiments, roles, training
from lvp.errors import InputError, unknown
from lvp.experiments.common import user_experiments
from lvp.experiments.common.experiment import Calculation, SettingRuns
from lvp.files import checkpoints
from lvp.parallel.hardware import cores
from lvp.signals import handled
from lvp.sweeps.executors import DEATHS, ROOT, Machines, Progress, debugging
from lvp.sweeps.sweep import plan, prepared
from lvp.sweeps.work import VARIABLES, Job, Pack, Worker, described, is_full
from lvp.training import records, task_for

SLICE = 2.0  # seconds between two results of a trial
LONGEST_TMPDIR = 38  # characters: the paths of Ray's sockets are 69 longer, and Linux takes 107


class Trial(tune.Trainable):
    """Trains a pack of a sweep. Each result reports its progress.

    Tune reuses the actor for its next trials, so the worker keeps its compiled programs.
    """

    def setup(self, config: dict) -> None:
        self.worker: Worker | None = None
        self.reset_config(config)

    def reset_config(self, new_config: dict) -> bool:
        self.job = Job(**new_config["job"])
        self.number, self.pack = new_config["pack"]  # the pack's number in the sweep, and the pack as JSON
        self.training: Iterator[int] | None = None
        return True

    def step(self) -> dict:
        at, ends = 0, time.monotonic() + SLICE
        answer: dict[str, Any] = {"error": None}
        try:
            self.worker = self.worker or Worker(self.job)
            self.training = self.training or self.worker.train(Pack(**self.pack))
            for at in self.training:
                if time.monotonic() > ends:
                    return {"pack": self.number, "step": at, "done": False}
        except Exception as error:  # otherwise Tune would repeat the trial, as after its actor's death
            logging.exception("a pack failed")
            answer = {"error": described(error), "full": is_full(error)}
        self.training = None
        return {"pack": self.number, "step": at, "done": True, **answer}

    def cleanup(self) -> None:
        """Saves a checkpoint of the pack in training, if there is one."""
        if self.worker is not None and self.training is not None:
            self.worker.stopping = True
            for _ in self.training:
                pass

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        return None

    def load_checkpoint(self, checkpoint: Any) -> None:
        return None


class _Reporter(tune.Callback, tune.Stopper):
    """Forwards the results of trials, and stops all trials when a disk is full."""

    def __init__(self, packs: Sequence[Pack], report: Callable[[Progress], None]):
        self.packs, self.report, self.full = packs, report, False
        self.ended: set[int] = set()
        self.died: dict[str, int] = {}  # trial → its pack, for trials that Tune gave up after `DEATHS` retries

    def __getstate__(self) -> dict:
        return {}  # Tune pickles this object for its restore, which is not used

    def __call__(self, trial_id: str, result: dict) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.full

    def on_trial_result(self, iteration: int, trials: list, trial: Any, result: dict, **_: Any) -> None:
        number, ended = result["pack"], result["done"]
        if ended:
            self.ended.add(number)
            self.full = self.full or result.get("full", False)
        self.report(Progress(self.packs[number], result["step"], ended, result.get("error")))

    def on_trial_error(self, iteration: int, trials: list, trial: Any, **_: Any) -> None:
        # The pack is read here: the final result of a trial that died before its first report has no `config`.
        self.died[trial.trial_id] = trial.config["pack"][0]


class RayTune:
    """The executor `ray`, on this machine or on a cluster.

    Args:
      address: the cluster to join; None uses the Ray that this process has started, or starts Ray on this machine.

    Raises:
      InputError: Ray cannot be started or joined.
    """

    def __init__(self, address: str | None):
        for name in ("ray.tune", "ray.train"):  # silent, because `report` receives all failures
            logging.getLogger(name).setLevel(logging.CRITICAL)
        os.environ |= {
            "RAY_AIR_NEW_OUTPUT": "0",
            "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
            "TUNE_GLOBAL_CHECKPOINT_S": "1000000",  # Tune's restore is not used
        }
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self.started, self.cluster = not ray.is_initialized(), address is not None
        if not self.started:
            if self.cluster:
                raise InputError(f"--ray-address {address}: this process already uses a Ray; call ray.shutdown() first")
        elif address is None:
            _start()
        else:
            _join(address)

    def machines(self) -> Machines:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        for kind in ("TPU", "GPU", "CPU"):
            if amounts := [int(node[kind]) for node in nodes if node.get(kind, 0) >= 1]:
                if kind == "TPU":  # one process uses all chips of its machine, so a machine has one worker
                    return Machines("tpu", [1] * len(amounts), min(amounts))
                return Machines(kind.lower(), amounts, min(amounts) if kind == "GPU" else 1)
        raise InputError("Ray has no CPUs, GPUs or TPUs for workers; add a machine, or use --executor local")

    def run(self, packs: Sequence[Pack], job: Job, workers: int, report: Callable[[Progress], None]) -> None:
        reporter = _Reporter(packs, report)
        found = self.machines()
        units = found.devices if job.mesh or found.platform == "tpu" else job.threads or 1
        folder = tempfile.mkdtemp(prefix="lvp-tune-")

        def as_sigint(*_: Any) -> None:  # Tune ends its trials on SIGINT only
            os.kill(os.getpid(), signal.SIGINT)

        try:
            null = open(os.devnull, "w", encoding="utf-8")
            with handled(as_sigint, signal.SIGTERM), null, contextlib.redirect_stdout(null):
                results = tune.Tuner(
                    tune.with_resources(Trial, {found.platform.upper(): units}),
                    param_space={
                        "job": asdict(job),
                        "pack": tune.grid_search([(i, pack.as_json()) for i, pack in enumerate(packs)]),
                    },
                    tune_config=tune.TuneConfig(
                        reuse_actors=True,
                        max_concurrent_trials=None if self.cluster else workers,
                        trial_dirname_creator=lambda trial: trial.trial_id,  # the default, all hashes, is too long
                    ),
                    run_config=tune.RunConfig(
                        name="tune",
                        storage_path=folder,
                        verbose=0,
                        callbacks=[reporter],
                        stop=reporter,
                        failure_config=tune.FailureConfig(max_failures=DEATHS),
                        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False, checkpoint_frequency=0),
                    ),
                ).fit()
        except (tune.TuneError, ray.exceptions.RayError) as error:
            raise RuntimeError(_in_one_line(error)) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._report_deaths(results, reporter, report)

    def _report_deaths(self, results: Any, reporter: _Reporter, report: Callable[[Progress], None]) -> None:
        """Reports the unfinished packs of trials that Tune gave up.

        Raises:
          KeyboardInterrupt: packs did not end, although no trial failed and no disk is full.
        """
        for result in results:
            number = reporter.died.get(Path(result.path).name)
            if result.error and number is not None and number not in reporter.ended:
                reporter.ended.add(number)
                report(Progress(reporter.packs[number], done=True, error=_in_one_line(result.error)))
        if len(reporter.ended) < len(reporter.packs) and not reporter.full and not results.errors:
            raise KeyboardInterrupt  # `fit` returns after SIGINT and does not raise it

    def close(self) -> None:
        if self.started:
            ray.shutdown()


def _start() -> None:
    """Starts Ray on this machine.

    Raises:
      InputError: Ray cannot be started.
    """
    removed = {name: os.environ.pop(name) for name in debugging()}  # Ray's processes inherit the environment
    long = len(tempfile.gettempdir()) > LONGEST_TMPDIR
    try:
        _init(
            "cannot start Ray on this machine",
            "--executor local runs without Ray",
            {"env_vars": {**VARIABLES, "PYTHONPATH": str(ROOT)}},
            address="local",  # ignores RAY_ADDRESS
            include_dashboard=False,
            num_cpus=cores(),
            _temp_dir=f"/tmp/ray-{os.getuid()}" if long else None,
        )
    finally:
        os.environ |= removed


def _join(address: str) -> None:
    """Joins a Ray cluster, whose workers get this copy of lvp.

    Raises:
      InputError: the cluster cannot be joined.
    """
    _check_answers(address)
    environment = {"env_vars": VARIABLES, "py_modules": [str(ROOT / "lvp")]}
    hint = "set RAY_AUTH_MODE=token if the cluster requires a token"
    _init(f"cannot join the Ray cluster at {address}", hint, environment, address=address)


def _check_answers(address: str) -> None:
    """Checks that a server answers at HOST:PORT. Without a server Ray would wait for minutes.

    Raises:
      InputError: no server answers.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not (host and port.isdigit()):  # an address without HOST:PORT, such as "auto"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"--ray-address {address}: no Ray answers ({reason}); see `ray start --head`") from None


def _init(problem: str, hint: str, environment: dict[str, Any], **options: Any) -> None:
    try:
        ray.init(runtime_env=environment, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # a plain Exception if Ray takes more than 30 s to start
        raise InputError(f"{problem}: {_in_one_line(error)} ({hint})") from None


def _in_one_line(error: BaseException) -> str:
    """Ray's error in one line: a line about memory if there is one, else the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "low on memory" in line), lines[-1] if lines else type(error).__name__)


class Training(tune.Trainable):
    """Trains one run of the setting that `choose` returns. `trainable` makes a subclass for each setting."""

    choose: Callable[[], SettingRuns]

    def setup(self, config: dict) -> None:
        self.chosen = self.choose()
        (self.of_sweep,) = plan([self.chosen], prepared([self.chosen]))
        self.task = task_for(self.of_sweep.setting)
        self.program, self.feed = self.task.program(), self.task.load(self.of_sweep.dataset)
        self.reset_config(config)

    def reset_config(self, new_config: dict) -> bool:
        self.run = with_hyperparameters(self.chosen.runs[0], new_config)
        self._begin(0, None)
        return True

    def _begin(self, step: int, state: Any) -> None:
        self.at, self.state = step, state
        self.chunks = training.chunks(self.program, [self.run], self.feed([self.run]), state=state, step=step)

    def step(self) -> dict:
        before = self.at
        try:
            self.at, self.state = next(self.chunks)
        except StopIteration as end:
            outcome = self.task.outcome(self.of_sweep.dataset, end.value[0])
            return {"step": self.at, **records.flatten(outcome), "done": True}
        losses = np.asarray(self.state["losses"])[before : self.at]
        return {"step": self.at, "train_loss": float(losses.mean()), "done": False}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        checkpoints.save_step(Path(checkpoint_dir), self.at, training.unstack(self.state, 0, 1), self._hash())

    def load_checkpoint(self, checkpoint: Any) -> None:
        latest = checkpoints.latest(Path(checkpoint), self.program.run_shapes(), self._hash())
        if latest is not None:
            self._begin(*latest[:2])

    def _hash(self) -> str:
        return records.config_hash(self.of_sweep.config(self.run))


def trainable(
    experiment: str, preset: str = "laptop", *, setting: str | None = None, **config: Any
) -> type[tune.Trainable]:
    """A trainable of an experiment's setting, for a `tune.Tuner` of your own.

    A hyperparameter is a field of a run, such as `seed`, or the name of a role (`embedding`, …), which sets the role's
    learning rate. A field without a hyperparameter has its value in the setting's first run. Every result has `step`.
    The last result also has the outcome, such as `valid_loss`. Every other result has `train_loss`, the mean since the
    result before. Tune may pause and stop runs.

    Args:
      experiment, preset, config: as for `lvp.sweeps.run`. The workers execute a file of yours.
      setting: the label of a setting; None is the first setting.

    Raises:
      InputError: the experiment, the preset, the setting or a field is unknown, the configuration refuses a value, a
        file of yours cannot be loaded, or the setting is a function that trains or calculates by itself.
    """
    source = user_experiments.source(experiment) if user_experiments.is_file(experiment) else None
    content = None if source is None else Path(source.path).read_bytes()  # the file may be absent on other machines

    def choose() -> SettingRuns:
        loaded = experiments.load(experiment, source, content)
        by_label = {each.label: each for each in loaded.settings(experiments.configured(loaded, preset, config))}
        if setting is not None and setting not in by_label:
            raise unknown("setting", setting, by_label)
        return by_label[setting or next(iter(by_label))]

    chosen = choose()  # names every unusable argument here, and not in a worker
    if isinstance(chosen.setting, Calculation):
        raise InputError(f"setting {chosen.label} of {experiment} has no steps that Tune could stop: call it yourself")
    return type("Training", (Training,), {"choose": staticmethod(choose)})


def with_hyperparameters(run: Any, values: Mapping[str, Any]) -> Any:
    """The run with other values of some hyperparameters (`trainable`).

    Raises:
      InputError: a name is neither a role nor a field of a run, or the run refuses a value.
    """
    own = {field.name for field in fields(run)}
    by_role = roles.ROLES if "learning_rates" in own else ()  # a model of your own has one rate
    known = [*by_role, *sorted(own - {"learning_rates", "init_std"})]
    for name in values:
        if name not in known:
            raise unknown("hyperparameter", name, known)
    rates = {name: float(value) for name, value in values.items() if name in by_role}
    others = {name: value for name, value in values.items() if name not in rates}
    if rates:
        others["learning_rates"] = {**run.learning_rates, **rates}
    return replace(run, **others)
