"""Optax optimizers that know what each parameter is.

    import optax
    from lvp import optim

    tx = optim.parametrized(optax.adamw, "lvp", learning_rate=3e-3, width=512, vocab=32768, weight_decay=0.1)
    state = tx.init(params)  # from here on plain optax: chain, jit, vmap, MultiSteps, inject_hyperparams

- `parametrized(factory, rule, ...)` builds an optax factory once per role, with the role's rate and decay
  from a table of `lvp.parametrization`; `learning_rate` is the hidden matrices' rate unless the table says
  otherwise.
- `by_role(factory, rates, ...)` is the piece under it: your own rate (and decay) per role.
- `scale_by_role(factors)` is a transform to chain after a base whose update is linear in the rate.

- `describe(...)` says what every parameter ends up with: init std, learning rate, decay; `initialize(...)` draws
  parameters with those stds.

The optimizers, each an optax factory of its own, with the pieces they chain: `sign_sgd` (`scale_by_sign`), `adamw`
(`scale_by_adam`), `lion_a` (`scale_by_lion_a`), `lion_ar` (`rotate_by_learning_rate`), `rotational_adamw`
(`normalize_by_average_norm`), `coupled_adam` (`scale_by_coupled_adam`), `scale_by_representation_change`
(`gradient_snr`, `snr_of_squares`, `representation_change_factor`); and `trapezoid`, a schedule that carries its peak.

Which parameter has which role is decided by path in `lvp.roles`; models other than ours pass
`declarations=(lvp.roles.Declaration(pattern, role), ...)`. Only jax and optax are imported here.
"""

from lvp.optim.by_role import by_role, scale_by_role
from lvp.optim.coupled import coupled_adam, scale_by_coupled_adam
from lvp.optim.description import describe
from lvp.optim.elementwise import adamw, lion_a, scale_by_adam, scale_by_lion_a, scale_by_sign, sign_sgd
from lvp.optim.initialization import initialize
from lvp.optim.parametrized import parametrized
from lvp.optim.representation_change import (
    gradient_snr,
    representation_change_factor,
    scale_by_representation_change,
    snr_of_squares,
)
from lvp.optim.rotational import lion_ar, normalize_by_average_norm, rotate_by_learning_rate, rotational_adamw
from lvp.optim.schedules import trapezoid

__all__ = [
    "adamw",
    "by_role",
    "coupled_adam",
    "describe",
    "gradient_snr",
    "initialize",
    "lion_a",
    "lion_ar",
    "normalize_by_average_norm",
    "parametrized",
    "representation_change_factor",
    "rotate_by_learning_rate",
    "rotational_adamw",
    "scale_by_adam",
    "scale_by_coupled_adam",
    "scale_by_lion_a",
    "scale_by_representation_change",
    "scale_by_role",
    "scale_by_sign",
    "sign_sgd",
    "snr_of_squares",
    "trapezoid",
]
