"""Errors of the machine are not taken for damage: one line with file and remedy, all files are kept, no run with a
record is trained again."""

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from lvp.data.text import python_docs
from lvp.files import checkpoints, explained, machine_error, storage, write_whole
from lvp.sweeps import commands, committed
from lvp.sweeps.store import Store
from lvp.sweeps.sweep import Sweep
from tests.faults.damage import contents
from tests.faults.ledger import Watched
from tests.faults.small_files import make_published, make_record, make_sweep
from tests.faults.small_state import CONFIGURATION, SHAPES, STATE
from tests.sweeps.running import LOCAL, ROOT, TINY, outcomes
from tests.sweeps.small_disk import fill

ERRORS = ("EACCES", "EPERM", "EIO", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "ESTALE", "EROFS")
RUN = ("run", "width_vocab", "--preset", "smoke", "--quiet")
# The user root ignores permissions, unless these capabilities are dropped.
UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()

# --- files that cannot be read -----------------------------------------------------------------------------------


def make_library(folder):
    (folder / "pydoc_data").mkdir(parents=True)
    for name in ("a.py", "b.py", "pydoc_data/topics.py"):
        write_whole(folder / name, "text = 1\n" * 30)
    return folder / "a.py"


def make_entry(folder):
    storage.write_entry(folder, {"train": b"tokens"}, {"size": 6})
    return folder / "entry.json"


def make_checkpoint(folder):
    Store(folder).save(CONFIGURATION, 1, STATE, [])
    return folder / "checkpoints" / CONFIGURATION / "step_000000001" / checkpoints.METADATA


CALLS = {
    "record": (make_record, lambda path: Store(path.parents[1]).record(path.stem)),
    "sweep.json": (make_sweep, lambda path: Sweep.read(Store(path.parent))),
    "published result": (make_published, lambda path: committed.read(path.parent)),
    "corpus": (make_library, lambda path: python_docs.load(path.parent)),
    "cached corpus": (make_entry, lambda path: storage.read_entry(path.parent)),
    "checkpoint": (make_checkpoint, lambda path: Store(path.parents[3]).latest([CONFIGURATION], SHAPES)),
}


@pytest.mark.parametrize(
    "file, name", [*(("record", name) for name in ERRORS), *((file, "EIO") for file in CALLS if file != "record")]
)
def test_an_error_of_the_machine_names_the_file(file, name, tmp_path, monkeypatch):
    make, call = CALLS[file]
    path, number = make(tmp_path), getattr(errno, name)
    before = contents(tmp_path)

    def fails(self, *arguments, **options):
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(type(path), "open", fails)
    with pytest.raises(OSError) as caught:
        call(path)
    monkeypatch.undo()
    assert caught.value.errno == number and contents(tmp_path) == before
    line = explained(caught.value)
    assert str(tmp_path) in line and "; " in line and "\n" not in line


def test_errors_of_the_machine_are_recognised(tmp_path):
    quoting = ValueError("RESOURCE_EXHAUSTED: Failed to open: \"x\" [os_error_code='24']")
    assert machine_error(quoting, tmp_path).errno == errno.EMFILE
    try:
        try:
            raise OSError(errno.EIO, "bad", "x")
        except OSError as cause:
            raise ValueError("no valid checkpoint") from cause
    except ValueError as error:
        assert (machine_error(error, tmp_path).errno, machine_error(error, tmp_path).filename) == (errno.EIO, "x")
    assert machine_error(MemoryError(), tmp_path).errno == errno.ENOMEM
    damage = (ValueError("DATA_LOSS: checksum"), FileNotFoundError(2, "missing"), IsADirectoryError(21, "a directory"))
    assert [machine_error(error, tmp_path) for error in damage] == [None] * 3


# --- a directory that cannot be used -------------------------------------------------------------------------------

COMMANDS = """
import sys
from lvp.sweeps.__main__ import main

out = sys.argv[1]
for words in (["status"], ["resume", "--executor", "local", "--quiet"], ["figure"]):
    print("exit code", main([words[0], out, *words[1:]]))
"""


def in_a_child(out, cache):
    """Runs COMMANDS without root's rights. Returns their exit codes, standard output and the lines of stderr."""
    done = subprocess.run(
        [*UNPRIVILEGED, sys.executable, "-c", COMMANDS, str(out)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "LVP_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    codes = [line[-1] for line in done.stdout.splitlines() if line.startswith("exit code")]
    return codes, done.stdout, done.stderr.splitlines()


@pytest.fixture
def read_only(finished, tmp_path):
    """A finished sweep on a file system that is mounted read-only."""
    shutil.copytree(finished[0], tmp_path / "disk" / "out")
    bind = ["mount", "--bind", tmp_path / "disk", tmp_path / "disk"]
    remount = ["mount", "-o", "remount,ro,bind", tmp_path / "disk"]
    if any(subprocess.run(words, capture_output=True).returncode for words in (bind, remount)):
        pytest.skip("mounting takes rights that this user has not")
    yield tmp_path / "disk" / "out"
    subprocess.run(["umount", "-l", tmp_path / "disk"], check=True)


@pytest.fixture
def of_another_user(finished, tmp_path):
    """A finished sweep that this user may read."""
    if os.geteuid():
        pytest.skip("only root gives files to another user")
    out = shutil.copytree(finished[0], tmp_path / "out")
    for path in (out, *out.rglob("*")):
        os.chown(path, 65534, 65534)
        path.chmod(0o755 if path.is_dir() else 0o644)
    return out


@pytest.mark.slow
@pytest.mark.parametrize(
    "which, message", [("read_only", "Read-only file system: "), ("of_another_user", "Permission denied: ")]
)
def test_a_sweep_that_cannot_be_written_is_shown_and_kept(which, message, finished, cache, request):
    out = request.getfixturevalue(which)
    before, watched = contents(out), Watched(out)
    watched.look()
    codes, stdout, lines = in_a_child(out, cache)
    assert codes == ["0", "1", "1"] and "12 of 12 runs have a record" in stdout and contents(out) == before
    assert len(lines) == 2 and all(line.startswith(f"sweeps: {message}{out}/") and "; " in line for line in lines)
    watched.assert_whole("a sweep's directory cannot be written", 1, outcomes(finished[0]))


@pytest.mark.slow
def test_files_without_permission_are_kept(finished, cache, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    watched = Watched(out)
    watched.look()
    record = min(out.glob("records/*.jsonl"))
    for path in (record, record.parent, out / "sweep.json"):
        mode = path.stat().st_mode
        path.chmod(0)
        codes, _, lines = in_a_child(out, cache)
        path.chmod(mode)
        assert codes == ["1"] * 3 and lines == [f"sweeps: Permission denied: {path}; give this user access"] * 3
    watched.assert_whole("records or sweep.json cannot be read for a time", 3, outcomes(finished[0]))


# --- a full disk ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "ray"])
@pytest.mark.parametrize("writes, every", [("records", "1e9"), ("checkpoints", "0")])
def test_a_sweep_on_a_full_disk_continues_after_space_is_made(finished, command, disk, writes, every, executor):
    words = (*RUN, "--threads", "1", "--executor", executor, "--out", out := disk / "out")
    watched = Watched(out)
    process = command(*words, "--checkpoint-seconds", every, start=True)
    began = time.monotonic()
    while not any(out.glob(f"{writes}/*")):
        assert process.poll() is None and time.monotonic() - began < 200, process.communicate()
        time.sleep(0.01)
    filler = fill(disk)
    _, stderr = process.communicate(timeout=200)
    assert process.returncode == 1 and stderr.count("\n") == 1, stderr
    assert re.search(rf"failed: no space left .*: {out}/.*; make space", stderr, re.IGNORECASE), stderr
    watched.look()
    filler.unlink()
    done = command(*words)
    assert done.returncode == 0, done.stderr
    watched.assert_whole(f"the disk is full when a {writes[:-1]} is written ({executor})", 1, outcomes(finished[0]))


def test_no_space_for_a_checkpoint_keeps_the_last_one(disk):
    store = Store(disk)
    store.save(CONFIGURATION, 1, STATE, [])
    filler = fill(disk)
    with pytest.raises(OSError, match="no space left for|No space left"):
        store.save(CONFIGURATION, 2, STATE, [])
    filler.unlink()
    assert store.steps(CONFIGURATION) == [1] and store.latest([CONFIGURATION], SHAPES)[0] == 1


@pytest.mark.slow
def test_no_space_for_a_figure_keeps_the_old_figure(finished, disk):
    out = shutil.copytree(finished[0], disk / "out", ignore=shutil.ignore_patterns("logs"))
    before = (out / "figure.png").read_bytes()
    fill(disk)
    with pytest.raises(OSError, match="no space left for") as problem:
        commands.figure(out)
    assert str(out) in str(problem.value) and (out / "figure.png").read_bytes() == before and not list(out.glob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize("where", ["the sweep", "a worker's log"])
def test_no_space_at_the_start_is_one_line(finished, command, disk, where):
    out = disk / "out"
    if where == "a worker's log":
        shutil.copytree(finished[0], out, ignore=shutil.ignore_patterns("logs"))
        for path in sorted(out.glob("records/*"))[:2]:
            path.unlink()
    watched = Watched(out)
    watched.look()
    filler = fill(disk)
    for number in range(100_000):  # also of names
        try:
            (disk / f"{number}").touch()
        except OSError:
            break
    done = command(*RUN, *LOCAL, "--out", out)
    assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done.stderr
    assert "space" in done.stderr
    for path in [filler, *disk.glob("[0-9]*")]:
        path.unlink()
    assert command(*RUN, *LOCAL, "--out", out).returncode == 0
    watched.assert_whole(f"the disk is full before {where} is written", 1, outcomes(finished[0]))


# --- limits of the shell -------------------------------------------------------------------------------------------

USER = 65534
# Limits on processes have no effect on root, so another user runs the sweep and reads this user's packages.
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
AS_USER += ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


def sweep_within(limit, home, executor):
    """`run` of three runs of the finished sweep under a limit. Returns (exit code, stderr)."""
    prefix = AS_USER if limit.startswith("-u") and os.geteuid() == 0 else ()
    script = f'ulimit {limit} && exec "$@"' if limit else 'exec "$@"'
    words = [*RUN, "--executor", executor, "--threads", "1", "--out", str(home / "out")]
    done = subprocess.run(
        [*prefix, "bash", "-c", script, "bash", sys.executable, "-m", "lvp.sweeps", *words]
        + [f"--set={k}={v}" for k, v in (TINY | {"widths": "16", "seeds": "0"}).items()],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "HOME": str(home), "LVP_CACHE": str(home / "cache")},
        capture_output=True,
        text=True,
        timeout=500,
    )
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["-n 8", "-n 10", "-u 3", "-u 12", "-v 1000000"])
def test_a_limit_of_the_shell_gives_one_line(limit, finished, cache):
    with tempfile.TemporaryDirectory() as folder:  # which another user can reach, unlike pytest's
        home = Path(folder)
        shutil.copytree(cache, home / "cache")  # compiled programs
        if limit.startswith("-u") and os.geteuid() == 0:
            for path in (home, *home.rglob("*")):
                os.chown(path, USER, USER)
        code, stderr = sweep_within(limit, home, "local")
        stderr = re.sub(r"^<jemalloc>: .*\n", "", stderr, flags=re.MULTILINE)  # a library's own message
        assert code in (1, 2) and stderr.startswith("sweeps: ") and stderr.count("\n") == 1, stderr
        watched = Watched(home / "out")
        watched.look()
        code, stderr = sweep_within("", home, "local")
        assert code == 0, stderr
        whole = {run: outcome for run, outcome in outcomes(finished[0]).items() if run in outcomes(home / "out")}
        assert len(whole) == 3
        watched.assert_whole(f"a limit of the shell (ulimit {limit[:2]})", 1, whole)
