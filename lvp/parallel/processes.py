"""Processes that train one lane together (`jax.distributed`), and what they must agree on between dispatches."""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from numpy.typing import ArrayLike


def gathered(values: ArrayLike) -> np.ndarray:
    """What every process says, uint32 [processes, k], from this one's [k] whole numbers. All must call it."""
    return np.asarray(multihost_utils.process_allgather(np.asarray(values, np.uint32)))


def shared(tree: Any) -> bool:
    """Whether some array of the tree (or of the shapes with shardings) lies partly with other processes."""
    places = (getattr(x, "sharding", None) for x in jax.tree.leaves(tree))
    return any(place is not None and not place.is_fully_addressable for place in places)
