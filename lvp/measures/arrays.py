"""Norms and ratios that neither overflow nor underflow, and the argument checks of all measures."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lvp.errors import InputError


def wide(x: Any) -> jax.Array:
    """The array in float32, or in its own dtype if that is wider."""
    x = jnp.asarray(x)
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def largest(xs: Sequence[jax.Array], axes: tuple[int, ...] | None = None) -> jax.Array:
    """The largest |x| of all arrays over `axes`, which are kept with length 1; None reduces all axes to a scalar."""
    maxima = [jnp.max(jnp.abs(x), axis=axes, keepdims=axes is not None, initial=0) for x in xs]
    return functools.reduce(jnp.maximum, maxima)


def scale(xs: Sequence[jax.Array], axes: tuple[int, ...] | None = None) -> jax.Array:
    """The power of two just above `largest`, which scales without rounding; 1 if all entries are zero."""
    magnitude = largest(xs, axes)
    mantissa, _ = jnp.frexp(magnitude)
    power = magnitude / jnp.where(mantissa == 0, 1, mantissa)
    bound = 2.0 ** (jnp.finfo(magnitude.dtype).maxexp - 3)  # so that 1 / scale is a normal number too
    return jnp.where(magnitude == 0, 1, jnp.clip(power, 1 / bound, bound))


def norm(xs: Sequence[jax.Array], axes: tuple[int, ...] | None = None, *, keepdims: bool = False) -> jax.Array:
    """The ℓ₂ norm over `axes` (None: all) of several arrays together. Its squares neither overflow nor underflow."""
    unit = scale(xs, axes)
    squares = sum(jnp.sum(jnp.square(x * (1 / unit)), axis=axes, keepdims=axes is not None) for x in xs)
    norms = unit * jnp.sqrt(squares)
    return norms if keepdims or axes is None else jnp.squeeze(norms, axes)


def ratio(part: jax.Array, whole: jax.Array) -> jax.Array:
    """part / whole of non-negative numbers; 0 if both are zero, infinite if only `whole` is zero."""
    return part / jnp.where((part == 0) & (whole == 0), 1, whole)


def check_rank(name: str, x: jax.Array, rank: int) -> None:
    """Checks that an array has a rank and at least one entry.

    Raises:
      InputError: x has another rank or no entry; the error contains `name`.
    """
    if x.ndim != rank or x.size == 0:
        raise InputError(f"{name} must be a non-empty array of rank {rank}, got shape {x.shape}")


def check_shape(name: str, x: jax.Array, shape: tuple[int, ...], like: str) -> None:
    """Checks that an array has a shape.

    Args:
      name: what the caller calls `x`, for the error.
      x: the array.
      shape: the shape that it must have.
      like: what the caller calls the array that requires the shape.

    Raises:
      InputError: x has another shape.
    """
    if x.shape != shape:
        raise InputError(f"{name} must have shape {shape}, as {like} requires, got {x.shape}")
