"""Executors: worker processes of this machine, Ray Tune, or this process. They call back with `Progress`."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import lvp
from lvp.errors import InputError
from lvp.files import cache_dir
from lvp.files.buckets import is_address
from lvp.files.places import Directory
from lvp.parallel.hardware import cores
from lvp.signals import handled
from lvp.sweeps.work import VARIABLES, Job, Pack, Worker, described, is_full

ROOT = Path(lvp.__file__).resolve().parents[1]  # workers import lvp from here
DEATHS = 5  # how often a pack is tried again after its worker has died
DEVICES = ("/dev/nvidia0", "/dev/kfd", "/dev/accel0", "/dev/vfio/0")  # files of accelerators
_KEPT = ("JAX_PLATFORMS", "JAX_COMPILATION_CACHE", "JAX_TRACEBACK")


class Progress(NamedTuple):
    """News of a pack: its step, or its end."""

    pack: Pack
    step: int = 0
    done: bool = False  # its runs have records, or it failed
    error: str | None = None  # why it failed


class Machines(NamedTuple):
    """What an executor offers to workers."""

    platform: str  # "cpu", "gpu" or "tpu"
    units: list[int]  # cores of each machine; on accelerators, workers of each machine
    devices: int = 1  # devices of one worker that uses a mesh


def debugging() -> list[str]:
    """The names of JAX's variables that workers must not inherit.

    JAX_DEBUG_NANS would stop a diverged run. Variables that choose devices and caches stay.
    """
    return [name for name in os.environ if name.startswith("JAX_") and not name.startswith(_KEPT)]


class Executor(Protocol):
    """Runs packs. `run` returns when all packs have ended. After an interrupt the workers save before they end."""

    def machines(self) -> Machines: ...

    def run(self, packs: Sequence[Pack], job: Job, workers: int, report: Callable[[Progress], None]) -> None: ...

    def close(self) -> None: ...


class Inline:
    """Trains in this process, for a notebook that already holds the accelerator."""

    def machines(self) -> Machines:
        import jax

        platform, here = jax.default_backend(), jax.local_device_count()
        return Machines(platform, [cores()] if platform == "cpu" else [1], here)

    def run(self, packs: Sequence[Pack], job: Job, workers: int, report: Callable[[Progress], None]) -> None:
        worker = Worker(job)

        def stop(*_: Any) -> None:
            if worker.stopping:  # a second interrupt does not wait for the save
                raise KeyboardInterrupt
            worker.stopping = True

        with handled(stop, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for pack in packs:
                full = False
                try:
                    for step in worker.train(pack):
                        report(Progress(pack, step))
                    if not worker.stopping:
                        report(Progress(pack, done=True))
                except Exception as error:
                    report(Progress(pack, done=True, error=described(error)))
                    full = is_full(error)
                if worker.stopping:
                    raise KeyboardInterrupt
                if full:
                    return

    def close(self) -> None:
        pass


class Local:
    """Worker processes of this machine."""

    def machines(self) -> Machines:
        none = os.environ.get("JAX_PLATFORMS") == "cpu" or not any(map(os.path.exists, DEVICES))
        if none and "device_count" not in os.environ.get("XLA_FLAGS", ""):
            return Machines("cpu", [cores()])
        code = "import jax; print(jax.default_backend(), jax.local_device_count())"
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        if answer.returncode:
            raise InputError(
                f"JAX finds no device: {answer.stderr.strip().splitlines()[-1]}; set JAX_PLATFORMS=cpu to use the CPU"
            )
        platform, count = answer.stdout.split()
        devices = int(count)
        # A process owns all chips of a TPU; GPUs are divided between workers.
        return Machines(platform, [{"cpu": cores(), "gpu": devices}.get(platform, 1)], devices)

    def run(self, packs: Sequence[Pack], job: Job, workers: int, report: Callable[[Progress], None]) -> None:
        _Workers(packs, job, min(workers, len(packs)), report).run()

    def close(self) -> None:
        pass


class _Workers:
    """Threads that each keep a worker process, and take packs from one queue."""

    def __init__(self, packs: Sequence[Pack], job: Job, count: int, report: Callable[[Progress], None]):
        self.job, self.count, self.report = job, count, report
        self.todo: queue.Queue[tuple[Pack, int]] = queue.Queue()  # pack, workers that have died with it
        for pack in packs:
            self.todo.put((pack, 0))
        self.processes: dict[int, _Process] = {}
        self.ending = threading.Event()  # no worker begins another pack
        self.errors: list[Exception] = []  # of this process: it cannot start a worker, or open its log
        self.silent = 0  # workers that ended one after the other without a message

    def run(self) -> None:
        threads = [threading.Thread(target=self._work, args=(i,), daemon=True) for i in range(self.count)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():  # a join without a timeout would delay Ctrl-C
                    thread.join(0.2)
        except BaseException:
            self.ending.set()
            raise
        finally:
            _stop(list(self.processes.values()))
        if self.errors:
            raise self.errors[0]

    def _work(self, number: int) -> None:
        try:
            while not self.ending.is_set():
                self._attempt(number, *self.todo.get_nowait())
        except queue.Empty:
            return
        except Exception as error:
            self.errors.append(error)
            self.ending.set()

    def _attempt(self, number: int, pack: Pack, deaths: int) -> None:
        """Trains a pack in this thread's process. If the process dies, another worker tries the pack."""
        if number not in self.processes:
            self.processes[number] = _Process(self.job, number)
        process = self.processes[number]
        for progress in process.train(pack):
            self.silent = 0
            self.report(progress)
        if process.full:
            self.ending.set()
        if not process.died:
            return
        del self.processes[number]
        reason = process.reason()
        if self.ending.is_set():
            return
        self.silent += 1
        if deaths == DEATHS:
            self.report(Progress(pack, done=True, error=reason))
        elif self.silent >= self.count + DEATHS:  # the machine lets no worker train
            raise RuntimeError(reason)
        else:
            self.todo.put((pack, deaths + 1))


def _stop(processes: Sequence["_Process"]) -> None:
    """Lets the processes save and end, and waits for them. A second interrupt kills them."""
    try:
        for process in processes:
            process.process.terminate()
        for process in processes:
            process.process.wait()
    finally:
        for process in processes:
            process.end()


class _Process:
    """A worker process (`lvp.sweeps.work.main`). Its messages go to a new file in OUT/logs."""

    def __init__(self, job: Job, number: int):
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        changed = VARIABLES | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        if job.threads is None and job.mesh is None:
            visible = list(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))
            changed["CUDA_VISIBLE_DEVICES"] = visible[number] if visible else str(number)
        self.log, file = _log_file(job)
        inherited = {name: os.environ[name] for name in os.environ.keys() - set(debugging())}
        with file:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from lvp.sweeps.work import main; main()", json.dumps(asdict(job))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=inherited | changed,
                start_new_session=True,  # Ctrl-C must reach the driver only, which stops the workers
            )
        self.died = self.full = False

    def train(self, pack: Pack) -> Iterator[Progress]:
        """Yields the progress of a pack. Sets `died` if the process ended before its answer."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None  # pipes
        with contextlib.suppress(BrokenPipeError, ValueError):
            stdin.write(json.dumps(pack.as_json()) + "\n")
            stdin.flush()
        for line in stdout:
            with contextlib.suppress(ValueError):
                answer = json.loads(line)
                if "step" not in answer:
                    self.full = answer.get("full", False)
                    yield Progress(pack, done=True, error=answer["error"])
                    return
                yield Progress(pack, answer["step"])
        self.died = True

    def reason(self) -> str:
        """Why the process ended."""
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"worker {self.process.pid} ended with {how}; its messages are in {self.log}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def _log_file(job: Job) -> tuple[str, IO[bytes]]:
    """The path of a new log file, and the open file."""
    place = Directory(cache_dir()) if is_address(job.place) else Directory(job.place)
    number, path = tempfile.mkstemp(prefix="worker-", suffix=".log", dir=place.place("logs/worker").parent)
    return path, os.fdopen(number, "wb")
