"""Communication between the processes that train one lane together (`jax.distributed`)."""

import itertools
from typing import Any

import jax
import numpy as np
from jax._src import distributed  # the public `jax.distributed` has no barrier
from jax.experimental import multihost_utils
from numpy.typing import ArrayLike

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
    client = distributed.global_state.client
    if client is not None:
        client.wait_at_barrier(f"lvp-{next(_waits)}", timeout_in_ms=1000 * seconds)


def gathered(values: ArrayLike) -> np.ndarray:
    """The values of all processes, uint32 [processes, k], from the values [k] of each. All processes must call it."""
    return np.asarray(multihost_utils.process_allgather(np.asarray(values, np.uint32)))


def shared(tree: Any) -> bool:
    """True if other processes hold a part of some array of the tree (or of its shapes with shardings)."""
    places = (getattr(x, "sharding", None) for x in jax.tree.leaves(tree))
    return any(place is not None and not place.is_fully_addressable for place in places)
