"""SIGKILL of drivers, workers and machines at random moments: no finished run is lost or trained again, and unfinished
runs continue to the same bits."""

import itertools
import random
import subprocess
import time
from types import SimpleNamespace

import psutil
import pytest

from lvp.sweeps import executors
from lvp.sweeps.executors import Progress
from lvp.sweeps.store import Store
from lvp.sweeps.work import Job, Pack
from tests.faults.clusters import kill_all
from tests.faults.conftest import RUN, SIX
from tests.faults.kill_points import Killed
from tests.faults.ledger import Watched
from tests.sweeps.running import outcomes, workers


def kill_worker(process: subprocess.Popen) -> bool:
    """Kills the first worker, and returns whether there was one."""
    for child in workers(process)[:1]:
        child.kill()
        return True
    return False


def kill_driver(process: subprocess.Popen) -> bool:
    process.kill()
    process.wait()
    return True


def kill_machine(process: subprocess.Popen) -> bool:
    kill_all(process)
    return True


KINDS = {"driver": kill_driver, "worker": kill_worker, "machine": kill_machine}  # they return whether they killed


def saved(store: Store) -> set[str]:
    """The steps and the records of a store, by name."""
    steps = {f"{run}/{step}" for run in store.objects.names("checkpoints") for step in store.steps(run)}
    return steps | store.recorded()


def ends(process: subprocess.Popen, seconds: float) -> bool:
    """Whether the process ends within some seconds."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def ends_before_a_save(process: subprocess.Popen, store: Store) -> bool:
    before = saved(store)
    while saved(store) == before:
        if ends(process, 0.1):
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    "executor, place, kind, kills",
    [
        ("local", "directory", "driver", 20),
        ("local", "directory", "worker", 15),
        ("local", "directory", "machine", 15),
        ("local", "bucket", "driver", 10),
        ("local", "bucket", "machine", 10),
        ("ray", "directory", "driver", 10),
        ("ray", "directory", "worker", 10),
        ("ray", "bucket", "machine", 10),
    ],
)
def test_kills_at_random_moments(six_runs, command, tmp_path, request, executor, place, kind, kills):
    """Some kills come before the session has trained, the others up to 1.5 s after it has saved a run: five times
    the interval of saves."""
    moments, left, continued = random.Random(f"{executor} {place} {kind}"), kills, 0
    base = tmp_path if place == "directory" else request.getfixturevalue("address")
    for number in itertools.count():
        out, injected, process = f"{base}/{number}", 0, None
        watched = Watched(out)
        while True:
            if process is None or process.poll() is not None:
                process = command(*RUN, "--executor", executor, "--out", out, start=True, **SIX)
            if left and moments.random() < 0.8 and ends_before_a_save(process, watched.store):
                break
            if ends(process, moments.uniform(0, 1.5) if left else 900):
                break
            watched.look()
            killed = KINDS[kind](process)
            left, injected = left - killed, injected + killed
        _, stderr = process.communicate()
        if process.returncode and kind == "worker":  # all kills hit the same run
            done = command(*RUN, "--executor", executor, "--out", out, **SIX)
            assert done.returncode == 0, stderr + done.stderr
        else:
            assert process.returncode == 0, stderr
        watched.assert_whole(f"{kind} is killed ({executor}, {place})", injected, six_runs)
        continued += sum(row["provenance"]["resumed_at_step"] > 0 for row in watched.store.read_records())
        if not left:
            break
    assert continued  # control: some runs continued from a checkpoint


@pytest.mark.parametrize("begun, ended", [("directory", "bucket"), ("bucket", "directory")])
def test_a_sweep_moves_between_directory_and_bucket(small, whole, address, tmp_path, monkeypatch, begun, ended):
    """The objects are copied after the first run was saved and before it is recorded."""
    places = {"directory": str(tmp_path / "out"), "bucket": address}

    def stop(*_):
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Store, "add_record", stop)
        small(places[begun], checkpoint_seconds=0.0)
    one, other = Store(places[begun]).objects, Store(places[ended]).objects
    for name in all_names(one):
        other.write(name, one.read(name))
    small(places[ended])
    assert outcomes(places[ended]) == outcomes(whole)
    resumed = [row["provenance"]["resumed_at_step"] for row in Store(places[ended]).read_records()]
    assert sorted(map(bool, resumed)) == [False, False, True]


def all_names(objects, folder="") -> list[str]:
    """The names of all objects of a store."""
    names = [f"{folder}/{name}" if folder else name for name in objects.names(folder)]
    return [n for name in names for n in ([name] if objects.read(name) is not None else all_names(objects, name))]


@pytest.mark.slow
def test_a_stopped_sweep_continues(six_runs, command, tmp_path):
    """SIGSTOP of driver and workers, and SIGCONT after two seconds."""
    watched = Watched(out := tmp_path / "out")
    process = command(*RUN, "--executor", "local", "--out", out, start=True, **SIX)
    for times in range(3):
        assert not ends_before_a_save(process, watched.store)
        stopped = [psutil.Process(process.pid), *workers(process)][: times + 1]
        for each in stopped:
            each.suspend()
        time.sleep(2)
        for each in stopped:
            each.resume()
    assert process.wait(900) == 0, process.communicate()
    watched.assert_whole("driver and workers are stopped for a while (SIGSTOP)", 3, six_runs)


def test_a_pack_is_given_up_after_five_retries_and_the_others_end(monkeypatch):
    tried, news = [], []

    class Dying:
        """A process that dies with the pack "bad"."""

        def __init__(self, job, number):
            self.died = self.full = False
            self.process = SimpleNamespace(terminate=lambda: None, wait=lambda: None)

        def train(self, pack):
            tried.append(pack.label)
            self.died = pack.label == "bad"
            yield from [] if self.died else [Progress(pack, done=True)]

        def reason(self):
            return "it died"

        def end(self):
            pass

    monkeypatch.setattr(executors, "_Process", Dying)
    packs = [Pack(label, {label: None}, 1) for label in ("bad", "one", "two")]
    executors.Local().run(packs, Job(""), 1, news.append)
    assert tried.count("bad") == 1 + executors.DEATHS and tried.count("one") == tried.count("two") == 1
    assert {each.pack.label: each.error for each in news} == {"one": None, "two": None, "bad": "it died"}
