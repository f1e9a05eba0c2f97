"""The work on one pack: last common checkpoint → training → records.

A worker trains packs, in a process of its own (`main`), in a Ray actor or in the caller's process. It needs the address
of the store and a `Job`. It may end at any time: records and checkpoints are whole or absent.
"""

import json
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import numpy as np

from lvp import experiments, training
from lvp.errors import InputError
from lvp.experiments.common import user_experiments
from lvp.files import FULL, cache_dir, explained
from lvp.parallel import sharding
from lvp.parallel.hardware import accelerator, peak_memory
from lvp.sweeps import fingerprint, trackers
from lvp.sweeps.store import Store
from lvp.sweeps.sweep import Planned, Run, Sweep, check_data, plan, prepared
from lvp.training import records, task_for
from lvp.training.outcome import Outcome

log = logging.getLogger(__name__)
RESERVED = "status"  # key of an outcome that the engine sets
# Environment variables that must be set before a worker's process starts. Huge pages reduce page faults per training
# step from tens of thousands to a few thousand.
VARIABLES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class Job:
    """What a worker needs besides its packs."""

    place: str  # of the store
    source: Mapping[str, str] | None = None  # path and content of the user's experiment file
    threads: int | None = 1  # cores of the worker on CPU; None on an accelerator, and in the caller's process
    mesh: Mapping[str, int] | None = None  # sizes of the mesh that trains a run; None is one device
    checkpoint_seconds: float = 30.0  # least time between two checkpoints of a pack
    allow_other_version: bool = False  # whether the environment may differ from that of earlier steps and runs
    track: str | None = None  # a key of `trackers.TRACKERS`
    keep_weights: bool = False  # whether finished runs keep their parameters


@dataclass(frozen=True)
class Pack:
    """Runs of one setting that are trained together."""

    label: str  # of the setting
    runs: Mapping[str, Run]  # by hash; as JSON where it was sent to another process
    size: int  # runs of the compiled program; a smaller pack repeats its last run

    def as_json(self) -> dict[str, Any]:
        """The pack as JSON."""
        return {
            "label": self.label,
            "runs": {h: records.configuration(r) for h, r in self.runs.items()},
            "size": self.size,
        }


@dataclass
class Worker:
    """Trains packs of one sweep. A process should have one worker, because it sets the threads of JAX."""

    job: Job
    stopping: bool = False  # set it to make `train` save and end after its present chunk
    _programs: dict[tuple[str, int], tuple[Any, dict]] = field(default_factory=dict)  # program and fingerprint
    _settings: dict[str, Planned] = field(default_factory=dict)  # by label, without runs
    _feeds: dict[str, Any] = field(default_factory=dict)  # hash of a setting → its feed by pack

    def __post_init__(self) -> None:
        if self.job.threads is not None:  # before JAX's backend, which counts cores and reads XLA_FLAGS
            # XLA splits sums by its number of threads.
            os.environ["NPROC"] = os.environ["PJRT_NPROC"] = str(self.job.threads)
            if self.job.threads == 1:
                os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {fingerprint.CPU_FLAGS}".strip()
        jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        self.store = Store(self.job.place)
        sweep = Sweep.read(self.store)
        if sweep is None:
            raise InputError(
                f"{socket.gethostname()} does not see the sweep in {self.store}: share the directory, or use a bucket"
            )
        self.sweep = sweep
        source = content = None
        if self.job.source is not None:
            path, content = self.job.source["path"], self.job.source["content"].encode(errors="surrogateescape")
            source = user_experiments.Source(path, str(sweep.source))
        self.experiment = experiments.load(sweep.experiment, source, content)
        self.config = experiments.restored(self.experiment, sweep.preset, sweep.config)
        self.mesh = None if self.job.mesh is None else sharding.make_mesh(self.job.mesh)
        self.tracker = None
        if self.job.track is not None:
            try:
                self.tracker = trackers.quietly(sweep.tracker(self.job.track, self.store))
            except InputError as error:  # the driver's own tracker worked
                print(f"no tracking, training continues: {error}", file=sys.stderr)

    def train(self, pack: Pack) -> Iterator[int]:
        """Trains the runs of a pack that have no record, and creates their records. Yields the step after every chunk.

        If `stopping` is set, saves a checkpoint and ends early.

        Raises:
          InputError: the environment differs from that of earlier steps or runs, or the data or the experiment's code
            differ from those of the sweep.
          Exception: training failed.
        """
        if all(self.store.record(run) for run in pack.runs):  # by name: the listing of a bucket may be stale
            return
        planned = self._setting(pack)
        if not task_for(planned.setting).trained:
            for run in pack.runs:
                self._calculate(planned, run)
                yield 1
            return
        yield from self._train(planned, pack)

    def _setting(self, pack: Pack) -> Planned:
        """The setting of a pack, with data of this machine and the pack's runs."""
        if pack.label not in self._settings:
            settings = [
                each._replace(runs=[]) for each in self.experiment.settings(self.config) if each.label == pack.label
            ]
            (self._settings[pack.label],) = plan(settings, prepared(settings))
        planned = self._settings[pack.label]
        check_data(self.sweep, pack.label, planned.setting, planned.dataset, self.store)
        runs = [planned.restored(run) if isinstance(run, Mapping) else run for run in pack.runs.values()]
        planned = planned.with_runs(runs)
        if list(planned.runs) != list(pack.runs):
            raise InputError(
                f"{pack.label}: the experiment's code on {socket.gethostname()} gives other runs; use the same code"
            )
        return planned

    def _calculate(self, planned: Planned, run: str) -> None:
        """Computes a run without training, and creates its record."""
        if self.store.record(run):
            return
        now, started = fingerprint.of_program("", jax.devices()[0], 1, self.job.threads), time.perf_counter()
        self._agree(planned, 1, now)
        setting: Any = planned.setting  # a calculation
        outcome = self.experiment.calculate(setting.arguments, planned.runs[run], planned.dataset)
        if isinstance(outcome, Outcome):
            outcome = asdict(outcome)
        elif RESERVED in outcome:
            raise InputError(f"{planned.label}: `calculate` returns the key {RESERVED!r}, which is reserved; rename it")
        seconds = time.perf_counter() - started
        self._record(
            planned, run, {RESERVED: "finished", **outcome}, self._provenance(1, [now]) | {"seconds": round(seconds, 3)}
        )

    def _program(self, planned: Planned, size: int) -> tuple[Any, dict]:
        """The compiled program of a setting for packs of a size, and its fingerprint. Both are kept."""
        key = planned.hash, size
        if planned.hash not in self._feeds:
            self._feeds[planned.hash] = task_for(planned.setting).load(planned.dataset, self.mesh)
        if key not in self._programs:
            program = task_for(planned.setting).program(size, self.mesh)
            run = next(iter(planned.runs.values()))
            lowered = program.lower(self._feeds[planned.hash]([run] * size).feed(0)[1])
            now = fingerprint.of_program(
                lowered.as_text(), jax.devices()[0], jax.local_device_count(), self.job.threads
            )
            self._agree(planned, size, now)
            program.advance = lowered.compile()
            self._programs[key] = program, now
        return self._programs[key]

    def _agree(self, planned: Planned, size: int, now: dict) -> None:
        """Creates the fingerprint of a program in the store, or compares it with the first worker's.

        A damaged fingerprint is written again: every checkpoint and record has its own.
        """
        name = f"programs/{planned.hash}-{size}.json"
        if self.store.objects.create(name, fingerprint.content(now)) or self.job.allow_other_version:
            return
        before = fingerprint.held(self.store.objects.read(name) or b"")
        if before is None:
            log.warning("%s/%s is damaged; it is written again", self.store, name)
            self.store.objects.write(name, fingerprint.content(now))
        else:
            self._refuse_other(before, now, planned.label)

    def _refuse_other(self, before: Mapping, now: Mapping, what: str) -> None:
        if parts := fingerprint.differences(before, now):
            raise InputError(
                f"{what} began with {', '.join(parts)}; results may not be bit-exact: restore the first environment, "
                "or give --allow-other-version"
            )

    def _train(self, planned: Planned, pack: Pack) -> Iterator[int]:
        hashes, started = list(pack.runs), time.perf_counter()
        program, now = self._program(planned, pack.size)
        first, state, environments = self._start(program, hashes, now)
        runs = list(planned.runs.values())
        runs += runs[-1:] * (pack.size - len(runs))
        feed = self._feeds[planned.hash](runs)
        if self.tracker:
            for run in hashes:
                self.tracker.begin(run, planned.label, trackers.hparams(planned.config(planned.runs[run])), first)
        chunks = training.chunks(program, runs, feed, state=state, step=first)
        setup, self._others, step = time.perf_counter() - started, 0.0, first
        started = saved = time.perf_counter()
        saving = 0.0  # seconds of the last save
        while True:
            try:
                step, state = next(chunks)
            except StopIteration as end:
                outcomes = end.value
                break
            now_seconds = time.perf_counter()
            self._log(program, runs, hashes, step, state)
            # Saving a large state takes minutes. The interval limits saving to about a tenth of the time.
            due = time.perf_counter() - saved >= max(self.job.checkpoint_seconds, 10 * saving)
            if step < planned.setting.steps and (due or self.stopping):
                before = time.perf_counter()
                self._save(program, hashes, step, state, environments)
                saved = time.perf_counter()
                saving = saved - before
            if self.stopping and step < planned.setting.steps:
                return
            yield step
            self._others += time.perf_counter() - now_seconds
        seconds = time.perf_counter() - started - self._others
        provenance = self._provenance(pack.size, environments) | _speed(
            planned.setting, self.mesh, pack.size, step - first, seconds
        )
        provenance |= {"resumed_at_step": first, "setup_seconds": round(setup, 3)}
        for i, (run, outcome) in enumerate(zip(hashes, outcomes, strict=False)):
            _check_whole(run, outcome)
            if self.job.keep_weights and outcome.status == "finished":  # a run with a record is not trained again
                params = _of_run(program, state["params"], i)
                self.store.add_weights(run, step, params, planned.config(planned.runs[run]))
            self._record(planned, run, task_for(planned.setting).outcome(planned.dataset, outcome), provenance)
        self.store.drop_checkpoints(hashes)

    def _start(self, program: Any, hashes: Sequence[str], now: dict) -> tuple[int, Any, list[dict]]:
        """(step, state, environments) of the pack's last checkpoint, or of its beginning."""
        latest = self.store.latest(list(hashes), program.run_shapes())
        if latest is None:
            return 0, None, [now]
        step, states, environments = latest
        if not environments or environments[-1] != now:
            if not self.job.allow_other_version:
                self._refuse_other(environments[-1] if environments else {}, now, f"run {hashes[0]}")
            environments = [*environments, now]
        return step, program.stack(states + states[-1:] * (program.runs - len(states))), environments

    def _save(self, program: Any, hashes: Sequence[str], step: int, state: Any, environments: list[dict]) -> None:
        for i, run in enumerate(hashes):
            self.store.save(run, step, _of_run(program, state, i), environments)

    def _log(self, program: Any, runs: Sequence[Run], hashes: Sequence[str], step: int, state: Any) -> None:
        """Gives loss, norm of the gradient and learning rate of step `step` to the tracking tool."""
        if self.tracker is None:
            return
        losses, norms = (np.asarray(state[x]).reshape(program.runs, -1) for x in ("losses", "gradient_norms"))
        for i, run in enumerate(hashes):
            values = losses[i], norms[i], program.rates(runs[i])
            names = "train_loss", "gradient_norm", "learning_rate"
            self.tracker.log(run, step, {n: float(x[step - 1]) for n, x in zip(names, values, strict=True)})

    def _record(self, planned: Planned, run: str, outcome: Mapping[str, Any], provenance: Mapping[str, Any]) -> None:
        """Creates the record of a run."""
        record = {
            "format": records.FORMAT,
            "hash": run,
            "experiment": self.sweep.experiment,
            "tier": self.sweep.preset,
            "sweep": self.sweep.hash,
            "config": planned.config(planned.runs[run]),
            "outcome": dict(outcome),
            "provenance": dict(provenance),
        }
        self.store.add_record(record)
        if self.tracker is None:
            return
        if run in self.tracker.open:
            self.tracker.end(run, outcome[RESERVED] == "finished", outcome)
        else:  # a calculation
            trackers.log_records(self.tracker, [record], {run: planned.label})

    def _provenance(self, size: int, environments: list[dict]) -> dict[str, Any]:
        """Software, environments, device and packing of a record. More than one environment: it changed on the way."""
        device, software = jax.devices()[0], records.software()
        return (
            software
            | ({"mesh": dict(self.job.mesh)} if self.job.mesh else {})
            | {name: environments[-1][name] for name in ("flags", "machine")}
            | {
                "environments": environments,
                "device": device.device_kind,
                "platform": device.platform,
                "threads": self.job.threads or 1,
                "pack": size,
                "ended": round(time.time()),  # Unix time
            }
        )


def _of_run(program: Any, state: Any, index: int) -> Any:
    """The state of one run of a pack."""
    return state if program.mesh is not None else training.unstack(state, index, program.runs)


def _check_whole(run: str, outcome: Outcome) -> None:
    """Checks that a finished run has a loss at every step.

    Raises:
      RuntimeError: a loss is missing, because the run skipped steps.
    """
    if outcome.status == "finished" and None in outcome.curve_losses:
        raise RuntimeError(f"run {run} has gaps in its losses; remove its checkpoints, and it is trained again")


def _speed(setting: Any, mesh: Any, size: int, steps: int, seconds: float) -> dict[str, Any]:
    """Seconds, tokens per second, model FLOP/s over the peak (None for an unlisted device), and peak memory."""
    device, per_second = jax.devices()[0], setting.tokens_per_step * size * steps / seconds
    known, devices = accelerator(device.device_kind), 1 if mesh is None else mesh.size
    flops = setting.flops_per_run / setting.tokens_per_run * per_second
    return {
        "seconds": round(seconds, 3),
        "tokens_per_second": round(per_second, 1),
        "mfu": known and round(flops / (devices * known.flops), 4),
        "peak_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use") or peak_memory(),
    }


def described(error: BaseException) -> str:
    """An exception as one line."""
    if isinstance(error, OSError):
        return explained(error)
    if isinstance(error, InputError):
        return str(error).splitlines()[0]
    text = f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")
    place = user_experiments.place(error)
    return f"{text} ({place})" if place else text


def is_full(error: BaseException) -> bool:
    """Whether the error means that a disk is full. Other packs would fail too."""
    return isinstance(error, OSError) and error.errno in FULL


def main() -> None:
    """A worker process. Reads a pack per line of standard input, and writes the steps, then an answer, as lines.

    Ends when standard input ends: the driver has gone. On SIGTERM saves the present pack and ends.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print must not write into the answers
    lines: queue.Queue[str | None] = queue.Queue()
    ending = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        if not ending.is_set():
            os._exit(0)

    def say(**words: Any) -> None:
        answers.write(json.dumps(words) + "\n")
        answers.flush()

    threading.Thread(target=listen, daemon=True).start()
    worker: Worker | None = None
    idle = True

    def stop(*_: Any) -> None:
        if idle or worker is None:
            os._exit(0)
        worker.stopping = True

    signal.signal(signal.SIGTERM, stop)
    while True:
        try:
            line = lines.get(timeout=1.0)  # a wait without a timeout would delay a signal handler
        except queue.Empty:
            continue
        idle = False
        try:
            worker = worker or Worker(Job(**json.loads(sys.argv[1])))
            for step in worker.train(Pack(**json.loads(line or ""))):
                say(step=step)
            answer: dict[str, Any] = {"error": None}
        except Exception as error:  # the driver reports it
            logging.exception("a pack failed")
            answer = {"error": described(error), "full": is_full(error)}
        if worker is not None and worker.stopping:
            os._exit(0)
        idle = True
        say(**answer)
