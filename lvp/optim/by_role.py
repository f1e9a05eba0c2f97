"""An optimizer per role, and a factor per role."""

import inspect
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lvp import roles
from lvp.errors import InputError
from lvp.optim import rates as _rates
from lvp.parametrization import Table

Factory = Callable[..., optax.GradientTransformation]
_CHECKS = {"b1": _rates.check_beta, "b2": _rates.check_beta, "eps": _rates.check_constant}


def by_role(
    factory: Factory | Mapping[str, Factory],
    rates: Mapping[str, optax.ScalarOrSchedule],
    *,
    weight_decay: Any = None,
    declarations: Sequence[roles.Declaration] = (),
    **kwargs: Any,
) -> optax.GradientTransformationExtraArgs:
    """Returns an optimizer that calls a factory per role, with your own rate for each role.

    The parameters of a role are trained by `factory(learning_rate=rates[role], **kwargs)`. The factory receives the
    rate, so the rate may act before a projection or inside a root (`parametrized` keeps a role's factor outside). Each
    role's optimizer sees only its own leaves: chain transforms of the whole tree (`optax.clip_by_global_norm`) before
    this. The rates may be traced (jit, vmap over rates).

    Args:
      factory: takes `learning_rate` by keyword; optax's factories, partials of them, or the factories of `lvp.optim`.
        Or role → factory, for every role of `rates`.
      rates: role → number, scalar array or schedule. Roles without parameters may be missing. If they are present, they
        have no per-parameter state (a step counter at most).
      weight_decay: None, a value for every role (vectors too: only `parametrized` knows which roles decay), or
        role → value, where missing roles do not decay. None means **no decay**: the factory is given 0.0, because
        `optax.adamw` would otherwise apply its default of 1e-4 to every parameter.
      declarations: `lvp.roles.Declaration`s that come before the defaults.
      **kwargs: passed to every factory.

    Returns:
      A transformation whose state is `optax.transforms.PartitionState`, by role.

    Raises:
      InputError: a role is unknown, has no factory, or has a decay and no rate; a rate or decay is negative, not finite
        or not a scalar; the factory is not callable, does not take an argument (`weight_decay` too), or is a partial
        that binds `learning_rate`, `weight_decay` or an option that the function does not have; `b1` or `b2` is outside
        [0, 1), or `eps` is negative. From `init`: a parameter has no role or unknown axes, or its role has no rate; a
        declaration decides no parameter's role.

    Example:
      >>> import jax.numpy as jnp
      >>> import optax
      >>> from lvp import optim
      >>> params = {"embedding": {"embedding": jnp.ones((8, 4))}, "head": {"kernel": jnp.ones((4, 8))}}
      >>> tx = optim.by_role(optax.sgd, {"embedding": 0.5, "output": 0.25})
      >>> updates, state = tx.update(params, tx.init(params))  # gradients of 1
      >>> updates["embedding"]["embedding"][0, 0].item(), updates["head"]["kernel"][0, 0].item()
      (-0.5, -0.25)
    """
    kwargs = _rates.unwrapped_arguments(kwargs)
    roles.check_declarations(declarations)
    known = (*roles.ROLES, *(declaration.role for declaration in declarations))
    check_roles("rates", rates, known)
    factories = factories_of(factory, tuple(rates), known)
    for role, rate in rates.items():
        _rates.check(f"rates[{role!r}]", rate)
    decays = decays_by_role(weight_decay, rates, known)
    if unused := [role for role in decays if role not in rates]:
        raise InputError(
            f"weight_decay: role {unused[0]!r} has no rate; rates are given for {', '.join(rates)}: give its rate, or "
            "remove it"
        )
    settings = {
        role: {"learning_rate": rate, **decay_of(factories[role], decays.get(role))} for role, rate in rates.items()
    }
    return partition(factories, settings, declarations=declarations, **kwargs)


def partition(
    factories: Mapping[str, Factory],
    settings: Mapping[str, Mapping[str, Any]],
    *,
    declarations: Sequence[roles.Declaration],
    check: Callable[[Sequence[roles.Leaf]], None] = lambda leaves: None,
    **kwargs: Any,
) -> optax.GradientTransformationExtraArgs:
    """Returns an optimizer that trains the parameters of each role by `factories[role](**settings[role], **kwargs)`.

    A factory with a parameter `declarations` is given the declarations too. A factory with a parameter
    `muon_weight_dimension_numbers` (`optax.contrib.muon`) is given the axes of the declarations. `init` calls `check`
    with all leaves.

    Raises:
      InputError: a factory does not take an argument; a constant `b1` or `b2` is outside [0, 1), or a constant `eps` is
        negative. From `init`: a parameter has no role or unknown axes, or its role has no settings; a declaration
        decides no parameter's role; `check` refuses the parameters.
    """
    transforms = {}
    for role, own in settings.items():
        arguments = {**_from_declarations(factories[role], declarations), **own, **kwargs}
        try:
            inspect.signature(factories[role]).bind(**arguments)
        except TypeError as error:
            raise InputError(
                f"factory {_rates.name_of(factories[role])}: {error}; correct the keyword arguments"
            ) from error
        for name, check_option in _CHECKS.items():
            value = arguments.get(name, _rates.default_of(factories[role], name))
            if value is not None and not callable(value):  # optax.inject_hyperparams takes schedules
                check_option(name, value)
        transforms[role] = _matrix_by_matrix(factories[role], arguments, declarations)
    tx = optax.partition(transforms, lambda tree: _labels(tree, declarations, "rates", settings))

    def init(params):
        check(jax.tree.leaves(describe_tree(params, declarations)))
        return tx.init(params)

    return optax.GradientTransformationExtraArgs(init, tx.update)


def describe_tree(params: Any, declarations: Sequence[roles.Declaration]) -> Any:
    """Returns `roles.classify` of the parameters, and checks that every declaration decides the role of one.

    Raises:
      InputError: a parameter has no role or unknown axes; a declaration decides no parameter's role.
    """
    described = roles.classify(params, extra=declarations)
    check_declarations(params, declarations)
    return described


def check_declarations(params: Any, declarations: Sequence[roles.Declaration]) -> None:
    """Checks that every declaration decides a parameter's role, if the tree shows the whole model.

    A tree without leaves, or with leaves that `optax.masked` has removed, is not checked.

    Raises:
      InputError: a declaration that is not optional decides no parameter's role.
    """
    nodes = jax.tree.leaves(params, is_leaf=is_masked)
    if nodes and not any(map(is_masked, nodes)):
        roles.check_used(params, declarations)


def is_masked(node: Any) -> bool:
    """True for the placeholder that `optax.masked` and `optax.partition` put in place of other roles' leaves."""
    return isinstance(node, optax.MaskedNode)


def _from_declarations(factory: Factory, declarations: Sequence[roles.Declaration]) -> dict[str, Any]:
    """The arguments of a factory that follow from declarations."""
    return {"declarations": declarations} if _rates.accepts(factory, "declarations") else {}


_DIMENSIONS = "muon_weight_dimension_numbers"  # parameter of `optax.contrib.muon`


def _dimensions_of(leaf: roles.Leaf) -> optax.contrib.MuonDimensionNumbers | None:
    """The axes of a parameter for `optax.contrib.muon`; None for a vector, which Adam trains."""
    return optax.contrib.MuonDimensionNumbers(leaf.fan_in, leaf.fan_out) if leaf.fan_in else None


def _matrix_by_matrix(
    factory: Factory, arguments: Mapping[str, Any], declarations: Sequence[roles.Declaration]
) -> optax.GradientTransformation:
    """The transformation of a factory. Muon gets the axes of the declarations, and fused matrices in their parts."""
    if _DIMENSIONS in arguments or not _rates.accepts(factory, _DIMENSIONS) or _rates.bound(factory, _DIMENSIONS):
        return factory(**arguments)

    def split(described, tree):
        def parts(leaf, x):
            ends = list(itertools.accumulate(leaf.fused))[:-1]
            return tuple(jnp.split(x, ends, axis=leaf.fan_out[0])) if leaf.fused else x

        return jax.tree.map(parts, described, tree)

    def of_parts(described):
        def dimensions(leaf):
            return (_dimensions_of(leaf),) * len(leaf.fused) if leaf.fused else _dimensions_of(leaf)

        return factory(**arguments, **{_DIMENSIONS: lambda tree: jax.tree.map(dimensions, described)})

    def describe(tree):
        described = roles.classify(tree, extra=declarations)
        for leaf in jax.tree.leaves(described):
            if leaf.fused is None:
                raise InputError(
                    f"parameter {leaf.path!r} of shape {leaf.shape} holds queries, keys and values of unknown lengths, "
                    "which Muon treats one by one: add a lvp.roles.Declaration with fused=3, or with the three lengths"
                )
        return described

    def init(params):
        described = describe(params)
        return of_parts(described).init(split(described, params))

    def update(updates, state, params=None, **more):
        described = describe(updates)
        tx = optax.with_extra_args_support(of_parts(described))
        parts = None if params is None else split(described, params)
        made, state = tx.update(split(described, updates), state, parts, **more)

        def joined(leaf, x):
            return jnp.concatenate(x, axis=leaf.fan_out[0]) if leaf.fused else x

        return jax.tree.map(joined, described, made), state

    return optax.GradientTransformationExtraArgs(init, update)


def scale_by_role(
    factors: Table | Mapping[str, Any], *, declarations: Sequence[roles.Declaration] = ()
) -> optax.GradientTransformation:
    """Multiplies every update by its role's factor.

    Chain it directly after an optimizer whose update is linear in its learning rate; the result equals `parametrized`.
    After `optax.adamw` it also scales the decay (coupled decay, including vectors). After an optimizer that projects,
    it breaks the projection. Use `parametrized` in both cases.

    Args:
      factors: a `Table` (its `lr_multiplier`s), or role → number or scalar array, traced or not.
      declarations: `lvp.roles.Declaration`s that come before the defaults.

    Returns:
      A stateless transformation that keeps the updates' dtypes.

    Raises:
      InputError: a role is unknown; a factor is negative, not finite or not a scalar. From `update`: a parameter has no
        role or unknown axes, or its role has no factor; the error names its path.

    Example:
      >>> import jax.numpy as jnp
      >>> import optax
      >>> from lvp import optim, parametrization
      >>> table = parametrization.table("lvp", width=4, vocab=8)  # embedding × √4
      >>> tx = optax.chain(optax.sgd(1.0), optim.scale_by_role(table))
      >>> gradients = {"embedding": {"embedding": jnp.ones((8, 4))}}
      >>> tx.update(gradients, tx.init(gradients))[0]["embedding"]["embedding"][0, 0].item()
      -2.0
    """
    roles.check_declarations(declarations)
    if isinstance(factors, Table):
        factors = {row.role: row.lr_multiplier for row in factors.rows}
    else:
        check_roles("factors", factors, (*roles.ROLES, *(declaration.role for declaration in declarations)))
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
    """Returns the role of every parameter of a tree.

    Args:
      name: what the caller calls `known`, for the error.
      known: mapping with an entry for every role of the tree.

    Raises:
      InputError: a parameter has no role or unknown axes; `known` has no entry for its role.
    """
    described = roles.classify(tree, extra=declarations)
    for leaf in jax.tree.leaves(described):
        if leaf.role not in known:
            raise InputError(
                f"{name} has no {leaf.role!r}, the role of parameter {leaf.path!r}: add the role to {name}, or correct "
                "the declaration"
            )
    return jax.tree.map(lambda leaf: leaf.role, described)


def factories_of(
    factory: Factory | Mapping[str, Factory], needed: Sequence[str], known: Sequence[str]
) -> dict[str, Factory]:
    """Role → factory: the same factory for all roles, or the given mapping.

    A tied matrix without a factory takes the embedding's.

    Args:
      factory: a factory, or role → factory.
      needed: the roles that must have a factory.
      known: the roles that may have a factory.

    Raises:
      InputError: a needed role has no factory; a role is unknown; a factory is not callable, or is a partial that binds
        `learning_rate` or an option that the function does not have.
    """
    if not isinstance(factory, Mapping):
        check_factory(factory)
        return dict.fromkeys(needed, factory)
    check_roles("factory", factory, known)
    if "embedding" in factory:
        factory = {"tied": factory["embedding"], **factory}
    if missing := [role for role in needed if role not in factory]:
        raise InputError(f"factory has no {missing[0]!r}: give a factory for each of {', '.join(needed)}")
    for own in factory.values():
        check_factory(own)
    return {role: factory[role] for role in needed}


def check_factory(factory: Any) -> None:
    """Checks that a factory is callable and leaves `learning_rate` open.

    Raises:
      InputError: the factory is not callable (a transformation, for example), or is a partial that binds
        `learning_rate` or an option that the function does not have.
    """
    if not callable(factory):
        raise InputError(f"factory must be a function such as optax.adam, not its result: got {factory!r}")
    if _rates.bound(factory, "learning_rate") is not None:
        name = _rates.name_of(factory)
        raise InputError(f"learning_rate is bound in a partial of {name}: remove it; each role has its own rate")
    if unknown := _rates.unknown_options(factory):
        raise InputError(
            f"factory {_rates.name_of(factory)} has no parameter {unknown[0]!r}: remove it from the partial"
        )


def check_roles(name: str, mapping: Any, known: Sequence[str]) -> None:
    """Checks that `mapping`, the argument called `name`, maps known roles.

    Raises:
      InputError: `mapping` is not a mapping, or a role is unknown.
    """
    if not isinstance(mapping, Mapping):
        raise InputError(f"{name} must map roles to values, got {mapping!r}")
    if other := [role for role in mapping if role not in known]:
        raise InputError(f"{name}: unknown role {other[0]!r}; roles are {tuple(dict.fromkeys(known))}")


def decays_by_role(weight_decay: Any, decaying: Collection[str], known: Sequence[str]) -> dict[str, Any]:
    """Role → weight decay: the given mapping, or one value for the roles `decaying`.

    Raises:
      InputError: a role is unknown; a decay is negative, not finite or not a scalar.
    """
    if weight_decay is None:
        return {}
    if not isinstance(weight_decay, Mapping):
        _rates.check("weight_decay", weight_decay)
        return dict.fromkeys(decaying, weight_decay)
    check_roles("weight_decay", weight_decay, known)
    for role, value in weight_decay.items():
        _rates.check(f"weight_decay[{role!r}]", value)
    return dict(weight_decay)


def decay_of(factory: Factory, value: Any) -> dict[str, Any]:
    """The keyword argument for a factory's weight decay, 0.0 for None; empty if the factory has no such parameter.

    Raises:
      InputError: the factory has no such parameter and the value is not None; a partial binds the decay.
    """
    name = _rates.name_of(factory)
    if _rates.bound(factory, "weight_decay") is not None:
        raise InputError(f"weight_decay is bound in a partial of {name}: pass it here as weight_decay= instead")
    if _rates.accepts(factory, "weight_decay"):
        return {"weight_decay": 0.0 if value is None else value}
    if value is not None:
        raise InputError(
            f"weight_decay: factory {name} has no such parameter; use a factory with weight decay, such as "
            "optax.adamw, or give weight_decay by role"
        )
    return {}
