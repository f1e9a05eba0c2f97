"""A driver that is interrupted waits for the saves of its workers, and not for workers that were killed while they
saved."""

import itertools
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from sweeps.driver.manifest import Manifest
from sweeps.executors import ray_tune, saves
from sweeps.executors.ray_tune import RayExecutor
from sweeps.executors.saves import SILENCE, Saves
from sweeps.worker import pack
from sweeps.worker.pack import Pack


@pytest.fixture
def manifest(finished):
    manifest = Manifest.read(finished[0])
    for path in (manifest.out / "progress").glob("*.json"):
        path.unlink()
    return manifest


@pytest.fixture
def clock(monkeypatch):
    """`clock.now` is the driver's monotonic clock."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(saves, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_save_runs_while_it_is_reported(manifest, clock):
    running = Saves(manifest, time.time()).running
    assert not running()
    for _ in range(5):
        manifest.write_progress(0, ["lane"], 3, saving=True)
        assert running()
        clock.now += 0.9 * SILENCE
        assert running()
    clock.now += 0.2 * SILENCE  # the worker was killed
    assert not running()
    manifest.write_progress(0, ["lane"], 3, saving=True)
    assert running()
    manifest.write_progress(0, ["lane"], 3, saving=False)
    assert not running()


def test_a_save_of_an_earlier_session_does_not_count(manifest, clock):
    manifest.write_progress(0, ["lane"], 3, saving=True)
    assert not Saves(manifest, time.time() + 1).running()
    assert Saves(manifest, time.time() - 1).running()  # control


def test_a_worker_repeats_its_report_while_it_saves(tmp_path, monkeypatch):
    monkeypatch.setattr(pack, "REPORT_INTERVAL", 0.01)
    reports, enough = [], threading.Event()

    def progress(step, saving):
        reports.append((step, saving))
        if len(reports) > 4:
            enough.set()

    monkeypatch.setattr(pack.checkpoints, "save", lambda *_: enough.wait(60))
    group = Pack(SimpleNamespace(lanes=1, mesh=None), {"lane": None}, [tmp_path / "lane"], 1.0)
    group.progress = progress
    group._save(7, {"params": np.zeros((1, 2))})
    assert enough.is_set() and reports == [(7, True)] * (len(reports) - 1) + [(7, False)]


@pytest.mark.slow
@pytest.mark.parametrize("alive", [False, True])
def test_an_interrupt_ends_soon_after_a_killed_machine_has_begun_to_save(manifest, monkeypatch, alive):
    """The saves of a living worker, which reports again, are the control."""
    monkeypatch.setattr(ray_tune, "GRACE", 0.0)
    monkeypatch.setattr(saves, "SILENCE", 2.0)
    executor = RayExecutor.__new__(RayExecutor)
    executor.out, executor.copy = manifest.out, None
    started = time.time() - 1
    steps = itertools.count()
    manifest.write_progress(0, ["lane"], next(steps), saving=True)
    thread = threading.Thread(target=executor._let_workers_save, args=(started,))
    thread.start()
    for _ in range(40):
        if alive:
            manifest.write_progress(0, ["lane"], next(steps), saving=True)
        thread.join(0.1)
    assert thread.is_alive() == alive
    manifest.drop_progress()
    thread.join(60)
    assert not thread.is_alive()
