"""Stops a block before its k-th fsync, rename, link or unlink below a directory, as SIGKILL would.

The k-th call and all later ones raise `Killed`, so that clean-up code cannot change a file either.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

CALLS = ("fsync", "replace", "rename", "link", "unlink", "remove", "rmdir")  # functions of `os` that are counted


class Killed(BaseException):
    """Stands for SIGKILL."""


@contextlib.contextmanager
def in_this_process(monkeypatch, under: Path, at: int = 0) -> Iterator[list[str]]:
    """Yields a list to which each point of the block is added. The `at`-th point ends the block (0: none does)."""
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
