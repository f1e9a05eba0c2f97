"""Settings of every role at a target size, from the settings tuned at a base size.

    from lvp.parametrization.scaling import Shape, scale

    base = Shape(width=64, vocab=8192, depth=4, batch=16_384, tokens=50_000_000)
    target = Shape(width=512, vocab=32768, depth=16, batch=65_536, tokens=2_000_000_000)
    scaling = scale(base, target, "lvp", axes={"depth": "completep", "batch": "sqrt_rate"})
    print(scaling)

`lvp.optim.transfer` makes the optimizer, and `lvp.parametrization.recommend` the advice, from the same numbers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lvp.errors import InputError, unknown
from lvp.parametrization import axes as _axes
from lvp.parametrization.axes import AXES, SIZES, Factors, Ratios, Shape, check_beta
from lvp.parametrization.rules import Rule, check_above_zero
from lvp.parametrization.tables import Row, Table, aligned, table, with_tied

__all__ = ["RoleScaling", "Scaling", "Shape", "scale"]

LOOKUPS = ("embedding", "position")  # roles with the same rates under every rule
_ORDER = ("depth", "batch", "horizon", "epsilon", "decay")  # the axes in the order of their factors
_FLAT = 1e-9  # relative deviation of a power of the width from the power that a rule assumes


@dataclass(frozen=True)
class RoleScaling:
    """The settings of one role at the target. A factor multiplies the base's setting."""

    role: str  # of `lvp.roles.ROLES`
    init_std: float  # at the target, in the parameter's unit
    lr_multiplier: float  # the target's rate over the base's hidden rate
    rate: float  # factor on the role's own rate
    decay: float  # factor on λ
    epsilon: float  # factor on ε
    forward_multiplier: float  # at the target


@dataclass(frozen=True)
class Scaling:
    """The result of `scale`. `scaling["hidden"]` is a `RoleScaling`; `str(scaling)` is a table.

    Attributes:
      base, target: the shapes.
      rule: the name of the rule of width and vocabulary.
      axes: the rule of every other axis.
      roles: a `RoleScaling` per role.
      beta: factor on 1 − β₁ and 1 − β₂.
      independent: True if λ is a decay per step, independent of the rate.
      factors: axis → its factors, for every axis in `axes`.
      table: the `Table` at the target. Its learning rate is the hidden rate tuned at the base, and its
        `branch_multiplier` multiplies the output of every residual branch at the target. It is 1 at the base.
    """

    base: Shape
    target: Shape
    rule: str
    axes: Mapping[str, str]
    roles: tuple[RoleScaling, ...]
    beta: float
    independent: bool
    factors: Mapping[str, Factors]
    table: Table

    def __getitem__(self, role: str) -> RoleScaling:
        self.table[role]  # raises InputError for an unknown role
        return next(scaling for scaling in self.roles if scaling.role == role)

    @property
    def branch_multiplier(self) -> float:
        """The constant factor on the output of every residual branch at the target."""
        return self.table.branch_multiplier

    def betas(self, b1: float, b2: float) -> tuple[float, float]:
        """β₁ and β₂ at the target, from those at the base.

        Raises:
          InputError: a β is outside [0, 1), or leaves it.
        """
        return check_beta("b1", b1, self.beta), check_beta("b2", b2, self.beta)

    def __str__(self) -> str:
        columns = ("init std", "rate ×", "λ ×", "ε ×", "forward ×")
        rows = [
            (r.role, *(f"{x:.4g}" for x in (r.init_std, r.rate, r.decay, r.epsilon, r.forward_multiplier)))
            for r in self.roles
        ]
        moved = (axis for axis in self.axes if axis not in SIZES or getattr(self.target, SIZES[axis]) is not None)
        rules = ", ".join(["width and vocab " + self.rule, *(f"{axis} {self.axes[axis]}" for axis in moved)])
        logits = [f"; logits × {row.head_multiplier:.4g}" for row in self.table.rows if row.role == "tied"]
        return "\n".join(
            [
                f"from {self.base}",
                f"to   {self.target}",
                f"rules: {rules}",
                *aligned([("role", *columns), *rows]),
                f"residual branches × {self.branch_multiplier:.4g}; 1 − β₁ and 1 − β₂ × {self.beta:.4g}"
                + "".join(logits),
            ]
        )


def scale(
    base: Shape,
    target: Shape,
    rule: Rule,
    *,
    axes: Mapping[str, str] | None = None,
    kappa: float | None = None,
    token_rows: str = "plain",
    ratios: float | Mapping[str, float] | None = None,
    init_std: Mapping[str, float] | None = None,
    rows: Sequence[Row] = (),
    tied: bool = False,
) -> Scaling:
    """Returns the settings of every role at `target`, from the settings tuned at `base`.

    Args:
      base, target: sizes. Axes whose sizes are unknown in both shapes are left alone.
      rule: the rule of width and vocabulary, as in `lvp.parametrization.table`.
      axes: axis → name of its rule (`lvp.parametrization.axes.AXES`), for "depth", "batch", "horizon", "decay" and
        "epsilon". The default of depth is "completep", and "none" of the others.
      kappa: κ of "interpolated" at both sizes, in [0, 1].
      token_rows: how rows enter the model at both sizes, one of `lvp.parametrization.TOKEN_ROWS`.
      ratios: role → tuned rate of the role over the hidden rate at the base, as in `table`.
      init_std: role → std tuned at the base; a role that is absent takes the rule's std at the target. The std of
        "tied" is that of embedding and head. A head may start at 0.
      rows: further or other rows at the target (`Table.with_rows`), which the axes do not change.
      tied: whether to add the role "tied", as in `table`. Its rate, λ and ε move as the embedding's.

    Returns:
      A `Scaling`; `print` shows it as a table.

    Raises:
      InputError: `base` or `target` is not a `Shape`; a rule, an axis, a role or token_rows is unknown; a rule's
        function gives no valid row for a role; κ is outside [0, 1]; a ratio or an init std is not finite and above
        zero; token_rows is "normalized" and the rule's embedding has a forward multiplier other than 1; only one shape
        has the size of an axis whose rule is not "none", or neither has it and `axes` names the rule; decay is
        "sqrt_width" and the rule's hidden rate is not ∝ 1/width; decay is "constant_timescale" and a row replaces a
        rate of the rule; there is a rule of epsilon and the rule's head is not ∝ 1/width.

    Example:
      >>> from lvp.parametrization.scaling import Shape, scale
      >>> base, target = Shape(width=64, vocab=8192, depth=4), Shape(width=256, vocab=8192, depth=16)
      >>> scaling = scale(base, target, "lvp")
      >>> scaling["hidden"].rate, scaling["embedding"].rate, scaling.branch_multiplier
      (0.25, 0.5, 0.25)
    """
    for name, shape in (("base", base), ("target", target)):
        if not isinstance(shape, Shape):
            raise InputError(f"{name} must be a lvp.parametrization.Shape(width=…, vocab=…), got {shape!r}")
    names = _axes.chosen(axes)
    options: dict[str, Any] = {"kappa": kappa, "token_rows": token_rows}
    here = table(rule, width=base.width, vocab=base.vocab, ratios=ratios, **options)
    from_base: dict[str, Any] = {"base_width": base.width, "base_vocab": base.vocab, **options}
    # With equal rates at the base, the multipliers are the factors on each role's rate.
    moved = table(rule, width=target.width, vocab=target.vocab, ratios=1.0, **from_base)
    forward = {role: moved[role].forward_multiplier / here[role].forward_multiplier for role in here}
    sizes = {axis: _axes.ratio(base, target, axis, names[axis], axis in (axes or {})) for axis in SIZES}
    sized = Ratios(target.width / base.width, sizes["depth"], sizes["batch"], sizes["horizon"], forward=forward)
    _refuse(names, here, moved, sized, rows)
    factors = _factors(names, {role: moved[role].lr_multiplier for role in here}, sized)
    roles = _roles(
        moved, factors, {row.role: row.lr_multiplier for row in here.rows}, _stds(init_std, here, moved, tied)
    )
    beta, branch = math.prod(part.beta for part in factors), math.prod(part.branch for part in factors)
    of_rule = (replace(moved[r.role], init_std=r.init_std, lr_multiplier=r.lr_multiplier) for r in roles)
    meaning = f"the rate of the hidden matrices, tuned at {base}"
    made = replace(moved, learning_rate=meaning, rows=tuple(of_rule), branch_multiplier=branch)
    if tied:
        made, roles = with_tied(made), (*roles, replace(roles[0], role="tied"))
    made = made.with_rows(*rows)
    independent, by_axis = AXES["decay"][names["decay"]].independent, dict(zip(_ORDER, factors[1:], strict=True))
    return Scaling(base, target, moved.rule, names, roles, beta, independent, by_axis, made)


def _factors(names: Mapping[str, str], rates: Mapping[str, float], ratios: Ratios) -> list[Factors]:
    """The factors of all axes, width and vocabulary first; `rates` are the factors of these two."""
    parts = [Factors(rate=rates)]
    parts += [AXES[axis][names[axis]].factors(ratios) for axis in _ORDER[:-1]]
    moved = {role: _product(parts, "rate", role) for role in rates}
    return [*parts, AXES["decay"][names["decay"]].factors(replace(ratios, rates=moved))]


def _roles(
    there: Table, factors: list[Factors], multipliers: Mapping[str, float], stds: Mapping[str, float]
) -> tuple[RoleScaling, ...]:
    made = []
    for row in there.rows:
        rate, decay, epsilon = (_product(factors, name, row.role) for name in ("rate", "decay", "epsilon"))
        multiplier = multipliers[row.role] * rate
        made.append(RoleScaling(row.role, stds[row.role], multiplier, rate, decay, epsilon, row.forward_multiplier))
    return tuple(made)


def _product(parts: list[Factors], name: str, role: str) -> float:
    return math.prod(getattr(part, name).get(role, 1.0) for part in parts)


def _stds(tuned: Mapping[str, float] | None, here: Table, there: Table, tied: bool) -> dict[str, float]:
    """Role → init std at the target."""
    stds = {row.role: row.init_std for row in there.rows}
    given = dict(tuned or {})
    if tied and "tied" in given:  # one matrix
        if others := {"embedding", "output"} & given.keys():
            raise InputError(f"init_std has tied and {min(others)}, which are one matrix: remove {min(others)}")
        check_above_zero("init_std of tied", given["tied"])
        given |= dict.fromkeys(("embedding", "output"), given.pop("tied"))
    for role, std in given.items():
        if role not in stds:
            raise unknown("role of init_std", role, [r for r in stds if here[r].init_std > 0])
        if here[role].init_std == 0:
            raise InputError(f"role of init_std {role!r} has std 0, which no factor changes: remove it from init_std")
        if role != "output" or tied or std != 0:
            check_above_zero(f"init_std of {role}", std)
        stds[role] *= std / here[role].init_std
    return stds


def _refuse(names: Mapping[str, str], here: Table, there: Table, ratios: Ratios, rows: Sequence[Row]) -> None:
    """Checks that the axis rules are stated for this rule of width, and that no row hides a rate that they use.

    Raises:
      InputError: the decay rule is "sqrt_width" and the hidden rate is not ∝ 1/width; it is "constant_timescale" and a
        row replaces the rate of a role that decays; there is a rule of epsilon and the head is not ∝ 1/width.
    """
    hidden = there["hidden"].lr_multiplier * ratios.forward["hidden"] * ratios.width
    if names["decay"] == "sqrt_width" and abs(hidden - 1) > _FLAT:
        raise InputError(
            f"decay rule 'sqrt_width' assumes a hidden rate ∝ 1/width, and rule {there.rule!r} has another hidden "
            "rate: choose rule 'mup' or 'lvp', or decay rule 'none'"
        )
    check_own_rates(names, here.rows, [row.role for row in rows])
    head = there["output"].init_std * ratios.forward["output"] / here["output"].init_std * ratios.width
    if names["epsilon"] != "none" and abs(head - 1) > _FLAT:
        raise InputError(
            f"epsilon rule {names['epsilon']!r} assumes a head of size ∝ 1/width, and rule {there.rule!r} has another "
            "head: choose rule 'mup', 'completep' or 'umup', or epsilon rule 'none'"
        )


def check_own_rates(names: Mapping[str, str], of_rule: Iterable[Row], replaced: Iterable[str]) -> None:
    """Checks that the decay rule does not use the rate of a role that rows or rates replace.

    Args:
      names: axis → name of its rule.
      of_rule: the rule's rows.
      replaced: the roles with a row or rate of their own.

    Raises:
      InputError: the decay rule is "constant_timescale" and a role that decays is replaced.
    """
    own = {row.role for row in of_rule if row.decay} & {*replaced}
    if names["decay"] == "constant_timescale" and own:
        raise InputError(
            f"decay rule 'constant_timescale' uses the rule's rate of role {min(own)!r}, which rows or rates replaces: "
            "give weight_decay by role, with decay rule 'none'"
        )
