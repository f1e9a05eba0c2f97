"""Runs trials under Ray Tune, on one machine or on a cluster.

Tune only schedules. A trial resumes its lanes from the sweep's directory. Tune's own restore is not exact and is not
used. Actors are reused.
"""

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray._private import ray_constants

import experiments
import lvp
from lvp.errors import InputError
from lvp.files.private import private_directory
from lvp.parallel.hardware import cores
from sweeps.driver import working_copy
from sweeps.driver.background import background
from sweeps.driver.manifest import NAME, Manifest, resume_command
from sweeps.driver.options import Options
from sweeps.executors import cluster
from sweeps.executors.cluster import Refused
from sweeps.executors.gang import Gang, as_options, why_path
from sweeps.executors.local import GRACE, ROOT
from sweeps.executors.machine_check import MachineCheck
from sweeps.executors.saves import Saves
from sweeps.worker.joined_copy import INTERVAL
from sweeps.worker.stop import Reason, Stop
from sweeps.worker.worker import RETRIES, Settings, Worker, is_full, one_line


class TuneTrial(tune.Trainable):
    """A trial of the sweep. Tune reuses the actor, so the worker keeps its compiled programs."""

    def setup(self, config):
        self.gang: Gang | None = None
        self.refused: Refused | None = None
        self.trial_to_run = config["trial"]
        try:
            self.gang = Gang(config["machine_check"], Settings(**config["settings"]), config["resources"])
        except Refused as error:  # if raised here, Tune would retry on the same machine
            self.refused = error

    def reset_config(self, new_config):
        self.trial_to_run = new_config["trial"]
        return True

    def step(self):
        try:
            if self.refused:
                raise self.refused
            assert self.gang is not None  # `setup` sets `gang` or `refused`
            return {"report": self.gang.run_trial(self.trial_to_run), "done": True}
        except Refused as error:
            return {"problem": str(error), "full": False, "refused": error.node, "done": True}
        except Exception as error:  # if raised, Tune would retry it as it retries a dead worker
            logging.exception("trial failed")
            return {"problem": one_line(error), "full": is_full(error), "done": True}

    def cleanup(self):
        if self.gang is not None:
            self.gang.end()

    def save_checkpoint(self, checkpoint_dir):
        return None

    def load_checkpoint(self, checkpoint):
        return None


class _Reporter(tune.Callback, tune.Stopper):
    """Forwards reports and failures of trials, and stops all trials when a disk is full.

    Attributes:
      refused: trials that a machine refused.
      refusing: names in Ray of the machines that refused trials.
    """

    def __init__(self, on_done, on_failed):
        self.on_done, self.on_failed, self.stop = on_done, on_failed, Stop()
        self.refused: list[dict] = []
        self.refusing: set[str] = set()

    def __getstate__(self):
        return {}  # Tune pickles the object for its restore, which is not used

    def __call__(self, trial_id, result):
        return False

    def stop_all(self):
        return self.stop.reason is not None

    def on_trial_result(self, iteration, trials, trial, result, **_):
        if "problem" in result:
            self.on_failed(trial.config["trial"], result["problem"])
            if result["full"]:
                self.stop.set(Reason.DISK_FULL)
            if "refused" in result:
                self.refused.append(trial.config["trial"])
                self.refusing.add(result["refused"])
        else:
            self.on_done(result["report"])


class RayExecutor:
    """Starts Ray on this machine or joins the cluster at `options.ray_address`, and runs trials there."""

    def __init__(self, out: Path, options: Options, settings: Settings | None = None):
        self.out = out
        os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
        os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1000000")  # Tune's restore is not used
        variables = (settings or Settings()).variables()
        # Tune would log the traceback of each worker that dies. The driver reports the trial.
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"  # the handler would kill workers before they save
        stop = signal.getsignal(signal.SIGTERM)
        address, again = options.ray_address, resume_command(out, *options.resume_options())
        self.watch = cluster.Watch(address, f"`{again}` continues from here")
        self.watch.start()
        try:
            if address is None:
                _start_ray(variables)
            else:
                join_cluster(address, variables)
        except BaseException:
            self.watch.close()
            raise
        self.watch.end_witness()
        if stop is not None:  # Ray's handler would end this process immediately
            signal.signal(signal.SIGTERM, stop)
        self.cluster = address is not None
        # Workers of other machines write to the bucket. This process downloads their files into its copy.
        self.copy = working_copy.get(out) if self.cluster else None
        # Tune writes into `out` only if machines share `out`. If a user moves `out`, Tune creates it again.
        shared = self.cluster and self.copy is None
        self.storage = out / "ray" if shared else Path(tempfile.mkdtemp(prefix="lvp-tune-"))
        self.machine_check: MachineCheck | None = None

    def check_machines(self, manifest: Manifest) -> None:
        """Raises InputError if a machine of the cluster does not see the same sweep as the driver."""
        self.machine_check = MachineCheck.for_manifest(manifest, self.copy.bucket.address if self.copy else None)
        if self.cluster:
            kind, _ = self._of_machines(Settings())
            nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get(kind)]
            cluster.check_machines(self.machine_check, nodes)

    def _of_machines(self, settings: Settings, refusing: Collection[str] = ()) -> tuple[str, list[float]]:
        """The resource that workers use, and its amount on each machine that has it. Skips the machines `refusing`. The
        list is empty if all machines refuse."""
        nodes = [n for n in ray.nodes() if n["Alive"]]
        for kind in ("TPU", "GPU", "CPU") if settings.accelerator else ("CPU",):
            if amounts := {n["NodeID"]: n["Resources"][kind] for n in nodes if n["Resources"].get(kind)}:
                return kind, [amount for node, amount in amounts.items() if node not in refusing]
        where = "the Ray cluster" if self.cluster else "Ray on this machine"
        raise InputError(
            f"{where} has no CPUs, GPUs or TPUs that can run trials; add a machine, or use --executor local"
        )

    def accelerators(self) -> int:
        """The number of workers that can own an accelerator each. A worker owns one GPU, or all TPU chips of a host."""
        kind, amounts = self._of_machines(Settings())
        return {"TPU": len(amounts), "GPU": int(sum(amounts)), "CPU": 0}[kind]

    def machines(self) -> int:
        """The number of machines that can hold a mesh or a part of a mesh."""
        return len(self._of_machines(Settings())[1])

    def cores(self) -> list[int]:
        """The numbers of cores for workers, one number per machine."""
        return [int(amount) for amount in self._of_machines(Settings(accelerator=False))[1]]

    def _resources(self, settings: Settings) -> dict[str, float]:
        """The resources of one worker. With a mesh, a worker has the whole machine.

        Raises InputError if no machine has as many cores as a worker has threads: Ray would wait forever.
        """
        kind, amounts = self._of_machines(settings)
        if settings.mesh is not None or kind == "TPU":
            return {kind: min(amounts)}
        if kind == "CPU" and settings.threads > max(amounts):
            raise InputError(f"threads={settings.threads} must be at most {max(amounts):g}, the cores of one machine")
        return {kind: 1 if kind == "GPU" else settings.threads}

    def probe(self, settings: Settings, calls: Iterable[tuple], workers: int = 1) -> list[list]:
        """Makes the calls (method, *arguments) on each of `workers` new workers at the same time. Returns the answers
        of each worker."""
        for left in reversed(range(RETRIES + 1)):
            try:
                return self._probe(settings, calls, workers)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError as error:  # for example, the machine has left the cluster
                if not left:
                    raise RuntimeError(cluster.why(error)) from None
        raise AssertionError("the last try returns or raises")

    def _probe(self, settings: Settings, calls: Iterable[tuple], workers: int) -> list[list]:
        options = as_options(self._resources(settings))
        actors: list[Any] = [ray.remote(Worker).options(**options).remote(self.out, settings) for _ in range(workers)]
        try:
            pending = [[getattr(a, name).remote(*args) for name, *args in calls] for a in actors]
            return [ray.get(p) for p in pending]
        finally:
            for a in actors:
                ray.kill(a)

    def run(
        self,
        trials: list[dict],
        settings: Settings,
        workers: int,
        on_done: Callable[[dict], None],
        on_failed: Callable[[dict, str], None],
    ) -> None:
        """Runs all trials; see `LocalExecutor.run`.

        Tune retries a trial if its worker dies. If the retries are used up but the trial made progress, it runs again.
        A machine that does not see the sweep's files refuses trials; other machines run these trials at the end.
        """
        with background(self._follow) if self.copy else contextlib.nullcontext():
            self._run(trials, settings, workers, on_done, on_failed)

    def _follow(self, ended: threading.Event) -> None:
        """Downloads the progress and the records of other machines."""
        assert self.copy is not None
        while not ended.wait(INTERVAL):
            try:
                self.copy.pull_workers()
            except OSError as error:
                logging.warning("%s; the download is tried again", error)

    def _run(self, trials: list[dict], settings: Settings, workers: int, on_done, on_failed) -> None:
        refusing: set[str] = set()
        manifest = Manifest.read(self.out)
        while trials:
            for trial in trials:  # earlier gangs may have left messages
                why_path(self.out, trial["id"]).unlink(missing_ok=True)
            reporter = _Reporter(on_done, on_failed)
            before = {trial["id"]: manifest.reached(trial["lanes"]) for trial in trials}
            died = self._fit(trials, settings, workers, reporter, refusing)
            further = []
            for trial, problem in died:
                if manifest.reached(trial["lanes"]) != before[trial["id"]] and reporter.stop.reason is None:
                    further.append(trial)
                else:
                    on_failed(trial, problem)
            refusing |= reporter.refusing
            _, others = self._of_machines(settings, refusing)
            if len(others) >= settings.hosts and reporter.stop.reason is None:
                further += reporter.refused
            trials = further

    def _fit(
        self, trials, settings: Settings, workers: int, reporter: _Reporter, refusing: Collection[str]
    ) -> list[tuple[dict, str]]:
        """Runs the trials under Tune. Returns the trials whose retries were used up, with the reasons."""
        started = time.time()
        assert self.machine_check is not None  # set by `check_machines`
        resources = self._resources(settings)
        strategy = "PACK" if settings.hosts == 1 else "STRICT_SPREAD"
        selector = {"ray.io/node-id": f"!in({','.join(sorted(refusing))})"} if refusing else {}
        bundles = tune.PlacementGroupFactory(
            [resources] * settings.hosts, strategy=strategy, bundle_label_selector=[selector] * settings.hosts
        )
        tuner = tune.Tuner(
            tune.with_resources(TuneTrial, bundles),
            param_space={
                "machine_check": self.machine_check,
                "settings": asdict(settings),
                "resources": resources,
                "trial": tune.grid_search(trials),
            },
            tune_config=tune.TuneConfig(
                reuse_actors=True,
                max_concurrent_trials=None if self.cluster else workers,
                trial_dirname_creator=lambda trial: trial.config["trial"]["id"],  # by default all hashes: too long
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(self.storage),
                verbose=0,
                callbacks=[reporter],
                stop=reporter,
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False, checkpoint_frequency=0),
            ),
        )
        # Tune prints warnings about missing keys of its own result dictionary.
        try:
            with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
                results = tuner.fit()
        except KeyboardInterrupt:
            reporter.stop.set(Reason.INTERRUPTED)
            self._let_workers_save(started)
            raise
        except (tune.TuneError, ray.exceptions.RayError) as error:
            raise RuntimeError(cluster.why(error)) from None
        # r.config is None if no worker has reported, so the directory's name gives the trial.
        named = ((Path(r.path).name, r.error) for r in results)  # type: ignore[attr-defined]  # by __len__ and __getitem__
        errors = {trial: error for trial, error in named if error}
        return [(trial, self._why(trial, errors[trial["id"]])) for trial in trials if trial["id"] in errors]

    def _why(self, trial: dict, error: Exception) -> str:
        gangs_reason = why_path(self.out, trial["id"])
        return gangs_reason.read_text() if gangs_reason.exists() else cluster.why(error)

    def _let_workers_save(self, started: float) -> None:
        """Asks the workers to save, and waits until all workers that reported progress since `started` have saved. The
        wait is limited to `GRACE` seconds, or to the end of a save that has begun (`Saves`)."""
        if not (self.out / NAME).exists():  # the directory was moved
            return
        manifest, deadline = Manifest.read(self.out), time.monotonic() + GRACE
        saves = Saves(manifest, started)
        manifest.leave_path.touch()
        try:
            self._push()
            while time.monotonic() < deadline or saves.running():
                if self.copy and self.copy.problem:  # no progress of other machines arrives
                    break
                finished = manifest.finished()  # a worker that finishes its lanes saves no checkpoint
                unsaved = (p for p in manifest.read_progress() if p["time"] > started)
                if all(finished.issuperset(p["lanes"]) for p in unsaved):
                    break
                time.sleep(0.2)
        finally:  # also after a second interrupt
            manifest.leave_path.unlink(missing_ok=True)
            self._push()

    def _push(self) -> None:
        """Uploads the file `leave`, or deletes its object. After an error, workers end without a last save."""
        if self.copy:
            try:
                self.copy.push()
            except (OSError, RuntimeError) as error:
                logging.warning("%s", error)

    def close(self) -> None:
        ray.shutdown()
        self.watch.close()
        if self.storage.parent != self.out:
            shutil.rmtree(self.storage, ignore_errors=True)


def join_cluster(address: str, variables: Mapping[str, str]) -> None:
    """Joins the Ray cluster at `address`. Its workers get the packages of this clone and the environment variables.

    Raises:
      InputError: the cluster cannot be joined.
    """
    packages = [*(str(Path(str(p.__file__)).parent) for p in (lvp, experiments)), str(ROOT / "sweeps")]
    problem = f"cannot join the Ray cluster at {address}"
    hint = "set RAY_AUTH_MODE=token if the cluster requires a token"
    _init(problem, hint, {"env_vars": dict(variables), "py_modules": packages}, address=address)


def _start_ray(variables: Mapping[str, str]) -> None:
    """Starts Ray on this machine. Raises InputError if it cannot be started."""
    problem, hint = "cannot start Ray on this machine", "--executor local runs without Ray"
    with _on_loopback():
        _init(
            problem,
            hint,
            {"env_vars": {**variables, "PYTHONPATH": str(ROOT)}},
            address="local",  # ignores RAY_ADDRESS
            include_dashboard=False,
            num_cpus=cores(),
            # Short, because paths of Unix sockets are limited to 107 bytes.
            _temp_dir=str(_session_directory()),
        )


def _init(problem: str, hint: str, environment: dict[str, Any], **options: Any) -> None:
    try:
        ray.init(runtime_env=environment, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # a plain Exception if Ray takes more than 30 s to start
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{problem}: {reason} ({hint})") from None


def _session_directory() -> Path:
    """A directory for Ray's sessions, inside a private directory, because Ray lets all users write to its directory."""
    try:
        return private_directory() / "ray"
    except OSError:
        return Path(tempfile.mkdtemp(prefix="lvp-")) / "ray"


@contextlib.contextmanager
def _on_loopback():
    """Makes Ray listen on 127.0.0.1 alone if Ray starts in the block.

    `ray.init` has no argument for this: with 127.0.0.1 as its address, Ray uses the machine's network address and
    listens on all interfaces.
    """
    before, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
