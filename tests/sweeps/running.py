"""Fixtures that run sweeps in processes. A sweep of twelve small runs is trained once for all tests that read it."""

import fcntl
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from lvp.sweeps.__main__ import main
from lvp.sweeps.store import Store
from lvp.training.program import PackedProgram

ROOT = Path(__file__).parents[2]
LOCAL = ("--executor", "local", "--threads", "1")
TINY = {
    "widths": "16,24",
    "rates": "0.01,0.03,0.1",
    "seeds": "0,1",
    "steps": "40",
    "vocab_per_width": "20",
    "layers": "1",
    "context": "16",
    "head_dim": "8",
}


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A directory shared by the worker processes of pytest-xdist."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def cache(shared):
    """A cache directory for the tests. The first sweep compiles the programs, and later sweeps read them."""
    return shared / "cache"


def _settings(words: tuple, settings: dict) -> dict:
    return TINY | settings if words[:2] == ("run", "width_vocab") else settings


@pytest.fixture(scope="session")
def command(cache):
    """command(*words) runs `python -m lvp.sweeps` and returns the completed process. With `start=True` it returns the
    running process. `within`: words before the command, for example `unshare`."""

    def call(*words, start=False, within=(), **settings):
        extra = [f"--set={k}={v}" for k, v in _settings(words, settings).items()]
        environment = os.environ | {"LVP_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
        process = subprocess.Popen(
            [*within, sys.executable, "-m", "lvp.sweeps", *map(str, words), *extra],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Processes inherit an ignored SIGINT from a background job, and these tests send SIGINT.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        if start:
            return process
        out, err = process.communicate(timeout=900)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    return call


@pytest.fixture
def command_here(cache, monkeypatch, capsys):
    """command_here(*words) is `command` without a process of its own, for commands that train nothing."""

    def call(*words, **settings):
        extra = [f"--set={k}={v}" for k, v in _settings(words, settings).items()]
        monkeypatch.setenv("LVP_CACHE", str(cache))
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        try:
            code = main([*map(str, words), *extra])
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return subprocess.CompletedProcess(words, code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def finished(command, shared, tmp_path_factory):
    """(directory, process) of the small sweep under the local executor.

    One worker process of pytest-xdist runs the sweep. Each worker process gets a copy, because tests resume it.
    """
    original, report = shared / "finished", shared / "finished.json"
    with open(shared / "finished.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not report.exists():
            process = command("run", "width_vocab", "--preset", "smoke", *LOCAL, "--out", original)
            report.write_text(json.dumps([process.returncode, process.stdout, process.stderr]))
    out = tmp_path_factory.mktemp("sweep") / "out"
    shutil.copytree(original, out)
    returncode, stdout, stderr = json.loads(report.read_text().replace(str(original), str(out)))
    return out, subprocess.CompletedProcess((), returncode, stdout, stderr)


_LOWERED, _SHAPES = {}, {}  # of this process


def keep_programs(monkeypatch):
    """Lowers and compiles each program once per process. Workers in one process would trace it again."""
    lower, run_shapes = PackedProgram.lower, PackedProgram.run_shapes

    def key(program):
        return repr(program.setting), program.runs

    def kept(program, data):
        if key(program) not in _LOWERED:
            made = lower(program, data)
            as_text, compiled = functools.cache(made.as_text), functools.cache(made.compile)
            _LOWERED[key(program)] = SimpleNamespace(as_text=as_text, compile=compiled)
        return _LOWERED[key(program)]

    def kept_shapes(program):
        if key(program) not in _SHAPES:
            _SHAPES[key(program)] = run_shapes(program)
        return _SHAPES[key(program)]

    monkeypatch.setattr(PackedProgram, "lower", kept)
    monkeypatch.setattr(PackedProgram, "run_shapes", kept_shapes)


WORKERS = ("lvp.sweeps.work", "ray::ResourceTrainable")  # in the command lines of worker processes


def workers(process: subprocess.Popen) -> list[psutil.Process]:
    """The worker processes of a driver."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if any(name in " ".join(child.cmdline()) for name in WORKERS):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def outcomes(place) -> dict[str, dict]:
    """The outcomes of the intact records of a sweep in a directory or bucket, by hash."""
    return {row["hash"]: row["outcome"] for row in Store(place).read_records()}
