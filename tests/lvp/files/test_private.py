"""Files in the system's temporary directory, which other users share."""

import fcntl
import os
import stat
import tempfile

import pytest

from lvp.errors import InputError
from lvp.files import storage
from lvp.files.private import open_lock, private_directory
from sweeps.driver.lock import only_driver
from sweeps.worker import cpu_affinity


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A directory that takes the place of the system's temporary directory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def of_another_user(path):
    if os.getuid() != 0:
        pytest.skip("a directory of another user takes root's rights")
    path.mkdir(mode=0o700)
    os.chown(path, 65534, 65534)


def open_to_others(path):
    path.mkdir()
    path.chmod(0o770)


PREPARED = {
    "another user's": of_another_user,
    "open to others": open_to_others,
    "a link": lambda path: path.symlink_to(path.parent.parent),
    "a link to nothing": lambda path: path.symlink_to(path.parent / "nothing"),
    "a file": lambda path: path.write_text("x"),
}


def test_only_this_user_may_enter_the_directory(shared):
    path = private_directory()
    assert path == private_directory() and path.parent == shared
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", PREPARED)
def test_a_directory_that_another_user_could_prepare_is_not_used(kind, shared, monkeypatch):
    """The attack: the directory holds a lock that links to a file of this user."""
    pinned, path = [], shared / f"lvp-{os.getuid()}"
    monkeypatch.setattr(os, "sched_setaffinity", lambda *arguments: pinned.append(arguments))
    PREPARED[kind](path)
    victim = shared.parent / "victim"
    victim.write_text("precious")
    if path.is_dir():
        for core in os.sched_getaffinity(0):
            (path / f"core-{core}.lock").symlink_to(victim)
    assert cpu_affinity.claim_cores(1) is None and not pinned
    assert cpu_affinity.problem().endswith(f"{path} is not a directory of this user alone; remove it, or set TMPDIR")
    assert victim.read_text() == "precious"


def test_cores_are_claimed_in_a_directory_of_this_user(shared, monkeypatch):
    pinned = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda *arguments: pinned.append(arguments))
    monkeypatch.setattr(cpu_affinity, "_held", [])
    first = cpu_affinity.claim_cores(1)
    assert first == tuple(sorted(os.sched_getaffinity(0))[:1]) and cpu_affinity.problem() is None
    assert cpu_affinity.claim_cores(1) != first
    for file in cpu_affinity._held:
        file.close()
    assert cpu_affinity.claim_cores(1) == first
    for file in cpu_affinity._held:
        file.close()


def lock_driver(folder, link):
    (folder / ".lock").symlink_to(link)
    with only_driver(folder):
        pass


def lock_entry(folder, link):
    (folder / ".entry.lock").symlink_to(link)
    with storage.locked(folder / "entry"):
        pass


def lock_file(folder, link):
    (folder / "lock").symlink_to(link)
    open_lock(folder / "lock")


@pytest.mark.parametrize("lock", [lock_driver, lock_entry, lock_file])
def test_a_lock_that_is_a_link_is_refused_and_its_target_is_kept(lock, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    with pytest.raises((OSError, InputError), match="symbolic links"):
        lock(tmp_path, victim)
    assert victim.read_text() == "precious"


def test_a_lock_keeps_its_content_while_another_holds_it(tmp_path):
    with open_lock(tmp_path / "lock") as held:
        held.write(b"pid 7")
        fcntl.flock(held, fcntl.LOCK_EX)
        with open_lock(tmp_path / "lock") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert (tmp_path / "lock").read_bytes() == b"pid 7"
