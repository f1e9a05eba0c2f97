"""Norms and ratios that survive any scale, and what all measures check."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lvp.errors import InputError


def wide(x: Any) -> jax.Array:
    """x in float32, or in its own dtype where that is wider."""
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def largest(xs: Sequence[jax.Array], axes: tuple[int, ...] | None = None) -> jax.Array:
    """max |x| of all arrays over `axes`, which stay as axes of length 1; 1 where all are zero, so that one can divide
    by it. NaN where there is one."""
    keepdims = axes is not None
    found = jnp.max(jnp.abs(xs[0]), axis=axes, keepdims=keepdims, initial=0)
    for x in xs[1:]:
        found = jnp.maximum(found, jnp.max(jnp.abs(x), axis=axes, keepdims=keepdims, initial=0))
    return jnp.where(found == 0, 1, found)


def norm(x: jax.Array, axes: tuple[int, ...] | None = None) -> jax.Array:
    """ℓ₂ norms over `axes` (None: all), which are gone from the result. The squares neither overflow nor vanish."""
    scale = largest([x], axes)
    return jnp.squeeze(scale, axes) * jnp.sqrt(jnp.sum(jnp.square(x / scale), axis=axes))


def ratio(part: jax.Array, whole: jax.Array) -> jax.Array:
    """part / whole of non-negative numbers; 0 where both are zero, infinite where only `whole` is."""
    return part / jnp.where((part == 0) & (whole == 0), 1, whole)


def check_rank(name: str, x: jax.Array, rank: int) -> None:
    """InputError unless x has this rank and at least one entry."""
    if x.ndim != rank or x.size == 0:
        raise InputError(f"{name} must be a non-empty array of rank {rank}, got shape {x.shape}")


def check_shape(name: str, x: jax.Array, shape: tuple[int, ...], like: str) -> None:
    """InputError unless x has the shape that `like` calls for."""
    if x.shape != shape:
        raise InputError(f"{name} must have shape {shape} as {like} has it, got {x.shape}")
