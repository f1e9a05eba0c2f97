"""A table's learning rates and decays for optax factories.

Rate: a role's rate is η_t · c, the schedule times the role's `lr_multiplier` c. The factory receives this product, so
it acts before any projection. η is the rate of the hidden matrices, at the size that the table names.

Anchor: the multipliers of a rule are ratios of rates of Adam-like updates, which are of order one per coordinate. η is
therefore the rate that *Adam* has at the hidden matrices, even if another optimizer trains them. Muon's rate is in
another unit: its update of a d × d matrix is about d^(−1/2) per coordinate. Muon's rate is therefore a separate
argument, `rates={"hidden": …}`, and no multiplier acts on it. `learning_rate` then sets the rates of the other roles
only, and the rule does not give their ratio to Muon's rate. There are two exceptions. Under the rule "nanochat", the
hidden rate is Muon's. With `consistent_rms`, the update of `optax.contrib.muon` has this RMS per coordinate (0.2 is
Adam's, Liu et al. 2025, arXiv 2502.16982), and its rate in the hidden matrices is η.

Decay: `weight_decay` λ applies to the roles whose row decays (matrices, not vectors), or is given by role.
Per step θ shrinks by

- "coupled": η_t · c · λ, the factory's own rate × weight_decay;
- "independent": (η_t / max_τ η_τ) · λ, without the role's factor and the learning rate: λ is a rate per step.

Both hold for factories that subtract rate × weight_decay × θ (optax.adamw, nadamw, adamaxw, lion, adan). They do not
hold for factories that add the decay to the gradient or normalise it (optax.lamb, lars, novograd, adadelta). No
transform multiplies the updates afterwards, so no further factor acts on the decay.

A factory with a parameter `update_multiplier` (`lion_ar`, `rotational_adamw`) makes *relative* updates: its step is
an angle that depends on the root of rate times decay. It receives η_t without a factor and the role's factor c as
`update_multiplier`, so that c multiplies the relative update once, outside the root. It receives λ, or λ / max η for
independent decay; the angle at the peak is then proportional to √(2 λ).

The peak max_τ η_τ is `peak_learning_rate`, else a schedule's `.peak`. A number is its own peak. An array is not: a rate
that is *injected* (`optax.inject_hyperparams`) arrives as an array for each step. Pass the peak of an array. A role's
scaled schedule carries its scaled `.peak`.

One factory per role: `parametrized` takes role → factory, such as Muon for hidden matrices and Adam for the rest.

    optim.parametrized(
        dict.fromkeys(ROLES, optax.adamw) | {"hidden": optax.contrib.muon},
        "lvp", 3e-4, width=512, vocab=32768, rates={"hidden": 0.02}, weight_decay=0.1,
    )

A partial carries a role's own options (β, ε), and a function that returns a chain carries its clipping. A factory of
optax whose update is not of order one per coordinate (not in `ADAM_LIKE`) is refused for a role without its own rate,
under `RULES` except "sp". Other functions are not refused: their unit is not known.

`optax.inject_hyperparams(functools.partial(parametrized, optax.adamw, table))(learning_rate=…)` works. Pass a `Table`
there, because a rule's width would be injected as an array too.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import optax

from lvp import roles
from lvp.errors import InputError, refuse
from lvp.optim import rates as _rates
from lvp.optim.by_role import Factory, check_roles, decay_of, decays_by_role, describe_tree, factories_of, partition
from lvp.parametrization import RULES, Rule, Table
from lvp.parametrization import table as rule_table

_MASKS = ("mask", "weight_decay_mask")  # parameters of optax's factories: where the decay applies
OPTIONS = {"b1": "β₁", "b2": "β₂", "eps": "ε"}  # parameter of optax's Adam-like factories → its column in `describe`
# Factories of optax and optax.contrib whose update is of order one per coordinate, whatever the scale of the gradient.
# This is the unit of a rule's rates. optax's other factories need a rate of their own.
ADAM_LIKE = frozenset(
    "acprop adabelief adam adamax adamaxw adamw adan ademamix adopt amsgrad lion nadam nadamw optimistic_adam "
    "optimistic_adam_v2 radam rmsprop schedule_free_adamw sign_sgd signum sophia yogi".split()
)


class Parametrized(optax.GradientTransformationExtraArgs):
    """The result of `parametrized`: a transformation that keeps its table and settings for `describe`.

    Attributes:
      table: the `Table`.
      settings: role → the factory's arguments for rate and decay.
      options: role → values of `OPTIONS`, given or by default; None if the factory does not have the parameter.
      masks: role → the factory's mask of the decay, None without one.
      declarations: as given.
    """

    table: Table
    settings: Mapping[str, Mapping[str, Any]]
    options: Mapping[str, Mapping[str, Any]]
    masks: Mapping[str, Any]
    declarations: Sequence[roles.Declaration]


def parametrized(
    factory: Factory | Mapping[str, Factory],
    table: Table | Rule,
    learning_rate: optax.ScalarOrSchedule,
    *,
    width: int | None = None,
    vocab: int | None = None,
    rates: Mapping[str, optax.ScalarOrSchedule] | None = None,
    weight_decay: Any = None,
    decay: str = "coupled",
    peak_learning_rate: Any = None,
    declarations: Sequence[roles.Declaration] = (),
    **kwargs: Any,
) -> Parametrized:
    """Returns an optimizer that calls a factory per role, with that role's rate and decay (see the module's docstring).

    Args:
      factory: an optax factory or a partial, with the keyword `learning_rate` (and `weight_decay`), for all roles; or
        role → factory, for every role of the table.
      table: a `lvp.parametrization.Table`; or the name or function of a rule, short for
        `lvp.parametrization.table(rule, width=width, vocab=vocab)`, with `tied=True` if a declaration has this role.
      learning_rate: η, the rate of the hidden matrices (`Table.learning_rate` says at which size): number, scalar array
        (traced, injected) or schedule.
      width, vocab: of the model. Required with a rule, not accepted with a Table.
      rates: role → rate in place of η · c. It is required for updates in another unit, such as Muon's.
      weight_decay: λ of the roles whose row decays; or role → λ, where missing roles do not decay. None means no decay:
        the factory is given 0.0 instead of its own default (1e-4 for optax.adamw).
      decay: "coupled" or "independent".
      peak_learning_rate: max_τ η_τ, required for independent decay and for `lion_ar`, with a schedule without `.peak`
        and with an array.
      declarations: `lvp.roles.Declaration`s that come before the defaults.
      **kwargs: passed to every factory.

    Returns:
      A `Parametrized`, which `describe` and `initialize` can read.

    Raises:
      InputError: the rule is unknown, or its function gives no valid row for a role; a size is not a whole number in
        range, is missing with a rule, or is given with a Table; a role is unknown, has no factory, or is declared and
        has no row; a factory of optax makes updates in another unit (see above) and its role has no rate in `rates`; a
        rate, decay or peak is negative, not finite or not a scalar; `decay` is unknown; the peak of an independent
        decay is unknown or 0; a factory is not callable, does not take an argument (`weight_decay` too), or is a
        partial that binds `learning_rate`, `update_multiplier`, `weight_decay` or an option that the function does not
        have; `b1` or `b2` is outside [0, 1), or `eps` is negative. From `init`: a parameter has no role or unknown
        axes, or its role has no row; a declaration decides no parameter's role; a matrix has another width or
        vocabulary; `rates` or `weight_decay` names the embedding or the head of a model with a tied matrix.

    Example:
      >>> import optax
      >>> from lvp import optim
      >>> tx = optim.parametrized(optax.adamw, "lvp", 3e-3, width=256, vocab=8192, weight_decay=0.1)
      >>> {role: round(settings["learning_rate"], 6) for role, settings in tx.settings.items()}
      {'embedding': 0.048, 'position': 0.048, 'hidden': 0.003, 'output': 0.003, 'vector': 0.003}
    """
    kwargs = _rates.unwrapped_arguments(kwargs)
    roles.check_declarations(declarations)
    chosen = _table(table, width, vocab, any(declaration.role == "tied" for declaration in declarations))
    for declaration in declarations:
        check_has_row(chosen, declaration.role, f"of the declaration {declaration.pattern!r}")
    factories = factories_of(factory, tuple(chosen), tuple(chosen))
    of_rates = _rates_by_role(factories, chosen, learning_rate, rates, peak_learning_rate, kwargs)
    settings = _settings_by_role(factories, chosen, of_rates, weight_decay, decay)
    named = [set(given) for given in (rates, weight_decay) if isinstance(given, Mapping)]

    def check(leaves: Sequence[roles.Leaf]) -> None:
        check_parameters(leaves, chosen)
        _check_tied({leaf.role for leaf in leaves}, named)

    made = Parametrized(*partition(factories, settings, declarations=declarations, check=check, **kwargs))
    made.table, made.settings, made.declarations = chosen, settings, declarations
    made.options = {role: {name: _option(own, kwargs, name) for name in OPTIONS} for role, own in factories.items()}
    made.masks = {role: _mask(own, kwargs) for role, own in factories.items()}
    return made


def _check_tied(present: set[str], named: Sequence[set[str]]) -> None:
    """Checks that no rate or decay is for an embedding or head instead of the tied matrix that replaces them.

    Raises:
      InputError: there is such a rate or decay, which would act on no parameter.
    """
    for given in named:
        lost = sorted(given & {"embedding", "output"} - present)
        if lost and "tied" in present - given:
            raise InputError(f"rates or weight_decay names {lost[0]!r}, but the model has one tied matrix: name 'tied'")


def _option(factory: Factory, kwargs: Mapping[str, Any], name: str) -> Any:
    """The value of a factory's parameter, given or by default; None if the factory does not have it."""
    return kwargs.get(name, _rates.default_of(factory, name))


def _mask(factory: Factory, kwargs: Mapping[str, Any]) -> Any:
    """The mask of a factory's decay; None without one."""
    masks = (_option(factory, kwargs, name) for name in _MASKS)
    return next((mask for mask in masks if mask is not None), None)


def described_under(
    rule: Table | Parametrized, params: Any, declarations: Sequence[roles.Declaration] | None
) -> tuple[Table, Any]:
    """Returns the table of a rule, and `roles.classify` of the parameters, for `describe` and `initialize`.

    Args:
      rule: a result of `parametrized`, or a `Table`.
      params: pytree of arrays or shapes.
      declarations: the caller's; None takes those of the rule.

    Raises:
      InputError: the rule is neither of the two (a chain, for example); a parameter has no role or unknown axes, or its
        role has no row; a matrix does not have the table's width or vocabulary; a declaration decides no parameter's
        role.
    """
    if not isinstance(rule, Table) and not hasattr(rule, "table"):
        raise InputError(
            f"rule must be a Table or the result of optim.parametrized itself, got {type(rule).__name__}: a chain, a "
            "wrapper or a tree function does not keep the settings of the parameters"
        )
    chosen = rule if isinstance(rule, Table) else rule.table
    if declarations is None:
        declarations = () if isinstance(rule, Table) else rule.declarations
    described = describe_tree(params, declarations)
    check_parameters(jax.tree.leaves(described), chosen)
    return chosen, described


def _rates_by_role(
    factories: Mapping[str, Factory], chosen: Table, learning_rate: Any, own: Any, peak: Any, kwargs: Mapping[str, Any]
) -> dict[str, tuple[Any, Any, Any]]:
    """Role → rate, multiplier and peak: η, c and max η, or the role's own rate, 1 and the rate's own peak."""
    own = {} if own is None else own
    check_roles("rates", own, tuple(chosen))
    for role, factory in factories.items():
        if role not in own:
            _refuse_other_units(role, factory, chosen, kwargs)
    _rates.check("learning_rate", learning_rate)
    for role, rate in own.items():
        _rates.check(f"rates[{role!r}]", rate)
    if peak is not None:
        _rates.check_peak(peak)
    given = {row.role: (learning_rate, row.lr_multiplier, peak) for row in chosen.rows}
    return given | {role: (rate, 1.0, None) for role, rate in own.items()}


def _settings_by_role(
    factories: Mapping[str, Factory],
    chosen: Table,
    of_rates: Mapping[str, tuple[Any, Any, Any]],
    weight_decay: Any,
    decay: str,
) -> dict[str, dict[str, Any]]:
    """Role → its factory's keyword arguments for rate and decay."""
    if decay not in ("coupled", "independent"):
        raise InputError(f"decay must be 'coupled' or 'independent', not {decay!r}")
    decays = decays_by_role(weight_decay, [row.role for row in chosen.rows if row.decay], tuple(chosen))
    return {
        role: _settings(factories[role], *of_rates[role], decays.get(role), decay == "independent") for role in chosen
    }


def _settings(factory: Factory, rate: Any, c: Any, peak: Any, weight_decay: Any, independent: bool) -> dict[str, Any]:
    """A factory's keyword arguments for its rate and decay (see the module's docstring)."""
    relative = _rates.accepts(factory, "update_multiplier")
    if relative and _rates.bound(factory, "update_multiplier") is not None:
        name = _rates.name_of(factory)
        raise InputError(f"update_multiplier is bound in a partial of {name}: remove it; parametrized sets it by role")
    if independent and weight_decay is not None:
        top = _rates.own_peak(rate, peak)
        # The factory multiplies by η_t · c, so dividing by max η · c gives η_t / max η · λ.
        weight_decay = _rates.scaled(weight_decay, 1 / (top * (1 if relative else c)))
    own = decay_of(factory, weight_decay)
    if not relative:
        return {"learning_rate": _rates.scaled(rate, c, peak)} | own
    if peak is not None and _rates.accepts(factory, "peak_learning_rate"):
        own["peak_learning_rate"] = peak
    return {"learning_rate": rate, "update_multiplier": c} | own


def check_has_row(chosen: Table, role: str, where: str) -> None:
    """Checks that a table has a row for a role.

    Raises:
      InputError: the table has no such row; the error contains `where`, the origin of the role.
    """
    if role not in tuple(chosen):
        raise InputError(_without_row(chosen, role, where))


def _without_row(chosen: Table, role: str, where: str) -> str:
    if role == "tied":
        return (
            f"table {chosen.rule} has no row for the role 'tied' {where}: give lvp.parametrization.table(…, tied=True)"
        )
    return (
        f"rule {chosen.rule} has no row for the role {role!r} {where}; its roles are {', '.join(chosen)}: give "
        f"table.with_rows(lvp.parametrization.Row({role!r}, init_std=…, lr_multiplier=…, decay=…)), or correct the role"
    )


def check_parameters(leaves: Sequence[roles.Leaf], chosen: Table) -> None:
    """Checks that a table has a row for every parameter, and that the parameters have its width and vocabulary.

    The fan-in of embedding, position, output and tied must be the width. The fan-in or the fan-out of a hidden matrix
    must be the width, as in attention and MLP. The tokens of embedding, output and tied must be the vocabulary, if the
    token axis is known. The sizes of parameters without neurons and of roles of your own are not checked. The table of
    `lvp.parametrization.uniform` does not depend on the sizes, so no size is checked.

    Raises:
      InputError: a role has no row, or a parameter has another size; the error names the paths.
    """
    refuse(problem for leaf in leaves for problem in _problems(leaf, chosen))


def _problems(leaf: roles.Leaf, chosen: Table) -> Iterator[str]:
    if leaf.role not in tuple(chosen):
        yield _without_row(chosen, leaf.role, f"of parameter {leaf.path!r}")
    if not leaf.fan_in or leaf.role not in (*roles.ROLES, "tied") or chosen.rule == "uniform":
        return
    named = f"parameter {leaf.path!r} of shape {leaf.shape} ({leaf.role})"
    fan_in, fan_out = leaf.size(leaf.fan_in), leaf.size(leaf.fan_out)
    if fan_in != chosen.width and (leaf.role != "hidden" or fan_out != chosen.width):
        sizes = f"fan-in {fan_in}" + (f" and fan-out {fan_out}" if leaf.role == "hidden" else "")
        stacks = ", declare the axes that stack layers (stacked)" if len(leaf.layer_axes) > 2 else ""
        yield (
            f"{named}: {sizes}, but width is {chosen.width}; give the model's width, correct the declaration's fan_in"
            f"{stacks}, or declare a role of its own with a row"
        )
    elif leaf.role in roles.VOCABULARY and leaf.vocab not in (None, chosen.vocab):
        yield (
            f"{named}: {leaf.vocab} tokens, but vocab is {chosen.vocab}; give the model's vocab, or declare the tokens "
            "in use of a padded vocabulary, or, for a table of something else, role 'position' or a role of its own"
        )


def _table(given: Rule | Table, width: int | None, vocab: int | None, tied: bool) -> Table:
    sizes = {"width": width, "vocab": vocab}
    if isinstance(given, Table):
        if sized := [name for name, value in sizes.items() if value is not None]:
            raise InputError(f"{sized[0]} is for a rule's name or function, and table is a Table: remove {sized[0]}")
        return given
    for name, value in sizes.items():
        if value is None:
            said = _rates.name_of(given) if callable(given) else repr(given)
            raise InputError(f"{name} is required with rule {said} (or give a Table of lvp.parametrization)")
    return rule_table(given, width=width, vocab=vocab, tied=tied)  # type: ignore[arg-type]  # neither is None here


def _refuse_other_units(role: str, factory: Factory, chosen: Table, kwargs: Mapping[str, Any]) -> None:
    """Checks that a factory's updates have the unit of the role's rate.

    Raises:
      InputError: the rate is for Adam-like updates, and the factory is another one of optax.
    """
    function, name, muon = _rates.unwrapped(factory), _rates.name_of(factory), ""
    of_optax = (getattr(function, "__module__", None) or "").startswith("optax.")
    if chosen.rule not in RULES or chosen.rule == "sp" or not of_optax or name in ADAM_LIKE:
        return
    if function is optax.contrib.muon and role == "hidden":
        if kwargs.get("consistent_rms", _rates.bound(factory, "consistent_rms")) is not None:
            return
        muon = ", or consistent_rms=0.2"
    raise InputError(
        f"factory {name} for the role {role!r}: the rates of rule {chosen.rule!r} are for updates of order one per "
        f"coordinate (Adam, Lion), and those of {name} are not known to be; give this role another factory, or its own "
        f"rate rates={{{role!r}: RATE}}{muon}"
    )
