"""`Stop` keeps its first reason, and one check reads each file at most once."""

import ast
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sweeps.worker.stop import EXIT_CODES, Reason, Stop, end
from sweeps.worker.worker import Settings, Worker
from tests.sweeps.running import ROOT


class Files:
    """The files of a sweep that a check reads. Counts the reads of each file."""

    def __init__(self, leave=(), sessions=()):
        self.leave, self.sessions, self.reads = list(leave), list(sessions), {"leave": 0, "session": 0}
        self.leave_path = self

    def exists(self) -> bool:
        self.reads["leave"] += 1
        return self.leave.pop(0) if self.leave else False

    def session(self) -> str:
        self.reads["session"] += 1
        session = self.sessions.pop(0) if self.sessions else "mine"
        if isinstance(session, OSError):
            raise session
        return session


def test_the_first_reason_is_kept():
    stop = Stop()
    assert stop.reason is None
    stop.set(Reason.SIGTERM)
    stop.set(Reason.DISK_FULL)
    assert stop.reason is Reason.SIGTERM
    assert stop.check(Files(leave=[True]), None) is Reason.SIGTERM


def test_a_check_reads_each_file_once():
    stop, files = Stop(), Files(leave=[False, True, False])
    assert stop.check(files, "mine") is None and files.reads == {"leave": 1, "session": 1}
    assert stop.check(files, "mine") is Reason.ASKED_BY_DRIVER and files.reads == {"leave": 2, "session": 2}
    # The driver may remove the file before the worker has saved. The reason is kept.
    assert stop.check(files, "mine") is Reason.ASKED_BY_DRIVER and files.reads["leave"] == 2
    stop.set(Reason.SIGTERM)
    assert stop.reason is Reason.ASKED_BY_DRIVER


@pytest.mark.parametrize("earlier", [None, Reason.SIGTERM, Reason.ASKED_BY_DRIVER])
def test_taken_over_and_moved_take_precedence(earlier):
    stop = Stop()
    if earlier is not None:
        stop.set(earlier)
    assert stop.check(Files(leave=[True], sessions=["another"]), "mine") is Reason.TAKEN_OVER
    for number in (errno.ENOENT, errno.ESTALE, errno.ENOTCONN):
        assert stop.check(Files(leave=[True], sessions=[OSError(number, "gone")]), "mine") is Reason.MOVED
    # Another error does not mean that the directory has gone.
    assert stop.check(Files(sessions=[OSError(errno.EMFILE, "too many")]), "mine") is earlier
    assert stop.check(Files(sessions=["another"]), None) is earlier  # a worker in the driver's process has no session


@pytest.mark.parametrize(
    "reasons, agreed",
    [
        ((0, 0), None),
        ((0, Reason.SIGTERM), Reason.SIGTERM),
        ((Reason.ASKED_BY_DRIVER, 0), Reason.ASKED_BY_DRIVER),
        ((Reason.ASKED_BY_DRIVER, Reason.SIGTERM), Reason.SIGTERM),
    ],
)
def test_workers_that_share_a_mesh_stop_for_the_same_reason(reasons, agreed, monkeypatch):
    monkeypatch.setattr("lvp.parallel.processes.gathered", lambda own: np.array([[int(r)] for r in reasons]))
    worker = object.__new__(Worker)  # no mesh and no other processes are needed
    worker.settings, worker.stop = Settings(hosts=2), Stop()
    assert worker._stop_reason(Files()) is agreed


@pytest.mark.parametrize("reason", EXIT_CODES)
def test_every_reason_ends_a_process_with_its_code(reason, monkeypatch):
    codes = []
    monkeypatch.setattr("os._exit", codes.append)
    end(reason)
    assert codes == [EXIT_CODES[reason]]


def test_only_stop_py_ends_processes():
    calls = [
        path.relative_to(ROOT)
        for path in sorted((ROOT / "sweeps").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "_exit"
    ]
    assert calls == [Path("sweeps/worker/stop.py")]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's prctl")
@pytest.mark.parametrize("call, ends", [("end_with_parent()", True), ("", False)])
def test_a_process_that_hangs_in_native_code_ends_with_its_parent(call, ends):
    # A PyDLL keeps the interpreter's lock, so no thread of the child runs Python after "ready".
    child = f"from sweeps.worker.stop import end_with_parent; {call}\nprint('ready', flush=True)\n"
    child += "import ctypes; ctypes.PyDLL(None).pause()"
    parent = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
    parent += "print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", parent], cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        pid = int(driver.stdout.readline())
        assert driver.stdout.readline() == "ready\n"
        driver.kill()
        driver.wait()
        deadline = time.monotonic() + (30 if ends else 1)
        while running(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert running(pid) is not ends
        if not ends:
            os.kill(pid, signal.SIGKILL)


def running(pid):
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
