"""Scaling of updates that keeps the relative representation change constant while the signal-to-noise ratio falls.

Kosson et al. 2024, section 6 and equations 7 to 9. Early in training the gradients of different sequences agree. An
update of a given size then changes a layer's outputs more than later. For a neuron of C weights, a batch of B sequences
and a ratio φ per sequence (‖mean gradient‖² over the expected squared deviation of one sequence's gradient from it),

    E[Δy²]/E[y²] ∝ C/B² (φ + 1/B)⁻¹ ((φ+1) + (B−1)/C + (B−1)² φ/(φ+1) (φ + 1/C) + 2 (B−1) φ).
"""

import math
import numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lvp.errors import InputError
from lvp.optim import neurons as _neurons
from lvp.roles import Declaration


def amplification(signal: Any, batch_size: Any, fan_in: Any = None, alignment: Any = None) -> Any:
    """E[Δy²]/E[y²] of equation 9 relative to η² C/(B ‖w‖²), its value if sequences do not interact.

    It uses plain arithmetic, so that JAX and NumPy arrays of any dtype return their own type (`lvp.theory` uses it).

    Args:
      signal: φ/(1 + φ), in [0, 1]. batch_size: B. fan_in: C; None for the limit of large C, (1 + Bφ)/(1 + φ).
      alignment: E cos²(ḡ, g_b) between the mean gradient and one sequence's gradient; None is equation 8's ratio of
        means, (φ + 1/C)/(φ + 1). The limit of large C does not use it.

    Returns:
      An array of the arguments' common shape. It is 1 for B = 1. In the limit of large C it is also 1 for φ = 0.
    """
    others, noise = batch_size - 1, 1 - signal
    if fan_in is None:
        return 1 + others * signal
    if alignment is None:
        alignment = signal + noise / fan_in
    change = 1 + noise * others / fan_in + others**2 * signal * alignment + 2 * others * signal
    return change / (1 + others * signal)


def representation_change_factor(snr: Any, batch_size: Any, fan_in: Any = None) -> jax.Array:
    """Returns √(RRC²(φ = 0) / RRC²(φ)) at the same B and C: equation 9, or its limit of large C, √((1+φ)/(1+Bφ)).

    The factor is 1 at φ = 0, at B = 1 and at C = 1. It decreases with φ. For large C it decreases to 1/√B. The smaller
    C is relative to B, the closer the exact factor is to 1.

    Args:
      snr: φ ≥ 0 per sequence, any shape.
      batch_size: B, sequences.
      fan_in: C; None for the limit.

    Returns:
      An array of snr's shape.

    Example:
      >>> from lvp import optim
      >>> factors = optim.representation_change_factor([0.0, 1.0], batch_size=7)  # 1 and √((1 + 1) / (1 + 7))
      >>> [round(factor, 4) for factor in factors.tolist()]
      [1.0, 0.5]
    """
    snr = jnp.asarray(snr, float)
    signal = jnp.where(jnp.isinf(snr), 1.0, snr / (1 + snr))
    return jnp.sqrt(amplification(0.0, batch_size, fan_in) / amplification(signal, batch_size, fan_in))


class RepresentationChangeState(NamedTuple):
    """The state of `scale_by_representation_change`.

    Attributes:
      clipped: int32 scalar, the number of negative estimates of φ so far, over all steps and matrices.
    """

    clipped: jax.Array


def scale_by_representation_change(
    *,
    batch_size: Any,
    large_fan_in: bool = False,
    neurons: _neurons.Neurons | None = None,
    declarations: Sequence[Declaration] = (),
) -> optax.GradientTransformationExtraArgs:
    """Multiplies each matrix' update by `representation_change_factor` of its gradient's signal-to-noise ratio.

        updates, state = tx.update(gradients, state, params, gradient_snr=phi)

    `phi` is per **sequence**: a scalar, or a scalar per parameter in the structure of (or a prefix of) the updates.
    Gradients accumulated from micro-batches of b sequences give φ_b = b φ: divide it by b, or use the function
    `gradient_snr`. φ is an argument because accumulation is outside of this transform (`optax.MultiSteps` passes it
    on). Negative estimates are replaced by 0 and counted. Place this transform after transforms that normalise the
    update, and before transforms that rotate it (`rotate_by_learning_rate`) or multiply it by a rate. Gains and biases
    are not changed: the factor for C = 1 is 1.

    Args:
      batch_size: B, in sequences.
      large_fan_in: use the limit of large C instead of equation 9 at each matrix' own fan-in.
      neurons, declarations: as in `lion_ar`.

    Raises:
      InputError: the batch size is below 1 or infinite. From `init` and `update`: a parameter has no known neurons or
        not the declared axes, or is split by `jax.shard_map`. From `init`: a pattern of `neurons` decides no
        parameter's axes. From `update`: `gradient_snr` is missing, or has a value that is not a scalar (a parameter
        that stacks layers has one φ for all layers).
    """
    if isinstance(batch_size, numbers.Real) and not (float(batch_size) >= 1 and math.isfinite(batch_size)):
        raise InputError(f"batch_size must be finite and at least 1 (sequences), got {batch_size!r}")

    def init(params):
        _neurons.neuron_leaves(params, neurons, declarations)
        _neurons.check_neurons(params, neurons)
        return RepresentationChangeState(jnp.zeros([], jnp.int32))

    def update(updates, state, params=None, *, gradient_snr=None, **extra_args):
        del params, extra_args
        if gradient_snr is None:
            raise InputError("gradient_snr is required: pass φ per sequence, tx.update(…, gradient_snr=φ)")
        described = _neurons.neuron_leaves(updates, neurons, declarations)
        gradient_snr = jax.tree.broadcast(gradient_snr, updates)

        def below_zero(leaf, snr):
            if jnp.shape(snr):
                raise InputError(f"gradient_snr at {leaf.path!r} must be a scalar, got shape {jnp.shape(snr)}")
            return jnp.asarray(snr < 0, jnp.int32) if leaf.fan_in else 0

        negative = sum(jax.tree.leaves(jax.tree.map(below_zero, described, gradient_snr)))

        def scale(leaf, u, snr):
            if not leaf.fan_in:
                return u
            fan_in = None if large_fan_in else _neurons.size(leaf)
            return u * representation_change_factor(jnp.maximum(snr, 0), batch_size, fan_in).astype(u.dtype)

        updates = jax.tree.map(scale, described, updates, gradient_snr)
        return updates, RepresentationChangeState(state.clipped + negative)

    return optax.GradientTransformationExtraArgs(init, update)


def gradient_snr(micro_gradients: Any, micro_batch_size: int) -> Any:
    """φ per sequence of every parameter, from the gradients of micro-batches.

    Kosson et al. 2024 give no estimator. With G_k the mean gradients of K micro-batches of b sequences and B = K b:
    s² = b Var(G_k), unbiased and summed over coordinates; φ = (‖Ḡ‖² − s²/B) / s². The numerator is unbiased and can be
    negative.

    Args:
      micro_gradients: pytree of arrays [K, …], K ≥ 2.
      micro_batch_size: b, sequences.

    Returns:
      A pytree of scalars of the same structure; 0 if all gradients are zero, infinite (or, by rounding, huge) if all
      are equal.

    Raises:
      InputError: there are fewer than two micro-batches, or `micro_batch_size` is below 1.
    """
    if isinstance(micro_batch_size, numbers.Real) and not micro_batch_size >= 1:
        raise InputError(f"micro_batch_size must be at least 1 (sequences), got {micro_batch_size!r}")

    def snr(path, g):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if g.ndim == 0 or g.shape[0] < 2:
            raise InputError(f"gradient_snr: {name!r} of shape {g.shape} must be [micro-batches ≥ 2, …]")
        g = g.astype(_neurons.wide(g.dtype))
        mean = jnp.mean(g, axis=0)
        variance = micro_batch_size * jnp.sum(jnp.square(g - mean[None])) / (g.shape[0] - 1)
        return _snr(jnp.sum(jnp.square(mean)), variance, g.shape[0] * micro_batch_size)

    return jax.tree_util.tree_map_with_path(snr, micro_gradients)


def _snr(square_of_mean: jax.Array, variance: jax.Array, batch_size: int) -> jax.Array:
    """(‖Ḡ‖² − s²/B) / s²."""
    signal = square_of_mean - variance / batch_size
    return jnp.where((variance == 0) & (signal == 0), 0.0, signal / variance)


def snr_of_squares(square_of_mean: Any, mean_square: Any, micro_batches: int, micro_batch_size: int) -> jax.Array:
    """Returns φ per sequence from ‖Ḡ‖² and the mean of ‖G_k‖²: `gradient_snr` without the gradients G_k.

    s² = b K/(K − 1) (mean ‖G_k‖² − ‖Ḡ‖²), replaced by 0 if rounding makes it negative. If φ is large, the two terms
    cancel: the relative error of φ is about b φ times the rounding error.

    Args:
      square_of_mean: ‖Ḡ‖² of the mean gradient, any shape.
      mean_square: the mean of ‖G_k‖², of the same shape.
      micro_batches: K, at least 2.
      micro_batch_size: b, in sequences.

    Returns:
      An array of the same shape, without a unit. It can be negative. It is 0 if both squares are 0.

    Raises:
      InputError: there are fewer than two micro-batches, or fewer than one sequence in one.
    """
    if micro_batches < 2:
        raise InputError(
            f"micro_batches must be 2 or more, got {micro_batches}: the signal-to-noise ratio needs at least 2 "
            "micro-batches"
        )
    if isinstance(micro_batch_size, numbers.Real) and not micro_batch_size >= 1:
        raise InputError(f"micro_batch_size must be at least 1 (sequences), got {micro_batch_size!r}")
    spread = jnp.maximum(mean_square - square_of_mean, 0)
    variance = micro_batch_size * spread * (micro_batches / (micro_batches - 1))
    return _snr(square_of_mean, variance, micro_batches * micro_batch_size)
