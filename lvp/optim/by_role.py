"""An optimizer per role, and a factor per role."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lvp import roles
from lvp.errors import InputError
from lvp.optim import rates as _rates
from lvp.parametrization import Table


def by_role(
    factory: Callable[..., optax.GradientTransformation],
    rates: Mapping[str, optax.ScalarOrSchedule],
    *,
    weight_decay: Any = None,
    declarations: Sequence[roles.Declaration] = (),
    **kwargs: Any,
) -> optax.GradientTransformationExtraArgs:
    """`factory(learning_rate=rates[role], **kwargs)` for the parameters of each role.

    The factory receives the rate, so the rate may act before a projection or inside a root (`parametrized` keeps a
    role's factor outside). Each role's optimizer sees only its own leaves: chain transforms of the whole tree
    (`optax.clip_by_global_norm`) before this. The rates may be traced (jit, vmap over rates).

    Args:
      factory: takes `learning_rate` by keyword; optax's factories, partials of them, or those of `lvp.optim`.
      rates: role → number, scalar array or schedule. Roles without parameters may be missing. If they are present, they
        have no per-parameter state (a step counter at most).
      weight_decay: None, a value for every role (vectors too: only `parametrized` knows which roles decay), or
        role → value, where missing roles do not decay. None means **no decay**: the factory is given 0.0, because
        `optax.adamw` would otherwise apply its default of 1e-4 to every parameter.
      declarations: `lvp.roles.Declaration`s that take precedence over the defaults.
      **kwargs: passed to the factory for every role.

    Returns:
      A transformation whose state is `optax.transforms.PartitionState`, by role.

    Raises:
      InputError: an unknown role; an invalid rate; `weight_decay` for a factory without that parameter, or bound in a
        partial; arguments that the factory does not take. From `init` and `update`: a parameter without a role, or
        whose role has no rate; the error names its path.
    """
    check_factory(factory)
    _check_roles("rates", rates)
    for role, rate in rates.items():
        _rates.check(f"rates[{role!r}]", rate)
    decays = decays_of(factory, rates, weight_decay)
    settings = {role: {"learning_rate": rate, **decays[role]} for role, rate in rates.items()}
    return partition(factory, settings, declarations=declarations, **kwargs)


def partition(
    factory: Callable[..., optax.GradientTransformation],
    settings: Mapping[str, Mapping[str, Any]],
    *,
    declarations: Sequence[roles.Declaration],
    **kwargs: Any,
) -> optax.GradientTransformationExtraArgs:
    """`factory(**settings[role], **kwargs)` for the parameters of each role.

    A factory with a parameter `declarations` is given the declarations too."""
    if _rates.accepts(factory, "declarations"):
        kwargs = {"declarations": declarations, **kwargs}
    try:
        inspect.signature(factory).bind(**next(iter(settings.values()), {"learning_rate": None}), **kwargs)
    except TypeError as error:
        raise InputError(f"factory {_rates.name_of(factory)}: {error}") from error
    transforms = {role: factory(**own, **kwargs) for role, own in settings.items()}
    return optax.partition(transforms, lambda tree: _labels(tree, declarations, "rates", settings))


def scale_by_role(
    factors: Table | Mapping[str, Any], *, declarations: Sequence[roles.Declaration] = ()
) -> optax.GradientTransformation:
    """Multiplies every update by its role's factor: `optax.chain(optax.adam(rate), scale_by_role(table))`.

    Chain it directly after an optimizer whose update is linear in its learning rate; the result equals `parametrized`.
    After `optax.adamw` it also scales the decay (coupled decay, including vectors). After an optimizer that projects,
    it breaks the projection. Use `parametrized` in both cases.

    Args:
      factors: a `Table` (its `lr_multiplier`s), or role → number or scalar array, traced or not.
      declarations: `lvp.roles.Declaration`s that take precedence over the defaults.

    Returns:
      A stateless transformation that keeps the updates' dtypes.

    Raises:
      InputError: an unknown role; a factor that is not a scalar. From `update`: a parameter without a role, or whose
        role has no factor; the error names its path.
    """
    if isinstance(factors, Table):
        factors = {row.role: row.lr_multiplier for row in factors.rows}
    _check_roles("factors", factors)
    for role, factor in factors.items():
        if callable(factor):
            raise InputError(f"factors[{role!r}] must be a number, got a schedule: pass it as the learning rate")
        _rates.check(f"factors[{role!r}]", factor)

    def update(updates, state, params=None):
        del params
        labels = _labels(updates, declarations, "factors", factors)
        return jax.tree.map(lambda role, u: u * jnp.asarray(factors[role], u.dtype), labels, updates), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def _labels(tree: Any, declarations: Sequence[roles.Declaration], name: str, known: Mapping[str, Any]) -> Any:
    """Roles of a tree. Raises InputError for a role that `known`, the argument called `name`, does not have."""
    described = roles.classify(tree, extra=declarations)
    for leaf in jax.tree.leaves(described):
        if leaf.role not in known:
            raise InputError(f"{name} has no {leaf.role!r}, the role of parameter {leaf.path!r}")
    return jax.tree.map(lambda leaf: leaf.role, described)


def check_factory(factory: Any) -> None:
    if not callable(factory):
        raise InputError(f"factory must be a function such as optax.adam, not its result: got {factory!r}")
    if _rates.bound(factory, "learning_rate"):
        name = _rates.name_of(factory)
        raise InputError(f"learning_rate is bound in a partial of {name}: remove it, each role has its own")


def _check_roles(name: str, mapping: Any) -> None:
    if not isinstance(mapping, Mapping):
        raise InputError(f"{name} must map roles to values, got {mapping!r}")
    unknown = [role for role in mapping if role not in roles.ROLES]
    if unknown:
        raise InputError(f"{name}: unknown role {unknown[0]!r}; roles are {roles.ROLES}")


def decays_of(factory: Callable, rates: Mapping[str, Any], weight_decay: Any) -> dict[str, dict[str, Any]]:
    """Role → the keyword arguments for the factory's weight decay; empty if it has no such parameter."""
    name = _rates.name_of(factory)
    if _rates.bound(factory, "weight_decay"):
        raise InputError(f"weight_decay is bound in a partial of {name}: pass it here as weight_decay= instead")
    if not _rates.accepts(factory, "weight_decay"):
        if weight_decay is not None:
            raise InputError(
                f"weight_decay: {name} has no such parameter; use a factory with weight decay, such as optax.adamw"
            )
        return {role: {} for role in rates}
    if weight_decay is None:
        weight_decay = {}
    elif not isinstance(weight_decay, Mapping):
        weight_decay = dict.fromkeys(rates, weight_decay)
    _check_roles("weight_decay", weight_decay)
    for role, value in weight_decay.items():
        _rates.check(f"weight_decay[{role!r}]", value)
    return {role: {"weight_decay": weight_decay.get(role, 0.0)} for role in rates}
