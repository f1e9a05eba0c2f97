"""Change of a layer's outputs on the same inputs in one step (Kosson, Messmer & Jaggi 2024, section 6)."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lvp import roles
from lvp.errors import InputError
from lvp.losses import chunks, default_chunk
from lvp.measures.arrays import norm, ratio, wide


def representation_change(
    params: Any, updates: Any, inputs: Mapping[str, jax.Array], declarations: Sequence[roles.Declaration] = ()
) -> dict:
    """The relative representation change ‖Δwᵀ X‖ / ‖wᵀ X‖ of every matrix on the same inputs.

    It is *local*: the inputs are those before the step, so changes of the layers below are left out. Biases are left
    out.

    Args:
      params: pytree, before the update.
      updates: pytree like params, the update added to them.
      inputs: path → the matrix' input, as `Decoder.apply(…, capture=True)` returns it: X [N, in] for a matrix whose
        neurons have the fan-in `in`. Integer inputs are row indices. Matrices without inputs are left out.
      declarations: `lvp.roles.Declaration`s that come before the defaults.

    Returns:
      {"matrices": {path: {"representation_change": scalar}}}, nested like the result of `lvp.measures.updates`.

    Raises:
      InputError: inputs name a path that is not a parameter, or have another shape; a parameter in inputs is not a
        matrix or stacks layers; a parameter has no role or unknown axes.
    """
    described = jax.tree.leaves(roles.classify(params, extra=declarations))
    arrays = map(jax.tree.leaves, (params, updates))
    leaves = {leaf.path: (leaf, w, u) for leaf, w, u in zip(described, *arrays, strict=True)}
    by_path = {}
    for path, x in inputs.items():
        if path not in leaves:
            raise InputError(f"inputs has {path!r}, which is not a parameter: remove it, or correct the path")
        leaf, w, u = leaves[path]
        if leaf.stacked or w.ndim != 2:
            raise InputError(f"inputs: {path!r} must be a single matrix, got shape {w.shape}: remove it from inputs")
        by_path[path] = {"representation_change": _change(leaf, wide(w), wide(u), jnp.asarray(x))}
    return {"matrices": by_path}


def _change(leaf: roles.Leaf, w: jax.Array, u: jax.Array, x: jax.Array) -> jax.Array:
    if jnp.issubdtype(x.dtype, jnp.integer):
        return ratio(norm([u[x]]), norm([w[x]]))
    if leaf.fan_in == (1,):
        w, u = w.T, u.T
    if x.ndim != 2 or x.shape[1] != w.shape[0]:
        raise InputError(f"inputs of {leaf.path!r} must be [N, {w.shape[0]}], got {x.shape}")

    def add(total, rows):
        return tuple(t + jnp.sum(jnp.square(rows @ matrix)) for t, matrix in zip(total, (u, w), strict=True)), None

    # Outputs in chunks of rows: all outputs of a head would be [N, vocab].
    zero = jnp.zeros((), w.dtype)
    (parts,) = chunks(min(default_chunk(w.shape[1]), x.shape[0]), wide(x))
    (change, output), _ = jax.lax.scan(add, (zero, zero), parts)
    return ratio(jnp.sqrt(change), jnp.sqrt(output))
