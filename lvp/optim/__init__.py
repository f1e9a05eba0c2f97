"""Optax optimizers with learning rates and decays by parameter role.

    import optax
    from lvp import optim

    tx = optim.parametrized(optax.adamw, "lvp", 3e-3, width=512, vocab=32768, weight_decay=0.1)
    state = tx.init(params)  # from here on plain optax: chain, jit, vmap, MultiSteps, inject_hyperparams

- `parametrized(factory, table, learning_rate, ...)` calls an optax factory per role, with the role's rate and decay
  from a table of `lvp.parametrization`, or from the name of a rule. `learning_rate` is the rate that Adam has at the
  hidden matrices. `factory` is one factory for all roles, or role → factory (Muon for hidden matrices, Adam for the
  rest).
- `transfer(factory, scaling, learning_rate, ...)` takes settings tuned at one width, vocabulary, depth, batch and
  horizon to another.
- `by_role(factory, rates, ...)` takes your own rate (and decay) per role instead of a table.
- `scale_by_role(factors)` is a transform to chain after an optimizer whose update is linear in the rate.
- `describe(...)` lists every parameter's init std, learning rate and decay. `initialize(...)` draws parameters with
  these stds.

Each optimizer is an optax factory, with its own transform in parentheses: `sign_sgd` (`scale_by_sign`), `adamw`
(`scale_by_adam`), `lion_a` (`scale_by_lion_a`), `lion_ar` (`rotate_by_learning_rate`), `rotational_adamw`
(`normalize_by_average_norm`), `coupled_adam` (`scale_by_coupled_adam`). `scale_by_representation_change` is a transform
for chains; `gradient_snr` and `snr_of_squares` estimate its input, and `representation_change_factor` is its factor.
`trapezoid` is a schedule that carries its peak.

`lvp.roles` assigns a role to each parameter by its path. Models other than ours pass
`declarations=(lvp.roles.Declaration(pattern, role), ...)`; `lvp.declarations` has those of public models. This package
needs jax and optax only.
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
from lvp.optim.transfer import transfer

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
    "transfer",
    "trapezoid",
]
