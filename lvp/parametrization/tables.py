"""Tables of a parametrization: a row per role at one width and vocabulary."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from numpy.typing import ArrayLike

from lvp.errors import InputError, shown, unknown
from lvp.parametrization.rules import (
    ROLES,
    Rule,
    attenuation,
    check_above_zero,
    check_frequencies,
    check_whole,
    decays,
    named_rule,
    row_multiplier,
)


@dataclass(frozen=True)
class Row:
    """Init, learning rate, decay and forward multiplier of one role.

    It is an abc-parametrization (Yang & Hu 2021, Tensor Programs IV): (A · forward_multiplier, init_std / A,
    lr_multiplier / A) trains the same network for every A > 0, if the update does not depend on the gradient's scale
    (Adam with ε = 0) and there is no weight decay.
    """

    role: str  # of `lvp.roles.ROLES`
    init_std: float  # in the parameter's unit
    lr_multiplier: float  # factor on the table's learning rate
    decay: bool  # weight decay applies
    forward_multiplier: float = 1.0  # constant factor on the parameter's output; for a tied matrix, on its rows
    head_multiplier: float = 1.0  # constant factor on the logits of a tied matrix


@dataclass(frozen=True)
class Table:
    """One parametrization at one (width, vocab). `t["embedding"]` is a role's row; iteration yields the roles.

    Attributes:
      rule: the name of a rule, or of the user's function (see `table`).
      width, vocab: d and m.
      learning_rate: description of the learning rate that the multipliers multiply.
      rows: a `Row` per role.
      kappa: the κ of "interpolated", else None.
      token_rows: how the embedding's rows enter the model, one of `TOKEN_ROWS`.
      branch_multiplier: constant factor on the output of every residual branch (`lvp.parametrization.axes`).
    """

    rule: str
    width: int
    vocab: int
    learning_rate: str
    rows: tuple[Row, ...]
    kappa: float | None = None
    token_rows: str = "plain"
    branch_multiplier: float = 1.0

    def __getitem__(self, role: str) -> Row:
        for row in self.rows:
            if row.role == role:
                return row
        raise InputError(f"role must be one of {tuple(self)}, not {role!r}")

    def __iter__(self) -> Iterator[str]:
        return (row.role for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def with_rows(self, *rows: Row) -> "Table":
        """Returns the table with further rows, or with other rows of its roles.

        Raises:
          InputError: a row is not a `Row`; an init std is negative or not finite; an LR multiplier is not finite and
            above zero.
        """
        for row in rows:
            if not isinstance(row, Row):
                raise InputError(f"rows must be lvp.parametrization.Row, got {shown(row)}")
            for name, value in (("init_std", row.init_std), ("lr_multiplier", row.lr_multiplier)):
                if isinstance(value, Real) and not (0 <= value < math.inf and (value or name == "init_std")):
                    needed = "not negative" if name == "init_std" else "positive"
                    raise InputError(f"rows: {name} of {row.role!r} must be finite and {needed}, got {value!r}")
        return replace(self, rows=tuple({row.role: row for row in (*self.rows, *rows)}.values()))

    def __str__(self) -> str:
        kappa = "" if self.kappa is None else f", κ {self.kappa:.6g}"
        lines = [("role", "init std", "LR multiplier", "decay", "forward multiplier")]
        for row in self.rows:
            std = f"{row.init_std:.6g}" if row.role != "vector" else f"{row.init_std:.6g} (gains 1)"
            factor = f"{row.forward_multiplier:.6g}"
            if row.role in ("embedding", "tied") and self.token_rows == "normalized":
                factor = "1 / RMS(row)"
            if row.role == "tied":
                factor = f"rows {factor}, logits {row.head_multiplier:.6g}"
            lines.append((row.role, std, f"{row.lr_multiplier:.6g}", "yes" if row.decay else "no", factor))
        return "\n".join(
            [
                f"{self.rule}: width {self.width}, vocab {self.vocab}{kappa}",
                f"learning_rate: {self.learning_rate}",
                *aligned(lines),
                *([] if self.branch_multiplier == 1.0 else [f"residual branches × {self.branch_multiplier:.6g}"]),
            ]
        )


def uniform(*, width: int, vocab: int, init_std: float = 1.0) -> Table:
    """Returns the table without a rule: the same rate and init std for all roles. Matrices decay, vectors do not.

    Args:
      width: d ≥ 1.
      vocab: m ≥ 2.
      init_std: not negative, in the parameter's unit.

    Raises:
      InputError: an argument is out of range.

    Example:
      >>> from lvp.parametrization import uniform
      >>> uniform(width=256, vocab=8192, init_std=0.02)["hidden"]
      Row(role='hidden', init_std=0.02, lr_multiplier=1.0, decay=True, forward_multiplier=1.0, head_multiplier=1.0)
    """
    width, vocab = check_whole("width", width, 1), check_whole("vocab", vocab, 2)
    if not 0 <= init_std < math.inf:
        raise InputError(f"init_std must be finite and not negative, got {init_std!r}")
    rows = tuple(Row(role, float(init_std), 1.0, decays(role)) for role in ROLES)
    return Table("uniform", width, vocab, "the rate of every role", rows)


def aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of a text table as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]


def table(
    rule: Rule,
    *,
    width: int,
    vocab: int,
    base_width: int | None = None,
    base_vocab: int | None = None,
    ratios: float | Mapping[str, float] | None = None,
    frequencies: ArrayLike | None = None,
    kappa: float | None = None,
    token_rows: str = "plain",
    tied: bool = False,
) -> Table:
    """Returns the table of a rule at one shape (`lvp.parametrization.rules` has equations and sources).

    The learning rate of the table is the rate of the hidden matrices: at this width, or at `base_width`.

    Args:
      rule: a name of `lvp.parametrization.rules.PAPER_RULES`, such as "lvp" or "interpolated" (LVP with η_E =
        `embedding_ratio` · η_output); or the user's rule, a function (width, vocab) → {role: (init std, LR multiplier)}
        for all roles. The function's name is the rule's name. A third number in a row is its forward multiplier
        (default 1).
      width: d ≥ 1.
      vocab: m ≥ 2. It changes "interpolated" and rules of your own that depend on it, and no other rule.
        `optim.parametrized`, `optim.describe` and `optim.initialize` compare width and vocabulary with the parameters.
      base_width: the width at which the learning rate was tuned. From there every role's rate moves as the rule says.
        Init stds stay absolute.
      base_vocab: the vocabulary at the base width; the default is `vocab`. κ is the same at both sizes.
      ratios: role → tuned rate of the role over the hidden rate, at the base width (without one, at this width), in
        place of the rule's ratio. A number holds for all roles: 1 if all roles were tuned with one rate, as in muP's
        own code.
      frequencies: [m] token probabilities α. Only "interpolated" uses them: its κ is Σ α_i κ_i with κ_i =
        `attenuation`(α)_i. Without frequencies κ = 1, the constant of the paper's Theorem 2.
      kappa: κ in [0, 1], in place of frequencies. Only "interpolated" uses it.
      token_rows: how the embedding's rows enter the model, one of `TOKEN_ROWS`. It sets the embedding's forward
        multiplier, but no init std and no rate.
      tied: whether to add the row "tied", of one matrix that is both embedding and head (see `with_tied`). Its rate
        and forward multiplier are the embedding's.

    Returns:
      A `Table`. `str` of it is an aligned text table with the meaning of learning_rate.

    Raises:
      InputError: a rule or role is unknown; a function has the name of one of these rules, or does not give an init std
        (finite, not negative) and a multiplier (finite, above zero) for every role; width, vocab or a base is not a
        whole number in range; a ratio is not finite and above zero; frequencies are negative, not finite, of another
        length than vocab, or do not sum to one within 1e-6; kappa is outside [0, 1] or given together with frequencies;
        base_vocab is given without base_width; token_rows is unknown, or is "normalized" with a rule whose embedding
        has a forward multiplier other than 1.

    Example:
      >>> from lvp.parametrization import table
      >>> table("lvp", width=256, vocab=8192)["embedding"].lr_multiplier  # hidden × 1, embedding × √256
      16.0
      >>> table("lvp", width=256, vocab=8192, base_width=64)["embedding"].lr_multiplier  # √64 · √(64/256)
      4.0
      >>> table("mup", width=256, vocab=8192, base_width=64, ratios=1)["hidden"].lr_multiplier  # one rate at width 64
      0.25
    """
    rule, rows_at = named_rule(rule)
    width, vocab = check_whole("width", width, 1), check_whole("vocab", vocab, 2)
    kappa = _kappa(rule, vocab, frequencies, kappa)
    here = base = rows_at(width, vocab, kappa)
    meaning = "the rate of the hidden matrices"
    if base_width is not None:
        base_width = check_whole("base_width", base_width, 1)
        base_vocab = vocab if base_vocab is None else check_whole("base_vocab", base_vocab, 2)
        base = rows_at(base_width, base_vocab, kappa)
        meaning += f", tuned at width {base_width}, vocab {base_vocab}"
    elif base_vocab is not None:
        raise InputError("base_vocab needs base_width: pass both")
    tuned = {role: row[1] / base["hidden"][1] for role, row in base.items()} | _checked_ratios(ratios, base)
    factors = _forward_multipliers(here, token_rows, width)
    rows = tuple(
        Row(role, float(std), tuned[role] * (rate / base[role][1]), decays(role), factors[role])
        for role, (std, rate, *_) in here.items()
    )
    made = Table(rule, width, vocab, meaning, rows, kappa if rule == "interpolated" else None, token_rows)
    return with_tied(made) if tied else made


def with_tied(untied: Table) -> Table:
    """Returns the table with a row "tied", for one matrix that is both embedding and head.

    The row has the embedding's init std, rate and forward multiplier, so that the model reads rows as the table says.
    `head_multiplier` multiplies the logits, so that the head starts as the table says: it is f_out · σ_out / σ_emb for
    the init stds σ and the head's forward multiplier f. A head that starts at zero has f_out. The matrix has one update
    relative to its size. LVP and SP ask for two, and the embedding's is taken. Ours; docs/tied.md has the measurement.
    """
    embedding, head = untied["embedding"], untied["output"]
    start = head.init_std / embedding.init_std if embedding.init_std and head.init_std else 1.0
    return untied.with_rows(replace(embedding, role="tied", head_multiplier=head.forward_multiplier * start))


def _checked_ratios(ratios: float | Mapping[str, float] | None, known: Collection[str]) -> dict[str, float]:
    """Role → ratio, from the argument `ratios` of `table`.

    Raises:
      InputError: a role is unknown; a ratio is not finite and above zero.
    """
    if ratios is None:
        return {}
    given: Mapping[str, Any] = ratios if isinstance(ratios, Mapping) else dict.fromkeys(known, ratios)
    for role in given:
        if role not in known:
            raise unknown("role of ratios", role, known)
    return {role: check_above_zero(f"ratio of {role}", value) for role, value in given.items()}


def _forward_multipliers(rows: Mapping[str, tuple[float, ...]], token_rows: str, width: int) -> dict[str, float]:
    """Role → constant factor on the parameter's output."""
    factors = {role: row[2] if len(row) > 2 else 1.0 for role, row in rows.items()}
    if token_rows == "normalized" and factors["embedding"] != 1.0:
        raise InputError(
            f"token_rows 'normalized' removes the embedding's forward multiplier {factors['embedding']:g} of this "
            "rule; use token_rows 'plain'"
        )
    return factors | {"embedding": factors["embedding"] * row_multiplier(token_rows, width)}


def _kappa(rule: str, vocab: int, frequencies, kappa: float | None) -> float:
    if kappa is not None:
        if frequencies is not None:
            raise InputError("kappa and frequencies both determine κ: pass only one of them")
        if isinstance(kappa, bool) or not isinstance(kappa, Real) or not 0 <= kappa <= 1:
            raise InputError(f"kappa must be a number from 0 to 1, got {kappa!r}")
        return float(kappa)
    if frequencies is not None:
        alpha = check_frequencies(frequencies, vocab)
        if rule == "interpolated":
            return min(1.0, float(alpha @ attenuation(alpha)))  # a sum up to 1 + 1e-6 is accepted
    return 1.0
