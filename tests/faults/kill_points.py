"""Kills a command before its k-th fsync, rename or unlink in a directory.

A process loads HOOK as its `sitecustomize`, which counts these calls and ends the process with SIGKILL before the k-th.
Processes that it starts are not counted. `in_this_process` does the same in the test's process: it raises an exception
at the k-th call and at all later calls, so that clean-up code cannot run either.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from tests.sweeps.running import ROOT

HOOK = """
import os, signal

under, log, at = (os.environ.pop(f"KILL_POINTS_{name}", "") for name in ("UNDER", "LOG", "AT"))
count = 0


def counted(call, name):
    def counting(path, *args, **kwargs):
        global count
        place = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.path.abspath(os.fsdecode(path))
        if place.startswith(under):
            count += 1
            with open(log, "a") as file:
                file.write(f"{name} {place}\\\\n")
            if count == int(at):
                os.kill(os.getpid(), signal.SIGKILL)
        return call(path, *args, **kwargs)

    return counting


if under:
    for name in ("fsync", "replace", "rename", "unlink", "remove"):
        setattr(os, name, counted(getattr(os, name), name))
""".replace("\\\\n", "\\n")
# `python -m sweeps` with the worker in the driver's process.
IN_ONE_PROCESS = (
    "import sys; from sweeps.driver import api; api._holds_accelerator = lambda: 'gpu'; "
    "from sweeps.__main__ import main; sys.exit(main(sys.argv[1:]))"
)


def command(words: list, under: Path, folder: Path, at: int = 0, cache: Path | None = None):
    """Runs a Python command that is killed at its `at`-th point (0: never). Returns the completed process and the
    points that it reached.

    Args:
      words: the interpreter's arguments, for example ["-m", "sweeps", "resume", out].
      under: a directory; only calls on files in it count.
      folder: the directory for the hook and the log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(HOOK)
    log = folder / "points.log"
    log.write_text("")
    variables = {"KILL_POINTS_UNDER": str(under), "KILL_POINTS_LOG": str(log), "KILL_POINTS_AT": str(at)}
    paths = os.pathsep.join([str(folder), str(ROOT)])
    environment = os.environ | variables | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}
    environment |= {"LVP_CACHE": str(cache)} if cache else {}
    given = [sys.executable, *map(str, words)]
    process = subprocess.run(given, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return process, log.read_text().splitlines()


class Killed(BaseException):
    """Stands for SIGKILL in the test's process."""


@contextlib.contextmanager
def in_this_process(monkeypatch, under: Path, at: int = 0):
    """Yields a list to which each point of the block is added. The `at`-th and all later points raise Killed, also in
    clean-up code. The first Killed ends the block."""
    points: list[str] = []

    def counted(call, name):
        def counting(path, *args, **kwargs):
            place = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.path.abspath(path)
            if place.startswith(str(under)):
                points.append(f"{name} {place}")
                if at and len(points) >= at:
                    raise Killed
            return call(path, *args, **kwargs)

        return counting

    with monkeypatch.context() as patched:
        for name in ("fsync", "replace", "rename", "unlink"):
            patched.setattr(os, name, counted(getattr(os, name), name))
        if at:
            with contextlib.suppress(Killed):
                yield points
        else:
            yield points
