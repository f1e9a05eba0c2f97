"""SP, muP, LVP and what interpolates: role × (width, vocabulary) → init std, learning-rate multiplier, decay.

Numbers only (NumPy, no jax). The rules are Tables 1 and 2 of Hayou & Liu 2025, "Optimal Embedding Learning
Rate in LLMs: The Effect of Vocabulary Size", for optimizers whose update is of order one per coordinate
(Adam, Lion, sign descent). The paper prints init *variances*; a `Table` holds standard deviations. d is the
width, m the vocabulary, η the paper's one tunable rate; entries are (init std, learning rate):

|                   | embedding, position       | hidden           | output           | vector   |
|-------------------|---------------------------|------------------|------------------|----------|
| SP                | 1, η                      | d^-1/2, η        | d^-1/2, η        | 0, η     |
| muP               | 1, η                      | d^-1/2, η / d    | d^-1, η / d      | 0, η     |
| LVP               | d^-1/2, η d^-1/2          | d^-1/2, η / d    | d^-1/2, η / d    | 0, η / d |
| interpolated      | d^-1/2, η ratio / d       | d^-1/2, η / d    | d^-1/2, η / d    | 0, η / d |

- SP's embedding: the paper's prose calls σ_W = σ_E = d^-1/2 "SP's init", its Table 2 has variance 1. The
  table is followed.
- position: learned positions take the embedding's row (`lvp.roles.DEFAULT` says why).
- vector: the paper is silent. An init std of 0 means that biases start at 0 and gains at 1. The rate under
  muP is the input-like one of Yang et al. 2022 (Tensor Programs V, table 8). LVP and interpolated take the
  hidden rate, the smallest on offer: gains start at 1, so a rate is a relative change per step, and at the
  paper's η = 0.2 and d = 256 muP's row would move a gain by 20 % a step, LVP's embedding row by 1.3 %, this
  by 0.08 %.
- decay: matrices decay, vectors do not.
- forward multiplier: 1 in all four rules. How the embedding's rows enter the model is a choice of its own
  (`TOKEN_ROWS`); the rules' init stds and rates do not depend on it.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lvp.errors import InputError, shown, unknown


@dataclass(frozen=True)
class Row:
    """Init, learning rate, decay and forward multiplier of one role: an abc-parametrization (Yang & Hu 2021, Tensor
    Programs IV).

    (A · forward_multiplier, init_std / A, lr_multiplier / A) trains the same network for every A > 0, if the update
    does not depend on the gradient's scale (Adam with ε = 0).
    """

    role: str
    init_std: float  # in the parameter's unit
    lr_multiplier: float  # in the unit of the rate given
    decay: bool
    forward_multiplier: float = 1.0  # constant factor on the parameter's output


@dataclass(frozen=True)
class Table:
    """One parametrization at one (width, vocab). `t["embedding"]` is a role's row; iterates over roles.

    Attributes:
      rule: "sp", "mup", "lvp", "interpolated", or the name of a function of one's own (see `table`).
      width, vocab: d and m.
      learning_rate: in words, what the learning rate is that the multipliers multiply.
      rows: one `Row` per role.
      kappa: the κ of "interpolated", else None.
      token_rows: how the embedding's rows enter the model, one of `TOKEN_ROWS`.
    """

    rule: str
    width: int
    vocab: int
    learning_rate: str
    rows: tuple[Row, ...]
    kappa: float | None = None
    token_rows: str = "plain"

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
        """The same table with the `lr_multiplier` of some roles replaced: `t.with_multipliers(embedding=30.0)`, as one
        does with a rate that was tuned for itself.

        Raises:
          InputError: a name that is no role; a multiplier that is not a finite number above zero.
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
            ]
        )


def aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of cells as lines of text whose columns begin together."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]


TOKEN_ROWS = ("plain", "sqrt", "normalized")
"""How a token's row enters the model: as it is (GPT-2), times √width (Vaswani et al. 2017, section 3.4; Gemma), or
divided by its RMS (nanochat, modded-nanogpt)."""


def row_multiplier(token_rows: str, width: int) -> float:
    """The embedding's forward multiplier for one of `TOKEN_ROWS`: √width for "sqrt", else 1.

    Raises:
      InputError: a name that is not in `TOKEN_ROWS`.
    """
    if token_rows not in TOKEN_ROWS:
        raise unknown("token_rows", token_rows, TOKEN_ROWS)
    return math.sqrt(width) if token_rows == "sqrt" else 1.0


def _sp(d: int, m: int, kappa: float) -> dict[str, tuple[float, float]]:
    del m, kappa
    embedding, matrix = (1.0, 1.0), (d**-0.5, 1.0)
    return _by_role(embedding=embedding, hidden=matrix, output=matrix, vector_rate=1.0)


def _mup(d: int, m: int, kappa: float) -> dict[str, tuple[float, float]]:
    del m, kappa
    return _by_role(embedding=(1.0, 1.0), hidden=(d**-0.5, 1 / d), output=(1 / d, 1 / d), vector_rate=1.0)


def _lvp(d: int, m: int, kappa: float) -> dict[str, tuple[float, float]]:
    del m, kappa
    matrix = (d**-0.5, 1 / d)
    return _by_role(embedding=(d**-0.5, d**-0.5), hidden=matrix, output=matrix, vector_rate=1 / d)


def _interpolated(d: int, m: int, kappa: float) -> dict[str, tuple[float, float]]:
    matrix = (d**-0.5, 1 / d)
    embedding = (d**-0.5, embedding_ratio(d, m, kappa) / d)
    return _by_role(embedding=embedding, hidden=matrix, output=matrix, vector_rate=1 / d)


def _by_role(*, embedding, hidden, output, vector_rate: float) -> dict[str, tuple[float, float]]:
    vector = (0.0, vector_rate)
    return {
        "embedding": embedding,
        "position": embedding,
        "hidden": hidden,
        "output": output,
        "vector": vector,
    }


_RULES = {"sp": _sp, "mup": _mup, "lvp": _lvp, "interpolated": _interpolated}
RULES = tuple(_RULES)
_ROLES = tuple(_lvp(1, 2, 1.0))  # those of `lvp.roles`, which imports jax
Rule = str | Callable[[int, int], Mapping[str, tuple[float, ...]]]


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
    """The rows of a rule at one shape (equations and sources: the module's docstring).

    Args:
      rule: "sp", "mup", "lvp" or "interpolated" (LVP with η_E = `embedding_ratio` · η_output); or a rule of one's
        own, a function (width, vocab) → {role: (init std, LR multiplier)} of all roles, called by the function's name.
        A third number of a row is its forward multiplier (1 without it).
      width: d ≥ 1. vocab: m ≥ 2.
      frequencies: [m] token probabilities α. They enter "interpolated" alone, whose κ is then Σ α_i κ_i with
        κ_i = `attenuation`(α)_i; without them κ = 1, the constant of the paper's Theorem 2. The other rules
        do not depend on them.
      kappa: κ itself in [0, 1], where it is known; excludes frequencies, and enters "interpolated" alone, too.
      normalize: "paper": absolute multipliers of the paper's η. "hidden": all divided by the hidden one, so
        that the rate given *is* the hidden rate.
      base_width: multipliers relative to this width: each role's is divided by what the same rule gives the
        role at (base_width, base_vocab), so that the rate given is the one tuned there, where every
        multiplier is 1. Excludes normalize="hidden". Init stds stay absolute.
      base_vocab: the vocabulary at the base width; `vocab` unless given. κ is held.
      token_rows: how the embedding's rows enter the model, one of `TOKEN_ROWS`. It sets the embedding's forward
        multiplier and changes no init std and no rate.

    Returns:
      A `Table`; `str` of it is an aligned text table that says what learning_rate means.

    Raises:
      InputError: unknown rule or normalize; a function that has the name of one of these rules, or does not give
        every role an init std (finite, not negative) and a multiplier (finite, above zero); width, vocab or a base
        that is not a whole number in range; frequencies that are negative, not finite, of another length than vocab,
        or do not sum to one within 1e-6; kappa outside [0, 1] or beside frequencies; base_width together with
        normalize="hidden"; base_vocab without base_width.
    """
    rule, of = _rule(rule)
    if normalize not in ("paper", "hidden"):
        raise InputError(f"normalize must be 'paper' or 'hidden', not {normalize!r}")
    width, vocab = check_whole("width", width, 1), check_whole("vocab", vocab, 2)
    kappa = _kappa(rule, vocab, frequencies, kappa)
    cells = of(width, vocab, kappa)
    factors = _forward_multipliers(cells, token_rows, width)
    divisors, meaning = _divisors(of, cells, vocab, kappa, normalize, base_width, base_vocab)
    rows = tuple(
        Row(role, float(std), rate / divisors[role], role != "vector", factors[role])
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


def _rule(rule: Rule) -> tuple[str, Callable[[int, int, float], Mapping[str, tuple[float, ...]]]]:
    """A rule's name, and (width, vocab, kappa) → (init std, multiplier) by role."""
    if not callable(rule):
        if not isinstance(rule, str) or rule not in _RULES:
            raise unknown("rule", rule if isinstance(rule, str) else repr(rule), _RULES)
        return rule, _RULES[rule]
    name = getattr(getattr(rule, "func", rule), "__name__", type(rule).__name__)  # also of a functools.partial
    if name in _RULES:
        raise InputError(f"rule {name}: lvp has one of this name; call the function something else")
    return name, lambda d, m, kappa: _checked_rows(name, rule(d, m))


def _checked_rows(name: str, cells: Any) -> Mapping[str, tuple[float, ...]]:
    """What a function of somebody's own gave, if it is a row for every role."""
    if not isinstance(cells, Mapping) or set(cells) != set(_ROLES):
        raise InputError(f"rule {name} must give a row for each of {', '.join(_ROLES)}, got {shown(cells)}")
    checked = {}
    for role in _ROLES:
        row = cells[role]
        try:
            std, rate, *further = map(float, row)
        except (TypeError, ValueError):
            raise InputError(f"rule {name}: {role} needs (init std, LR multiplier), got {shown(row)}") from None
        if len(further) > 1:
            raise InputError(
                f"rule {name}: {role} needs (init std, LR multiplier) or (…, forward multiplier), got {shown(row)}"
            )
        if not (0 <= std < math.inf and all(0 < x < math.inf for x in (rate, *further))):
            raise InputError(f"rule {name}: {role} needs (init std ≥ 0, multipliers > 0), all finite; got {row}")
        checked[role] = (std, rate, *further)
    return checked


def _kappa(rule: str, vocab: int, frequencies, kappa: float | None) -> float:
    if kappa is not None:
        if frequencies is not None:
            raise InputError("kappa and frequencies both say what κ is: give one of them")
        if isinstance(kappa, bool) or not isinstance(kappa, Real) or not 0 <= kappa <= 1:
            raise InputError(f"kappa must be a number from 0 to 1, got {kappa!r}")
        return float(kappa)
    if frequencies is not None:
        alpha = check_frequencies(frequencies, vocab)
        if rule == "interpolated":
            return min(1.0, float(alpha @ attenuation(alpha)))  # a sum up to 1 + 1e-6 is accepted
    return 1.0


def _divisors(of, cells, vocab, kappa, normalize, base_width, base_vocab) -> tuple[dict[str, float], str]:
    """What each role's absolute multiplier is divided by, and what the learning rate then is, in words."""
    if base_width is None and base_vocab is not None:
        raise InputError("base_vocab needs base_width")
    if base_width is not None:
        if normalize == "hidden":
            raise InputError(
                "base_width and normalize='hidden' give learning_rate two meanings: choose one "
                "(with base_width leave normalize at 'paper')"
            )
        base_width = check_whole("base_width", base_width, 1)
        base_vocab = vocab if base_vocab is None else check_whole("base_vocab", base_vocab, 2)
        base = of(base_width, base_vocab, kappa)
        meaning = f"the rate tuned at width {base_width}, vocab {base_vocab}, where every multiplier is 1"
        return {role: row[1] for role, row in base.items()}, meaning
    if normalize == "hidden":
        hidden = cells["hidden"][1]
        return dict.fromkeys(cells, hidden), "the rate of the hidden matrices (whose multiplier is 1)"
    return dict.fromkeys(cells, 1.0), "the paper's η (absolute multipliers)"


def embedding_ratio(width: float, vocab: float, kappa: float = 1.0) -> float:
    """η_E / η_W at which the two halves of the linear model's first step are equal, for σ_E = σ_W.

    √( (1 + (2/π)(d−1) κ) / (1 + 2(d−1)/(π m)) ), from Theorems 1 and 4 of Hayou & Liu 2025 with κ_i = I_i
    (the paper's own form is κ_i = a_i, see `attenuation`). Limits: √(2κ/π) √d for m ≫ d, √(κ m) for d ≫ m,
    and 1 for κ = 0 (a rare token) and m ≫ d. Dimensionless.

    Args:
      width: d ≥ 1. vocab: m ≥ 1. kappa: in [0, 1].

    Raises:
      InputError: any of them out of range.
    """
    if not (width >= 1 and vocab >= 1 and 0 <= kappa <= 1):
        raise InputError(
            f"embedding_ratio needs width ≥ 1, vocab ≥ 1, 0 ≤ kappa ≤ 1; got {width!r}, {vocab!r}, {kappa!r}"
        )
    numerator = 1 + 2 / math.pi * (width - 1) * kappa
    return math.sqrt(numerator / (1 + 2 * (width - 1) / (math.pi * vocab)))


def attenuation(frequencies: ArrayLike) -> np.ndarray:
    """κ_i = I_i = E[α_i² z_i² / Σ_j α_j² z_j²] for z iid N(0, 1): what is left of the d² term for token i.

    With a_i = α_i² / Σ_j α_j²,

        I_i = ∫₀^∞ a_i (1 + 2 t a_i)⁻¹ Π_j (1 + 2 t a_j)^(−1/2) dt,    Σ_i I_i = 1,

    so that Var X_k = d + (2/π) d (d−1) I_i in Theorem 4 of Hayou & Liu 2025. The paper's proof takes I_i for
    a_i, which holds for equal frequencies only (under a pure Zipf law I/a is 0.72 at rank 1 and
    1.81 at the tail).

    The integral is a trapezoid sum in u = log t, where the integrand is analytic in |Im u| < π/2 at least and
    decays exponentially both ways, so the error falls as exp(−π²/step): relative error below 1e-11 for every
    token. Memory is O(m), not O(m × nodes): nodes come in chunks.

    Args:
      frequencies: [m] token probabilities, m ≥ 2; zeros are allowed and give 0.

    Returns:
      [m] float64.

    Raises:
      InputError: negative or non-finite frequencies, fewer than two, or a sum not one within 1e-6.
    """
    alpha = check_frequencies(frequencies)
    share, inverse, counts = np.unique(alpha**2 / np.sum(alpha**2), return_inverse=True, return_counts=True)
    positive = share[share > 0]
    # Below −40 lies e⁻⁴⁰ of the integral; above, every factor has turned 80 e-folds before, or (shares of no
    # account) exp(u) would overflow.
    log_t = np.arange(-40.0, 80.0 - math.log(max(positive[0], 1e-250)), _STEP)
    integral = np.zeros_like(share)
    chunk = max(1, _CHUNK_ELEMENTS // share.size)
    for start in range(0, log_t.size, chunk):
        u = log_t[start : start + chunk]
        x = 2 * np.exp(u)[:, None] * share
        log_weight = u - 0.5 * (np.log1p(x) @ counts)
        # Largest term any token can still get; it falls monotonically once past its peak.
        if np.max(log_weight - np.log1p(2 * np.exp(u) * positive[0])) < -60 and u[0] > 0:
            break
        integral += np.exp(log_weight) @ (1 / (1 + x))
    return (_STEP * share * integral)[inverse]


_STEP = 0.25
_CHUNK_ELEMENTS = 1 << 20


def check_frequencies(frequencies: ArrayLike, vocab: int | None = None) -> np.ndarray:
    """Token probabilities as float64 [m].

    Args:
      frequencies: [m], m ≥ 2, not negative, of sum 1 within 1e-6; they are not divided by their sum.
      vocab: m where it is known.

    Raises:
      InputError: anything else.
    """
    try:
        alpha = np.asarray(frequencies, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"frequencies must be an array of numbers ({error})") from error
    if alpha.ndim != 1 or alpha.size < 2:
        raise InputError(f"frequencies must be [vocab] with at least 2 tokens, got shape {alpha.shape}")
    if vocab is not None and alpha.size != vocab:
        raise InputError(f"frequencies has {alpha.size} tokens, vocab is {vocab}")
    if not np.all(np.isfinite(alpha)) or np.any(alpha < 0):
        raise InputError("frequencies must be finite and not negative")
    total = float(alpha.sum())
    if abs(total - 1) > 1e-6:
        raise InputError(f"frequencies sum to {total:.9g}, not 1: divide them by their sum")
    return alpha


def check_whole(name: str, value: Any, least: int) -> int:
    """`value`, any whole-number type but bool, as an int of at least `least`; InputError by `name` otherwise."""
    try:
        whole = operator.index(value)
    except TypeError as error:
        raise InputError(f"{name} must be a whole number, got {value!r}") from error
    if whole < least or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return whole
