"""Which learning rate and init every role should have: a rule's answer, its source, and how far we measured it.

    from lvp.parametrization.recommend import recommend

    advice = recommend(width=2048, vocab=32064, hidden_lr=3e-4)  # tuned at this size
    advice = recommend(width=2048, vocab=32064, hidden_lr=3e-3, from_width=256)  # tuned at width 256, and moved
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

LOOKUPS = ("embedding", "position")  # whose rows a rule treats alike


@dataclass(frozen=True)
class RoleAdvice:
    """What a role gets. `base_learning_rate` is the smaller model's, None where nothing is transferred; `formula` is
    that of `learning_rate`: times the hidden rate, or, transferred, times `base_learning_rate`."""

    role: str
    learning_rate: float
    base_learning_rate: float | None
    multiplier: float
    formula: str
    init_std: float
    init_formula: str
    decay: bool
    source: str
    forward_multiplier: float = 1.0


@dataclass(frozen=True)
class Recommendation:
    """What `recommend` returns. `advice["embedding"]` is a role's; `str` of it is the readable form.

    Attributes:
      rule, width, vocab, hidden_lr, from_width, from_vocab, embedding_lr: as asked for.
      kappa: of "interpolated", else None.
      roles: one `RoleAdvice` a role.
      table: the `lvp.parametrization.Table` of it, in units of the hidden rate, for `lvp.optim.parametrized`.
      embedding_by_rule: the embedding's rate under every rule, from the same rates given.
      evidence: `lvp.parametrization.evidence.transfer()`.
      beyond: per result of it, how many times the size asked for lies outside of what was measured:
        {"width": 16.0, "vocab": 7.8}; 1.0 inside.
      tokens: what counts of tokens say, or None.
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
        self.table[role]  # which refuses what is no role
        return next(advice for advice in self.roles if advice.role == role)

    @property
    def notes(self) -> tuple[str, ...]:
        """The rule's basis and limits."""
        return PAPER_RULES[self.rule].notes

    @property
    def snippet(self) -> str:
        """Python code that makes the optimizer, `tx`, and the init stds by role, `init_std`; rates to six digits."""
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
        """All of it as JSON's types."""
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
    """Rate and init std of every role of a model of `width` and `vocab`, for Adam-like optimizers.

    Without `from_width`, `hidden_lr` is the tuned rate of this model's hidden matrices. The rule's ratios give the
    other rates. With `from_width`, the rates were tuned on a smaller model, and the rule's multipliers move each rate.

    Args:
      width: d ≥ 1. vocab: m ≥ 2. hidden_lr: above zero, in the unit of the optimizer.
      rule: "lvp", "mup", "sp" or "interpolated".
      from_width, from_vocab: of the smaller model; from_vocab is `vocab` unless given.
      embedding_lr: the rate the smaller model's embedding was tuned to. Learned positions go with it.
      kappa: of "interpolated", in [0, 1]; held between the two sizes.
      counts: whole numbers [n], n ≤ m: occurrences of each token (`lvp.data.tokens.counts`), which give κ = Σ α_i κ_i
        of "interpolated" and `Recommendation.tokens`.
      token_rows: one of `lvp.parametrization.TOKEN_ROWS`; it decides the embedding's forward multiplier, and no rate.

    Raises:
      InputError: an unknown rule, sizes or a κ out of range, rates that are not finite and above zero, from_vocab or
        embedding_lr without from_width, counts that are none, kappa together with counts.
    """
    row_multiplier(token_rows, 1)  # refuses an unknown name
    _check_rate("hidden_lr", hidden_lr)
    if embedding_lr is not None:
        _check_rate("embedding_lr", embedding_lr)
    base = _base(from_width, from_vocab, vocab, embedding_lr)
    asked = (width, vocab), base, hidden_lr, embedding_lr, token_rows
    _roles(rule, kappa, *asked)  # refuses a wrong rule or size before tokens are looked at
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
            raise InputError(f"{name} is of the smaller model: it needs from_width")
    return None


def _tokens(counts, vocab: int, kappa) -> "TokenFrequencies | None":
    if counts is None:
        return None
    if kappa is not None:
        raise InputError("kappa and counts both say what κ is: give one of them")
    from lvp.theory.token_frequencies import token_frequencies

    return token_frequencies(counts, vocab)


def _table(rule: str, kappa, size, base, hidden_lr: float, embedding_lr: float | None, token_rows: str) -> Table:
    """In units of the hidden rate, with the embedding's own rate where it has one."""
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
    """How many times the sizes lie above the largest or below the smallest measured; 1 between them."""

    def times(value: int, measured) -> float:
        return max(1.0, value / max(measured), min(measured) / value)

    return {
        name: {"width": times(width, result["widths"]), "vocab": times(vocab, result["vocabs"])}
        for name, result in results.items()
    }
