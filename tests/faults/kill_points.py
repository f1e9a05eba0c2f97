"""Kills a command before its k-th fsync, rename or unlink in a directory.

`command` runs `python -m sweeps` in a process of its own, which counts these calls and ends with SIGKILL before the
k-th. Processes that it starts are not counted. `in_this_process` does the same in the process of the test: it raises an
exception at the k-th call and at all later calls, so that clean-up code cannot run either.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Imported once by the server that forks the processes: the imports take longer than a small sweep.
PRELOADED = ["sweeps.__main__", "sweeps.worker.pack", "sweeps.reporting.results", "experiments.width_vocab"]
PRELOADED += ["lvp.training.language", "orbax.checkpoint", "matplotlib.figure", "sentencepiece"]


CALLS = ("fsync", "replace", "rename", "unlink", "remove")  # the functions of `os` that are counted


class Ended(NamedTuple):
    """A process that has ended."""

    returncode: int  # negative: the signal that killed it
    points: list[str]  # the points that it reached
    stderr: str


def command(words: list, under: Path, folder: Path, at: int = 0, cache: Path | None = None) -> Ended:
    """Runs `python -m sweeps` with its worker in the same process, and kills it at its `at`-th point (0: never).

    Args:
      words: the arguments, for example ["resume", out].
      under: a directory; only calls on files in it count.
      folder: the directory for the log and the output.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log, errors = folder / "points.log", folder / "stderr"
    log.write_text("")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_run, args=([str(word) for word in words], str(under), log, errors, at, cache))
    process.start()
    process.join()
    assert process.exitcode is not None
    return Ended(process.exitcode, log.read_text().splitlines(), errors.read_text())


def _run(words: list[str], under: str, log: Path, errors: Path, at: int, cache: Path | None) -> None:
    from sweeps.__main__ import main
    from sweeps.driver import api

    os.environ |= {"JAX_PLATFORMS": "cpu"} | ({"LVP_CACHE": str(cache)} if cache else {})
    with open(errors, "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    count = 0

    def reached(point: str) -> None:
        nonlocal count
        count += 1
        with open(log, "a") as file:
            file.write(f"{point}\n")
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in CALLS:
        setattr(os, name, _counted(name, Path(under), reached))
    api._holds_accelerator = lambda: "gpu"  # the worker runs in the driver's process
    sys.exit(main(words))


def _counted(name: str, under: Path, reached: Callable[[str], None]) -> Callable:
    """The function `os.NAME`, which first calls reached("NAME PATH") for a path in the directory `under`."""
    call = getattr(os, name)

    def counting(path, *args, **kwargs):
        folder = kwargs.get("dir_fd")  # of `shutil.rmtree`
        place = _opened(path) if isinstance(path, int) else Path(_opened(folder) if folder else "", path).absolute()
        if place.is_relative_to(under):
            reached(f"{name} {place}")
        return call(path, *args, **kwargs)

    return counting


def _opened(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


class Killed(BaseException):
    """Stands for SIGKILL in the test's process."""


@contextlib.contextmanager
def in_this_process(monkeypatch, under: Path, at: int = 0):
    """Yields a list to which each point of the block is added. The `at`-th and all later points raise Killed, also in
    clean-up code. The first Killed ends the block."""
    points: list[str] = []

    def reached(point: str) -> None:
        points.append(point)
        if at and len(points) >= at:
            raise Killed

    with monkeypatch.context() as patched:
        for name in CALLS:
            patched.setattr(os, name, _counted(name, under, reached))
        if at:
            with contextlib.suppress(Killed):
                yield points
        else:
            yield points
