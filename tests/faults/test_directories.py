"""A sweep's directory: killed drivers, second drivers, a lost manifest, a directory that is moved, no locks."""

import contextlib
import errno
import fcntl
import itertools
import os
import re
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import sweeps
from lvp.training import checkpoints
from sweeps.driver import api
from sweeps.driver.lock import driver, only_driver
from sweeps.driver.manifest import Manifest
from sweeps.worker.pack import path_after_moves
from sweeps.worker.stop import Reason, lost
from tests.faults import kill_points
from tests.faults.conftest import SMALL
from tests.faults.damage import contents
from tests.faults.ledger import record, times
from tests.faults.watching import Watched, refused
from tests.marking import slow
from tests.sweeps.running import outcomes

# --- kills -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["first", slow("late")])
def test_a_killed_run_is_continued(small, undisturbed, tmp_path, monkeypatch, which):
    """The run is killed at its first fsync, which is that of manifest.json, and late: runs differ in some points."""
    whole, points = undisturbed
    assert points[0].startswith("fsync") and points[1].startswith("replace") and len(points) > 20
    at = 1 if which == "first" else 9 * len(points) // 10
    with kill_points.in_this_process(monkeypatch, tmp_path / "out", at) as reached:
        small(tmp_path / "out")
    assert len(reached) >= at
    if at == 1:
        left = [p.name for p in (tmp_path / "out").iterdir() if p.is_file() and p.name != ".lock"]
        assert len(left) == 1 and left[0].endswith(".tmp")
        assert "has no manifest.json" in refused(lambda: api.resume(tmp_path / "out"))
    small(tmp_path / "out")
    assert outcomes(tmp_path / "out") == outcomes(whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["run", "resume"])
def test_a_driver_killed_at_any_point_is_continued(small, whole, text, cache, tmp_path, name):
    """SIGKILL before each fsync, rename and unlink of a driver and its worker."""
    start = [name, "width_vocab", "--preset", "smoke", "--corpus", f"text:{text}", "--pack", "1", "--threads", "1"]
    settings = [f"--set={key}={value}" for key, value in SMALL.items()]

    def killed(number, at):
        out = tmp_path / str(number) / "out"
        if name == "run":
            given = [*start, "--executor", "local", "--out", out, *settings]
        else:  # a sweep without its second record and without manifest.json
            shutil.copytree(whole, out)
            max(out.glob("records/*")).unlink()
            (out / "manifest.json").unlink()
            given = [name, out, "--executor", "local"]
        return out, kill_points.command(given, out, tmp_path / "log", at, cache)

    lost_lanes = repeated = wrong = 0
    for at in itertools.count(1):
        out, process = killed(at, at)
        if process.returncode == 0:  # the number of points varies with the speed
            assert len(process.points) < at and outcomes(out) == outcomes(whole)
            break
        assert process.returncode == -signal.SIGKILL and len(process.points) == at, process.stderr
        before = times(out)
        small(out)
        lanes = outcomes(out)
        lost_lanes += len(outcomes(whole).keys() - lanes.keys())
        repeated += sum(times(out)[n] != t for n, t in before.items())
        wrong += sum(lanes[h] != outcome for h, outcome in outcomes(whole).items() if h in lanes)
        shutil.rmtree(out.parent)
    record(f"{name} is killed at a fsync, rename or unlink", at - 1, lost_lanes, repeated, wrong)
    assert at > 20 and (lost_lanes, repeated, wrong) == (0, 0, 0)


# --- a second driver ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_refused_driver_changes_no_byte(small, copy, whole, tmp_path, monkeypatch):
    max(copy.glob("records/*")).unlink()
    with only_driver(copy):
        before = contents(copy)
        assert "another driver" in refused(lambda: small(copy))
        assert "another driver" in refused(lambda: api.resume(copy))
        monkeypatch.setenv("LVP_CACHE", str(tmp_path / "another"))  # the data have other paths than in the manifest
        assert "another driver" in refused(lambda: api.resume(copy))
        assert "another driver" in refused(lambda: small(copy))
        assert contents(copy) == before
    watched = Watched(copy)
    watched.look()
    api.resume(copy, quiet=True, options=sweeps.Options(executor="local"))
    watched.assert_whole("a second driver is started", 4, whole, lanes=3)


def test_another_configuration_is_refused_with_a_remedy(small, copy, tmp_path):
    before = contents(copy)
    for held in (contextlib.nullcontext(), only_driver(copy)):
        with held:
            before = contents(copy)
            message = refused(lambda: small(copy, steps="9"))
            assert re.search(r"holds another sweep: width_vocab, tier smoke, hash \w+ .*--out.* resume ", message)
            assert contents(copy) == before
    (tmp_path / "new").mkdir()
    with only_driver(tmp_path / "new"):  # a driver that has not written its manifest yet
        assert "another driver" in refused(lambda: small(tmp_path / "new"))


@pytest.mark.slow
def test_two_resumes_at_the_same_time(copy, whole, command):
    """One of them trains; the other gets a one-line error or has nothing to do."""
    for path in copy.glob("records/*"):
        path.unlink()
    drivers = [command("resume", copy, "--executor", "local", start=True) for _ in range(2)]
    ended = [(*process.communicate(timeout=300), process.returncode) for process in drivers]
    codes = sorted(code for _, _, code in ended)
    assert codes in ([0, 2], [0, 0]), ended
    if codes == [0, 2]:
        (message,) = (stderr for _, stderr, code in ended if code == 2)
        assert "is run by another driver" in message and message.count("\n") == 1
    Watched(copy).assert_whole("two drivers resume at once", 1, whole, lanes=3)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_gives_a_one_line_error(small, copy, monkeypatch, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    max(copy.glob("records/*")).unlink()
    before = contents(copy)
    monkeypatch.setattr(fcntl, "flock", flock)
    for call in (lambda: small(copy), lambda: api.resume(copy)):
        assert "file locks" in refused(call)
    assert contents(copy) == before and driver(copy) == "" and "no driver" in api.status(copy)


# --- the manifest ------------------------------------------------------------------------------------------------

DAMAGES = {
    "lost": Path.unlink,
    "empty": lambda path: path.write_text(""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:99]),
    "changed": lambda path: path.write_text(path.read_text().replace('"smoke"', '"paper"')),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_manifest_is_restored_from_its_copy(copy, damage):
    before, printed = contents(copy), []
    DAMAGES[damage](copy / "manifest.json")
    assert f"resume {copy}` restores it" in refused(lambda: api.status(copy))
    api._begun(*Manifest.recover(copy), printed.append)  # as `resume` does under the lock
    assert contents(copy) == before
    assert len(printed) == 1 and "manifest.json" in printed[0] and "restored from its copy" in printed[0]


def test_a_sweep_without_both_manifests_continues_from_its_records(small, copy, whole):
    watched = Watched(copy)
    watched.look()
    for name in ("manifest.json", "manifest.copy.json"):
        (copy / name).unlink()
    assert "do not belong to this sweep" in refused(lambda: small(copy, steps="9"))
    for state in ("lost", "empty"):
        if state == "empty":
            (copy / "manifest.json").touch()
        for call in (lambda: api.status(copy), lambda: api.resume(copy)):
            message = refused(call)
            assert f"run width_vocab --preset smoke --out {copy}" in message and "3 records" in message
    small(copy)
    watched.assert_whole("manifest.json and its copy are lost or damaged", 2, whole, lanes=3)
    assert Manifest.read(copy).num_lanes == 3


def test_a_damaged_copy_is_written_again(copy):
    (copy / "manifest.copy.json").write_text("{}")
    api._begun(*Manifest.recover(copy), print)
    assert (copy / "manifest.copy.json").read_bytes() == (copy / "manifest.json").read_bytes()


def test_a_temporarily_unreadable_manifest_is_not_replaced(copy, monkeypatch):
    read = Path.read_bytes

    def failing(path):
        if path.name == "manifest.json":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return read(path)

    before = contents(copy)
    monkeypatch.setattr(Path, "read_bytes", failing)
    with pytest.raises(OSError, match="Too many open files"):
        api.resume(copy)
    monkeypatch.undo()
    assert contents(copy) == before


# --- a directory that is moved or removed ------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["moved", "unmounted"])
def test_a_session_is_lost_with_its_directory(copy, tmp_path, way):
    manifest = Manifest.read(copy)
    session = manifest.session()
    assert lost(manifest, session) is None and lost(manifest, "another") is Reason.TAKEN_OVER
    copy.rename(tmp_path / "elsewhere")
    if way == "unmounted":
        copy.mkdir()  # the mount point
    assert lost(manifest, session) is Reason.MOVED and lost(manifest, None) is None


def test_a_moved_directory_is_not_made_again(copy, tmp_path):
    manifest = Manifest.read(copy)
    lane = next(iter(manifest.cells[0].lanes))
    copy.rename(tmp_path / "elsewhere")
    for call in (
        lambda: manifest.write_records(0, {lane: {"status": "finished"}}, {}),
        lambda: manifest.make_directory(copy / "tensorboard" / "cell"),
        lambda: manifest.write(),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    manifest.write_progress(0, [lane], 1)
    assert not copy.exists()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs paths of open directories")
def test_a_checkpoint_is_saved_into_the_moved_directory(tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    (out / "checkpoints").mkdir(parents=True)
    with path_after_moves(out / "checkpoints" / "lane", shared=False) as place:
        out.rename(elsewhere)
        checkpoints.save(place, 1, {"a": np.ones(3)}, "lane")
    assert checkpoints.steps(elsewhere / "checkpoints" / "lane") == [1] and not out.exists()
    with pytest.raises(FileNotFoundError), path_after_moves(out / "checkpoints" / "lane", shared=False):
        pass
    folder = elsewhere / "checkpoints" / "lane"
    with pytest.raises(FileNotFoundError, match=str(folder / "none")), path_after_moves(folder, shared=False) as place:
        (place / "none").read_bytes()  # an error names the directory


@pytest.mark.parametrize(
    "executor, moves",
    [
        pytest.param("local", 1, id="local", marks=pytest.mark.slow),
        pytest.param("local", 5, id="local often", marks=pytest.mark.slow),
        pytest.param("ray", 1, id="ray", marks=pytest.mark.slow),
    ],
)
def test_a_sweep_whose_directory_is_moved_stops_and_continues_there(finished, command, tmp_path, executor, moves):
    options = ("--executor", executor, "--threads", "1", "--checkpoint-seconds", "0", "--quiet")
    for number in range(moves):
        out, elsewhere = tmp_path / str(number) / "out", tmp_path / str(number) / "else where"
        process = command("run", "width_vocab", "--preset", "smoke", *options, "--out", out, start=True)
        deadline = time.monotonic() + 200
        while not list(out.glob("checkpoints/*/step_*")):
            assert time.monotonic() < deadline and process.poll() is None, process.communicate()
            time.sleep(0.01)
        time.sleep(0.1 * number)
        out.rename(elsewhere)
        _, stderr = process.communicate(timeout=100)
        assert process.returncode == 1 and stderr.count("\n") == 1, stderr
        assert f"{out} was moved" in stderr
        assert not out.exists(), list(out.rglob("*"))
        watched = Watched(elsewhere)
        watched.look()
        assert command("resume", elsewhere, *options).returncode == 0
        name = "the sweep's directory is moved" + (" (Ray)" if executor == "ray" else "")
        watched.assert_whole(name, number + 1, finished[0])
