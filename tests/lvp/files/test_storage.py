"""The cache directory, by LVP_CACHE. A cache entry is complete and undamaged, or it is treated as absent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lvp.errors import InputError
from lvp.files import cache_dir, storage


@pytest.fixture
def place(monkeypatch):
    """place(value) is the cache directory for a value of LVP_CACHE."""

    def place(value: str) -> Path:
        monkeypatch.setenv("LVP_CACHE", value)
        return cache_dir()

    return place


def test_each_address_has_a_directory_of_its_own(place):
    assert place("s3://bucket/a-b") != place("s3://bucket/a/b")
    assert place("s3://bucket/a/") == place("s3://bucket/a")


def test_an_empty_value_is_the_default(place):
    assert place("") == Path.home() / ".cache" / "lvp" != place("/elsewhere")


def test_an_entry_returns_its_content(tmp_path):
    entry = tmp_path / "some" / "entry"
    assert storage.read_entry(entry) is None
    with storage.locked(entry):
        storage.write_entry(entry, {"a": b"1", "b": b""}, {"size": 3, "name": None})
    assert storage.read_entry(entry) == {"size": 3, "name": None}
    assert (entry / "a").read_bytes() == b"1" and (entry / "b").read_bytes() == b""


@pytest.mark.parametrize("name", ["a", "entry.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_a_damaged_entry_is_treated_as_absent(tmp_path, name, damage):
    storage.write_entry(tmp_path, {"a": b"0123456789"}, {"size": 10})
    path = tmp_path / name
    content = path.read_bytes()
    if damage == "delete":
        path.unlink()
    elif damage == "truncate":
        path.write_bytes(content[:-1])
    else:
        path.write_bytes(content.replace(b"1", b"2", 1))
    assert storage.read_entry(tmp_path) is None


def test_a_failed_write_leaves_only_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    storage.write_file(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="no space left for 3 bytes"):
        storage.write_file(path, b"new")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_temporary_files_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / ".a.0123.tmp").write_bytes(b"half")
    storage.write_entry(tmp_path, {"a": b"whole"}, {})
    assert sorted(os.listdir(tmp_path)) == ["a", "entry.json"]


def test_a_lock_is_held_by_one_process_at_a_time(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from lvp.files import storage\n"
        "count = Path(sys.argv[1], 'count')\n"
        "for _ in range(20):\n"
        "    with storage.locked(count):\n"
        "        value = int(count.read_bytes())\n"
        "        time.sleep(0.002)\n"
        "        storage.write_file(count, b'%d' % (value + 1))"
    )
    (tmp_path / "count").write_bytes(b"0")
    processes = [subprocess.Popen([sys.executable, "-c", program, tmp_path]) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_bytes() == b"60"


def test_the_digest_depends_on_the_borders_between_parts():
    assert len({storage.digest(b"ab", b""), storage.digest(b"a", b"b"), storage.digest(b"ab")}) == 3


def test_a_lock_that_is_a_link_is_refused(tmp_path):
    """Another user could make the link."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".entry.lock").symlink_to(victim)
    with pytest.raises(InputError, match="symbolic links"), storage.locked(tmp_path / "entry"):
        pass
    assert victim.read_text() == "precious"
