"""Runs trials without Ray: in worker processes of this machine, or in this process if it holds the accelerator."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from queue import Empty, Queue

from lvp.files import explained
from lvp.parallel.hardware import cores
from sweeps.driver.manifest import Manifest
from sweeps.executors.saves import Saves
from sweeps.worker.stop import Reason, Stop
from sweeps.worker.worker import RETRIES, Settings, Worker, is_full

ROOT = Path(__file__).resolve().parents[2]
GRACE = 20.0  # seconds in which a worker must begin to save after it was asked to stop


class WorkerDied(RuntimeError):
    """A worker's process ended without an answer."""


class DiskFull(RuntimeError):
    """A worker could not write because the disk is full."""


class Process:
    """A worker process, called over pipes. Its messages are written to OUT/workers/NUMBER.log."""

    def __init__(self, out: Path, settings: Settings, number: int):
        self.log = out / "workers" / f"{number}.log"
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | settings.variables() | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    "from sweeps.worker.worker import main; main()",
                    str(out),
                    json.dumps(asdict(settings)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                # Ctrl-C must reach the driver only, which stops the workers.
                start_new_session=True,
            )
        assert self.process.stdin is not None and self.process.stdout is not None  # pipes
        self.requests, self.answers = self.process.stdin, self.process.stdout

    def call(self, name: str, *args):
        """Calls a method of the worker and returns its result.

        Raises:
          WorkerDied: the process ended.
          DiskFull: the method failed because the disk is full.
          RuntimeError: the method failed.
        """
        try:
            self.requests.write(json.dumps({"call": name, "args": args}) + "\n")
            self.requests.flush()
            answer = self.answers.readline()
        except (BrokenPipeError, ValueError):
            answer = ""
        if not answer:
            code = self.process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise WorkerDied(f"worker {self.process.pid} ended with {how}; its messages are in {self.log}")
        answer = json.loads(answer)
        if "error" in answer:
            raise (DiskFull if answer["full"] else RuntimeError)(answer["error"])
        return answer["ok"]

    def stop(self) -> None:
        """Asks the process to save a checkpoint and to end."""
        self.process.terminate()

    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.requests.close()
        self.answers.close()


class InProcess:
    """A worker in this process, for a notebook that already holds the accelerator. Same methods as `Process`."""

    def __init__(self, out: Path, settings: Settings, number: int):
        self.worker = Worker(out, replace(settings, pin=False, session=None))  # must not pin the user's process

    def call(self, name: str, *args):
        return getattr(self.worker, name)(*args)

    def stop(self) -> None:
        pass

    def alive(self) -> bool:
        return False

    def end(self) -> None:
        pass


class LocalExecutor:
    """Runs trials in worker processes of this machine, or in this process."""

    def __init__(self, out: Path, *, in_process: bool = False):
        self.out, self.make = out, InProcess if in_process else Process
        self.in_process = in_process

    def probe(self, settings: Settings, calls: Iterable[tuple], workers: int = 1) -> list[list]:
        """Makes the calls (method, *arguments) on each of `workers` new workers at the same time. Returns the answers
        of each worker."""
        probes = [self.make(self.out, settings, i) for i in range(workers)]
        answers: list[list] = [[] for _ in probes]
        failures: list[Exception] = []

        def talk(i):
            try:
                for name, *args in calls:
                    answers[i].append(probes[i].call(name, *args))
            except Exception as error:
                failures.append(error)

        try:
            self._in_threads(talk, workers)
        finally:
            for worker in probes:
                worker.end()
        if failures:
            raise failures[0]
        return answers

    @staticmethod
    def _in_threads(target: Callable, count: int) -> None:
        threads = [threading.Thread(target=target, args=(i,), daemon=True) for i in range(count)]
        for t in threads:
            t.start()
        for t in threads:
            while t.is_alive():  # a join without a timeout would delay Ctrl-C
                t.join(0.2)

    def run(
        self,
        trials: list[dict],
        settings: Settings,
        workers: int,
        on_done: Callable[[dict], None],
        on_failed: Callable[[dict, str], None],
    ) -> None:
        """Runs all trials. Calls `on_done` with each report, and `on_failed` with each failed trial and its reason, in
        any thread.

        If a worker dies, a new worker runs its trial again, at most `RETRIES` times without progress in between. A full
        disk stops all trials. After KeyboardInterrupt the workers save checkpoints.
        """
        queue: Queue = Queue()
        for trial in trials:
            queue.put(trial)
        manifest, started = Manifest.read(self.out), time.time()
        live: dict[int, Process | InProcess] = {}
        stop = Stop()

        def work(i):
            worker, again, tries, reached = None, None, 0, None
            while stop.reason is None:
                try:
                    trial = again or queue.get_nowait()
                except Empty:
                    break
                try:
                    before, reached = reached, manifest.reached(trial["lanes"])
                    tries = tries + 1 if again and reached == before else 0
                    again = None
                    worker = live[i] = worker or self.make(self.out, settings, i)
                    on_done(worker.call("run_trial", trial))
                except WorkerDied as error:
                    worker = None
                    if tries < RETRIES:
                        again = trial
                    elif stop.reason is None:
                        on_failed(trial, str(error))
                except Exception as error:
                    on_failed(trial, explained(error) if isinstance(error, OSError) else str(error))
                    if isinstance(error, DiskFull) or is_full(error):
                        stop.set(Reason.DISK_FULL)

        if self.in_process:
            work(0)
            return
        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(min(workers, len(trials)))]
        try:
            for t in threads:
                t.start()
            for t in threads:
                while t.is_alive() and stop.reason is None:  # a join without a timeout would delay Ctrl-C
                    t.join(0.2)
        except KeyboardInterrupt:
            stop.set(Reason.INTERRUPTED)
            raise
        finally:
            self._stop_workers(list(live.values()), Saves(manifest, started))

    @staticmethod
    def _stop_workers(workers: list[Process | InProcess], saves: Saves) -> None:
        """Sends SIGTERM to the workers and waits until they have ended, at most `GRACE` seconds or until a save that
        has begun ends. Then kills the rest."""
        deadline = time.monotonic() + GRACE
        for worker in workers:
            worker.stop()
        while any(w.alive() for w in workers) and (time.monotonic() < deadline or saves.running()):
            time.sleep(0.05)
        for worker in workers:
            worker.end()

    def check_machines(self, manifest: Manifest) -> None:
        pass  # the workers run on the driver's machine

    def machines(self) -> int:
        return 1

    def cores(self) -> list[int]:
        return [cores()]

    def accelerators(self) -> int:
        """The number of workers that can each own an accelerator: one, because a process holds all that it sees."""
        return 1

    def close(self) -> None:
        pass
