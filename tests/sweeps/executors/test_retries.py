"""A trial whose worker dies is tried again, five times since it last came further."""

import shutil

import pytest

from sweeps.driver.manifest import Manifest
from sweeps.executors.local import LocalExecutor, WorkerDied
from sweeps.executors.ray_tune import RayExecutor
from sweeps.worker.worker import RETRIES, Settings

DEATHS = 3 * (RETRIES + 1)


class Dying:
    """A worker that dies `DEATHS` times, every time after it has left what `comes_further` names; then it finishes."""

    def __init__(self, out, comes_further):
        self.folder, self.comes_further, self.calls = out / "checkpoints", comes_further, 0

    def try_trial(self, trial) -> None:
        self.calls += 1
        if self.calls > DEATHS:
            return
        if self.comes_further:
            (self.folder / trial["lanes"][0] / self.comes_further.format(self.calls)).mkdir(parents=True)
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
    """Without Ray, and with what Tune does: it tries `RETRIES` times again whatever happens in between."""

    class Executor(RayExecutor):
        def __init__(self):
            self.out = out

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
@pytest.mark.parametrize("comes_further", ["step_{:09d}", "step_{:09d}.orbax-checkpoint-tmp", None])
def test_deaths_count_from_where_a_trial_last_came_further(finished, tmp_path, executor, comes_further):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out, ignore=shutil.ignore_patterns("workers"))
    lane = next(iter(Manifest.read(out).cells[0].lanes))
    worker, done, failed = Dying(out, comes_further), [], []
    trial = {"id": "0001", "cell": 0, "lanes": [lane], "pack": 1}
    executor(out, worker).run([trial], Settings(), 1, done.append, lambda *what: failed.append(what))
    if comes_further == "step_{:09d}":
        assert (worker.calls, len(done), failed) == (DEATHS + 1, 1, [])
    else:
        assert (worker.calls, done) == (RETRIES + 1, [])
        assert failed == [(trial, "worker 1 ended with signal 9")]
