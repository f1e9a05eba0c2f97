"""A table's learning rates and decays for any optax factory.

Rate: a role's rate is η_t · c, the schedule times the role's `lr_multiplier` c. The factory receives this product, so
it acts before any projection. The table defines η; for a rule given by name, η is the hidden matrices' rate.

Decay: `weight_decay` λ applies to the roles whose row decays (matrices, not vectors). Per step θ shrinks by

- "coupled": η_t · c · λ, the factory's own rate × weight_decay;
- "independent": (η_t / max_τ η_τ) · λ, without the role's factor and the learning rate: λ is a rate per step.

Both hold for factories that subtract rate × weight_decay × θ (optax.adamw, nadamw, adamaxw, lion, adan). They do not
hold for factories that add the decay to the gradient or normalise it (optax.lamb, lars, novograd, adadelta). No
transform multiplies the updates afterwards, so no further factor acts on the decay.

A factory with a parameter `update_multiplier` (`lion_ar`, `rotational_adamw`) makes *relative* updates: its step is
an angle that depends on the root of rate times decay. It receives η_t without a factor and the role's factor c as
`update_multiplier`, so that c multiplies the relative update once, outside the root. It receives λ, or λ / max η for
independent decay; the angle at the peak is then √(2 λ).

The peak max_τ η_τ is `peak_learning_rate`, else a schedule's `.peak`. A number or array is its own peak. A schedule
that is *injected* (`optax.inject_hyperparams`) arrives as an array for each step: pass its peak, because otherwise
independent decay would be λ at every step. A role's scaled schedule carries its scaled `.peak`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optax

from lvp.errors import InputError
from lvp.optim import rates as _rates
from lvp.optim.by_role import check_factory, decays_of, partition
from lvp.parametrization import RULES, Rule, Table, table
from lvp.roles import Declaration

# Factories whose update is proportional to the gradient.
_PLAIN_SGD = (optax.sgd, optax.noisy_sgd, optax.optimistic_gradient_descent, optax.polyak_sgd)


class Parametrized(optax.GradientTransformationExtraArgs):
    """The result of `parametrized`: a transformation that keeps its table and settings for `describe`.

    Attributes:
      table: the `Table`. settings: role → the factory's keyword arguments. declarations: the given declarations.
    """

    table: Table
    settings: Mapping[str, Mapping[str, Any]]
    declarations: Sequence[Declaration]


def parametrized(
    factory: Callable[..., optax.GradientTransformation],
    rule: Rule | Table,
    *,
    learning_rate: optax.ScalarOrSchedule,
    width: int | None = None,
    vocab: int | None = None,
    frequencies: Any = None,
    kappa: float | None = None,
    normalize: str | None = None,
    base_width: int | None = None,
    base_vocab: int | None = None,
    token_rows: str | None = None,
    weight_decay: Any = None,
    decay: str = "coupled",
    peak_learning_rate: Any = None,
    declarations: Sequence[Declaration] = (),
    **kwargs: Any,
) -> Parametrized:
    """Builds `factory` once per role, with that role's learning rate and decay (see the module's docstring).

    Args:
      factory: an optax factory or a partial, with the keyword `learning_rate` (and `weight_decay`).
      rule: a `Table` of `lvp.parametrization`, which defines learning_rate; or a rule as in
        `lvp.parametrization.table`: a name or your own function.
      learning_rate: number, scalar array (traced, injected) or schedule.
      width, vocab, frequencies, kappa, normalize, base_width, base_vocab, token_rows: arguments of
        `lvp.parametrization.table`, for a rule only, which requires width and vocab. The default of normalize is
        "hidden", or "paper" with base_width.
      weight_decay: λ, number or scalar array. None means no decay: the factory is given 0.0 instead of its own default
        (1e-4 for optax.adamw).
      decay: "coupled" or "independent".
      peak_learning_rate: max_τ η_τ, required for independent decay with a schedule without `.peak`.
      declarations: `lvp.roles.Declaration`s that take precedence over the defaults.
      **kwargs: passed to the factory for every role.

    `optax.inject_hyperparams(functools.partial(parametrized, optax.adamw, table))(learning_rate=…)` works. Pass a
    `Table` there, because a rule's width would be injected as an array too.

    Raises:
      InputError: errors of `table` and `by_role`; shapes with a Table, or missing shapes with a rule; plain SGD with
        one of lvp's rules other than "sp"; an unknown decay; an independent decay whose peak is unknown or 0.
    """
    # inject_hyperparams passes the arguments bound to **kwargs as a single argument named "kwargs".
    kwargs = {**kwargs.pop("kwargs", {}), **kwargs}
    shape: dict[str, Any] = {"width": width, "vocab": vocab, "base_width": base_width, "base_vocab": base_vocab}
    shape["token_rows"] = token_rows
    chosen = _table(rule, normalize=normalize, frequencies=frequencies, kappa=kappa, **shape)
    check_factory(factory)
    _refuse_plain_sgd(factory, chosen)
    _rates.check("learning_rate", learning_rate)
    if peak_learning_rate is not None:
        _rates.check_peak(peak_learning_rate)
    settings = _settings(factory, chosen, learning_rate, weight_decay, decay, peak_learning_rate)
    made = Parametrized(*partition(factory, settings, declarations=declarations, **kwargs))
    made.table, made.settings, made.declarations = chosen, settings, declarations
    return made


def _settings(
    factory: Callable, chosen: Table, learning_rate: Any, weight_decay: Any, decay: str, peak: Any
) -> dict[str, dict[str, Any]]:
    """Role → the factory's keyword arguments for its rate and decay (see the module's docstring)."""
    relative = _rates.accepts(factory, "update_multiplier")
    if relative and _rates.bound(factory, "update_multiplier"):
        name = _rates.name_of(factory)
        raise InputError(f"update_multiplier is bound in a partial of {name}: remove it, it is the role's factor")
    decays = _decays(chosen, learning_rate, weight_decay, decay, peak, relative)
    decays = decays_of(factory, dict.fromkeys(chosen), decays)
    if not relative:
        rates = {
            row.role: {"learning_rate": _rates.scaled(learning_rate, row.lr_multiplier, peak)} for row in chosen.rows
        }
    else:
        shared = {"learning_rate": learning_rate}
        if peak is not None and _rates.accepts(factory, "peak_learning_rate"):
            shared["peak_learning_rate"] = peak
        rates = {row.role: shared | {"update_multiplier": row.lr_multiplier} for row in chosen.rows}
    return {role: rate | decays[role] for role, rate in rates.items()}


def _table(rule: Rule | Table, *, normalize: str | None, **shape: Any) -> Table:
    if isinstance(rule, Table):
        given = [name for name, value in {"normalize": normalize, **shape}.items() if value is not None]
        if given:
            raise InputError(f"{given[0]} is for a rule's name; this Table already has it: remove {given[0]}")
        return rule
    for name in ("width", "vocab"):
        if shape[name] is None:
            raise InputError(f"{name} is required with rule {_said(rule)} (or give a Table of lvp.parametrization)")
    if normalize is None:
        normalize = "hidden" if shape["base_width"] is None else "paper"
    shape["token_rows"] = shape["token_rows"] or "plain"
    return table(rule, normalize=normalize, **shape)


def _said(rule: Rule) -> str:
    return _rates.name_of(rule) if callable(rule) else repr(rule)


def _refuse_plain_sgd(factory: Callable, chosen: Table) -> None:
    if chosen.rule in RULES and chosen.rule != "sp" and _rates.unwrapped(factory) in _PLAIN_SGD:
        raise InputError(
            f"rule {chosen.rule!r} does not hold for {_rates.name_of(factory)}: the tables are for updates "
            "of order one per coordinate (Adam, Lion), SGD's are proportional to the gradient; use rule 'sp'"
        )


def _decays(
    chosen: Table, learning_rate: Any, weight_decay: Any, decay: str, peak: Any, relative: bool
) -> dict[str, Any] | None:
    """Role → the factory's decay, to be multiplied by the role's rate (by η_t if `relative`); None for no decay."""
    if decay not in ("coupled", "independent"):
        raise InputError(f"decay must be 'coupled' or 'independent', not {decay!r}")
    if weight_decay is None:
        return None
    _rates.check("weight_decay", weight_decay)
    rows = [row for row in chosen.rows if row.decay]
    if decay == "coupled":
        return {row.role: weight_decay for row in rows}
    peak = _rates.peak_of(learning_rate, peak)
    _rates.check_peak(peak)
    # The factory multiplies by η_t · c, so dividing by max η · c gives η_t / max η · λ.
    return {row.role: _rates.scaled(weight_decay, 1 / (peak * (1 if relative else row.lr_multiplier))) for row in rows}
