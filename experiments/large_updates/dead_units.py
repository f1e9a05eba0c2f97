"""Possible lasting effects of large updates: units that no longer fire, and matrices of low stable rank.

Kosson, Messmer & Jaggi 2024, appendix A, figures 7 and 8.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lvp import roles
from lvp.errors import InputError
from lvp.measures.arrays import norm, ratio, scale, wide

# Some accelerators multiply float32 matrices with a third of the digits by default.
_PRECISION = jax.lax.Precision.HIGHEST


def unit_maxima(pre_activations: Mapping[str, Any]) -> dict[str, jax.Array]:
    """The maximum of every unit's pre-activation over these data, the input of `dead_fraction`.

    A unit is one channel (the last axis) of a ReLU's input. It has one value per sample and position. Maxima of several
    batches combine by `jax.tree.map(jnp.maximum, first, second)`.

    Args:
      pre_activations: path of a ReLU → its input [..., C], a value per sample (and position) and unit.

    Returns:
      Path → [C]; NaN for a unit that is NaN anywhere.

    Raises:
      InputError: an input has no sample, or a rank below 2. The error names its path.
    """
    maxima = {}
    for path, x in pre_activations.items():
        x = wide(x)
        if x.ndim < 2 or x.size == 0:
            raise InputError(f"pre_activations at {path!r} must be a non-empty array [..., C], got shape {x.shape}")
        maxima[path] = jnp.max(x, axis=tuple(range(x.ndim - 1)))
    return maxima


def dead_fraction(maxima: Mapping[str, Any]) -> dict:
    """The fraction of dead units: units that are never above zero, for any sample and position.

    A ReLU outputs 0 for a dead unit and passes no gradient to the layers below. The paper does not define its "inactive
    activations"; this is the strictest reading. The result depends on the data: more data give fewer dead units. For a
    leaky ReLU, the result counts the units whose inputs are never positive.

    Args:
      maxima: path of a ReLU → [C], the result of `unit_maxima` over all data.

    Returns:
      {"layers": {path: fraction}, "all": dead units / units, so wide layers have more weight}; NaN if a maximum is NaN.

    Raises:
      InputError: there is no layer, or maxima are not [C]. The error names their path.
    """
    dead = {}
    for path, x in maxima.items():
        x = wide(x)
        if x.ndim != 1 or x.size == 0:
            raise InputError(f"maxima at {path!r} must be [C], one per unit, got shape {x.shape}")
        # NaN <= 0 is false: without this line a diverged network would have no dead unit.
        dead[path] = jnp.where(jnp.isnan(x), x, x <= 0)
    if not dead:
        raise InputError("maxima must hold at least one layer, got none: pass the result of unit_maxima")
    layers = {path: jnp.mean(x) for path, x in dead.items()}
    return {"layers": layers, "all": jnp.mean(jnp.concatenate(list(dead.values())))}


def stable_rank(matrix: Any) -> jax.Array:
    """‖W‖_F² / ‖W‖₂²: 1 if W has one direction, and the rank if all singular values are equal.

    Args:
      matrix: W [..., out]. All axes but the last are flattened: a convolution's kernel [h, w, in, out] is the matrix
        [h · w · in, out].

    Returns:
      A scalar; 0 if W is zero. ‖W‖₂² is the largest eigenvalue of the smaller of WᵀW and W Wᵀ. It has a float's
      relative accuracy.

    Raises:
      InputError: the matrix has a rank below 2, or no entries.
    """
    matrix = wide(matrix)
    if matrix.ndim < 2 or matrix.size == 0:
        raise InputError(f"matrix must be a non-empty array of rank 2 or more, got shape {matrix.shape}")
    return _stable_rank(matrix.reshape(-1, matrix.shape[-1]))


def stable_ranks(params: Any, declarations: Sequence[roles.Declaration] = ()) -> dict:
    """`stable_rank` of every matrix, as [fan-in, neurons] by its declared axes, and the mean over all matrices.

    Args:
      params: pytree of arrays.
      declarations: `lvp.roles.Declaration`s that come before the defaults.

    Returns:
      {"matrices": {path: stable rank}, "mean": over all matrices}. A parameter that stacks layers has one matrix per
      layer, and its value is an array with the shape of the stacked axes. Gains and biases are left out.

    Raises:
      InputError: a parameter has no role (the error names its path), or there is no matrix.
    """
    described = roles.classify(params, extra=declarations)
    matrices = {}
    for leaf, w in zip(*map(jax.tree.leaves, (described, params)), strict=True):
        if leaf.role != "vector":
            matrices[leaf.path] = _of_layers(wide(w), leaf)
    if not matrices:
        raise InputError("params has no matrix, only gains and biases: pass at least one matrix")
    return {"matrices": matrices, "mean": jnp.mean(jnp.concatenate([jnp.ravel(x) for x in matrices.values()]))}


def _of_layers(w, leaf):
    """The stable rank of every matrix [fan-in, neurons] stacked in w; shaped like the stacked axes."""
    neurons = tuple(axis for axis in leaf.layer_axes if axis not in leaf.fan_in)
    w = w.transpose(*leaf.stacked, *leaf.fan_in, *neurons)
    layers, fan_in = len(leaf.stacked), len(leaf.stacked) + len(leaf.fan_in)
    rows, columns = math.prod(w.shape[layers:fan_in]), math.prod(w.shape[fan_in:])
    return jax.vmap(_stable_rank)(w.reshape(-1, rows, columns)).reshape(w.shape[:layers])


def _stable_rank(matrix):
    # Scaled so that squares neither overflow nor underflow; the ratio is invariant to the scale.
    matrix = matrix * (1 / scale([matrix]))
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    gram = jnp.matmul(tall.T, tall, precision=_PRECISION)
    return ratio(jnp.square(norm([matrix])), jnp.linalg.eigvalsh(gram)[-1])
