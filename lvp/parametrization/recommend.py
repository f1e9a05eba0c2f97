"""Recommended learning rate and init of every role under a rule, with sources and measurements.

    from lvp.parametrization.recommend import recommend

    advice = recommend(width=2048, vocab=32064, hidden_lr=3e-4)  # tuned at this size
    advice = recommend(width=2048, vocab=32064, hidden_lr=3e-3, from_width=256)  # tuned at width 256
    print(advice)
    advice["embedding"].learning_rate

The command line prints the same: `python -m lvp recommend --width 2048 --vocab 32064 --hidden-lr 3e-4`.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from lvp import parametrization
from lvp.errors import InputError
from lvp.parametrization import RULES, Table, check_whole, evidence, report, row_multiplier
from lvp.parametrization.rules import PAPER_RULES

if TYPE_CHECKING:
    from lvp.theory.token_frequencies import TokenFrequencies

LOOKUPS = ("embedding", "position")  # roles with the same rates under every rule


@dataclass(frozen=True)
class RoleAdvice:
    """The recommended settings of a role."""

    role: str  # of `lvp.roles.ROLES`
    learning_rate: float  # in the unit of the optimizer
    base_learning_rate: float | None  # the smaller model's rate; None without transfer
    multiplier: float  # learning rate over the hidden rate, or over base_learning_rate
    formula: str  # of the multiplier
    init_std: float  # 0 for vectors: gains start at 1, biases at 0
    init_formula: str  # of the init std
    decay: bool  # weight decay applies
    source: str  # paper and table of the learning rate
    forward_multiplier: float = 1.0  # constant factor on the parameter's output


@dataclass(frozen=True)
class Recommendation:
    """The result of `recommend`. `advice["embedding"]` is a `RoleAdvice`; `str(advice)` is a report.

    Attributes:
      rule, width, vocab, hidden_lr, from_width, from_vocab, embedding_lr: the arguments.
      kappa: κ of "interpolated", else None.
      roles: a `RoleAdvice` per role.
      table: the `lvp.parametrization.Table` in units of the hidden rate, for `lvp.optim.parametrized`.
      embedding_by_rule: the embedding's rate under every rule, from the same arguments.
      evidence: `lvp.parametrization.evidence.transfer()`.
      beyond: for each of its results, the factor by which the size is outside of the measured range, such as
        {"width": 16.0, "vocab": 7.8}; 1.0 inside.
      tokens: statistics of the token counts, or None without counts.
      token_rows: how the embedding's rows enter the model, one of `lvp.parametrization.TOKEN_ROWS`.
    """

    rule: str
    width: int
    vocab: int
    hidden_lr: float
    from_width: int | None
    from_vocab: int | None
    embedding_lr: float | None
    kappa: float | None
    roles: tuple[RoleAdvice, ...]
    table: Table
    embedding_by_rule: Mapping[str, float]
    evidence: Mapping[str, Mapping[str, Any]]
    beyond: Mapping[str, Mapping[str, float]]
    tokens: "TokenFrequencies | None" = None
    token_rows: str = "plain"

    def __getitem__(self, role: str) -> RoleAdvice:
        self.table[role]  # raises InputError for an unknown role
        return next(advice for advice in self.roles if advice.role == role)

    @property
    def notes(self) -> tuple[str, ...]:
        """The rule's basis and limits."""
        return PAPER_RULES[self.rule].notes

    @property
    def snippet(self) -> str:
        """Python code that defines the optimizer `tx` and the init stds by role, `init_std`; rates have six digits."""
        shape = f"width={self.width}, vocab={self.vocab}"
        if self.kappa not in (None, 1.0):
            shape += f", kappa={self.kappa:.6g}"
        if self.token_rows != "plain":
            shape += f', token_rows="{self.token_rows}"'
        lines = ["import optax", "", "from lvp import optim"]
        rule = f'"{self.rule}", {shape}'
        if self.embedding_lr is not None:
            ratio = f"{self.table['embedding'].lr_multiplier:.6g}"
            lines += ["from lvp.parametrization import table", ""]
            lines += [f'rule = table({rule}, normalize="hidden")']
            lines += [f"rule = rule.with_multipliers(embedding={ratio}, position={ratio})  # as tuned"]
            rule = "rule"
        else:
            lines.append("")
        return "\n".join(
            [
                *lines,
                f"learning_rate = {self['hidden'].learning_rate:.6g}  # of the hidden matrices; or a schedule",
                "tx = optim.parametrized(",
                f"    optax.adamw, {rule}, learning_rate=learning_rate, weight_decay=0.1",
                ")",
                "init_std = {role: tx.table[role].init_std for role in tx.table}  # gains start at 1, biases at 0",
                "# print(optim.describe(tx, params)) says what every parameter of a model gets",
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        """The recommendation as JSON types."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "table"}
        values["roles"] = {advice.role: dataclasses.asdict(advice) for advice in self.roles}
        values["tokens"] = None if self.tokens is None else dataclasses.asdict(self.tokens)
        return values | {"notes": self.notes, "snippet": self.snippet}

    def __str__(self) -> str:
        return report.text(self)


def recommend(
    *,
    width: int,
    vocab: int,
    hidden_lr: float,
    rule: str = "lvp",
    from_width: int | None = None,
    from_vocab: int | None = None,
    embedding_lr: float | None = None,
    kappa: float | None = None,
    counts: ArrayLike | None = None,
    token_rows: str = "plain",
) -> Recommendation:
    """Returns the rate and init std of every role of a model of `width` and `vocab`, for Adam-like optimizers.

    Without `from_width`, `hidden_lr` is the tuned rate of this model's hidden matrices, and the rule's ratios give the
    other rates. With `from_width`, the rates were tuned on a smaller model, and the rule's multipliers transfer them.

    Args:
      width: d ≥ 1. vocab: m ≥ 2. hidden_lr: above zero, in the unit of the optimizer.
      rule: "lvp", "mup", "sp" or "interpolated".
      from_width, from_vocab: sizes of the smaller model; the default of from_vocab is `vocab`.
      embedding_lr: the tuned rate of the smaller model's embedding and learned positions.
      kappa: κ of "interpolated", in [0, 1], the same at both sizes.
      counts: whole numbers [n], n ≤ m: occurrences of each token (`lvp.data.tokens.counts`), which give κ = Σ α_i κ_i
        of "interpolated" and `Recommendation.tokens`.
      token_rows: one of `lvp.parametrization.TOKEN_ROWS`. It sets the embedding's forward multiplier, but no rate.

    Raises:
      InputError: an unknown rule; sizes or κ out of range; rates that are not finite and above zero; from_vocab or
        embedding_lr without from_width; invalid counts; kappa together with counts.
    """
    row_multiplier(token_rows, 1)  # raises InputError for an unknown name
    _check_rate("hidden_lr", hidden_lr)
    if embedding_lr is not None:
        _check_rate("embedding_lr", embedding_lr)
    base = _base(from_width, from_vocab, vocab, embedding_lr)
    asked = (width, vocab), base, hidden_lr, embedding_lr, token_rows
    _roles(rule, kappa, *asked)  # raises InputError for a wrong rule or size before the tokens are analysed
    tokens = _tokens(counts, vocab, kappa)
    kappa = kappa if tokens is None else tokens.kappa
    table = _table(rule, kappa, *asked)
    return Recommendation(
        rule=rule,
        width=width,
        vocab=vocab,
        hidden_lr=float(hidden_lr),
        from_width=from_width,
        from_vocab=None if base is None else base[1],
        embedding_lr=None if embedding_lr is None else float(embedding_lr),
        kappa=table.kappa,
        roles=_roles(rule, kappa, *asked),
        table=table,
        embedding_by_rule={other: _roles(other, kappa, *asked)[0].learning_rate for other in RULES},
        evidence=(transfer := evidence.transfer()),
        beyond=_beyond(width, vocab, transfer),
        tokens=tokens,
        token_rows=token_rows,
    )


def _check_rate(name: str, rate) -> None:
    if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 < float(rate) < math.inf:
        raise InputError(f"{name} must be a finite number above zero, got {rate!r}")


def _base(from_width, from_vocab, vocab, embedding_lr) -> tuple[int, int] | None:
    """Width and vocabulary of the smaller model."""
    if from_width is not None:
        from_vocab = vocab if from_vocab is None else from_vocab
        return check_whole("from_width", from_width, 1), check_whole("from_vocab", from_vocab, 2)
    for name, value in (("from_vocab", from_vocab), ("embedding_lr", embedding_lr)):
        if value is not None:
            raise InputError(f"{name} belongs to the smaller model: it needs from_width")
    return None


def _tokens(counts, vocab: int, kappa) -> "TokenFrequencies | None":
    if counts is None:
        return None
    if kappa is not None:
        raise InputError("kappa and counts both determine κ: pass only one of them")
    from lvp.theory.token_frequencies import token_frequencies

    return token_frequencies(counts, vocab)


def _table(rule: str, kappa, size, base, hidden_lr: float, embedding_lr: float | None, token_rows: str) -> Table:
    """The table in units of the hidden rate, with the embedding's tuned rate if it is given."""
    shape = {"width": size[0], "vocab": size[1], "token_rows": token_rows}
    made = parametrization.table(rule, kappa=kappa, normalize="hidden", **shape)
    if embedding_lr is None:
        return made
    rates = {r.role: r.learning_rate for r in _roles(rule, kappa, size, base, hidden_lr, embedding_lr, token_rows)}
    return made.with_multipliers(**{role: rates[role] / rates["hidden"] for role in LOOKUPS})


def _roles(
    rule: str, kappa, size, base, hidden_lr: float, embedding_lr: float | None, token_rows: str
) -> tuple[RoleAdvice, ...]:
    shape = {"width": size[0], "vocab": size[1], "token_rows": token_rows}
    here = parametrization.table(rule, kappa=kappa, normalize="hidden", **shape)
    if base is None:
        rates, multipliers = None, here
    else:
        there = parametrization.table(rule, width=base[0], vocab=base[1], kappa=kappa, normalize="hidden")
        rates = {row.role: hidden_lr * row.lr_multiplier for row in there.rows}
        if embedding_lr is not None:
            rates |= dict.fromkeys(LOOKUPS, embedding_lr)
        multipliers = parametrization.table(rule, kappa=kappa, base_width=base[0], base_vocab=base[1], **shape)
    made = []
    for row in multipliers.rows:
        formula = PAPER_RULES[rule].formulas[row.role]
        made.append(
            RoleAdvice(
                role=row.role,
                learning_rate=(hidden_lr if rates is None else rates[row.role]) * row.lr_multiplier,
                base_learning_rate=None if rates is None else rates[row.role],
                multiplier=row.lr_multiplier,
                formula=formula.ratio if rates is None else formula.move,
                init_std=row.init_std,
                init_formula=formula.init,
                decay=row.decay,
                source=formula.source,
                forward_multiplier=row.forward_multiplier,
            )
        )
    return tuple(made)


def _beyond(width: int, vocab: int, results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The factor by which the sizes exceed the largest or fall below the smallest measured size; 1 between them."""

    def times(value: int, measured) -> float:
        return max(1.0, value / max(measured), min(measured) / value)

    return {
        name: {"width": times(width, result["widths"]), "vocab": times(vocab, result["vocabs"])}
        for name, result in results.items()
    }
