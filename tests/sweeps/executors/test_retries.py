"""A trial whose worker dies is retried, at most `RETRIES` times without progress in between."""

import shutil

import pytest

from sweeps.driver.manifest import Manifest
from sweeps.executors.local import LocalExecutor, WorkerDied
from sweeps.executors.ray_tune import RayExecutor
from sweeps.worker.worker import RETRIES, Settings

DEATHS = 3 * (RETRIES + 1)


class Dying:
    """A worker that dies `DEATHS` times and then finishes. Before each death it makes the directory `checkpoint`."""

    def __init__(self, out, checkpoint):
        self.folder, self.checkpoint, self.calls = out / "checkpoints", checkpoint, 0

    def try_trial(self, trial) -> None:
        self.calls += 1
        if self.calls > DEATHS:
            return
        if self.checkpoint:
            (self.folder / trial["lanes"][0] / self.checkpoint.format(self.calls)).mkdir(parents=True)
        raise WorkerDied("worker 1 ended with signal 9")


def local(out, worker):
    class Process:
        def __init__(self, *_):
            pass

        def call(self, name, trial):
            worker.try_trial(trial)

        def stop(self):
            pass

        def alive(self):
            return False

        end = stop

    executor = LocalExecutor(out)
    executor.make = Process
    return executor


def ray(out, worker):
    """An executor with Tune's behaviour and without Ray: `_fit` retries `RETRIES` times, with or without progress."""

    class Executor(RayExecutor):
        def __init__(self):
            self.out, self.copy = out, None

        def _of_machines(self, settings, refusing=()):
            return "CPU", [1.0]

        def _fit(self, trials, settings, workers, reporter, refusing):
            (trial,) = trials
            for left in reversed(range(RETRIES + 1)):
                try:
                    worker.try_trial(trial)
                except WorkerDied as error:
                    if not left:
                        return [(trial, str(error))]
                else:
                    reporter.on_done({})
                    return []

    return Executor()


@pytest.mark.parametrize("executor", [local, ray])
@pytest.mark.parametrize("checkpoint", ["step_{:09d}", "step_{:09d}.orbax-checkpoint-tmp", None])
def test_deaths_are_counted_since_the_last_progress(finished, tmp_path, executor, checkpoint):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out, ignore=shutil.ignore_patterns("workers"))
    lane = next(iter(Manifest.read(out).cells[0].lanes))
    worker, done, failed = Dying(out, checkpoint), [], []
    trial = {"id": "0001", "cell": 0, "lanes": [lane], "pack": 1}
    executor(out, worker).run([trial], Settings(), 1, done.append, lambda *what: failed.append(what))
    if checkpoint == "step_{:09d}":
        assert (worker.calls, len(done), failed) == (DEATHS + 1, 1, [])
    else:
        assert (worker.calls, done) == (RETRIES + 1, [])
        assert failed == [(trial, "worker 1 ended with signal 9")]
