"""The worker, which runs trials, with and without Ray, in a process of its own or in the driver's process.

A worker gets the sweep's directory and its settings. It reads cells, lanes and data from the manifest. It writes
records, checkpoints and its progress. `sweeps.worker.stop` lists the reasons why a worker stops.
"""

import contextlib
import itertools
import json
import logging
import os
import queue
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lvp import training
from lvp.files import FULL, cache_dir, explained
from lvp.parallel import processes, sharding
from lvp.parallel.hardware import accelerator, cores, peak_memory
from lvp.training import records
from sweeps.driver import lane_index, working_copy
from sweeps.driver.manifest import Manifest
from sweeps.worker import environment
from sweeps.worker.cpu_affinity import claim_cores
from sweeps.worker.curves import Curves
from sweeps.worker.joined_copy import joined
from sweeps.worker.pack import Pack
from sweeps.worker.stop import Reason, Stop, end, end_with_parent, lost
from sweeps.worker.tasks import task_for

RETRIES = 5  # how often a trial is retried after its worker died without progress; exceptions are not retried
CPU_FLAGS = "--xla_cpu_multi_thread_eigen=false"


@dataclass(frozen=True)
class Settings:
    """How a worker uses its machine."""

    threads: int = 1  # cores of one worker on CPU
    pin: bool = True  # whether the process is pinned to these cores
    compile_cache: str | None = None  # directory of XLA's persistent cache
    checkpoint_seconds: float = 30.0  # least time between two checkpoints of a pack
    accelerator: bool = True  # whether to ask Ray for an accelerator, if the cluster has any
    environment: Mapping[str, Any] | None = None  # the driver's environment; the worker's must be equal
    mesh: dict[str, int] | None = None  # sizes of the mesh that trains a lane; None is one device
    hosts: int = 1  # machines that share the mesh, with one worker each
    session: str | None = None  # the driver's session.json; None in the driver's process
    bucket: str | None = None  # the sweep's address, if workers of other machines use a bucket

    def variables(self) -> dict[str, str]:
        """Environment variables that must be set before the process starts."""
        # Huge pages reduce page faults per training step from tens of thousands to a few thousand.
        return {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONUNBUFFERED": "1"}


class Worker:
    """Runs trials of one sweep. A process has at most one worker, because it claims cores and configures JAX."""

    def __init__(self, out: str | Path, settings: Settings):
        self.out, self.settings = joined(Path(out), settings.bucket, settings.session), settings
        self.joined = self.out != Path(out)
        if settings.pin:  # must precede JAX's backend, which counts cores and reads XLA_FLAGS
            claim_cores(settings.threads)
            # XLA splits sums by its number of threads, which must not depend on the claimed cores.
            os.environ["NPROC"] = os.environ["PJRT_NPROC"] = str(settings.threads)
            if settings.threads == 1:
                os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {CPU_FLAGS}".strip()

        if settings.compile_cache:
            programs = str(cache_dir() / "xla") if self.joined else settings.compile_cache
            jax.config.update("jax_compilation_cache_dir", programs)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
            jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        self.counts = {"compilations": 0, "cache_hits": 0}
        jax.monitoring.register_event_duration_secs_listener(self._on_duration)
        jax.monitoring.register_event_listener(self._on_event)
        self._programs: dict[tuple, Any] = {}
        self._data: dict[str, Any] = {}
        self._datasets: dict[str, dict[str, Any] | None] = {}  # with paths on this machine; empty if not `joined`
        self.stop, self.training = Stop(), False

    def _on_duration(self, event: str, duration_secs: float, **_: Any) -> None:
        self.counts["compilations"] += event == "/jax/core/compile/backend_compile_duration"

    def _on_event(self, event, **_):
        self.counts["cache_hits"] += event == "/jax/compilation_cache/cache_hits"

    def join(self, address: str, index: int) -> None:
        """Joins the workers of a mesh as host `index`. Host 0 listens at `address` (HOST:PORT). Call it first."""
        jax.distributed.initialize(address, self.settings.hosts, index)
        self.stop_on_sigterm()  # after JAX has set its own handler

    def stop_on_sigterm(self) -> None:
        """Installs the handler of SIGTERM: the process saves its pack and ends. Without a pack it ends immediately,
        unless it shares a mesh. Workers that share a mesh stop together during training. Call it in the main thread."""

        def handle(*_):
            self.stop.set(Reason.SIGTERM)
            if not self.training and self.settings.hosts == 1:
                end(Reason.SIGTERM)

        signal.signal(signal.SIGTERM, handle)

    def _stop_reason(self, manifest: Manifest) -> Reason | None:
        """The reason to stop training now, or None. All workers that share a mesh get the same reason."""
        reason = self.stop.check(manifest, self.settings.session)
        if self.settings.hosts > 1:
            reasons = processes.gathered([reason or 0])[:, 0]
            reason = min((Reason(int(r)) for r in reasons if r), default=None)
        if reason in (Reason.TAKEN_OVER, Reason.MOVED):  # nothing may be written to the directory
            end(reason)
        return reason

    def _end_if_lost(self, manifest: Manifest) -> None:
        """Ends the process if the directory no longer belongs to this driver. Called before records and checkpoints are
        written."""
        if reason := lost(manifest, self.settings.session):
            end(reason)

    def _check_environment(self) -> None:
        """Raises RuntimeError if this worker's environment differs from the driver's."""
        device = jax.devices()[0]
        present = environment.present() | {"device": f"{device.platform} {device.device_kind}"}
        if self.settings.environment and (parts := environment.differences(self.settings.environment, present)):
            host = socket.gethostname()
            raise RuntimeError(
                f'the environment of {host} is not the driver\'s: {", ".join(parts)}; "now" is the value on {host}: '
                "make both equal"
            )

    def _manifest(self, lanes: Iterable[str] = ()) -> Manifest:
        """The present manifest, with the data's paths on this machine. Its cells contain `lanes`."""
        if not self.joined:
            return Manifest.read(self.out)
        working_copy.pull(self.out)
        manifest = Manifest.read(self.out)
        self._datasets = self._datasets or manifest.prepared()
        manifest = replace(manifest, datasets=self._datasets)
        if not {h for entry in manifest.cells for h in entry.lanes}.issuperset(lanes):
            # The lanes depend on results that the listing of the bucket has omitted.
            manifest.fetch_records(lane_index.lanes(manifest))
            manifest = replace(manifest)
        return manifest

    def prepare(self) -> None:
        """Prepares the data of a worker with its own copy. Raises InputError if they differ from the driver's."""
        if self.joined:
            self._manifest()

    def leave(self) -> None:
        """Removes the worker's own copy. Call it last."""
        if self.joined:
            shutil.rmtree(self.out, ignore_errors=True)

    def _report(self) -> None:
        """Uploads progress and curves now, if the worker has its own copy."""
        if self.joined and (copy := working_copy.get(self.out)):
            with contextlib.suppress(OSError):  # no result depends on them
                copy.follow()

    def _leads(self) -> bool:
        """Whether this worker writes records and progress. In a mesh of workers only host 0 writes."""
        return self.settings.hosts == 1 or jax.process_index() == 0

    def _mesh(self):
        return None if self.settings.mesh is None else sharding.make_mesh(self.settings.mesh)

    def hello(self) -> dict:
        """This worker's platform, device kind, number of devices and number of cores."""
        device = jax.devices()[0]
        return {
            "platform": device.platform,
            "device_kind": device.device_kind,
            "devices": jax.device_count(),
            "cores": cores(),
        }

    def _program(self, manifest, index: int, lanes: int):
        """A cell's compiled program, its data by lane, and the seconds that both took. Program and data are kept for
        later trials."""
        started = time.perf_counter()
        entry = manifest.cells[index]
        task = task_for(entry.cell)
        mesh = self._mesh()
        if entry.hash not in self._data:
            self._data[entry.hash] = task.load(entry.dataset, mesh)
        data = self._data[entry.hash]
        if (entry.hash, lanes) not in self._programs:
            program = task.program(lanes, mesh)
            first = data(next(iter(entry.lanes.values())))
            program.compile(first.feed(0)[1])
            self._programs[entry.hash, lanes] = program
        return self._programs[entry.hash, lanes], data, time.perf_counter() - started

    def unfinished(self, lanes: list[str]) -> list[str]:
        """The lanes without a record."""
        manifest = self._manifest()
        return [h for h in lanes if not manifest.record_path(h).exists()]

    def run_trial(self, trial: dict) -> dict:
        """Runs a trial {"id", "cell", "lanes": [hash, …], "pack"} and returns its report. Skips packs whose lanes all
        have records."""
        with environment.fixed_options():
            return self._run_trial(trial)

    def _run_trial(self, trial: dict) -> dict:
        self._check_environment()
        manifest = self._manifest(trial["lanes"])
        before, started, training_seconds = dict(self.counts), time.perf_counter(), 0.0
        lanes, pack = trial["lanes"], trial["pack"]
        trained = task_for(manifest.cells[trial["cell"]].cell).trained
        for start in range(0, len(lanes), pack):
            group = lanes[start : start + pack]
            manifest.fetch_records(group)
            if all(manifest.record_path(h).exists() for h in group):
                continue
            if self.stop.reason is Reason.SIGTERM and self.settings.hosts == 1:
                end(Reason.SIGTERM)
            if trained:
                training_seconds += self._run_pack(manifest, trial["cell"], group, pack)
            elif self._leads():  # a calculation's pack is one lane
                training_seconds += self._calculate(manifest, trial["cell"], *group)
        return {
            "trial": trial["id"],
            "cell": trial["cell"],
            "lanes": len(lanes),
            "host": socket.gethostname(),
            "seconds": time.perf_counter() - started,
            "training_seconds": training_seconds,
            **{k: self.counts[k] - before[k] for k in self.counts},
        }

    def _calculate(self, manifest, index: int, lane: str) -> float:
        """Computes a lane, writes its record and returns the seconds of the computation."""
        experiment, _ = manifest.resolved
        entry = manifest.cells[index]
        manifest.write_progress(index, [lane], 0)
        started = time.perf_counter()
        outcome = experiment.calculate(entry.cell.arguments, entry.lanes[lane], entry.dataset)
        seconds = time.perf_counter() - started
        provenance = self._provenance(1) | {"seconds": round(seconds, 3)}
        self._end_if_lost(manifest)
        manifest.write_records(index, {lane: {"status": "finished"} | outcome}, provenance)
        return seconds

    def _provenance(self, pack: int) -> dict:
        """The provenance of a lane's record: software, environment, device and packing."""
        device, software, present = jax.devices()[0], records.software(), environment.present()
        shared = {"mesh": self.settings.mesh, "hosts": self.settings.hosts} if self.settings.mesh else {}
        return (
            software
            | shared
            | {
                # Packages that Ray has shipped have no git checkout.
                "commit": software["commit"] or (self.settings.environment or {}).get("commit"),
                **{name: present[name] for name in ("code", "flags", "machine")},
                "device": device.device_kind,
                "platform": device.platform,
                "threads": self.settings.threads,
                "pack": pack,
            }
        )

    def _run_pack(self, manifest, index: int, hashes: list[str], pack: int) -> float:
        """Trains one pack to its end, writes its records and returns the seconds of training."""
        entry = manifest.cells[index]
        processes.wait_for_all()  # loading data on a mesh exchanges values
        program, data, setup_seconds = self._program(manifest, index, pack)
        processes.wait_for_all()  # compilation takes longer on some machines
        lanes, leads = {h: entry.lanes[h] for h in hashes}, self._leads()
        folders = [manifest.checkpoint_path(h) for h in hashes]
        group = Pack(program, lanes, folders, self.settings.checkpoint_seconds, working_copy.get(manifest.out))

        def progress(step: int, saving: bool) -> None:
            if saving:
                self._end_if_lost(manifest)
            if leads:
                manifest.write_progress(index, hashes, step, saving)

        reason: Reason | None = None

        def stopping() -> bool:
            nonlocal reason
            reason = self._stop_reason(manifest)
            return reason is not None

        self.training = True
        try:
            curves = Curves(manifest, program, hashes).add if leads else None
            outcomes = group.train(data(group.lanes[0]), progress, stopping, curves)
        except training.Preempted:
            manifest.drop_progress()
            self._report()
            if reason is Reason.SIGTERM:
                end(reason)  # the executor starts the trial again
            raise  # ASKED_BY_DRIVER: the driver handles it
        finally:
            self.training = False
        if not leads:
            return group.seconds
        trained = group.trained_steps * entry.cell.tokens_per_step * pack
        provenance = (
            self._provenance(pack)
            | {
                "resumed_at_step": group.first_step,
                "seconds": round(group.seconds, 3),
                "setup_seconds": round(setup_seconds, 3),
                "tokens_per_second": round(trained / group.seconds, 1),
            }
            | utilisation(entry.cell, trained / group.seconds, 1 if program.mesh is None else program.mesh.size)
        )
        task = task_for(entry.cell)
        columns = {lane: task.outcome(entry.dataset, outcome) for lane, outcome in outcomes.items()}
        self._end_if_lost(manifest)
        self._report()  # the driver may read the curves as soon as the lanes have records
        manifest.write_records(index, columns, provenance)
        return group.seconds

    def measure(self, index: int, packs: list[int], seconds: float = 1.0) -> dict[int, float]:
        """Lane-steps per second of a cell by pack size. Each size runs for about `seconds`. Sizes above 1 that exceed
        the cell's number of lanes are skipped.

        Sizes are tried in order. A size that does not fit in memory, or is less than 10 % faster than the fastest
        before it, ends the measurement.
        """
        with environment.fixed_options():
            return self._measure(index, packs, seconds)

    def lane_seconds(self, index: int, seconds: float = 1.0) -> float:
        """The seconds in which this worker trains one lane of a cell, without start and compilation.

        They are the sum over plain steps, steps with measures, scored steps, and the last step, which evaluates.
        Plain steps run for about `seconds`. One step of each other kind runs twice.
        """
        with environment.fixed_options():
            manifest = self._manifest()
            cell: Any = manifest.cells[index].cell  # a trained cell
            advance = self._advance(manifest, index, 1)
            last, scored = cell.steps - 1, set(getattr(cell, "scored_steps", ()))
            measured = set(cell.measured_steps) - scored - {last}
            special = [sorted(steps) for steps in ({last}, measured, scored - {last}) if steps]
            total = (cell.steps - sum(map(len, special))) / _steps_per_second(advance, cell, seconds)
            for steps in special:
                total += len(steps) * min(advance(steps[-1], steps[-1] + 1) for _ in range(2))
            return total

    def _measure(self, index: int, packs: list[int], seconds: float) -> dict[int, float]:
        manifest, speeds = self._manifest(), {}
        for pack in [p for p in packs if p == 1 or p <= len(manifest.cells[index].lanes)]:
            try:
                advance = self._advance(manifest, index, pack)
                speeds[pack] = pack * _steps_per_second(advance, manifest.cells[index].cell, seconds)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                break
            if pack > packs[0] and speeds[pack] < 1.1 * max(v for k, v in speeds.items() if k < pack):
                break
        return speeds

    def _advance(self, manifest: Manifest, index: int, pack: int) -> Callable[[int, int], float]:
        """A function (first, stop) that trains these steps of `pack` lanes of a cell and returns the seconds."""
        lanes = list(manifest.cells[index].lanes.values())
        program, data, _ = self._program(manifest, index, pack)
        _, data = data(lanes[0]).feed(0)
        arrays = program.arrays([lanes[i % len(lanes)] for i in range(pack)])
        state = program.blank_state()

        def advance(first: int, stop: int) -> float:
            nonlocal state
            began = time.perf_counter()
            state = jax.block_until_ready(program.advance(np.int32(first), np.int32(stop), state, arrays, data))
            return time.perf_counter() - began

        advance(0, 1)  # compiles, and starts the lanes
        return advance


def _steps_per_second(advance: Callable[[int, int], float], cell, seconds: float) -> float:
    """Plain steps per second of the function from `Worker._advance`, measured for about `seconds`."""
    first, stop = _plain_steps(cell)
    done, passed = 0, 0.0
    while passed < seconds:
        passed += advance(first, stop)  # the same steps again, because only their time matters
        done += stop - first
    return done / passed


def _plain_steps(cell) -> tuple[int, int]:
    """The first of up to five successive steps without measures, and the step after them.

    The first step initializes and the last step evaluates, so they are left out. If every step has measures, the steps
    from 1 are returned.
    """
    special = sorted({0, *cell.measured_steps, cell.steps - 1})
    gaps = [(after - before - 1, before + 1) for before, after in itertools.pairwise(special)]
    count, first = max(gaps, key=lambda gap: gap[0], default=(0, 0))
    if not count:
        first = min(1, cell.steps - 1)
        count = max(1, cell.steps - 1 - first)
    return first, first + min(5, count)


def one_line(error: Exception) -> str:
    """An exception as one line."""
    if isinstance(error, OSError) and error.errno:
        return explained(error)
    return f"{type(error).__name__}: {error}".splitlines()[0]


def is_full(error: Exception) -> bool:
    """Whether the error means that a disk is full. Other trials would fail too."""

    return isinstance(error, OSError) and error.errno in FULL


def utilisation(cell, tokens_per_second: float, devices: int) -> dict:
    """The model FLOP/s as a fraction of the devices' peak, and the peak memory of a device (of the process on CPU). The
    fraction is None if `lvp.parallel.hardware` does not list the device."""

    device = jax.devices()[0]
    known, flops = accelerator(device.device_kind), cell.flops_per_lane / cell.tokens_per_lane * tokens_per_second
    memory = (device.memory_stats() or {}).get("peak_bytes_in_use")
    return {
        "mfu": known and round(flops / (devices * known.flops), 4),
        "peak_bytes": memory or peak_memory(),
    }


def main() -> None:
    """Runs a worker process with arguments OUT and SETTINGS. Reads JSON requests from stdin, writes answers to
    stdout."""
    end_with_parent()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print must not write into the answers
    requests: queue.Queue = queue.Queue()

    def listen():
        for line in sys.stdin:
            requests.put(json.loads(line))
        end(Reason.DRIVER_GONE)

    threading.Thread(target=listen, daemon=True).start()
    worker = Worker(sys.argv[1], Settings(**json.loads(sys.argv[2])))
    worker.stop_on_sigterm()
    while True:
        try:
            request = requests.get(timeout=1.0)  # a wait without a timeout could delay a signal handler
        except queue.Empty:
            continue
        try:
            answer = {"ok": getattr(worker, request["call"])(*request["args"])}
        except Exception as error:  # the driver reports the error
            logging.exception("trial failed")
            answer = {"error": one_line(error), "full": is_full(error)}
        if worker.stop.reason is Reason.SIGTERM:
            end(Reason.SIGTERM if "ok" in answer else Reason.NOT_SAVED)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
