"""Optimizers that act on each coordinate separately: sign descent, AdamW with and without β₁ correction, LionA."""

import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lvp.errors import InputError
from lvp.optim import rates as _rates


def sign(x: jax.Array, of_zero: Any = 1) -> jax.Array:
    """The sign of x, with S(0) = `of_zero`; NaN stays NaN."""
    return jnp.where(x == 0, jnp.asarray(of_zero, x.dtype), jnp.sign(x))


def _times(base: optax.GradientTransformation, factor: Callable[[jax.Array], jax.Array]):
    """`base` with its updates times factor(t), where t is the count of its own state, from 1."""

    def update(updates, state, params=None):
        updates, state = base.update(updates, state, params)
        scale = factor(state.count)
        return jax.tree.map(lambda u: u * scale.astype(u.dtype), updates), state

    return optax.GradientTransformation(base.init, update)


def with_decoupled_decay(
    direction: optax.GradientTransformation, learning_rate: Any, weight_decay: Any, mask: Any
) -> optax.GradientTransformationExtraArgs:
    """Returns the chain of a direction and AdamW's decay: θ ← (1 − η_t λ) θ − η_t · direction.

    The decay applies only where `mask` is true. It is the end of optax's adamw and lion.

    Raises:
      InputError: the learning rate or the decay is negative, not finite or not a scalar.
    """
    _rates.check("learning_rate", learning_rate)
    _rates.check("weight_decay", weight_decay)
    return optax.chain(
        direction, optax.add_decayed_weights(weight_decay, mask), optax.scale_by_learning_rate(learning_rate)
    )


def scale_by_sign(*, sign_of_zero: int = 1) -> optax.GradientTransformation:
    """Replaces every coordinate by its sign; NaN stays NaN.

    Args:
      sign_of_zero: 1 is S(z) = +1 for z ≥ 0 in Hayou & Liu 2025, under which a token absent from the batch moves (the
        paper's footnote 10 prints 0, a misprint). 0 is optax's convention.

    Raises:
      InputError: `sign_of_zero` is a number other than 0 and 1.
    """
    if isinstance(sign_of_zero, numbers.Number) and sign_of_zero not in (0, 1):
        raise InputError(f"sign_of_zero must be 0 or 1, got {sign_of_zero!r}")

    def update(updates, state, params=None):
        del params
        return jax.tree.map(lambda g: sign(g, sign_of_zero), updates), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def sign_sgd(learning_rate: optax.ScalarOrSchedule, *, sign_of_zero: int = 1) -> optax.GradientTransformationExtraArgs:
    """SignSGD of Hayou & Liu 2025, section 3: θ ← θ − η_t S(g).

    Args:
      learning_rate: η_t, number, scalar array or schedule.
      sign_of_zero: see `scale_by_sign`; 0 gives `optax.sign_sgd`.

    Raises:
      InputError: `sign_of_zero` is a number other than 0 and 1; the learning rate is negative, not finite or not a
        scalar.

    Example:
      >>> import jax.numpy as jnp
      >>> from lvp import optim
      >>> tx = optim.sign_sgd(0.5)
      >>> gradients = {"w": jnp.array([3.0, -2.0, 0.0])}
      >>> tx.update(gradients, tx.init(gradients))[0]["w"].tolist()
      [-0.5, 0.5, -0.5]
    """
    _rates.check("learning_rate", learning_rate)
    return optax.chain(scale_by_sign(sign_of_zero=sign_of_zero), optax.scale_by_learning_rate(learning_rate))


def scale_by_adam(
    b1: Any = 0.9, b2: Any = 0.999, eps: Any = 1e-8, *, bias_correction_first: bool = True, mu_dtype: Any = None
) -> optax.GradientTransformation:
    """Adam's direction m̂ / (√v̂ + ε), or m / (√v̂ + ε) without correction of the first moment.

    The second moment v̂ is always corrected. The state is `optax.ScaleByAdamState`. See `adamw`.

    Raises:
      InputError: b1 or b2 is outside [0, 1); eps is negative.
    """
    _rates.check_beta("b1", b1)
    _rates.check_beta("b2", b2)
    _rates.check_constant("eps", eps)
    adam = optax.scale_by_adam(b1=b1, b2=b2, eps=eps, mu_dtype=mu_dtype)
    return adam if bias_correction_first else _times(adam, lambda count: 1 - jnp.power(b1, count))


def adamw(
    learning_rate: optax.ScalarOrSchedule,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    weight_decay: Any = 1e-4,
    *,
    bias_correction_first: bool = True,
    mu_dtype: Any = None,
    mask: Any | Callable | None = None,
) -> optax.GradientTransformationExtraArgs:
    """AdamW as in algorithm 1 of Kosson et al. 2024: θ ← (1 − η_t λ) θ − η_t m̂ / (√v̂ + ε).

    The defaults are those of `optax.adamw`.

    Args:
      learning_rate: η_t, number, scalar array or schedule.
      b1, b2: decay of the first and second moment.
      eps: ε, in units of the gradient.
      weight_decay: λ, per unit of learning rate.
      bias_correction_first: True is `optax.adamw`, the same chain of transforms. False uses m for m̂, so that the first
        updates are not amplified by √((1 + β₁ᵗ) / (1 − β₁ᵗ)) (equation 1).
      mu_dtype: dtype of the first moment; None is the parameter's.
      mask: as in `optax.adamw`: a tree of bools, or a function of the parameters; True means decay.

    Raises:
      InputError: b1 or b2 is outside [0, 1); eps, the decay or the rate is negative.

    Example:
      >>> import jax.numpy as jnp
      >>> from lvp import optim
      >>> params = {"w": jnp.zeros(2)}
      >>> tx = optim.adamw(1e-3, b1=0.9, bias_correction_first=False)
      >>> updates, state = tx.update({"w": jnp.array([5.0, -5.0])}, tx.init(params), params)
      >>> [round(x, 6) for x in updates["w"].tolist()]  # optax.adamw begins with ±0.001
      [-0.0001, 0.0001]
    """
    adam = scale_by_adam(b1, b2, eps, bias_correction_first=bias_correction_first, mu_dtype=mu_dtype)
    return with_decoupled_decay(adam, learning_rate, weight_decay, mask)


def lion_scale(b: Any, count: Any, *, nesterov: bool, inverse_bias_correction: bool) -> Any:
    """The factor γ_t on Lion's sign that gives it the RMS of the momentum it replaces, for unit iid gradients.

    It is given by equations 23 to 25 of Kosson et al. 2024.

    Args:
      b: β, decay of the moment.
      count: t, from 1; only the inverse bias correction uses it.
      nesterov, inverse_bias_correction: as in `lion_a`.
    """
    equilibrium = (1 - b) / (1 + b)
    if nesterov:
        seen = 1 - jnp.power(b, 2.0 * (count - 1)) if inverse_bias_correction else 1
        return jnp.sqrt((1 - b**2) ** 2 + seen * b**4 * equilibrium)
    seen = 1 - jnp.power(b, 2.0 * count) if inverse_bias_correction else 1
    return jnp.sqrt(seen * equilibrium)


def scale_by_lion_a(
    b: Any = 0.9, *, nesterov: bool = False, inverse_bias_correction: bool = False, mu_dtype: Any = None
) -> optax.GradientTransformation:
    """LionA's direction γ_t sign(u), with m ← β m + (1 − β) g and u = m; sign(0) = 0.

    With `nesterov`, u = β m + (1 − β) g. The directions and the state (`optax.ScaleByLionState`, one moment) are those
    of `optax.scale_by_lion` with (b1, b2) = (β, β), or (β², β) with `nesterov`. See `lion_a`.

    Raises:
      InputError: b is outside [0, 1).
    """
    _rates.check_beta("b", b)
    lion = optax.scale_by_lion(b1=b**2 if nesterov else b, b2=b, mu_dtype=mu_dtype)
    kind = {"nesterov": nesterov, "inverse_bias_correction": inverse_bias_correction}
    return _times(lion, lambda count: lion_scale(b, count, **kind))


def lion_a(
    learning_rate: optax.ScalarOrSchedule,
    *,
    b: Any = 0.9,
    weight_decay: Any = 0.1,
    nesterov: bool = False,
    inverse_bias_correction: bool = False,
    mu_dtype: Any = None,
    mask: Any | Callable | None = None,
) -> optax.GradientTransformationExtraArgs:
    """LionA, algorithm 2 of Kosson et al. 2024: θ ← (1 − η_t λ) θ − η_t γ_t sign(u).

    LionA is Lion with updates of AdamW's equilibrium size, so that AdamW's rate and decay remain suitable. Apart from
    weight decay, the update's RMS is γ_t η_t at every step.

    Args:
      learning_rate: η_t, number, scalar array or schedule.
      b: β, decay of the moment.
      weight_decay: λ, per unit of learning rate.
      nesterov: use u = β m + (1 − β) g.
      inverse_bias_correction: use γ_t of equations 24 and 25, so that early updates are smaller, as in AdamW without β₁
        correction; else γ is constant.
      mu_dtype: dtype of the moment; None is the parameter's.
      mask: as in `optax.lion`; True means decay.

    Raises:
      InputError: b is outside [0, 1); the decay or the rate is negative.

    Example:
      >>> import jax.numpy as jnp
      >>> from lvp import optim
      >>> params = {"w": jnp.zeros(2)}
      >>> tx = optim.lion_a(0.1, b=0.6)  # γ = √((1 − 0.6) / (1 + 0.6)) = 0.5
      >>> updates, state = tx.update({"w": jnp.array([3.0, -0.2])}, tx.init(params), params)
      >>> [round(x, 4) for x in updates["w"].tolist()]
      [-0.05, 0.05]
    """
    lion = scale_by_lion_a(b, nesterov=nesterov, inverse_bias_correction=inverse_bias_correction, mu_dtype=mu_dtype)
    return with_decoupled_decay(lion, learning_rate, weight_decay, mask)
