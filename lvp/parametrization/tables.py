"""Tables of a parametrization: a row per role at one width and vocabulary."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real

from numpy.typing import ArrayLike

from lvp.errors import InputError, unknown
from lvp.parametrization.rules import (
    ROLES,
    Rule,
    attenuation,
    check_frequencies,
    check_whole,
    decays,
    named_rule,
    row_multiplier,
)


@dataclass(frozen=True)
class Row:
    """Init, learning rate, decay and forward multiplier of one role: an abc-parametrization (Yang & Hu 2021, Tensor
    Programs IV).

    (A · forward_multiplier, init_std / A, lr_multiplier / A) trains the same network for every A > 0, if the update
    does not depend on the gradient's scale (Adam with ε = 0) and there is no weight decay.
    """

    role: str  # of `lvp.roles.ROLES`
    init_std: float  # in the parameter's unit
    lr_multiplier: float  # factor on the table's learning rate
    decay: bool  # weight decay applies
    forward_multiplier: float = 1.0  # constant factor on the parameter's output


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

    def with_multipliers(self, **multipliers: float) -> "Table":
        """The same table with other `lr_multiplier`s of some roles: `t.with_multipliers(embedding=30.0)`.

        Use it for a role whose rate was tuned separately.

        Raises:
          InputError: an unknown role; a multiplier that is not a finite number above zero.
        """
        for role, value in multipliers.items():
            if role not in tuple(self):
                raise unknown("role", role, self)
            if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < math.inf:
                raise InputError(f"multiplier of {role} must be a finite number above zero, got {value!r}")
        rows = (replace(row, lr_multiplier=float(multipliers.get(row.role, row.lr_multiplier))) for row in self.rows)
        return replace(self, rows=tuple(rows))

    def __str__(self) -> str:
        kappa = "" if self.kappa is None else f", κ {self.kappa:.6g}"
        lines = [("role", "init std", "LR multiplier", "decay", "forward multiplier")]
        for row in self.rows:
            std = f"{row.init_std:.6g}" if row.role != "vector" else f"{row.init_std:.6g} (gains 1)"
            factor = f"{row.forward_multiplier:.6g}"
            if row.role == "embedding" and self.token_rows == "normalized":
                factor = "1 / RMS(row)"
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
    """The table without a rule: the same rate and init std for all roles. Matrices decay, vectors do not.

    Args:
      width: d ≥ 1. vocab: m ≥ 2. init_std: not negative, in the parameter's unit.

    Raises:
      InputError: an argument out of range.
    """
    width, vocab = check_whole("width", width, 1), check_whole("vocab", vocab, 2)
    if not 0 <= init_std < math.inf:
        raise InputError(f"init_std must be finite and not negative, got {init_std!r}")
    rows = tuple(Row(role, float(init_std), 1.0, decays(role)) for role in ROLES)
    return Table("uniform", width, vocab, "the rate of every role", rows)


def aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines of text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]


def table(
    rule: Rule,
    *,
    width: int,
    vocab: int,
    frequencies: ArrayLike | None = None,
    kappa: float | None = None,
    normalize: str = "paper",
    base_width: int | None = None,
    base_vocab: int | None = None,
    token_rows: str = "plain",
) -> Table:
    """Returns the table of a rule at one shape (`lvp.parametrization.rules` has equations and sources).

    Args:
      rule: a name of `lvp.parametrization.rules.PAPER_RULES`, such as "lvp" or "interpolated" (LVP with
        η_E = `embedding_ratio` · η_output); or the user's rule, a function (width, vocab) → {role: (init std, LR
        multiplier)} for all roles. The function's name is the rule's name. A third number in a row is its forward
        multiplier (default 1).
      width: d ≥ 1. vocab: m ≥ 2. The vocabulary changes "interpolated" and rules of your own that depend on it, and no
        other rule. `optim.parametrized`, `optim.describe` and `optim.initialize` compare both with the parameters.
      frequencies: [m] token probabilities α. Only "interpolated" uses them: its κ is Σ α_i κ_i with
        κ_i = `attenuation`(α)_i. Without frequencies κ = 1, the constant of the paper's Theorem 2.
      kappa: κ in [0, 1], in place of frequencies. Only "interpolated" uses it.
      normalize: "paper": absolute multipliers of the paper's η. "hidden": all multipliers divided by the hidden
        multiplier, so that the learning rate *is* the hidden rate.
      base_width: multipliers relative to this width: each multiplier is divided by the rule's multiplier for the role
        at (base_width, base_vocab). The learning rate is then the rate tuned there. Excludes normalize="hidden". Init
        stds stay absolute.
      base_vocab: the vocabulary at the base width; the default is `vocab`. κ is the same at both sizes.
      token_rows: how the embedding's rows enter the model, one of `TOKEN_ROWS`. It sets the embedding's forward
        multiplier, but no init std and no rate.

    Returns:
      A `Table`. `str` of it is an aligned text table with the meaning of learning_rate.

    Raises:
      InputError: an unknown rule or normalize; a function with the name of one of these rules, or without an init std
        (finite, not negative) and a multiplier (finite, above zero) for every role; width, vocab or a base that is not
        a whole number in range; frequencies that are negative, not finite, of another length than vocab, or do not sum
        to one within 1e-6; kappa outside [0, 1] or together with frequencies; base_width together with
        normalize="hidden"; base_vocab without base_width; an unknown token_rows, or "normalized" with a rule whose
        embedding has a forward multiplier other than 1.
    """
    rule, cells_at = named_rule(rule)
    if normalize not in ("paper", "hidden"):
        raise InputError(f"normalize must be 'paper' or 'hidden', not {normalize!r}")
    width, vocab = check_whole("width", width, 1), check_whole("vocab", vocab, 2)
    kappa = _kappa(rule, vocab, frequencies, kappa)
    cells = cells_at(width, vocab, kappa)
    factors = _forward_multipliers(cells, token_rows, width)
    divisors, meaning = _divisors(cells_at, cells, vocab, kappa, normalize, base_width, base_vocab)
    rows = tuple(
        Row(role, float(std), rate / divisors[role], decays(role), factors[role])
        for role, (std, rate, *_) in cells.items()
    )
    return Table(rule, width, vocab, meaning, rows, kappa if rule == "interpolated" else None, token_rows)


def _forward_multipliers(cells: Mapping[str, tuple[float, ...]], token_rows: str, width: int) -> dict[str, float]:
    """Role → constant factor on the parameter's output."""
    factors = {role: row[2] if len(row) > 2 else 1.0 for role, row in cells.items()}
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


def _divisors(cells_at, cells, vocab, kappa, normalize, base_width, base_vocab) -> tuple[dict[str, float], str]:
    """The divisor of each role's absolute multiplier, and a description of the resulting learning rate."""
    if base_width is None and base_vocab is not None:
        raise InputError("base_vocab needs base_width: pass both")
    if base_width is not None:
        if normalize == "hidden":
            raise InputError(
                "base_width and normalize='hidden' give learning_rate two meanings: choose one "
                "(with base_width leave normalize at 'paper')"
            )
        base_width = check_whole("base_width", base_width, 1)
        base_vocab = vocab if base_vocab is None else check_whole("base_vocab", base_vocab, 2)
        base = cells_at(base_width, base_vocab, kappa)
        meaning = f"the rate tuned at width {base_width}, vocab {base_vocab}, where every multiplier is 1"
        return {role: row[1] for role, row in base.items()}, meaning
    if normalize == "hidden":
        hidden = cells["hidden"][1]
        return dict.fromkeys(cells, hidden), "the rate of the hidden matrices (whose multiplier is 1)"
    return dict.fromkeys(cells, 1.0), "the paper's η (absolute multipliers)"
