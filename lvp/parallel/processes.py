"""Communication between the processes that train one run together (`jax.distributed`)."""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from numpy.typing import ArrayLike


def gathered(values: ArrayLike) -> np.ndarray:
    """The values of all processes, uint32 [processes, k], from the values [k] of each.

    All processes must call it. On CPUs it fails in a process that begins it 30 s before another
    (`lvp.files.checkpoints.wait_for_all`).
    """
    return np.asarray(multihost_utils.process_allgather(np.asarray(values, np.uint32)))


def shared(tree: Any) -> bool:
    """True if other processes hold a part of some array of the tree (or of its shapes with shardings)."""
    places = (getattr(x, "sharding", None) for x in jax.tree.leaves(tree))
    return any(place is not None and not place.is_fully_addressable for place in places)
