"""Optimizers that rotate each neuron at a fixed norm: LionAR and rotational AdamW."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from lvp.optim import neurons as _neurons
from lvp.optim import rates as _rates
from lvp.optim.elementwise import scale_by_adam, scale_by_lion_a
from lvp.optim.representation_change import scale_by_representation_change
from lvp.roles import Declaration


def rotate_by_learning_rate(
    learning_rate: optax.ScalarOrSchedule,
    *,
    weight_decay: Any = 0.1,
    peak_learning_rate: Any = None,
    update_multiplier: Any = 1.0,
    neurons: _neurons.Neurons | None = None,
    declarations: Sequence[Declaration] = (),
) -> optax.GradientTransformationExtraArgs:
    """The last transform of LionAR's chain, in place of `optax.scale_by_learning_rate`; see `lion_ar` for arguments.

    Its inputs are directions with an RMS of γ per neuron. Place transforms that scale the *relative* update before it:

        optax.chain(
            optim.scale_by_lion_a(0.9),
            optim.scale_by_representation_change(batch_size=480),
            optim.rotate_by_learning_rate(schedule),
        )

    Raises:
      InputError: the rate, the decay or `update_multiplier` is negative, not finite or not a scalar; the peak is
        unknown or 0. From `init` and `update`: a parameter has no known neurons or not the declared axes, or is split
        by `jax.shard_map`. From `init`: `weight_decay` is 0 and a parameter has neurons; a parameter with neurons has
        no values (`jax.ShapeDtypeStruct`); a declaration or a pattern of `neurons` decides no parameter's role or axes.
    """
    _rates.check("learning_rate", learning_rate)
    _rates.check("update_multiplier", update_multiplier)
    _rates.check("weight_decay", weight_decay)
    peak = _rates.own_peak(learning_rate, peak_learning_rate)

    def relative_rate(count):
        return _rates.at(learning_rate, count) / peak * jnp.sqrt(2 * peak * weight_decay)

    return _neurons.rotate(
        relative_rate,
        learning_rate,
        weight_decay,
        update_multiplier=update_multiplier,
        neurons=neurons,
        declarations=declarations,
    )


def lion_ar(
    learning_rate: optax.ScalarOrSchedule,
    *,
    b: Any = 0.9,
    weight_decay: Any = 0.1,
    nesterov: bool = False,
    inverse_bias_correction: bool = False,
    mu_dtype: Any = None,
    batch_size: Any = None,
    peak_learning_rate: Any = None,
    update_multiplier: Any = 1.0,
    neurons: _neurons.Neurons | None = None,
    declarations: Sequence[Declaration] = (),
) -> optax.GradientTransformationExtraArgs:
    """LionAR, algorithm 3 of Kosson et al. 2024: Lion whose neurons rotate by an angle that follows the schedule.

    With u and γ_t as in `lion_a`, for a neuron θ of C weights,

        θ̂ = θ − (η_t / max η) √(2 max η λ) γ_t (‖θ₀‖ / √C) sign(u),    θ ← θ̂ ‖θ₀‖ / ‖θ̂‖.

    The angle per step is (η_t / max η) √(2 max η λ) γ_t radians, if it is small and sign(u) is orthogonal to θ. It is
    AdamW's equilibrium angle at the peak, and linear in the schedule. Gains, biases and neurons with ‖θ₀‖ = 0 take
    θ ← θ − η_t γ_t sign(u). There is no weight decay. The paper's neurons are the rows of PyTorch's [out, in] matrices.
    The paper does not define neurons of embeddings and tied heads; here each token's row is a neuron.

    Args:
      learning_rate: η_t, number, scalar array or schedule.
      b, nesterov, inverse_bias_correction, mu_dtype: as in `lion_a`.
      weight_decay: λ > 0, which sets the angle.
      batch_size: B, in sequences: multiplies the relative update by the factor of `scale_by_representation_change`, and
        `update` requires `gradient_snr`. None omits both.
      peak_learning_rate: max η, number or scalar array. The default is the rate itself if it is a number, or a
        schedule's `.peak` (`trapezoid`). It is required for every other schedule and for a rate that is an array.
      update_multiplier: c, multiplies the relative update, outside the root, and the rate of gains and biases.
        `parametrized` passes a role's factor as this argument.
      neurons: pattern (regular expression for whole "/"-joined paths) → axes over which one neuron sums; `()` for
        parameters without neurons. It comes before the declarations. A column of a kernel [in, out] has axes (0,), a
        row of an embedding [m, d] has (1,), a filter of a convolution [height, width, in, out] has (0, 1, 2).
      declarations: `lvp.roles.Declaration`s that come before the defaults.

    Returns:
      A transformation. Its state has one moment, and a float per neuron (float32, or the parameter's dtype if that is
      wider).

    Raises:
      InputError: b is outside [0, 1); the rate, the decay or `update_multiplier` is negative, not finite or not a
        scalar; the batch size is below 1 or infinite; the peak is unknown or 0. From `init` and `update`: a parameter
        has no known neurons or not the declared axes, or is split by `jax.shard_map`; the error names its path. From
        `init`: `weight_decay` is 0 and a parameter has neurons; a parameter with neurons has no values
        (`jax.ShapeDtypeStruct`); a declaration or a pattern of `neurons` decides no parameter's role or axes. From
        `update`, with `batch_size`: `gradient_snr` is missing or not a scalar.

    Example:
      >>> import jax.numpy as jnp
      >>> from lvp import optim
      >>> params, gradients = {"head": {"kernel": jnp.ones((4, 2))}}, {"head": {"kernel": jnp.eye(4, 2)}}
      >>> tx = optim.lion_ar(optim.trapezoid(1e-2, total_steps=100))
      >>> updates, state = tx.update(gradients, tx.init(params), params)
      >>> [round(x, 4) for x in jnp.linalg.norm(params["head"]["kernel"] + updates["head"]["kernel"], axis=0).tolist()]
      [2.0, 2.0]
    """
    _rates.check_constant("weight_decay", weight_decay)
    kind = {"nesterov": nesterov, "inverse_bias_correction": inverse_bias_correction}
    direction = scale_by_lion_a(b, mu_dtype=mu_dtype, **kind)
    which: dict[str, Any] = {"neurons": neurons, "declarations": declarations}
    of_turn: dict[str, Any] = {"peak_learning_rate": peak_learning_rate, "update_multiplier": update_multiplier} | which
    turn = rotate_by_learning_rate(learning_rate, weight_decay=weight_decay, **of_turn)
    held = () if batch_size is None else (scale_by_representation_change(batch_size=batch_size, **which),)
    return optax.chain(direction, *held, turn)


class AverageNormState(NamedTuple):
    """The state of `normalize_by_average_norm`.

    Attributes:
      count: int32 scalar.
      squares: moving average of every neuron's squared update norm, shaped as `RotationState.norms`.
    """

    count: jax.Array  # type: ignore[assignment]  # hides tuple.count, as in optax's states
    squares: Any


def normalize_by_average_norm(
    b: Any = 0.9,
    *,
    neurons: _neurons.Neurons | None = None,
    declarations: Sequence[Declaration] = (),
) -> optax.GradientTransformation:
    """Divides each neuron's update by the root of a moving average of its squared norm, so that its RMS is about 1.

    d = √C u / √n̂ with n ← b n + (1 − b) ‖u‖² and n̂ = n / (1 − bᵗ) (Kosson et al. 2024, "Rotational equilibrium"). If
    n̂ is zero, d is zero. Gains and biases are not changed.

    Args:
      b: decay of the average, in [0, 1).
      neurons, declarations: as in `lion_ar`.

    Returns:
      A transformation. Its state is `AverageNormState`, a float per neuron.

    Raises:
      InputError: b is outside [0, 1). From `init` and `update`: a parameter has no known neurons or not the declared
        axes, or is split by `jax.shard_map`. From `init`: a parameter with neurons has no values
        (`jax.ShapeDtypeStruct`).
    """
    _rates.check_beta("b", b)

    def init(params):
        described = _neurons.neuron_leaves(params, neurons, declarations)
        squares = _neurons.per_neuron(described, params, lambda leaf, p: jnp.zeros_like(_neurons.norm(p, leaf.fan_in)))
        return AverageNormState(jnp.zeros([], jnp.int32), squares)

    def update(updates, state, params=None):
        del params
        count = optax.safe_increment(state.count)
        described = _neurons.neuron_leaves(updates, neurons, declarations)
        seen = 1 - jnp.power(b, count)

        def average(leaf, u, old):
            if not leaf.fan_in:
                return old
            return (b * old + (1 - b) * jnp.square(_neurons.norm(u, leaf.fan_in))).astype(old.dtype)

        def divide(leaf, u, square):
            if not leaf.fan_in:
                return u
            root = jnp.sqrt(square * (_neurons.size(leaf) ** -1) / seen.astype(square.dtype))
            inverse = jnp.where(root > 0, 1 / jnp.where(root > 0, root, 1), 0)
            return (u * inverse).astype(u.dtype)

        squares = jax.tree.map(average, described, updates, _neurons.aligned(described, state.squares))
        updates = jax.tree.map(divide, described, updates, squares)
        return updates, AverageNormState(
            count, jax.tree.unflatten(jax.tree.structure(state.squares), jax.tree.leaves(squares))
        )

    return optax.GradientTransformation(init, update)


def rotational_adamw(
    learning_rate: optax.ScalarOrSchedule,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    weight_decay: Any = 0.01,
    *,
    norm_decay: Any = 0.9,
    mu_dtype: Any = None,
    update_multiplier: Any = 1.0,
    neurons: _neurons.Neurons | None = None,
    declarations: Sequence[Declaration] = (),
) -> optax.GradientTransformationExtraArgs:
    """AdamW whose neurons rotate at fixed norms by AdamW's equilibrium angle.

    The rotational variant of Kosson, Messmer, Jaggi 2024, "Rotational equilibrium". The defaults of b1, b2 and
    weight_decay are from appendix A of the same authors' warm-up paper; eps is that of optax. For a neuron θ of C
    weights with Adam's direction u,

        θ̂ = θ − √(2 η_t λ (1 − β₁) / (1 + β₁)) ‖θ₀‖ u / √n̂_t,    θ ← θ̂ ‖θ₀‖ / ‖θ̂‖,

    with n̂_t the bias-corrected moving average of ‖u‖². The angle is proportional to √η_t (LionAR's is proportional to
    η_t). It is smaller during the first steps, for several times 1 / (1 − β₁) steps, because n̂ still contains Adam's
    large first directions. Gains and biases take plain AdamW. Neurons with ‖θ₀‖ = 0 take AdamW without decay, with u
    normalised as above. The authors' code also removes each neuron's mean and the update's component along the neuron.
    Their equations do not, and neither does this function.

    Args:
      learning_rate: η_t, number, scalar array or schedule.
      b1, b2, eps, mu_dtype: as in Adam.
      weight_decay: λ > 0, which sets the angle; for gains and biases it is the decay.
      norm_decay: decay of the moving average of ‖u‖².
      update_multiplier, neurons, declarations: as in `lion_ar`.

    Returns:
      A transformation. Its state has two moments, and two floats per neuron.

    Raises:
      InputError: b1, b2 or norm_decay is outside [0, 1); eps, the rate, the decay or `update_multiplier` is negative,
        not finite or not a scalar. From `init` and `update`: a parameter has no known neurons or not the declared axes,
        or is split by `jax.shard_map`; the error names its path. From `init`: `weight_decay` is 0 and a parameter has
        neurons; a parameter with neurons has no values (`jax.ShapeDtypeStruct`); a declaration or a pattern of
        `neurons` decides no parameter's role or axes.

    Example:
      >>> import jax.numpy as jnp
      >>> from lvp import optim
      >>> params, gradients = {"head": {"kernel": jnp.ones((4, 2))}}, {"head": {"kernel": jnp.eye(4, 2)}}
      >>> tx = optim.rotational_adamw(1e-2, weight_decay=0.1)
      >>> updates, state = tx.update(gradients, tx.init(params), params)
      >>> [round(x, 4) for x in jnp.linalg.norm(params["head"]["kernel"] + updates["head"]["kernel"], axis=0).tolist()]
      [2.0, 2.0]
    """
    _rates.check("learning_rate", learning_rate)
    _rates.check_constant("weight_decay", weight_decay)
    _rates.check("update_multiplier", update_multiplier)
    _rates.check_beta("norm_decay", norm_decay)
    which: dict[str, Any] = {"neurons": neurons, "declarations": declarations}

    def relative_rate(count):
        return jnp.sqrt(2 * _rates.at(learning_rate, count) * weight_decay * (1 - b1) / (1 + b1))

    turn: dict[str, Any] = {"vectors_decay": True, "update_multiplier": update_multiplier} | which
    return optax.chain(
        scale_by_adam(b1, b2, eps, mu_dtype=mu_dtype),
        normalize_by_average_norm(norm_decay, **which),
        _neurons.rotate(relative_rate, learning_rate, weight_decay, **turn),
    )
