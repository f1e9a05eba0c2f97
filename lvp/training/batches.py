"""Batches of a training step: their sources on the device, and the feed that brings them there."""

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lvp import mesh_axes
from lvp.data.tokens.batches import random_windows

_MAX_INT32 = int(np.iinfo(np.int32).max)
ALL_STEPS = _MAX_INT32  # the stop of a feed whose data serve every step
DEVICE_TOKENS = _MAX_INT32  # positions on the device are int32; windows of a longer text are read by the host
ORDERS = ("windows", "rows")  # `DataConfig.order`


class Feed(Protocol):
    """The host's side of the data of a run or a pack."""

    def feed(self, step: int) -> tuple[int, Any]:
        """(stop, the program's data for the steps from `step` to before `stop`)."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RandomWindows:
    """Random windows of tokens that lie on the device. Runs share the tokens."""

    tokens: Any  # int32 [n]

    def batch(self, key: jax.Array, step: jax.Array | int, rows: int, context: int) -> jax.Array:
        """The batch of a step, int32 [rows, context + 1]: a pure function of (key, step)."""
        return random_windows(self.tokens, key, step, rows, context)

    def placement(self, mesh: Mesh) -> "RandomWindows":
        """Shardings on a mesh: every device holds all tokens."""
        return RandomWindows(NamedSharding(mesh, PartitionSpec()))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StreamedRows:
    """Rows or windows that the host read for a few steps. Each run of a pack has its own, by its seed."""

    rows: Any  # int32 [steps, batch, context + 1]; in a pack [runs, steps, batch, context + 1]
    start: Any  # int32 scalar: the step of rows[0]

    def batch(self, key: jax.Array, step: jax.Array | int, rows: int, context: int) -> jax.Array:
        """The batch of a step, int32 [rows, context + 1]. Only `step` is used: the host has read the rows."""
        return jax.lax.dynamic_index_in_dim(self.rows, step - self.start, keepdims=False)

    def placement(self, mesh: Mesh) -> "StreamedRows":
        """Shardings on a mesh: a device holds the rows that it trains on."""
        rows = NamedSharding(mesh, PartitionSpec(None, mesh_axes.TOKENS))
        return StreamedRows(rows, NamedSharding(mesh, PartitionSpec()))
