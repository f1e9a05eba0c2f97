"""Neurons of rotational optimizers: the axes of a neuron's weights, and rotations at a fixed norm."""

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
from lvp.optim.by_role import check_declarations

Neurons = Mapping[str, tuple[int, ...]]


def neuron_leaves(params: Any, neurons: Neurons | None, declarations: Sequence[roles.Declaration]) -> Any:
    """A pytree of `lvp.roles.Leaf` like `params`, whose `fan_in` is the axes of a neuron's weights.

    `fan_in` is () for parameters without neurons (gains, biases).

    Args:
      params: pytree of arrays, or updates like the parameters.
      neurons: pattern of whole "/"-joined paths → axes, which comes before the declarations.
      declarations: the user's declarations, which come before `lvp.roles.DEFAULT`.

    Raises:
      InputError: the axes in `neurons` are not a tuple; a parameter has no role, no known neurons, or not the declared
        axes; a matrix is split by `jax.shard_map`. The error names argument, path and remedy.
    """
    declared = _declared(neurons)
    try:
        described = roles.classify(params, extra=(*declared, *declarations))
    except InputError as error:
        raise InputError(
            f"neurons: {error}; or pass neurons={{PATTERN: AXES}}: AXES are the input axes of a neuron, or () for an "
            "array without neurons"
        ) from error
    roles.check_whole(jax.tree.leaves(described), jax.tree.leaves(params))
    return described


def check_neurons(params: Any, neurons: Neurons | None) -> None:
    """Checks that every pattern of `neurons` decides a parameter's axes.

    Raises:
      InputError: a pattern decides no parameter's axes, or its axes are not a tuple.
    """
    declared = _declared(neurons)
    try:
        check_declarations(params, declared)
    except InputError as error:
        raise InputError(f"neurons: {error}") from error


def _declared(neurons: Neurons | None) -> list[roles.Declaration]:
    """The declarations that `neurons` stands for."""
    declared = []
    for pattern, axes in (neurons or {}).items():
        if not isinstance(axes, tuple):
            raise InputError(f"neurons[{pattern!r}] must be a tuple of axes, got {axes!r}")
        declared.append(roles.Declaration(pattern, "hidden" if axes else "vector", fan_in=axes))
    return declared


def wide(dtype: Any) -> Any:
    """The dtype of norms and rotations: float32, or the parameter's dtype if that is wider."""
    return jnp.promote_types(dtype, jnp.float32)


# XLA's CPU back end sums over a leading axis column by column. If the rows do not fit into the cache, this is several
# times slower than reading row by row.
LONG_ROW, ROWS_AT_ONCE = 2048, 16


def _squares_by_row(x: jax.Array) -> jax.Array:
    """Σ x² over the rows of [R, C] → [1, C], in the order in which the array lies in memory."""
    blocks = x.reshape(-1, ROWS_AT_ONCE, x.shape[1])
    add = lambda total, block: (total + sum(jnp.square(row) for row in block), None)  # noqa: E731
    return jax.lax.scan(add, jnp.zeros_like(x[0]), blocks)[0][None]


def norm(x: jax.Array, fan_in: tuple[int, ...]) -> jax.Array:
    """ℓ₂ norms over the axes `fan_in`, which are kept with length 1; in `wide` of x's dtype."""
    x = x.astype(wide(x.dtype))
    by_row = fan_in == (0,) and x.ndim == 2 and x.shape[1] >= LONG_ROW and x.shape[0] % ROWS_AT_ONCE == 0 and x.size > 0
    by_row = by_row and not any(jax.typeof(x).sharding.spec)  # JAX does not slice explicit axes

    def squares(x):
        return jnp.sum(jnp.square(x), axis=fan_in, keepdims=True)

    # Chosen by the platform of the program, which can differ from the platform of the compiling machine.
    return jnp.sqrt(jax.lax.platform_dependent(x, cpu=_squares_by_row, default=squares) if by_row else squares(x))


def size(leaf: roles.Leaf) -> int:
    """The number of weights C of a neuron; 1 in an empty matrix."""
    return max(leaf.size(leaf.fan_in), 1)


def per_neuron(described: Any, params: Any, make: Callable[[roles.Leaf, jax.Array], jax.Array]) -> Any:
    """make(leaf, parameter) for parameters with neurons, `optax.MaskedNode()` for the others, without metadata.

    Raises:
      InputError: a parameter with neurons has no values (`jax.ShapeDtypeStruct`).
    """

    def of_box(leaf, box):
        if not leaf.fan_in:
            return optax.MaskedNode()
        (array,) = jax.tree.leaves(box)
        if isinstance(array, jax.ShapeDtypeStruct):
            raise InputError(
                f"parameter {leaf.path!r} has a shape and no values, and the state contains its norms: use "
                "jax.eval_shape(tx.init, params)"
            )
        return make(leaf, array)

    return roles.over_boxes(of_box, described, params)


def aligned(described: Any, made: Any) -> Any:
    """The arrays of `per_neuron` in the structure of `described`; None for parameters without neurons."""
    arrays = iter(jax.tree.leaves(made))
    return jax.tree.map(lambda leaf: next(arrays) if leaf.fan_in else None, described)


class RotationState(NamedTuple):
    """The state of `rotate`: step count and initial norms.

    Gains and biases have `optax.MaskedNode()` in `norms`, so `optax.tree.map_params` over other trees needs
    `is_leaf=lambda node: isinstance(node, optax.MaskedNode)`.

    Attributes:
      count: int32 scalar.
      norms: initial ℓ₂ norm of every neuron, in float32 or wider, shaped like the parameter with fan-in axes of length
        1, without boxes of metadata.
    """

    count: jax.Array  # type: ignore[assignment]  # hides tuple.count, as in optax's states
    norms: Any


def _refuse_standing_still(described: Any, weight_decay: Any) -> None:
    turning = [leaf.path for leaf in jax.tree.leaves(described) if leaf.fan_in]
    if turning and isinstance(weight_decay, numbers.Real) and weight_decay == 0:
        raise InputError(
            f"weight_decay must be above 0, got 0: it sets the angle by which the neurons of {turning[0]!r} turn"
        )


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
    """The last transform of a chain: updates that rotate each neuron at its initial norm, from directions d.

    For a neuron θ of C weights and initial norm n, with r_t = `relative_rate`(t) · `update_multiplier`,

        θ̂ = θ − r_t (n / √C) d,    θ ← n θ̂ / ‖θ̂‖,

    so the angle is r_t · RMS(d) for d orthogonal to θ and small r_t. Some parameters have no direction to rotate:
    gains, biases, and neurons with initial norm zero, such as a zero-initialised head. They take

        θ ← θ − η_t c (d + λ θ),    c = `update_multiplier`,

    with λ = `weight_decay` for gains and biases if `vectors_decay`, else 0. Arithmetic is in float32 or wider. The
    update has its direction's dtype, so in bfloat16 a norm is accurate to bfloat16's rounding only.

    Raises:
      InputError: from `init` and `update`, a parameter has no known neurons or not the declared axes, or is split by
        `jax.shard_map`. From `init`: `weight_decay` is 0 and a parameter has neurons, which could not rotate; a
        parameter with neurons has no values; a declaration or a pattern of `neurons` decides nothing.
    """

    def init(params):
        described = neuron_leaves(params, neurons, declarations)
        check_declarations(params, declarations)
        check_neurons(params, neurons)
        _refuse_standing_still(described, weight_decay)
        norms = per_neuron(described, params, lambda leaf, p: norm(p, leaf.fan_in))
        return RotationState(jnp.zeros([], jnp.int32), norms)

    def update(updates, state, params=None):
        if params is None:
            raise ValueError("a rotational update needs params: call tx.update(updates, state, params)")
        relative = relative_rate(state.count) * update_multiplier
        rate = _rates.at(learning_rate, state.count) * update_multiplier

        def move(leaf, d, p, n):
            dtype = d.dtype
            d, p = d.astype(wide(p.dtype)), p.astype(wide(p.dtype))
            scalar = lambda x: jnp.asarray(x, p.dtype)  # noqa: E731
            if not leaf.fan_in:
                return (-scalar(rate) * (d + scalar(weight_decay if vectors_decay else 0) * p)).astype(dtype)
            turn = scalar(relative / math.sqrt(size(leaf))) * n
            # Avoids 0/0 if p − turn · d is exactly zero.
            length = jnp.maximum(norm(p - turn * d, leaf.fan_in), jnp.finfo(p.dtype).tiny)
            # n θ̂ / ‖θ̂‖ − θ as a sum of θ and d with two factors per neuron, so that `where` selects no whole matrix.
            has_direction = n > 0
            of_p = jnp.where(has_direction, n / length - 1, 0)
            of_d = jnp.where(has_direction, -turn * (n / length), -scalar(rate))
            return (of_p * p + of_d * d).astype(dtype)

        described = neuron_leaves(params, neurons, declarations)
        updates = jax.tree.map(move, described, updates, params, aligned(described, state.norms))
        return updates, RotationState(optax.safe_increment(state.count), state.norms)

    return optax.with_extra_args_support(optax.GradientTransformation(init, update))
