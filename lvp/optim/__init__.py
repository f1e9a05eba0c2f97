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

Which parameter has which role is decided by path in `lvp.roles`; models other than ours pass
`declarations=(lvp.roles.Declaration(pattern, role), ...)`. Only jax and optax are imported here.
"""

from lvp.optim.partitioned import by_role, scale_by_role
from lvp.optim.rules import parametrized

__all__ = ["by_role", "parametrized", "scale_by_role"]
