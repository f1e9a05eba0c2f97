"""Two drivers of one sweep damage nothing, and a failed or diverged run affects no other."""

import dataclasses
import random
import shutil
import threading
import time

import pytest

from lvp import training
from lvp.files.places import Directory
from lvp.sweeps import commands
from lvp.sweeps.store import Store
from lvp.sweeps.work import Worker
from tests.faults.conftest import RUN, SIX
from tests.faults.ledger import Watched
from tests.sweeps.running import outcomes

# --- two drivers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["directory", "bucket"])
@pytest.mark.parametrize("checkpoint_seconds", [0.0, 30.0])
def test_two_drivers_at_once(small, whole, trained, tmp_path, request, place, checkpoint_seconds):
    """Both end without an error, and the first record of a run stays."""
    out = str(tmp_path / "out") if place == "directory" else request.getfixturevalue("address")
    watched, errors, start = Watched(out), [], threading.Barrier(2)
    add, added = Store.add_record, []

    def drive():
        start.wait()
        try:
            small(out, checkpoint_seconds=checkpoint_seconds)
        except BaseException as error:
            errors.append(error)

    def counted(store, record):
        added.append(add(store, record))
        watched.look()
        return added[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Store, "add_record", counted)
        threads = [threading.Thread(target=drive) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors and added.count(True) == 3 and 3 <= len(trained) <= 6
    watched.assert_whole(f"two drivers at once ({place})", 1, outcomes(whole))


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
@pytest.mark.parametrize("place", ["directory", "bucket"])
def test_two_commands_at_once(six_runs, command, tmp_path, request, place, executor):
    out = tmp_path / "out" if place == "directory" else request.getfixturevalue("address")
    watched = Watched(out)
    drivers = []
    for _ in range(2):
        drivers.append(command(*RUN, "--executor", executor, "--out", out, start=True, **SIX))
        time.sleep(random.Random(f"{place} {executor}").uniform(0, 8))
    while any(driver.poll() is None for driver in drivers):
        watched.look()
        time.sleep(0.5)
    ended = [(driver.returncode, driver.communicate()[1]) for driver in drivers]
    assert ended == [(0, "")] * 2, ended
    watched.assert_whole(f"two commands at once ({place}, {executor})", 1, six_runs)


# --- failed and diverged runs --------------------------------------------------------------------------------------


def test_a_failed_run_is_named_and_tried_again(small, whole, trained, tmp_path, monkeypatch):
    out, train, failing = tmp_path / "out", Worker._train, max(outcomes(whole))

    def fails(worker, setting, pack):
        if failing in pack.runs:
            raise ValueError("no memory for the model\nmore lines")
        return train(worker, setting, pack)

    with monkeypatch.context() as patched:
        patched.setattr(Worker, "_train", fails)
        for _ in range(2):  # `run` again tries it again
            message = "1 runs failed: ValueError: no memory for the model; `python -m lvp.sweeps resume "
            with pytest.raises(RuntimeError, match=f"^{message}.*` tries again$"):
                small(out)
    others = {run: outcome for run, outcome in outcomes(whole).items() if run != failing}
    assert outcomes(out) == others
    assert "failed: 1 run: ValueError: no memory for the model" in commands.status(out)
    watched = Watched(out)
    watched.look()
    del trained[:]
    small(out)
    assert trained == [failing] and "failed: 1" not in commands.status(out)
    watched.assert_whole("a run fails", 1, outcomes(whole))


def test_a_diverged_run_affects_no_other(small, whole, tmp_path, trained, monkeypatch):
    """Its record is kept: the same configuration would diverge again."""
    out, chunks = tmp_path / "out", training.chunks

    def diverging(program, runs, *arguments, **options):
        (run,) = runs
        if run.learning_rates["embedding"] > 0.02:  # 0.1 over √d: the largest of the three
            run = dataclasses.replace(run, learning_rates=dict.fromkeys(run.learning_rates, 1e38))
        return chunks(program, [run], *arguments, **options)

    monkeypatch.setattr(training, "chunks", diverging)
    small(out, keep_weights=True)
    ours, right = outcomes(out), outcomes(whole)
    (diverged,) = (run for run in right if ours[run] != right[run])
    assert ours[diverged]["status"] == "diverged" and ours[diverged]["diverged_step"] < 8
    assert set(Store(out).objects.names("weights")) == right.keys() - {diverged}
    assert commands.status(out).splitlines()[2].split()[-5:] == ["3", "2", "1", "0", "0"]
    small(out)
    assert len(trained) == 3


def test_a_sweep_that_another_driver_creates_after_the_first_look_is_continued(small, whole, monkeypatch, tmp_path):
    out = tmp_path / "out"

    def then_created(function):
        def look(objects, name=""):
            found = function(objects, name)
            if objects.path == out and name in ("", "sweep.json") and not (out / "sweep.json").exists():
                out.mkdir(exist_ok=True)
                shutil.copy(whole / "sweep.json", out)
            return found

        return look

    for name in ("names", "read"):
        monkeypatch.setattr(Directory, name, then_created(getattr(Directory, name)))
    small(out)
    assert outcomes(out) == outcomes(whole)
