"""A trial whose worker dies is retried, at most `RETRIES` times without progress in between."""

import shutil
from types import SimpleNamespace

import pytest

from lvp.errors import InputError
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


def test_a_trial_that_all_machines_refuse_fails_with_their_reasons(finished, monkeypatch):
    refusals, failed = ["a", "b"], []

    class Executor(RayExecutor):
        def __init__(self):
            self.out, self.copy, self.cluster = finished[0], None, True

        def _fit(self, trials, settings, workers, reporter, refusing):
            node = refusals.pop(0)
            assert node not in refusing
            (trial,) = (SimpleNamespace(config={"trial": t}) for t in trials)
            reporter.on_trial_result(0, [], trial, {"problem": f"refused by {node}", "full": False, "refused": node})
            return []

    machines = [{"NodeID": node, "Alive": True, "Resources": {"CPU": 2.0}} for node in refusals]
    monkeypatch.setattr("ray.nodes", lambda: machines)
    Executor().run(
        [{"id": "0001", "cell": 0, "lanes": [], "pack": 1}], Settings(), 1, print, lambda *x: failed.append(x[1])
    )
    assert failed == ["refused by a", "refused by b"]


def test_threads_beyond_the_cores_of_each_machine_give_a_one_line_error(monkeypatch):
    executor = object.__new__(RayExecutor)
    machines = [{"NodeID": str(n), "Alive": True, "Resources": {"CPU": float(n)}} for n in (2, 4)]
    monkeypatch.setattr("ray.nodes", lambda: machines)
    assert executor.cores() == [2, 4]
    assert executor._resources(Settings(threads=4)) == {"CPU": 4}
    with pytest.raises(InputError, match="threads=5 must be at most 4, the cores of one machine"):
        executor._resources(Settings(threads=5))
