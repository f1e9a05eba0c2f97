"""The geometry of rotational optimizers: which axes are one neuron's weights, and rotating those at a fixed norm."""

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lvp import roles
from lvp.errors import InputError
from lvp.optim import rates as _rates

Neurons = Mapping[str, tuple[int, ...]]


def neuron_leaves(params: Any, neurons: Neurons | None, declarations: Sequence[roles.Declaration]) -> Any:
    """A pytree of `lvp.roles.Leaf` like `params`, whose `fan_in` are the axes of one neuron's weights; () where the
    parameter is not made of neurons (gains, biases).

    Args:
      neurons: pattern of whole "/"-joined paths → axes, which takes precedence over the declarations.
      declarations: those of a user, before `lvp.roles.DEFAULT`.

    Raises:
      InputError, naming the argument and the path: a parameter that nothing declares, or that lacks an axis.
    """
    overrides = []
    for pattern, axes in (neurons or {}).items():
        if not isinstance(axes, tuple):
            raise InputError(f"neurons[{pattern!r}] must be a tuple of axes, got {axes!r}")
        overrides.append(roles.Declaration(pattern, "hidden" if axes else "vector", fan_in=axes))
    try:
        return roles.classify(params, extra=declarations, overrides=overrides)
    except InputError as error:
        raise InputError(f"neurons: {error}") from error


def wide(dtype: Any) -> Any:
    """The dtype norms are kept and rotations computed in: float32, or the parameter's where that is wider."""
    return jnp.promote_types(dtype, jnp.float32)


# XLA's CPU back end adds up a leading axis column by column: where rows are so long that the cache does not hold them
# all, several times slower than reading row after row.
LONG_ROW, ROWS_AT_ONCE = 2048, 16


def _squares_by_row(x: jax.Array) -> jax.Array:
    """Σ x² over the rows of [R, C] → [1, C], in the order in which the array lies in memory."""
    blocks = x.reshape(-1, ROWS_AT_ONCE, x.shape[1])
    add = lambda total, block: (total + sum(jnp.square(row) for row in block), None)  # noqa: E731
    return jax.lax.scan(add, jnp.zeros_like(x[0]), blocks)[0][None]


def norm(x: jax.Array, fan_in: tuple[int, ...]) -> jax.Array:
    """ℓ₂ norms over the axes `fan_in`, which stay as axes of length 1; in `wide` of x's dtype."""
    x = x.astype(wide(x.dtype))
    by_row = fan_in == (0,) and x.ndim == 2 and x.shape[1] >= LONG_ROW and x.shape[0] % ROWS_AT_ONCE == 0

    def squares(x):
        return jnp.sum(jnp.square(x), axis=fan_in, keepdims=True)

    # By what is compiled for, which need not be where it is compiled.
    return jnp.sqrt(jax.lax.platform_dependent(x, cpu=_squares_by_row, default=squares) if by_row else squares(x))


def size(leaf: roles.Leaf) -> int:
    """C: how many weights a neuron has."""
    return math.prod(leaf.shape[axis] for axis in leaf.fan_in)


def per_neuron(described: Any, params: Any, make: Callable[[roles.Leaf, jax.Array], jax.Array]) -> Any:
    """make(leaf, parameter) where there are neurons, `optax.MaskedNode()` where there are none."""
    return jax.tree.map(lambda leaf, p: make(leaf, p) if leaf.fan_in else optax.MaskedNode(), described, params)


class RotationState(NamedTuple):
    """`count`: int32 scalar. `norms`: initial ℓ₂ norm of every neuron, shaped like the parameter with fan-in axes of
    length 1, float32 or wider; `optax.MaskedNode()` for gains and biases (so `optax.tree.map_params` over other trees
    needs `is_leaf=lambda node: isinstance(node, optax.MaskedNode)`)."""

    count: jax.Array  # type: ignore[assignment]  # hides tuple.count, as in optax's states
    norms: Any


def _refuse_standing_still(described: Any, weight_decay: Any) -> None:
    turning = [leaf.path for leaf in jax.tree.leaves(described) if leaf.fan_in]
    if turning and isinstance(weight_decay, numbers.Real) and weight_decay == 0:
        raise InputError(f"weight_decay must be above 0: it sets the angle by which the neurons of {turning[0]!r} turn")


def rotate(
    relative_rate: Callable[[jax.Array], Any],
    learning_rate: optax.ScalarOrSchedule,
    weight_decay: Any,
    *,
    vectors_decay: bool = False,
    update_multiplier: Any = 1.0,
    neurons: Neurons | None = None,
    declarations: Sequence[roles.Declaration] = (),
) -> optax.GradientTransformationExtraArgs:
    """Ends a chain: turns directions d of RMS one per neuron into updates that rotate each neuron at its initial norm.

    For a neuron θ of C weights and initial norm n, with r_t = `relative_rate`(t) · `update_multiplier`,

        θ̂ = θ − r_t (n / √C) d,    θ ← n θ̂ / ‖θ̂‖,

    so the angle is r_t · RMS(d) for d orthogonal to θ and small r_t. Gains, biases, and neurons whose initial norm
    is zero (they have no direction to rotate; zero-initialised heads would never move) take

        θ ← θ − η_t c (d + λ θ),    c = `update_multiplier`,

    with λ = `weight_decay` for gains and biases if `vectors_decay`, else 0. It is else what `relative_rate` was made
    of: `init` refuses neurons that would stand still because it is 0. Arithmetic is in float32 or wider; the update
    has its direction's dtype, so in bfloat16 a norm holds to bfloat16's rounding only.
    """

    def init(params):
        described = neuron_leaves(params, neurons, declarations)
        _refuse_standing_still(described, weight_decay)
        norms = per_neuron(described, params, lambda leaf, p: norm(p, leaf.fan_in))
        return RotationState(jnp.zeros([], jnp.int32), norms)

    def update(updates, state, params=None):
        if params is None:
            raise ValueError(optax.NO_PARAMS_MSG)
        relative = relative_rate(state.count) * update_multiplier
        rate = _rates.at(learning_rate, state.count) * update_multiplier

        def move(leaf, d, p, n):
            dtype = d.dtype
            d, p = d.astype(wide(p.dtype)), p.astype(wide(p.dtype))
            scalar = lambda x: jnp.asarray(x, p.dtype)  # noqa: E731
            if not leaf.fan_in:
                return (-scalar(rate) * (d + scalar(weight_decay if vectors_decay else 0) * p)).astype(dtype)
            turn = scalar(relative / math.sqrt(size(leaf))) * n
            # Not even 0/0 where a step happens to end at the origin: the next one starts from there.
            length = jnp.maximum(norm(p - turn * d, leaf.fan_in), jnp.finfo(p.dtype).tiny)
            # n θ̂ / ‖θ̂‖ − θ as a sum of θ and d, with factors per neuron: two numbers to decide on, not two matrices.
            has_direction = n > 0
            of_p = jnp.where(has_direction, n / length - 1, 0)
            of_d = jnp.where(has_direction, -turn * (n / length), -scalar(rate))
            return (of_p * p + of_d * d).astype(dtype)

        described = neuron_leaves(params, neurons, declarations)
        updates = jax.tree.map(move, described, updates, params, state.norms)
        return updates, RotationState(optax.safe_increment(state.count), state.norms)

    return optax.with_extra_args_support(optax.GradientTransformation(init, update))
