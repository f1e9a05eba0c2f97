"""Checkpoints of one lane: a pytree of arrays at a step, with a digest per leaf. The only Orbax import.

Orbax writes a step whole or not at all, but loads a flipped bit silently and says little about a truncated file; so
every leaf carries the SHA-256 of its bytes, verified on load, and a damaged step is named and passed over.
"""

import hashlib
import logging
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

log = logging.getLogger(__name__)
KEEP = 2  # steps kept: the last one, and one to fall back to


def _digests(tree) -> dict[str, str]:
    """SHA-256 over dtype, shape and bytes of every leaf, by its path."""

    def digest(x):
        x = np.asarray(x)
        header = f"{x.dtype.str}{x.shape}".encode()
        return hashlib.sha256(header + np.ascontiguousarray(x).tobytes()).hexdigest()

    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): digest(x)
        for path, x in jax.tree_util.tree_leaves_with_path(tree)
    }


def _path(directory: Path, step: int) -> Path:
    return Path(directory).absolute() / f"step_{step:09d}"


def steps(directory: Path) -> list[int]:
    """The steps that stand whole in `directory`, ascending; none where it does not exist."""
    found = Path(directory).glob("step_*")
    return sorted(int(p.name[5:]) for p in found if p.name[5:].isdigit() and ocp.is_orbax_checkpoint(p))


def save(directory: Path, step: int, state, configuration: str) -> None:
    """Writes the pytree `state` (arrays) as `step`, then drops all but the last `KEEP` steps.

    `configuration` is the hash of the lane's configuration; `load` refuses another's.
    """
    if not all(getattr(x, "is_fully_addressable", True) for x in jax.tree.leaves(state)):
        raise ValueError("a state that lies on several processes cannot be saved yet")
    state = jax.tree.map(np.asarray, state)
    metadata = {"configuration": configuration, "digests": _digests(state)}
    ocp.save(_path(directory, step), state, overwrite=True, custom_metadata=metadata)
    for old in steps(directory)[:-KEEP]:
        shutil.rmtree(_path(directory, old))


def load(directory: Path, step: int, shapes, configuration: str) -> Any:
    """The state at `step` as host arrays with the structure of `shapes` (ShapeDtypeStructs).

    Raises ValueError, naming the path, where the step cannot be read, a leaf's bytes are not those that were saved,
    or the checkpoint belongs to another configuration.
    """
    path = _path(directory, step)
    try:
        metadata = ocp.metadata(path).custom_metadata or {}
        blank = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
        state = ocp.load(path, blank)
    except Exception as error:  # Orbax and TensorStore raise whatever the damage happens to hit
        raise ValueError(f"checkpoint {path} cannot be read: {str(error).splitlines()[0][:200]}") from error
    if metadata.get("configuration") != configuration:
        raise ValueError(f"checkpoint {path} belongs to configuration {metadata.get('configuration')}")
    wrong = [leaf for leaf, digest in _digests(state).items() if metadata["digests"].get(leaf) != digest]
    if wrong:
        raise ValueError(f"checkpoint {path} is damaged: {', '.join(wrong[:3])}")
    return state


def latest(directories: Iterable[Path], shapes, configurations: Iterable[str]) -> tuple[int, list[Any]] | None:
    """The last step that every directory holds undamaged, with the states there, or None.

    One directory per lane of a pack: its lanes go on together. Damaged steps are logged, and every step after the one
    that is used is removed: it would otherwise count as one of the last `KEEP`.
    """
    directories, configurations = list(directories), list(configurations)
    common = set.intersection(*(set(steps(d)) for d in directories))
    for step in sorted(common, reverse=True):
        try:
            pairs = zip(directories, configurations, strict=True)
            states = [load(d, step, shapes, configuration) for d, configuration in pairs]
        except ValueError as error:
            log.warning("%s; falling back to the step before", error)
            continue
        for directory in directories:
            for later in (s for s in steps(directory) if s > step):
                shutil.rmtree(_path(directory, later))
        return step, states
    return None
