"""Optimizers for a target size, from settings tuned at a base size.

    import optax
    from lvp import optim
    from lvp.models.configs import DecoderConfig, forward_multipliers
    from lvp.parametrization.scaling import Shape, scale

    base = Shape(width=64, vocab=8192, depth=4, batch=16_384)
    target = Shape(width=512, vocab=32768, depth=16, batch=65_536)
    scaling = scale(base, target, "lvp", axes={"batch": "sqrt_rate"})
    tx = optim.transfer(optax.adamw, scaling, 3e-3, weight_decay=0.1)  # the hidden matrices' rate at the base
    print(scaling)  # the factors; optim.describe(tx, params) has the settings of every parameter
    config = DecoderConfig(32768, 512, layers=16, **forward_multipliers(tx.table))

`lvp.parametrization.axes` has the rules and their sources. The model must apply the forward multipliers of the table
and multiply the output of every residual branch by `tx.table.branch_multiplier`.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import optax

from lvp.errors import InputError, shown
from lvp.optim import rates as _rates
from lvp.optim.by_role import Factory, decays_by_role, factories_of
from lvp.optim.parametrized import Parametrized, parametrized
from lvp.parametrization import Table
from lvp.parametrization.axes import Factors
from lvp.parametrization.rules import PAPER_RULES
from lvp.parametrization.scaling import Scaling, check_own_rates
from lvp.roles import Declaration


class Transferred(Parametrized):
    """The result of `transfer`: a `Parametrized` with its `scaling`.

    Attributes:
      scaling: the factors on the base's settings, a `lvp.parametrization.scaling.Scaling`.
    """

    scaling: Scaling


def transfer(
    factory: Factory | Mapping[str, Factory],
    scaling: Scaling,
    learning_rate: optax.ScalarOrSchedule,
    *,
    weight_decay: Any = None,
    decay: str | None = None,
    b1: float | None = None,
    b2: float | None = None,
    eps: float | None = None,
    peak_learning_rate: Any = None,
    declarations: Sequence[Declaration] = (),
    **kwargs: Any,
) -> Transferred:
    """Returns the optimizer for the target of a scaling, with every role's settings derived from those at its base.

    Args:
      factory: a factory, or role → factory, as in `parametrized`, with `b1`, `b2` or `eps` if a rule changes them.
      scaling: of `lvp.parametrization.scaling.scale`: the sizes, the rules, and what was tuned at the base.
      learning_rate: the hidden matrices' rate tuned at the base: number, scalar array or schedule.
      weight_decay: λ tuned at the base, number or scalar array, of the roles whose row decays; or role → λ, where
        missing roles do not decay. None means no decay.
      decay: "coupled" or "independent", as in `parametrized`; None takes the mode of the decay rule, or "coupled".
      b1, b2, eps: β₁, β₂ and ε tuned at the base. None takes the factory's defaults.
      peak_learning_rate, declarations, **kwargs: as in `parametrized`. The axes do not change the settings in `rates`.

    Returns:
      A `Transferred`.

    Raises:
      InputError: `scaling` is not a `Scaling`; its rule is "nanochat", whose hidden rate is Muon's, and one factory
        trains all roles; its decay rule is "constant_timescale" and `rates` has a role that decays; there is a decay
        rule and no `weight_decay`, or a `decay` of the other kind; a rule changes β or ε of a factory that does not
        have it; a β leaves [0, 1); a role is unknown, has no factory, or is declared and has no row; a factory of optax
        makes updates in another unit and its role has no rate in `rates`; a rate, decay, peak or ε is negative, not
        finite or not a scalar; the peak of an independent decay is unknown or 0; a factory is not callable, does not
        take an argument (`weight_decay` too), or is a partial that binds `learning_rate`, `update_multiplier`,
        `weight_decay` or an option that the function does not have. From `init`: a parameter has no role or unknown
        axes, or its role has no row; a declaration decides no parameter's role; a matrix has another width or
        vocabulary.

    Example:
      >>> import optax
      >>> from lvp import optim
      >>> from lvp.parametrization.scaling import Shape, scale
      >>> scaling = scale(Shape(width=64, vocab=8192), Shape(width=256, vocab=8192), "lvp")
      >>> tx = optim.transfer(optax.adamw, scaling, 3e-3, weight_decay=0.1)
      >>> {role: round(settings["learning_rate"], 6) for role, settings in tx.settings.items()}
      {'embedding': 0.012, 'position': 0.012, 'hidden': 0.00075, 'output': 0.00075, 'vector': 0.00075}
    """
    if not isinstance(scaling, Scaling):
        raise InputError(f"scaling must be the result of lvp.parametrization.scaling.scale, got {shown(scaling)}")
    chosen = scaling.table
    of_rule = [chosen[scaled.role] for scaled in scaling.roles]
    check_own_rates(scaling.axes, of_rule, _rates.unwrapped_arguments(kwargs).get("rates") or {})
    built = parametrized(
        _factories(factory, chosen, scaling, {"b1": b1, "b2": b2, "eps": eps}),
        chosen,
        learning_rate,
        weight_decay=_decays(weight_decay, chosen, scaling),
        decay=_mode(decay, scaling, weight_decay),
        peak_learning_rate=peak_learning_rate,
        declarations=declarations,
        **kwargs,
    )
    made = Transferred(*built)
    made.__dict__.update(vars(built), scaling=scaling)
    return made


def _factories(
    factory: Factory | Mapping[str, Factory], chosen: Table, scaling: Scaling, tuned: Mapping[str, float | None]
) -> dict[str, Factory]:
    """Role → factory with β and ε at the target."""
    paper = PAPER_RULES.get(scaling.rule)
    if paper is not None and paper.muon and not isinstance(factory, Mapping):
        raise InputError(
            f"rule {scaling.rule!r} has Muon's rate for hidden matrices, and factory {_rates.name_of(factory)} "
            "trains every role: map roles to factories, or use another rule"
        )
    factories = factories_of(factory, tuple(chosen), tuple(chosen))
    return {role: _with_options(build, role, scaling, tuned) for role, build in factories.items()}


def _mode(decay: str | None, scaling: Scaling, weight_decay: Any) -> str:
    """The decay mode of `parametrized`."""
    name = scaling.axes["decay"]
    if name != "none" and weight_decay is None:
        raise InputError(f"decay rule {name!r} needs weight_decay: give the value tuned at the base")
    needed = "independent" if scaling.independent else "coupled"
    if decay is not None and name != "none" and decay != needed:
        raise InputError(
            f"decay rule {name!r} needs decay={needed!r}, got {decay!r}: remove decay, or use another rule"
        )
    return needed if decay is None else decay


def _decays(weight_decay: Any, chosen: Table, scaling: Scaling) -> Any:
    """Role → λ at the target."""
    if weight_decay is None:
        return None
    decays = decays_by_role(weight_decay, [row.role for row in chosen.rows if row.decay], tuple(chosen))
    factors = {scaled.role: scaled.decay for scaled in scaling.roles}
    return {role: _rates.scaled(value, factors.get(role, 1.0)) for role, value in decays.items()}


def _with_options(build: Factory, role: str, scaling: Scaling, tuned: Mapping[str, float | None]) -> Factory:
    """The factory with β and ε at the target, if they are given or change."""
    values = {name: _value(build, name, given) for name, given in tuned.items()}
    known = role in {scaled.role for scaled in scaling.roles}  # the axes do not change the caller's own roles
    beta, epsilon = (scaling.beta, scaling[role].epsilon) if known else (1.0, 1.0)
    changed = {"b1": beta, "b2": beta, "eps": epsilon}
    for name, factor in changed.items():
        if values[name] is None and factor != 1.0:
            what = "eps" if name == "eps" else f"1 − {name}"
            axes = _changing(scaling, role, name)
            rules = " and ".join(f"{axis}={scaling.axes[axis]!r}" for axis in axes)
            remedy = {axis: "sqrt_rate" if axis == "batch" else "none" for axis in axes}
            raise InputError(
                f"axis rules {rules} multiply {what} by {factor:.4g}, and factory {_rates.name_of(build)} of role "
                f"{role!r} has no {name}: use axes={remedy}"
            )
    if beta != 1.0:
        values["b1"], values["b2"] = scaling.betas(values["b1"], values["b2"])
    if values["eps"] is not None:
        values["eps"] *= epsilon
    options = {name: values[name] for name in changed if tuned[name] is not None or changed[name] != 1.0}
    return functools.partial(build, **options) if options else build


def _changing(scaling: Scaling, role: str, name: str) -> list[str]:
    """The axes whose rules change b1, b2 or eps of a role."""

    def factor(part: Factors) -> float:
        return part.epsilon.get(role, 1.0) if name == "eps" else part.beta

    return [axis for axis, part in scaling.factors.items() if factor(part) != 1.0]


def _value(build: Factory, name: str, given: float | None) -> Any:
    """β or ε at the base: the given value, or the factory's default; None if the factory has no such parameter."""
    if given is not None:
        _rates.check(name, given)
        return given
    return _rates.default_of(build, name)
