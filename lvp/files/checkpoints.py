"""Checkpoints: a pytree of arrays at a step, with a digest per leaf.

Only this module imports Orbax, inside functions, because the import takes a second.

Orbax writes a checkpoint under a temporary name and renames it, but loads a flipped bit without an error. Every leaf
(`lvp.files.digests`) and the metadata therefore have a digest, which is verified on load. A sharded state is written by
parts and can be read on any other mesh. Processes that share a state all call the same functions on a shared file
system. `save` and `load` handle one checkpoint, and `save_step` and `latest` the last steps of one run in a directory,
which one command trains at a time.
"""

import errno
import hashlib
import itertools
import json
import logging
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lvp.files import digests
from lvp.files.atomic import no_space
from lvp.files.machine import check_readable, listed, machine_error
from lvp.files.schema import Shape, fits
from lvp.parallel import processes

log = logging.getLogger(__name__)
KEEP = 2  # steps kept: the last step and a fallback
METADATA = "_CHECKPOINT_METADATA"  # Orbax's file, which holds our `custom_metadata`; without it nothing is complete
_SEEN = 4 * KEEP  # steps of a directory that processes compare
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
    from orbax.checkpoint.multihost import get_barrier_sync_fn

    get_barrier_sync_fn()(key=f"lvp-{next(_waits)}", timeout_ms=1000 * seconds)


class Damaged(ValueError):
    """A checkpoint that is corrupt or belongs to another configuration."""


def save(
    path: Path,
    step: int,
    state: Any,
    configuration: str,
    environments: Sequence[Mapping[str, Any]] = (),
    config: Mapping[str, Any] | None = None,
) -> None:
    """Writes the pytree `state` (arrays) at `step` to the directory `path`, and replaces what is there.

    Args:
      configuration: the hash of the run's configuration; `load` refuses another hash.
      environments: the environments that trained the state so far, as JSON of any content; `load` returns them.
      config: the run's configuration as JSON, for readers without its record (`metadata`).

    Raises:
      OSError: the disk is full. The error has the path and the size. No partial checkpoint is left.
    """
    from orbax.checkpoint import v1 as ocp

    path = Path(path).absolute()
    metadata: dict[str, Any] = {
        "step": step,
        "configuration": configuration,
        "environments": list(environments),
        "digests": digests.digests_of_tree(state),
    } | ({} if config is None else {"config": config})
    metadata["digest"] = _digest(metadata)
    try:
        with _saving:
            ocp.save(path, state, overwrite=True, custom_metadata=metadata)
    except Exception as error:  # Orbax passes on TensorStore's messages
        if "No space left on device" not in str(error) and "quota" not in str(error):
            raise
        _drop(p for p in listed(path.parent) if f"{p.name}.".startswith(f"{path.name}."))
        size = sum(x.nbytes for x in jax.tree.leaves(state))
        raise no_space(errno.ENOSPC, size, path) from None


def metadata(path: Path) -> dict[str, Any]:
    """The metadata of a checkpoint: step, configuration, environments, digests and, if it was given, config.

    Raises:
      Damaged: the metadata are missing, cannot be parsed, or do not match their digest. The error has the path.
      OSError: the checkpoint cannot be read for another reason than damage (`lvp.files.machine`).
    """
    try:
        return _metadata(path)
    except Exception as error:
        raise _problem(error, path) from error


def load(path: Path, step: int, shapes: Any, configuration: str) -> tuple[Any, list[dict[str, Any]]]:
    """(state, environments) of the checkpoint at `path`.

    Args:
      shapes: the structure of the state or a part of it, as ShapeDtypeStructs. The state is sharded if they have
        shardings. Other leaves are not read.

    Raises:
      Damaged: a file is missing or cannot be parsed, a digest differs, or the checkpoint belongs to another step or
        configuration. The error has the path.
      OSError: the checkpoint cannot be read for another reason than damage (`lvp.files.machine`).
    """
    from orbax.checkpoint import v1 as ocp

    path, found, state, problem = Path(path).absolute(), {}, None, None
    context = ocp.Context()
    context.pytree.loading.partial_load = True
    try:
        found = _metadata(path)
        wanted = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype) if s.sharding is None else s, shapes)
        with context:
            state = ocp.load(path, wanted)
    except Exception as error:  # corruption can raise any exception in Orbax and TensorStore
        problem = _problem(error, path)
    failed = np.array([problem is not None])
    if processes.shared(shapes):  # all processes must agree to use the checkpoint
        failed = processes.gathered(failed)
    if np.any(failed):
        raise problem or Damaged(f"checkpoint {path} cannot be read: by another process")
    for name, expected in {"step": step, "configuration": configuration}.items():
        if found[name] != expected:
            raise Damaged(f"checkpoint {path} belongs to {name} {found[name]}")
    wrong = [leaf for leaf, digest in digests.digests_of_tree(state).items() if found["digests"].get(leaf) != digest]
    if wrong:
        raise Damaged(f"checkpoint {path} is damaged: {', '.join(wrong[:3])}")
    return state, found["environments"]


def _metadata(path: Path) -> dict[str, Any]:
    found = json.loads((Path(path) / METADATA).read_bytes())["custom_metadata"]
    if not fits(found, _SHAPE):
        raise ValueError(f"{METADATA} does not hold step, configuration, environments and digests")
    if found.pop("digest") != _digest(found):
        raise ValueError(f"{METADATA} does not match its digest")
    return found


def _digest(metadata: Mapping[str, Any]) -> str:
    read = json.loads(json.dumps(metadata))  # keys as they will be read
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:16]


def _problem(error: Exception, path: Path) -> Damaged:
    """The error as Damaged.

    Raises:
      OSError: the machine, and not damage, caused the error.
    """
    if problem := machine_error(error, path):
        raise problem from error
    check_readable(path)  # Orbax replaces some errors of the machine by its own
    reason = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return Damaged(f"checkpoint {path} cannot be read: {reason}")


# --- the steps of a run -------------------------------------------------------------------------------------------


def name_of(step: int) -> str:
    """The name of a step's checkpoint."""
    return f"step_{step:09d}"


def numbers(names: Iterable[str]) -> list[int]:
    """The steps among the names of checkpoints, ascending. Unfinished saves have other names."""
    return sorted(int(name[5:]) for name in names if name[:5] == "step_" and name[5:].isdecimal())


def steps(directory: Path) -> list[int]:
    """The saved steps in `directory`, ascending; an empty list if it does not exist.

    Raises:
      OSError: the directory cannot be read.
    """
    return numbers(path.name for path in listed(directory))


def save_step(directory: Path, step: int, state: Any, configuration: str, **more: Any) -> None:
    """Writes a step of a run as `save` does, then deletes all but the last `KEEP` steps.

    Raises:
      OSError: the disk is full, or the directory cannot be read.
    """
    save(Path(directory) / name_of(step), step, state, configuration, **more)
    _drop(Path(directory) / name_of(old) for old in steps(directory)[:-KEEP])


def latest(directory: Path, shapes: Any, configuration: str) -> tuple[int, Any, list[dict[str, Any]]] | None:
    """(step, state, environments) of the last undamaged step; None if there is none. `shapes` is as in `load`.

    Damaged steps are logged and deleted, since they would count among the last `KEEP`. Unfinished saves are deleted
    too.

    Raises:
      OSError: the directory or a checkpoint cannot be read for another reason than damage (`lvp.files.machine`).
    """
    found = steps(directory)
    if processes.shared(shapes):  # the first process decides: others may not see the last step yet
        last_steps = processes.gathered(([0] * _SEEN + [step + 1 for step in found])[-_SEEN:])
        found = [int(step) - 1 for step in last_steps[0] if step]
    best = None
    for step in reversed(found):
        try:
            best = (step, *load(Path(directory) / name_of(step), step, shapes, configuration))
            break
        except Damaged as error:
            log.warning("%s; falling back to the step before", error)
    usable = {name_of(step) for step in found if best is not None and step <= best[0]}
    _drop(path for path in listed(directory) if path.name.startswith("step_") and path.name not in usable)
    return best


def _drop(paths: Iterable[Path]) -> None:
    if jax.process_index() == 0:
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)
