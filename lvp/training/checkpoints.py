"""Checkpoints of one lane: a pytree of arrays at a step, with a digest per leaf. The only Orbax import.

Orbax writes a step atomically, but loads a flipped bit without an error. Every leaf (`lvp.files.digests`) and the
metadata therefore have a digest, which is verified on load. A damaged step is logged and skipped. A sharded state is
written by parts and can be read on any other mesh. Processes that share a state all call the same functions on a shared
file system. Two workers may train the same lane into the same directory. Each worker writes to a directory with its
host and pid in the name. A complete directory is renamed to the step's name.
"""

import contextlib
import errno
import itertools
import json
import logging
import os
import re
import shutil
import socket
import threading
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp
from orbax.checkpoint.multihost import get_barrier_sync_fn

from lvp.files import check_readable, digests, listed, machine_error, no_space
from lvp.files.schema import Shape, fits
from lvp.parallel import processes
from lvp.training import records

log = logging.getLogger(__name__)
_ABANDONED = 3600.0  # seconds without a write after which another host's unfinished save is removed
KEEP = 2  # steps kept: the last step and a fallback
_SEEN = 4 * KEEP  # steps of a directory that processes compare
_WRITER = re.compile(r"\.(?P<host>\d+)-(?P<pid>\d+)")  # in the name of an unfinished save
_METADATA = "_CHECKPOINT_METADATA"  # Orbax's file, which holds our `custom_metadata`
# Our metadata. `digests` belong to the leaves, and `digest` to the other values.
_SHAPE: Shape = {"step": int, "configuration": str, "environments": [dict], "digests": dict, "digest": str}
_saving = threading.Lock()  # Orbax confuses the saves of two threads: their operations share a global number
_waits = itertools.count()  # the names of the waits, equal in all processes


def wait_for_all(seconds: int = 3600) -> None:
    """Waits until all processes call it.

    On CPUs, a collective operation fails if another process begins it more than 30 s later. Call this function before
    a collective operation that processes may reach at different times, for example after a compilation.

    Args:
      seconds: the longest time to wait, in seconds.

    Raises:
      jax.errors.JaxRuntimeError: another process did not call it in time, or has ended.
    """
    get_barrier_sync_fn()(key=f"lvp-{next(_waits)}", timeout_ms=1000 * seconds)


def _path(directory: Path, step: int) -> Path:
    return Path(directory).absolute() / f"step_{step:09d}"


def _this_process() -> tuple[int, int]:
    """The numbers of this host and this process. Each container counts as a host, because it numbers its own
    processes."""
    place = Path("/proc/self/ns/pid")
    host = socket.gethostname() + (os.readlink(place) if place.exists() else "")
    return zlib.crc32(host.encode()), os.getpid()


def steps(directory: Path) -> list[int]:
    """The saved steps in `directory`, ascending; an empty list if it does not exist. Unfinished saves have other names.
    Raises OSError if the directory cannot be read."""
    return sorted(int(p.name[5:]) for p in _saves(directory) if p.name[5:].isdecimal())


def _saves(directory: Path) -> list[Path]:
    """The directories of steps, unfinished ones among them."""
    return [p for p in listed(directory) if p.name.startswith("step_")]


class Damaged(ValueError):
    """A checkpoint that is corrupt or belongs to another configuration."""


def _raise_machine_error(error: Exception, path: Path) -> None:
    """Raises OSError if the machine, and not damage, caused `error` when the step was read."""
    if problem := machine_error(error, path):
        raise problem from error
    check_readable(path)  # Orbax replaces some errors of the machine by its own


def _drop(paths: Iterable[Path]) -> None:
    if jax.process_index() == 0:
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)


def _drop_abandoned(directory: Path) -> None:
    """Removes the unfinished saves of ended processes. A save of this host is removed if its process does not exist. A
    save of another host is removed if it has not changed for an hour. Other workers may still write the other saves."""
    for path in _saves(directory):
        if writer := _WRITER.search(path.name):
            here = int(writer["host"]) == _this_process()[0]
            if not _is_running(int(writer["pid"])) if here else _is_old(path):
                _drop([path])


def _is_old(folder: Path) -> bool:
    with contextlib.suppress(OSError):  # the directory is gone, or changes
        return max(path.stat().st_mtime for path in [folder, *folder.rglob("*")]) < time.time() - _ABANDONED
    return False


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user
        pass
    return True


def _commit(unfinished: Path, path: Path) -> None:
    """Gives a complete save its step's name. Replaces an earlier save of the step."""
    replaced = unfinished.with_name(f"{unfinished.name}.replaced")
    with contextlib.suppress(FileNotFoundError):
        path.rename(replaced)
    try:
        unfinished.rename(path)
    except OSError:
        if not path.exists():  # if it exists, another worker of the lane has just saved the same bits
            raise
    for rest in (replaced, unfinished):
        shutil.rmtree(rest, ignore_errors=True)


def save(
    directory: Path, step: int, state: Any, configuration: str, environments: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Writes the pytree `state` (arrays) as `step`, then deletes all but the last `KEEP` steps up to it.

    Args:
      configuration: the hash of the lane's configuration; `load` refuses another hash.
      environments: the environments that trained the state so far, as JSON of any content; `load` returns them.

    Raises:
      OSError: with path and size, if the disk is full. No partial step is left.
    """
    writer = _this_process()
    if processes.shared(state):
        writer = processes.gathered(writer)[0]  # all processes write to the directory of the first
    path = _path(directory, step)
    unfinished = path.with_name(f"{path.name}.{writer[0]}-{writer[1]}")
    metadata: dict[str, Any] = {
        "step": step,
        "configuration": configuration,
        "environments": list(environments),
        "digests": digests.digests_of_tree(state),
    }
    metadata["digest"] = records.config_hash(metadata)
    try:
        with _saving:
            ocp.save(unfinished, state, overwrite=True, custom_metadata=metadata)
    except Exception as error:  # Orbax passes on TensorStore's messages
        if "No space left on device" not in str(error) and "quota" not in str(error):
            raise
        _drop(p for p in _saves(directory) if f"{p.name}.".startswith(f"{unfinished.name}."))
        size = sum(x.nbytes for x in jax.tree.leaves(state))
        raise no_space(errno.ENOSPC, size, path) from None
    if jax.process_index() == 0:
        _commit(unfinished, path)
    _drop(_path(directory, old) for old in [s for s in steps(directory) if s <= step][:-KEEP])


def load(directory: Path, step: int, shapes: Any, configuration: str) -> tuple[Any, list[dict[str, Any]]]:
    """(state, environments) at `step`. The state has the structure of `shapes` (ShapeDtypeStructs), and is sharded if
    the ShapeDtypeStructs have shardings.

    Raises:
      Damaged: with the path. A file of the step is missing or cannot be parsed, a digest differs, or the checkpoint
        belongs to another step or configuration.
      OSError: the step cannot be read for another reason than damage (`lvp.files.machine`).
    """
    path, metadata, state, problem = _path(directory, step), {}, None, None
    try:
        metadata = json.loads((path / _METADATA).read_bytes())["custom_metadata"]
        if not fits(metadata, _SHAPE):
            raise ValueError(f"{_METADATA} does not hold step, configuration, environments and digests")
        if metadata.pop("digest") != records.config_hash(metadata):
            raise ValueError(f"{_METADATA} does not match its digest")
        wanted = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype) if s.sharding is None else s, shapes)
        state = ocp.load(path, wanted)
    except Exception as error:  # corruption can raise any exception in Orbax and TensorStore
        problem = error
        _raise_machine_error(error, path)
    failed = np.array([problem is not None])
    if processes.shared(shapes):  # all processes must agree to use the step
        failed = processes.gathered(failed)
    if np.any(failed):
        reason = f"{type(problem).__name__}: {problem}".splitlines()[0][:200] if problem else "by another process"
        raise Damaged(f"checkpoint {path} cannot be read: {reason}") from problem
    for name, expected in {"step": step, "configuration": configuration}.items():
        if metadata[name] != expected:
            raise Damaged(f"checkpoint {path} belongs to {name} {metadata[name]}")
    wrong = [leaf for leaf, digest in digests.digests_of_tree(state).items() if metadata["digests"].get(leaf) != digest]
    if wrong:
        raise Damaged(f"checkpoint {path} is damaged: {', '.join(wrong[:3])}")
    return state, metadata["environments"]


def latest(
    directories: Iterable[Path], shapes: Any, configurations: Iterable[str]
) -> tuple[int, list[Any], list[dict[str, Any]]] | None:
    """(step, states, environments) of the last step that every directory holds undamaged, or None; see `load`.

    There is one directory per lane of a pack, and its lanes resume at the same step. They are trained together, so the
    environments are those of the first directory. Damaged steps are logged. Later
    steps are deleted, since they would count among the last `KEEP`. Unfinished saves of ended processes are deleted.
    """
    directories, configurations = list(directories), list(configurations)
    for directory in directories:
        _drop_abandoned(directory)
    common = sorted(set.intersection(*(set(steps(d)) for d in directories)))
    if processes.shared(shapes):  # the first process decides: others may not see the last step yet
        last_steps = processes.gathered(([0] * _SEEN + [step + 1 for step in common])[-_SEEN:])
        common = [int(step) - 1 for step in last_steps[0] if step]
    for step in reversed(common):
        try:
            pairs = zip(directories, configurations, strict=True)
            loaded = [load(d, step, shapes, configuration) for d, configuration in pairs]
        except Damaged as error:
            log.warning("%s; falling back to the step before", error)
            continue
        for directory in directories:
            _drop(_path(directory, s) for s in steps(directory) if s > step)
        return step, [state for state, _ in loaded], loaded[0][1]
    return None
