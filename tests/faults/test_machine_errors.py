"""Errors of the machine are not taken for damage: a one-line error with file and remedy, all files are kept, and no
lane is trained again."""

import errno
import json
import os
import shutil
import subprocess
import sys

import pytest

from lvp.data.text import python_docs
from lvp.data.tokens import storage
from lvp.errors import InputError
from lvp.files import explained, machine_error, write_whole
from lvp.training import checkpoints, records
from sweeps.driver.manifest import Manifest
from sweeps.reporting import results
from tests.faults.damage import contents
from tests.faults.ledger import record_finished, times
from tests.faults.small_files import make_manifest, make_published, make_record
from tests.faults.small_state import CONFIGURATION, SHAPES, STATE
from tests.sweeps.running import ROOT, outcomes

ERRORS = ("EACCES", "EPERM", "EIO", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "ESTALE", "EROFS")
# The user root ignores permissions, unless these capabilities are dropped.
UNPRIVILEGED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()


def child(script, *words, environment=None):
    """Runs a script in a process without root's rights. Returns (exit code, stdout, lines of stderr)."""
    done = subprocess.run(
        [*UNPRIVILEGED, sys.executable, "-c", script, *map(str, words)],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | (environment or {}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr.splitlines()


RESUME = """
import json, os, resource, sys
from pathlib import Path
from sweeps.__main__ import main

out = Path(sys.argv[1])
record = sorted(out.glob("records/*.jsonl"))[0]

def resume():
    return main(["resume", str(out), "--executor", "local", "--quiet"])

def report(code):
    print(json.dumps([code, sorted(p.name for p in out.glob("records/*"))]))

for path in (record, record.parent, out / "manifest.json"):
    mode = path.stat().st_mode
    path.chmod(0)
    code = resume()
    path.chmod(mode)
    report(code)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
code = resume()
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
report(code)
sys.exit(resume())
"""


@pytest.mark.slow
def test_temporarily_unreadable_records_are_kept(finished, cache, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    records_before = times(out)
    code, stdout, lines = child(RESUME, out, environment={"LVP_CACHE": str(cache)})
    assert code == 0, lines
    assert [json.loads(line) for line in stdout.splitlines()] == [[1, sorted(records_before)]] * 4
    record = out / "records" / min(records_before)
    denied = [f"sweeps: Permission denied: {p}; give this user access" for p in (record, record.parent)]
    assert lines[:2] == denied and str(out / "manifest.json") in lines[2]
    assert "Too many open files" in lines[3] and lines[3].endswith("; raise the limit of open files (ulimit -n)")
    assert len(lines) == 4
    assert len(records_before) == 12
    record_finished("records cannot be read for a time", 4, out, records_before, outcomes(finished[0]))


CHECKPOINTS = """
import os, resource, sys
from pathlib import Path
import jax, numpy as np
from lvp.training import checkpoints
from tests.faults.small_state import CONFIGURATION, SHAPES, STATE

folder = Path(sys.argv[1])
for step in (1, 2):
    checkpoints.save(folder, step, STATE, CONFIGURATION)

def latest(what):
    try:
        print(what, checkpoints.latest([folder], SHAPES, [CONFIGURATION])[0])
    except OSError as error:
        print(what, error.strerror, error.filename is not None)

last = folder / "step_000000002"
latest("whole")
for path in (last, last / checkpoints._METADATA, last / "state", last / "state/manifest.ocdbt", last / "state/d"):
    mode = path.stat().st_mode
    path.chmod(0)
    latest(path.name)
    path.chmod(mode)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
free = os.dup(0)
os.close(free)
for spare in range(8):
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + spare, hard))
    latest(f"{spare} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
latest("whole")
"""


@pytest.mark.slow
def test_a_temporarily_unreadable_checkpoint_is_kept(tmp_path):
    code, stdout, lines = child(CHECKPOINTS, tmp_path / "lane")
    assert code == 0, lines
    first, *denied, last = stdout.splitlines()
    assert first == last == "whole 2"
    assert all(line.endswith("Permission denied True") for line in denied[:5]), denied
    assert all(line.endswith(("Too many open files True", " 2")) for line in denied[5:]), denied
    assert len(denied) == 13 and denied[5] == "0 descriptors Too many open files True"


def make_library(folder):
    (folder / "pydoc_data").mkdir(parents=True)
    for name in ("a.py", "b.py", "pydoc_data/topics.py"):
        write_whole(folder / name, "text = 1\n" * 30)
    return folder / "a.py"


def make_entry(folder):
    storage.write_entry(folder, {"train": b"tokens"}, {"size": 6})
    return folder / "entry.json"


def make_checkpoint(folder):
    checkpoints.save(folder, 1, STATE, CONFIGURATION)
    return folder / "step_000000001" / checkpoints._METADATA


CALLS = {
    "record": (make_record, lambda path: Manifest(path.parents[1], "e", "smoke", {}, {}).rename_damaged()),
    "manifest": (make_manifest, lambda path: Manifest.read(path.parent)),
    "published result": (make_published, lambda path: results._read(path.parent)),
    "corpus": (make_library, lambda path: python_docs.load(path.parent)),
    "cached corpus": (make_entry, lambda path: storage.read_entry(path.parent)),
    "checkpoint": (
        make_checkpoint,
        lambda path: checkpoints.latest([path.parents[1]], SHAPES, [CONFIGURATION]),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("file", CALLS)
def test_an_error_of_the_machine_is_raised_with_the_file_and_changes_nothing(file, name, tmp_path, monkeypatch):
    make, call = CALLS[file]
    (tmp_path / "records").mkdir()
    path, number = make(tmp_path / "records"), getattr(errno, name)
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


def test_an_error_of_the_machine_is_recognised_in_messages_and_causes(tmp_path):
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


FIGURE = """
import os, signal, sys
from pathlib import Path
from sweeps.driver.manifest import Manifest
from sweeps.reporting import results

out, count = Path(sys.argv[1]), int(sys.argv[2])
replace = os.replace

def replace_or_end(source, target):
    global count
    if not count:
        os.kill(os.getpid(), signal.SIGKILL)
    count -= 1
    replace(source, target)

os.replace = replace_or_end
results.draw(Manifest.read(out), say=lambda *_: None)
"""


@pytest.mark.slow
@pytest.mark.parametrize("files", [0, 1, 2])
def test_a_killed_drawing_is_completed_by_the_next_call(files, finished, tmp_path):
    """`files`: how many of table.csv, figure.svg and figure.png have been written when the process is killed."""
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    drawn = [out / name for name in ("table.csv", "figure.svg", "figure.png")]
    whole, records_before = [path.read_bytes() for path in drawn], times(out)
    for path in drawn:
        path.write_bytes(b"older")
    assert child(FIGURE, out, files)[0] == -9
    assert [path.read_bytes() for path in drawn] == whole[:files] + [b"older"] * (3 - files)
    results.draw(Manifest.read(out), say=lambda *_: None)
    assert [path.read_bytes() for path in drawn] == whole
    record_finished("the drawing of a figure is killed", 1, out, records_before, outcomes(finished[0]))


def test_an_incomplete_publication_is_refused(finished, tmp_path, monkeypatch):
    """The new records are beside the description of an older sweep."""
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "results")
    folder = results.publish(finished[0])
    older = json.loads((folder / results.DESCRIPTION).read_text())
    older = {k: v for k, v in older.items() if k not in ("digest", "records_sha256")} | {"date": "2025-01-01"}
    write_whole(folder / results.DESCRIPTION, records.dumps(results._with_digests(older, b"older records")))

    def killed(path, content):
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "write_whole", killed)
    with pytest.raises(KeyboardInterrupt):
        results.publish(finished[0])
    monkeypatch.undo()
    monkeypatch.setattr(results, "COMMITTED", tmp_path / "results")
    with pytest.raises(InputError, match="records.jsonl.gz does not match its digest in .*sweep.json; .*publish DIR"):
        results.committed()
    results.publish(finished[0])
    assert len(results.committed()) == 1


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


COMMANDS = """
import sys
from sweeps.__main__ import main

out = sys.argv[1]
for words in (["status"], ["resume", "--executor", "local", "--quiet"], ["figure"]):
    print("exit code", main([words[0], out, *words[1:]]))
"""


@pytest.mark.slow
def test_a_sweep_on_a_read_only_file_system_can_be_shown_and_is_kept(read_only, finished, cache):
    before, records_before = contents(read_only), times(read_only)
    code, stdout, lines = child(COMMANDS, read_only, environment={"LVP_CACHE": str(cache)})
    assert code == 0 and [line[-1] for line in stdout.splitlines() if line.startswith("exit code")] == ["0", "1", "1"]
    assert "12 of 12 lanes have a record" in stdout and contents(read_only) == before
    assert len(lines) == 2 and all("Read-only file system: " in line for line in lines)
    assert all(line.endswith("; mount its file system for writing") for line in lines)
    record_finished("the file system becomes read-only", 1, read_only, records_before, outcomes(finished[0]))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_a_sweep_of_another_user_can_be_shown_and_is_kept(finished, cache, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    for path in (out, *out.rglob("*")):
        os.chown(path, 65534, 65534)
        path.chmod(0o755 if path.is_dir() else 0o644)
    before, records_before = contents(out), times(out)
    code, stdout, lines = child(COMMANDS, out, environment={"LVP_CACHE": str(cache)})
    assert code == 0 and [line[-1] for line in stdout.splitlines() if line.startswith("exit code")] == ["0", "1", "1"]
    assert "12 of 12 lanes have a record" in stdout and contents(out) == before
    assert len(lines) == 2 and all(line.startswith(f"sweeps: Permission denied: {out}/") for line in lines)
    record_finished("another user resumes the sweep", 1, out, records_before, outcomes(finished[0]))
