"""Norms and angles of weight updates (Kosson, Messmer & Jaggi 2024)."""

import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lvp import roles
from lvp.errors import InputError, shown
from lvp.measures.arrays import check_shape, largest, norm, ratio, scale, wide


def angle(weights: Any, updates: Any, axes: int | Sequence[int] | None = None) -> jax.Array:
    """The angle ∠(w, w + Δ) in rad by which an update Δ rotates a weight vector w: Kosson et al.'s angular update.

    It is computed as atan2(‖Δ⊥‖, ‖w‖ + ⟨Δ, w⟩/‖w‖) with Δ⊥ = Δ − (⟨Δ, w⟩/‖w‖²) w. This equals the arccos in the paper
    without its cancellation: in float32 the cosine of an angle below 2e-4 rounds to 1. The float32 error is below 5e-7
    of the angle plus 5e-7 · |⟨Δ, w⟩| / (‖w‖ ‖w + Δ‖). For Δ orthogonal to w the relative error is therefore bounded
    even for the smallest angles. Pass the update Δ as the optimizer computed it: w_{t+1} − w_t contains the rounding of
    w.

    Args:
      weights: w, any shape, before the update.
      updates: Δ, of the same shape.
      axes: the axes that form one vector, for example a neuron's fan-in; None treats the whole array as one vector.

    Returns:
      Angles in [0, π], shaped like `weights` without `axes`. π/2 if exactly one of w and w + Δ is zero; 0 if Δ is zero.

    Raises:
      InputError: the shapes differ, or axes are not distinct axes of `weights`.
    """
    weights, updates = wide(weights), wide(updates)
    check_shape("updates", updates, weights.shape, "weights")
    return _angle([weights], [updates], None if axes is None else _axes(axes, weights.ndim))


def updates(params: Any, updates: Any, declarations: Sequence[roles.Declaration] = ()) -> dict:
    """Norm, relative norm and angle of an update, per matrix and per role: the measures of Kosson et al. 2024.

    Args:
      params: pytree of arrays, before the update.
      updates: pytree like `params`, the update added to it.
      declarations: `lvp.roles.Declaration`s that come before the defaults.

    Returns:
      {"matrices": {path: measures}, "roles": {role: measures}}. The measures are {"norm": ‖Δ‖₂, "relative": ‖Δ‖₂/‖w‖₂,
      "angle": ∠(w, w + Δ) in rad (`angle`)}. Under "matrices", w is one matrix and each measure is a scalar; for a
      parameter that stacks layers it is an array with the shape of the stacked axes. Under "roles", w is the
      concatenation of all parameters of a role. Gains and biases appear only there. Roles without parameters are
      absent. A relative norm is infinite if only w is zero, and 0 if Δ is zero.

    Raises:
      InputError: the trees or shapes differ, or a parameter has no role or unknown axes; the error names its path.
    """
    described = roles.classify(params, extra=declarations)
    here: Any = jax.tree.structure(params)  # jaxlib's stubs leave its type open
    if here != jax.tree.structure(updates):
        got = jax.tree.structure(updates)
        raise InputError(f"updates must have the tree structure of params, {shown(here)}, got {shown(got)}")
    present = [leaf.role for leaf in jax.tree.leaves(described)]
    members: dict[str, list] = {role: [] for role in (*roles.ROLES, *present)}
    matrices = {}
    for leaf, w, u in zip(*map(jax.tree.leaves, (described, params, updates)), strict=True):
        w, u = wide(w), wide(u)
        check_shape(f"updates at {leaf.path!r}", u, w.shape, "params")
        members[leaf.role].append((w, u))
        if leaf.role != "vector":
            matrices[leaf.path] = _measures([w], [u], leaf.layer_axes)
    return {
        "matrices": matrices,
        "roles": {role: _measures(*zip(*pairs, strict=True)) for role, pairs in members.items() if pairs},
    }


def _measures(weights: Sequence[jax.Array], moves: Sequence[jax.Array], axes: tuple[int, ...] | None = None) -> dict:
    size = norm(moves, axes)
    return {"norm": size, "relative": ratio(size, norm(weights, axes)), "angle": _angle(weights, moves, axes)}


def _angle(weights: Sequence[jax.Array], moves: Sequence[jax.Array], axes: tuple[int, ...] | None) -> jax.Array:
    """∠(w, w + Δ), where w and Δ are concatenations of several arrays over `axes` (None: all).

    Each intermediate array is used once, so that the compiler can fuse it into its sum. Otherwise XLA's CPU back end
    writes copies as large as the matrix.
    """
    keepdims = axes is not None
    pairs = list(zip(weights, moves, strict=True))

    def total(terms):
        return sum(jnp.sum(term, axis=axes, keepdims=keepdims) for term in terms)

    length, unit = norm(weights, axes, keepdims=keepdims), scale(moves, axes)
    per_length = 1 / jnp.where(length == 0, 1, length)
    along = total((w * per_length) * u for w, u in pairs)
    part = (along / unit) * per_length
    across = unit * jnp.sqrt(total(jnp.square(u * (1 / unit) - w * part) for w, u in pairs))
    angle = jnp.arctan2(across, length + along)
    # If w + Δ is exactly zero, rounding errors would determine the angle.
    ends = (largest([w + u for w, u in pairs], axes) == 0) & (length > 0)
    angle = jnp.where(ends, jnp.asarray(jnp.pi / 2, angle.dtype), angle)
    return angle if axes is None else jnp.squeeze(angle, axes)


def _axes(axes: int | Sequence[int], rank: int) -> tuple[int, ...]:
    try:
        indices = tuple(operator.index(axis) for axis in (axes if isinstance(axes, Sequence) else (axes,)))
    except TypeError:
        indices = ()
    counted = tuple(axis + rank if axis < 0 else axis for axis in indices)
    if not indices or len(set(counted)) != len(counted) or not all(0 <= axis < rank for axis in counted):
        raise InputError(f"axes must be distinct axes of weights, which has rank {rank}, or None, got {axes!r}")
    return counted
