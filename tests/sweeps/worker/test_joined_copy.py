"""The working copy of a worker on another machine than the driver's."""

import tempfile
import time

import pytest

from sweeps.driver import working_copy
from sweeps.driver.manifest import Manifest
from sweeps.worker import joined_copy
from sweeps.worker.joined_copy import joined
from sweeps.worker.stop import Reason, Stop, lost
from tests.sweeps.driver.memory_buckets import memory, objects  # noqa: F401  fixture

ADDRESS = "s3://bucket/sweep"
SESSION = "the driver's session"


@pytest.fixture
def driver(memory, monkeypatch, tmp_path):  # noqa: F811
    """The driver's manifest in its working copy of a new sweep."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(joined_copy, "INTERVAL", 0.01)
    with working_copy.opened(ADDRESS) as out:
        manifest = Manifest(out=out, experiment="width_vocab", tier="smoke", config={}, datasets={})
        manifest.begin()
        manifest.session_path.write_text(SESSION)
        working_copy.push(out)
        yield manifest


@pytest.fixture
def elsewhere(driver, tmp_path):
    """The manifest of a worker on a machine that does not have the driver's copy."""
    return Manifest.read(joined(tmp_path / "of the driver", ADDRESS, SESSION))


def soon(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_worker_on_the_drivers_machine_uses_its_copy(driver, tmp_path):
    assert joined(driver.out, ADDRESS, SESSION) == driver.out
    assert joined(tmp_path, None, SESSION) == tmp_path  # a sweep in a directory
    assert joined(driver.out, ADDRESS, "of another driver") != driver.out


def test_a_worker_elsewhere_reports_progress_and_leaves_when_asked(driver, elsewhere, memory):  # noqa: F811
    assert elsewhere.hash == driver.hash and elsewhere.location == ADDRESS
    stop = Stop()
    assert stop.check(elsewhere, SESSION) is None
    elsewhere.write_progress(0, ["lane"], 7)
    copy = working_copy.get(driver.out)

    def steps():
        copy.pull_workers()
        return [progress["step"] for progress in driver.read_progress()]

    soon(lambda: steps() == [7])
    driver.leave_path.touch()
    copy.push()
    soon(lambda: stop.check(elsewhere, SESSION) is Reason.ASKED_BY_DRIVER)
    elsewhere.drop_progress()
    soon(lambda: steps() == [])
    driver.leave_path.unlink()
    copy.push()
    soon(lambda: not elsewhere.leave_path.exists())


def test_a_worker_elsewhere_stops_when_another_driver_takes_over(driver, elsewhere):
    assert lost(elsewhere, SESSION) is None
    driver.session_path.write_text("of another driver")
    working_copy.push(driver.out)
    soon(lambda: lost(elsewhere, SESSION) is Reason.TAKEN_OVER)


def test_a_new_driver_can_withdraw_a_killed_drivers_request_to_leave(driver, memory):  # noqa: F811
    driver.leave_path.touch()
    working_copy.push(driver.out)
    assert "leave" in objects(memory)
    with working_copy.opened(ADDRESS) as out:
        Manifest.read(out).leave_path.unlink()
        working_copy.push(out)
    assert "leave" not in objects(memory)


def test_the_copies_of_ended_workers_are_removed(driver, elsewhere, monkeypatch, tmp_path):
    monkeypatch.setattr(joined_copy, "_follow", lambda copy: None)
    running = joined(tmp_path / "none", ADDRESS, SESSION)
    assert elsewhere.out.exists() and running.exists()
    joined_copy._locks.pop().close()  # as when the worker is killed
    joined(tmp_path / "none", ADDRESS, SESSION)
    assert elsewhere.out.exists() and not running.exists()
