"""Optimizers for a target size, from settings tuned at a base size.

    import optax
    from lvp import optim
    from lvp.models.configs import DecoderConfig, forward_multipliers
    from lvp.parametrization import Shape

    tx = optim.transfer(
        optax.adamw,
        base=Shape(width=64, vocab=8192, depth=4, batch=16_384),
        target=Shape(width=512, vocab=32768, depth=16, batch=65_536),
        rule="lvp",
        axes={"batch": "sqrt_rate"},
        learning_rate=3e-3,  # of the hidden matrices at the base
        weight_decay=0.1,
    )
    print(tx.scaling)  # the factors; optim.describe(tx, params) has the settings of every parameter
    config = DecoderConfig(32768, 512, layers=16, **forward_multipliers(tx.table))

`lvp.parametrization.axes` has the rules and their sources. The model applies the forward multipliers of the table and
multiplies the output of every residual branch by `tx.table.branch_multiplier`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optax

from lvp.errors import InputError
from lvp.optim import rates as _rates
from lvp.optim.by_role import partition
from lvp.optim.parametrized import Parametrized, parametrized
from lvp.parametrization.axes import Shape
from lvp.parametrization.rules import PAPER_RULES, Rule
from lvp.parametrization.scaling import Scaling, scale
from lvp.roles import Declaration


class Transferred(Parametrized):
    """The result of `transfer`: a `Parametrized` with its `scaling`.

    Attributes:
      scaling: the factors on the base's settings, a `lvp.parametrization.scaling.Scaling`.
    """

    scaling: Scaling


def transfer(
    factory: Callable[..., optax.GradientTransformation] = optax.adamw,
    *,
    base: Shape,
    target: Shape,
    rule: Rule,
    learning_rate: optax.ScalarOrSchedule,
    axes: Mapping[str, str] | None = None,
    embedding_ratio: float | None = None,
    init_std: Mapping[str, float] | None = None,
    kappa: float | None = None,
    token_rows: str = "plain",
    weight_decay: Any = None,
    decay: str | None = None,
    b1: float | None = None,
    b2: float | None = None,
    eps: float | None = None,
    peak_learning_rate: Any = None,
    declarations: Sequence[Declaration] = (),
    **kwargs: Any,
) -> Transferred:
    """Builds `factory` once per role with the settings of `target`, from those tuned at `base`.

    Args:
      factory: as in `parametrized`. A batch or horizon rule that changes β₁ and β₂ needs the parameters `b1` and `b2`,
        and a rule that changes ε needs `eps`.
      base, target: sizes of the tuned and of the new model.
      rule: the rule of width and vocabulary, as in `lvp.parametrization.table`.
      learning_rate: the hidden matrices' rate tuned at the base: number, scalar array or schedule.
      axes, embedding_ratio, init_std, kappa, token_rows: as in `lvp.parametrization.scaling.scale`.
      weight_decay: λ tuned at the base, number or scalar array. None means no decay.
      decay: "coupled" or "independent", as in `parametrized`. None takes the mode of the decay rule: "independent" for
        "independent_inverse_width", else "coupled".
      b1, b2, eps: β₁, β₂ and ε tuned at the base. None takes the factory's defaults.
      peak_learning_rate, declarations: as in `parametrized`.
      **kwargs: passed to the factory for every role.

    Returns:
      A `Transferred`: an optax transformation with `table`, `settings` and `scaling`.

    Raises:
      InputError: errors of `scale` and `parametrized`; a decay mode that contradicts the decay rule, or a decay rule
        without weight_decay; β or ε that a rule changes and the factory does not have; a β that leaves [0, 1); rule
        "nanochat", whose hidden rate is Muon's, with one factory for all roles.
    """
    scaling = scale(
        base,
        target,
        rule,
        axes=axes,
        kappa=kappa,
        token_rows=token_rows,
        embedding_ratio=embedding_ratio,
        init_std=init_std,
    )
    _refuse_one_factory(factory, scaling)
    built = parametrized(
        factory,
        scaling.table,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        decay=_mode(decay, scaling, weight_decay),
        peak_learning_rate=peak_learning_rate,
        declarations=declarations,
        **kwargs,
    )
    tuned = {"b1": b1, "b2": b2, "eps": eps}
    settings = {role: _settings(factory, role, own, scaling, tuned) for role, own in built.settings.items()}
    made = Transferred(*partition(factory, settings, declarations=declarations, **kwargs))
    made.table, made.settings, made.declarations = scaling.table, settings, declarations
    made.scaling = scaling
    return made


def _refuse_one_factory(factory: Any, scaling: Scaling) -> None:
    paper = PAPER_RULES.get(scaling.rule)
    if paper is not None and paper.muon and not isinstance(factory, Mapping):
        raise InputError(
            f"rule {scaling.rule!r} has Muon's rate for hidden matrices, and factory {_rates.name_of(factory)} trains "
            "every role: map roles to factories, or use another rule"
        )


def _mode(decay: str | None, scaling: Scaling, weight_decay: Any) -> str:
    """The decay mode of `parametrized`."""
    name = scaling.axes["decay"]
    if name != "none" and weight_decay is None:
        raise InputError(f"decay rule {name!r} scales weight_decay, which is None: give the λ tuned at the base")
    needed = "independent" if scaling.independent else "coupled"
    if decay is not None and name != "none" and decay != needed:
        raise InputError(f"decay {decay!r} contradicts decay rule {name!r}, which is for decay {needed!r}: use that")
    return needed if decay is None else decay


def _settings(
    factory: Any, role: str, own: Mapping[str, Any], scaling: Scaling, tuned: Mapping[str, float | None]
) -> dict[str, Any]:
    """The factory's keyword arguments for one role."""
    build = factory[role] if isinstance(factory, Mapping) else factory
    settings, factors = dict(own), scaling[role]
    if "weight_decay" in settings and factors.decay != 1.0:
        settings["weight_decay"] = _rates.scaled(settings["weight_decay"], factors.decay)
    values = {name: _value(build, name, given) for name, given in tuned.items()}
    changed = {"b1": scaling.beta, "b2": scaling.beta, "eps": factors.epsilon}
    for name, factor in changed.items():
        if values[name] is None and factor != 1.0:
            what = "eps" if name == "eps" else f"1 − {name}"
            raise InputError(
                f"axes {dict(scaling.axes)} multiply {what} by {factor:.4g}, and factory {_rates.name_of(build)} has "
                f"no {name}: choose rules that leave it, such as batch 'sqrt_rate' and depth 'none'"
            )
    if scaling.beta != 1.0:
        values["b1"], values["b2"] = scaling.betas(values["b1"], values["b2"])
    if values["eps"] is not None:
        values["eps"] *= factors.epsilon
    given = {name for name, value in tuned.items() if value is not None}
    return settings | {name: values[name] for name in changed if name in given or changed[name] != 1.0}


def _value(build: Callable, name: str, given: float | None) -> Any:
    """β or ε at the base: the given one, or the factory's default; None if the factory has no such parameter."""
    if given is not None:
        _rates.check(name, given)
        return given
    parameter = inspect.signature(build).parameters.get(name)
    return None if parameter is None or parameter.default is parameter.empty else parameter.default
