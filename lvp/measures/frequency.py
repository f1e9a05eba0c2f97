"""Measures by token frequency: second moments, and updates by frequency bin."""

from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp

from lvp.errors import InputError
from lvp.measures.arrays import check_rank, check_shape, norm, scale, wide
from lvp.measures.movement import angle


def second_moment_fit(second_moment: Any, frequencies: Any) -> dict[str, jax.Array]:
    """Least-squares lines of Adam's second moment against token frequency, with and without an intercept.

    Stollenwerk & Stollenwerk 2025 report E[v̂_i] = A p_i in LM heads, with R² = 0.85(7) on average. Both R² are
    1 − Σ(v̂_i − fit_i)² / Σ(v̂_i − v̂ mean)². The line through the origin uses the same denominator, so that the two
    values are comparable; its R² is negative if the line is worse than a constant.

    Args:
      second_moment: v̂ [m], for each token the mean over hidden columns of Adam's bias-corrected second moment.
      frequencies: p [m], unigram probabilities (or counts: the slopes are then per count).

    Returns:
      Scalars slope and r_squared (with an intercept), slope_through_origin (A) and r_squared_through_origin. Undefined
      values are NaN: slope and r_squared if all p_i are equal, both R² if all v̂_i are equal, slope_through_origin and
      its R² if all p_i are zero.

    Raises:
      InputError: the rank of `second_moment` is not 1, it is empty, or the lengths differ.
    """
    y, x = wide(second_moment), wide(frequencies)
    check_rank("second_moment", y, 1)
    check_shape("frequencies", x, y.shape, "second_moment")
    x_scale, y_scale = scale([x]), scale([y])  # squares of second moments leave float32's range
    x, y = x / x_scale, y / y_scale
    dx, dy = _centred(x), _centred(y)
    total = jnp.sum(jnp.square(dy))
    total = jnp.where(total == 0, jnp.nan, total)
    slope = jnp.sum(dx * dy) / jnp.sum(jnp.square(dx))
    through_origin = jnp.sum(x * y) / jnp.sum(jnp.square(x))
    unit = y_scale / x_scale
    return {
        "slope": slope * unit,
        "r_squared": 1 - jnp.sum(jnp.square(dy - slope * dx)) / total,
        "slope_through_origin": through_origin * unit,
        "r_squared_through_origin": 1 - jnp.sum(jnp.square(y - through_origin * x)) / total,
    }


def num_bins(vocab: int) -> int:
    """Number of bins of `frequency_bins` for m tokens: floor(log₂ m) + 2; the last bin is for tokens that never occur.

    Raises:
      InputError: `vocab` is not a whole number of at least 1.
    """
    if isinstance(vocab, bool) or not isinstance(vocab, Integral) or vocab < 1:
        raise InputError(f"vocab must be a whole number of at least 1, got {vocab!r}")
    return int(vocab).bit_length() + 1


def frequency_bins(frequencies: Any) -> jax.Array:
    """The bin of every token: floor(log₂ r) of its rank r by descending frequency; the most frequent token has rank 1.

    Bin b < `num_bins`(m) − 1 holds the ranks 2^b … 2^(b+1) − 1. Tokens of equal frequency are ranked by index. Tokens
    of frequency zero are in the last bin. The number of bins does not depend on the frequencies; their sizes do.

    Args:
      frequencies: [m], probabilities or counts.

    Returns:
      int32 [m], from 0 to `num_bins`(m) − 1.

    Raises:
      InputError: the rank is not 1, or there is no token.
    """
    frequencies = jnp.asarray(frequencies)
    check_rank("frequencies", frequencies, 1)
    vocab = frequencies.shape[0]
    order = jnp.argsort(frequencies, descending=True, stable=True)
    ranks = jnp.zeros(vocab, jnp.int32).at[order].set(jnp.arange(1, vocab + 1, dtype=jnp.int32))
    highest_bit = 31 - jax.lax.clz(ranks)
    return jnp.where(frequencies > 0, highest_bit, num_bins(vocab) - 1)


def by_bin(values: Any, bins: Any, num_bins: int) -> jax.Array:
    """The mean of the values in every bin.

    Args:
      values: [m].
      bins: int [m], from 0.
      num_bins: number of bins.

    Returns:
      [num_bins]; NaN for a bin without members.

    Raises:
      InputError: the rank of `values` is not 1, they are empty, the lengths differ, or the bins are not integers.
    """
    values, bins = wide(values), jnp.asarray(bins)
    check_rank("values", values, 1)
    check_shape("bins", bins, values.shape, "values")
    if not jnp.issubdtype(bins.dtype, jnp.integer):
        raise InputError(f"bins must be integers, got {bins.dtype}")
    total = jax.ops.segment_sum(values, bins, num_bins)
    return total / jax.ops.segment_sum(jnp.ones_like(values), bins, num_bins)


def by_frequency(matrix: Any, updates: Any, second_moment: Any, bins: Any) -> dict[str, jax.Array]:
    """Means of the rows' update norms, update angles and second moments, over the tokens of each frequency bin.

    Args:
      matrix: E [m, d], a row per token, before the update.
      updates: Δ [m, d], the update added to it.
      second_moment: v̂ [m] as in `second_moment_fit`, or None.
      bins: int [m], the result of `frequency_bins`.

    Returns:
      {"norm": mean of ‖Δ_i‖₂, "angle": mean of ∠(e_i, e_i + Δ_i) in rad (`angle`), "second_moment": mean of v̂_i}, each
      [`num_bins`(m)]. "second_moment" is absent if the argument is None. A bin without members is NaN.

    Raises:
      InputError: an argument has another shape, or the bins are not integers.
    """
    matrix, updates = wide(matrix), wide(updates)
    check_rank("matrix", matrix, 2)
    check_shape("updates", updates, matrix.shape, "matrix")
    check_shape("bins", jnp.asarray(bins), matrix.shape[:1], "a column of matrix")
    values = {} if second_moment is None else {"second_moment": wide(second_moment)}
    for name, value in values.items():
        check_shape(name, value, matrix.shape[:1], "a column of matrix")
    values |= {"norm": norm([updates], (1,)), "angle": angle(matrix, updates, axes=1)}
    count = num_bins(matrix.shape[0])
    return {name: by_bin(value, bins, count) for name, value in values.items()}


def _centred(x):
    # Equal values give exactly 0, although their mean may be rounded.
    return jnp.where(jnp.max(x) == jnp.min(x), 0, x - jnp.mean(x))
