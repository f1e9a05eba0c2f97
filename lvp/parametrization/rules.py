"""Rules: role × (width, vocabulary) → init std, learning-rate multiplier, decay, forward multiplier.

The module uses NumPy only, not jax. SP, μP and LVP are Tables 1 and 2 of Hayou & Liu 2025,
"Optimal Embedding Learning Rate in LLMs: The Effect of Vocabulary Size", and `interpolated` follows from its theorems 1
and 4. They are for optimizers whose update is of order one per coordinate (Adam, Lion, sign descent). The paper prints
init *variances*; a `Table` contains standard deviations. d is the width, m the vocabulary, η the paper's single tunable
rate. Entries are (init std, learning rate):

|                   | embedding, position       | hidden           | output           | vector   |
|-------------------|---------------------------|------------------|------------------|----------|
| SP                | 1, η                      | d^-1/2, η        | d^-1/2, η        | 0, η     |
| muP               | 1, η                      | d^-1/2, η / d    | d^-1, η / d      | 0, η     |
| LVP               | d^-1/2, η d^-1/2          | d^-1/2, η / d    | d^-1/2, η / d    | 0, η / d |
| interpolated      | d^-1/2, η ratio / d       | d^-1/2, η / d    | d^-1/2, η / d    | 0, η / d |

- SP's embedding: the paper's text calls σ_W = σ_E = d^-1/2 "SP's init", but its Table 2 has variance 1. We
  follow the table.
- position: learned positions take the embedding's row (`lvp.roles.DEFAULT` gives the reason).
- vector: the paper gives no rule. An init std of 0 means that biases start at 0 and gains at 1. The rate under
  muP is that of input weights in Yang et al. 2022 (Tensor Programs V, table 8). LVP and interpolated take the
  hidden rate, the smallest of the rates. Gains start at 1, so a rate is a relative change per step: at the
  paper's η = 0.2 and d = 256, muP's row moves a gain by 20 % per step, LVP's embedding row by 1.3 %, and the
  hidden rate by 0.08 %.
- decay: matrices decay, vectors do not.
- forward multiplier: 1 in all four rules. The way in which the embedding's rows enter the model is a separate
  choice (`TOKEN_ROWS`); the rules' init stds and rates do not depend on it.

Rules of other sources. Entries are (init std, learning rate, forward multiplier):

|                    | embedding, position    | hidden              | output                        | vector     |
|--------------------|------------------------|---------------------|-------------------------------|------------|
| completep          | 1, η, 1                | d^-1/2, η / d, 1    | 1, η, 1/d                     | 0, η       |
| umup               | 1, η d^-1/2, 1         | 1, η d^-1/2, d^-1/2 | 1, η, 1/d                     | 0, η       |
| sp_embedding_width | 1, η d, 1              | d^-1/2, η, 1        | d^-1/2, η, 1                  | 0, η       |
| nanochat           | 0.8, 0.3 (d/768)^-1/2  | d^-1/2, 0.02 (Muon) | 0.001, 0.008 (d/768)^-1/2     | 0, 0.005   |

- completep: the width column of Table 1 of Dey et al. 2025 (arXiv 2505.01618), muP with a forward multiplier on the
  head. Its depth column is in `lvp.parametrization.axes`.
- umup: Blake et al. 2024 (arXiv 2407.17465), as in the code of graphcore-research/unit-scaling (`optim.py`,
  `functional.py`): forward 1/√fan-in (head: 1/fan-in) and rate 1/√fan-in at unit init. A row takes d for the fan-in
  of every hidden matrix. Scales of the backward pass have no effect under Adam and are absent.
- sp_embedding_width: SP with the embedding's rate times the width (Kalra & Barkeshli 2026, arXiv 2605.21486,
  abstract). The abstract names no other change; learned positions take the embedding's row, as in the other rules.
- nanochat: the constants of karpathy/nanochat (`scripts/base_train.py`, `nanochat/gpt.py`, commit 92d63d4). The hidden
  rate is Muon's. nanochat divides token rows by their RMS (token_rows "normalized"). "vector" is the row of its
  residual scalars; nanochat has no gains, biases or learned positions. Zero inits of projections and the factor 0.4 on
  the MLP's first matrix are not roles and are absent.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lvp.errors import InputError, shown, unknown

TOKEN_ROWS = ("plain", "sqrt", "normalized")
"""How a token's row enters the model: unchanged (GPT-2), times √width (Vaswani et al. 2017, section 3.4; Gemma), or
divided by its RMS (nanochat, modded-nanogpt)."""


def row_multiplier(token_rows: str, width: int) -> float:
    """The embedding's forward multiplier for one of `TOKEN_ROWS`: √width for "sqrt", else 1.

    Raises:
      InputError: the name is not in `TOKEN_ROWS`.

    Example:
      >>> from lvp.parametrization import row_multiplier
      >>> row_multiplier("sqrt", 256), row_multiplier("plain", 256)
      (16.0, 1.0)
    """
    if token_rows not in TOKEN_ROWS:
        raise unknown("token_rows", token_rows, TOKEN_ROWS)
    return math.sqrt(width) if token_rows == "sqrt" else 1.0


@dataclass(frozen=True)
class Formula:
    """A role's init std, learning rate and forward multiplier, as numbers and as text.

    The text uses d (width), m (vocabulary), κ, and d₀ and m₀ for the smaller model. A test compares text and numbers.
    """

    numbers: Callable[[int, int, float], tuple[float, ...]]  # (d, m, κ) → (init std, multiplier of η[, forward])
    init: str  # init std
    ratio: str  # learning rate over the hidden rate
    move: str  # learning rate over the smaller model's
    source: str  # of the learning rate
    forward: str = "1"  # forward multiplier


@dataclass(frozen=True)
class PaperRule:
    """A rule with a published source."""

    formulas: Mapping[str, Formula]  # by role
    notes: tuple[str, ...]  # the rule's basis and limits
    muon: bool = False  # the hidden rate is that of Muon, not of an update of order one per coordinate

    def rows(self, d: int, m: int, kappa: float) -> dict[str, tuple[float, ...]]:
        """(init std, multiplier of η[, forward multiplier]) by role. A row without the third number has 1."""
        return {role: formula.numbers(d, m, kappa) for role, formula in self.formulas.items()}


def _by_role(*, embedding: Formula, hidden: Formula, output: Formula, vector: Formula) -> dict[str, Formula]:
    position = replace(embedding, source="as the embedding (the source has no learned positions)")
    return {"embedding": embedding, "position": position, "hidden": hidden, "output": output, "vector": vector}


_TABLE = "Hayou & Liu 2025, Table 2"
_RATIO = "√((1 + (2/π) (d−1) κ) / (1 + 2 (d−1)/(π m)))"
_RATIO_0 = "√((1 + (2/π) (d₀−1) κ) / (1 + 2 (d₀−1)/(π m₀)))"
_COMPLETEP = "Dey et al. 2025 (CompleteP), Table 1"
_UMUP = "Blake et al. 2024 (u-μP), code of unit-scaling"
_KALRA = "Kalra & Barkeshli 2026, abstract"
_NANOCHAT = "nanochat, base_train.py and gpt.py"
_SP_MATRIX = Formula(lambda d, m, kappa: (d**-0.5, 1.0), "1/√d", "1", "1", _TABLE)
_MATRIX = Formula(lambda d, m, kappa: (d**-0.5, 1 / d), "1/√d", "1", "d₀/d", _TABLE)
_SLOW_VECTOR = Formula(lambda d, m, kappa: (0.0, 1 / d), "0", "1", "d₀/d", "the hidden rate (the paper is silent)")

PAPER_RULES: Mapping[str, PaperRule] = {
    "sp": PaperRule(
        _by_role(
            embedding=Formula(lambda d, m, kappa: (1.0, 1.0), "1", "1", "1", _TABLE),
            hidden=_SP_MATRIX,
            output=_SP_MATRIX,
            vector=Formula(lambda d, m, kappa: (0.0, 1.0), "0", "1", "1", "the one rate (the paper is silent)"),
        ),
        notes=("One rate for all roles and widths: nothing in this rule accounts for width.",),
    ),
    "mup": PaperRule(
        _by_role(
            embedding=Formula(lambda d, m, kappa: (1.0, 1.0), "1", "d", "1", _TABLE),
            hidden=_MATRIX,
            output=Formula(lambda d, m, kappa: (1 / d, 1 / d), "1/d", "1", "d₀/d", _TABLE),
            vector=Formula(
                lambda d, m, kappa: (0.0, 1.0), "0", "d", "1", "Yang et al. 2022 (Tensor Programs V), Table 8"
            ),
        ),
        notes=(
            "muP is for a vocabulary that stays small beside the width; it fixes how the ratio grows with width (as "
            "d), not its constant.",
        ),
    ),
    "lvp": PaperRule(
        _by_role(
            embedding=Formula(lambda d, m, kappa: (d**-0.5, d**-0.5), "1/√d", "√d", "√(d₀/d)", _TABLE),
            hidden=_MATRIX,
            output=_MATRIX,
            vector=_SLOW_VECTOR,
        ),
        notes=(
            "The rule gives the growth of the ratio of embedding to hidden rate: √d, for vocabularies much larger than "
            "the width. It does not give the constant. The paper uses 1.",
            "The paper's own check at width 2048 and vocabulary 32064 (Figure 4b): √d is near-optimal, larger ratios "
            "gain little. Our small models took larger ratios in docs/transfer.md, and √d in docs/pretrain_1b.md.",
        ),
    ),
    "interpolated": PaperRule(
        _by_role(
            embedding=Formula(
                lambda d, m, kappa: (d**-0.5, embedding_ratio(d, m, kappa) / d),
                "1/√d",
                _RATIO,
                f"(d₀/d) {_RATIO} / {_RATIO_0}",
                "Hayou & Liu 2025, Theorems 1 and 4, κ exact",
            ),
            hidden=_MATRIX,
            output=_MATRIX,
            vector=_SLOW_VECTOR,
        ),
        notes=(
            "At this ratio, embedding and head change the linear network's output equally in the first step, for a "
            "token with the given κ. This is a criterion for one step, not for the final loss.",
        ),
    ),
    "completep": PaperRule(
        _by_role(
            embedding=Formula(lambda d, m, kappa: (1.0, 1.0), "1", "d", "1", _COMPLETEP),
            hidden=replace(_MATRIX, source=_COMPLETEP),
            output=Formula(lambda d, m, kappa: (1.0, 1.0, 1 / d), "1", "d", "1", _COMPLETEP, "1/d"),
            vector=Formula(lambda d, m, kappa: (0.0, 1.0), "0", "d", "1", _COMPLETEP),
        ),
        notes=("The width column of CompleteP is muP. Its depth column needs the base depth: from_depth.",),
    ),
    "umup": PaperRule(
        _by_role(
            embedding=Formula(lambda d, m, kappa: (1.0, d**-0.5), "1", "1", "√(d₀/d)", _UMUP),
            hidden=Formula(lambda d, m, kappa: (1.0, d**-0.5, d**-0.5), "1", "1", "√(d₀/d)", _UMUP, "1/√d"),
            output=Formula(lambda d, m, kappa: (1.0, 1.0, 1 / d), "1", "√d", "1", _UMUP, "1/d"),
            vector=Formula(lambda d, m, kappa: (0.0, 1.0), "0", "√d", "1", _UMUP),
        ),
        notes=(
            "u-muP is muP at unit init, except for the embedding, whose rate falls as d^(-1/2). The model must apply "
            "the forward multipliers.",
        ),
    ),
    "sp_embedding_width": PaperRule(
        _by_role(
            embedding=Formula(lambda d, m, kappa: (1.0, float(d)), "1", "d", "d/d₀", _KALRA),
            hidden=replace(_SP_MATRIX, source=_KALRA),
            output=replace(_SP_MATRIX, source=_KALRA),
            vector=Formula(lambda d, m, kappa: (0.0, 1.0), "0", "1", "1", _KALRA),
        ),
        notes=(
            "The rate of SP is not transferred: tune it at every width. Only the embedding's ratio to it is fixed.",
        ),
    ),
    "nanochat": PaperRule(
        _by_role(
            embedding=Formula(
                lambda d, m, kappa: (0.8, 0.3 * (d / 768) ** -0.5), "0.8", "15 √(768/d)", "√(d₀/d)", _NANOCHAT
            ),
            hidden=Formula(lambda d, m, kappa: (d**-0.5, 0.02), "1/√d", "1", "1", _NANOCHAT),
            output=Formula(
                lambda d, m, kappa: (0.001, 0.008 * (d / 768) ** -0.5), "0.001", "0.4 √(768/d)", "√(d₀/d)", _NANOCHAT
            ),
            vector=Formula(lambda d, m, kappa: (0.0, 0.005), "0", "0.25", "1", _NANOCHAT),
        ),
        notes=(
            "The hidden rate is Muon's: train hidden matrices by Muon and the other roles by Adam. Token rows enter "
            "the model divided by their RMS. The constants are for a batch of 2^19 tokens.",
        ),
        muon=True,
    ),
}
ADAM_RMS = 0.2
"""RMS of Muon's update in the unit of Adam's rate (Liu et al. 2025, arXiv 2502.16982, section 2.2): `consistent_rms` of
`optax.contrib.muon`."""
RULES = tuple(name for name, rule in PAPER_RULES.items() if not rule.muon)
"""The rules whose rates are for updates of order one per coordinate. "nanochat" is accepted by name."""
ROLES = tuple(PAPER_RULES["lvp"].formulas)  # the roles of `lvp.roles`, which imports jax


def decays(role: str) -> bool:
    """True if weight decay applies to a role: to matrices, not to vectors."""
    return role != "vector"


Rule = str | Callable[[int, int], Mapping[str, tuple[float, ...]]]


def named_rule(rule: Rule) -> tuple[str, Callable[[int, int, float], Mapping[str, tuple[float, ...]]]]:
    """A rule's name, and its function (width, vocab, kappa) → rows by role, as in `PaperRule.rows`.

    Raises:
      InputError: a name is unknown; a function has the name of a rule of this module. From the function: the rows of a
        user's rule lack a role, or a number is out of range.
    """
    if not callable(rule):
        if not isinstance(rule, str) or rule not in PAPER_RULES:
            raise unknown("rule", rule if isinstance(rule, str) else repr(rule), PAPER_RULES)
        return rule, PAPER_RULES[rule].rows
    name = getattr(getattr(rule, "func", rule), "__name__", type(rule).__name__)  # a functools.partial has `func`
    if name in PAPER_RULES:
        raise InputError(f"rule {name}: lvp has a rule of this name; rename the function")
    return name, lambda d, m, kappa: _checked_rows(name, rule(d, m))


def _checked_rows(name: str, rows: Any) -> Mapping[str, tuple[float, ...]]:
    """Checks the rows of a user's rule and returns them.

    Raises:
      InputError: a role of `ROLES` has no row; a row is not (init std, LR multiplier[, forward multiplier]); an init
        std is negative or not finite; a multiplier is not finite and above zero.
    """
    if not isinstance(rows, Mapping) or not set(ROLES) <= set(rows):
        raise InputError(f"rule {name} must give a row for each of {', '.join(ROLES)}, got {shown(rows)}")
    checked = {}
    for role in dict.fromkeys([*ROLES, *rows]):  # the roles that every rule has come first, in one order
        row = rows[role]
        try:
            std, rate, *further = map(float, row)
        except (TypeError, ValueError):
            raise InputError(f"rule {name}: {role} needs (init std, LR multiplier), got {shown(row)}") from None
        if len(further) > 1:
            raise InputError(
                f"rule {name}: {role} needs (init std, LR multiplier) or (…, forward multiplier), got {shown(row)}"
            )
        if not (0 <= std < math.inf and all(0 < x < math.inf for x in (rate, *further))):
            raise InputError(f"rule {name}: {role} needs (init std ≥ 0, multipliers > 0), all finite; got {shown(row)}")
        checked[role] = (std, rate, *further)
    return checked


def embedding_ratio(width: float, vocab: float, kappa: float = 1.0) -> float:
    """The ratio η_E / η_W at which both components of the linear model's first step are equal, for σ_E = σ_W.

    It is √( (1 + (2/π)(d−1) κ) / (1 + 2(d−1)/(π m)) ), from Theorems 1 and 4 of Hayou & Liu 2025 with κ_i = I_i (the
    paper's form is κ_i = a_i, see `attenuation`). Limits: √(2κ/π) √d for m ≫ d, √(κ m) for d ≫ m, and 1 for κ = 0 (a
    rare token) and m ≫ d. The ratio is dimensionless.

    Args:
      width: d ≥ 1.
      vocab: m ≥ 1.
      kappa: κ in [0, 1].

    Raises:
      InputError: an argument is out of range.

    Example:
      >>> from lvp.parametrization import embedding_ratio
      >>> round(embedding_ratio(256, 8192), 4)  # √(2/π) √256 = 12.7662 for m ≫ d
      12.6556
    """
    if not (width >= 1 and vocab >= 1 and 0 <= kappa <= 1):
        raise InputError(
            f"embedding_ratio needs width ≥ 1, vocab ≥ 1, 0 ≤ kappa ≤ 1; got {width!r}, {vocab!r}, {kappa!r}"
        )
    numerator = 1 + 2 / math.pi * (width - 1) * kappa
    return math.sqrt(numerator / (1 + 2 * (width - 1) / (math.pi * vocab)))


def attenuation(frequencies: ArrayLike) -> np.ndarray:
    """κ_i = I_i = E[α_i² z_i² / Σ_j α_j² z_j²] for z iid N(0, 1): the factor on the d² term for token i.

    With a_i = α_i² / Σ_j α_j²,

        I_i = ∫₀^∞ a_i (1 + 2 t a_i)⁻¹ Π_j (1 + 2 t a_j)^(−1/2) dt,    Σ_i I_i = 1,

    so that Var X_k = d + (2/π) d (d−1) I_i in Theorem 4 of Hayou & Liu 2025. The paper's proof replaces I_i by a_i,
    which is exact for equal frequencies only (under a pure Zipf law, I/a is 0.72 at rank 1 and 1.81 at the tail).

    The integral is a trapezoid sum in u = log t. The integrand is analytic in |Im u| < π/2 at least and decays
    exponentially on both sides, so the error decreases as exp(−π²/step). The relative error is below 1e-11 for every
    token. Memory is O(m), not O(m × nodes), because nodes are processed in chunks.

    Args:
      frequencies: [m] token probabilities, m ≥ 2; zeros are allowed and give 0.

    Returns:
      [m] float64.

    Raises:
      InputError: a frequency is negative or not finite; there are fewer than two; their sum differs from 1 by more
        than 1e-6.

    Example:
      >>> from lvp.parametrization import attenuation
      >>> attenuation([0.5, 0.25, 0.25]).round(4).tolist()
      [0.5272, 0.2364, 0.2364]
    """
    alpha = check_frequencies(frequencies)
    share, inverse, counts = np.unique(alpha**2 / np.sum(alpha**2), return_inverse=True, return_counts=True)
    positive = share[share > 0]
    # The part below −40 is e⁻⁴⁰ of the integral. The upper end is 80 e-folds above the last factor's bend; the bound on
    # the smallest share avoids an overflow of exp(u).
    log_t = np.arange(-40.0, 80.0 - math.log(max(positive[0], 1e-250)), _STEP)
    integral = np.zeros_like(share)
    chunk = max(1, _CHUNK_ELEMENTS // share.size)
    for start in range(0, log_t.size, chunk):
        u = log_t[start : start + chunk]
        x = 2 * np.exp(u)[:, None] * share
        log_weight = u - 0.5 * (np.log1p(x) @ counts)
        # The largest remaining term of any token; it decreases monotonically after its peak.
        if np.max(log_weight - np.log1p(2 * np.exp(u) * positive[0])) < -60 and u[0] > 0:
            break
        integral += np.exp(log_weight) @ (1 / (1 + x))
    return (_STEP * share * integral)[inverse]


_STEP = 0.25
_CHUNK_ELEMENTS = 1 << 20


def check_frequencies(frequencies: ArrayLike, vocab: int | None = None) -> np.ndarray:
    """Checks token probabilities and returns them as float64 [m].

    Args:
      frequencies: [m], m ≥ 2, non-negative, with sum 1 within 1e-6. They are not divided by their sum.
      vocab: the expected m; None accepts any.

    Raises:
      InputError: the frequencies are not [m] numbers with these properties.
    """
    try:
        alpha = np.asarray(frequencies, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"frequencies must be an array of numbers ({error})") from error
    if alpha.ndim != 1 or alpha.size < 2:
        raise InputError(f"frequencies must be [vocab] with at least 2 tokens, got shape {alpha.shape}")
    if vocab is not None and alpha.size != vocab:
        raise InputError(f"frequencies has {alpha.size} tokens, vocab is {vocab}: give one frequency per token")
    if not np.all(np.isfinite(alpha)) or np.any(alpha < 0):
        raise InputError(f"frequencies must be finite and not negative, got a minimum of {alpha.min():g}")
    total = float(alpha.sum())
    if abs(total - 1) > 1e-6:
        raise InputError(f"frequencies sum to {total:.9g}, not 1: divide them by their sum")
    return alpha


def check_above_zero(name: str, value: Any) -> float:
    """Checks that a value is a finite number above zero and returns it as a float.

    Raises:
      InputError: the value is not such a number; the error contains `name`.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise InputError(f"{name} must be a finite number above zero, got {value!r}")
    return float(value)


def check_whole(name: str, value: Any, least: int) -> int:
    """Checks that a value is a whole number of at least `least` and returns it as an int.

    Raises:
      InputError: the value is a bool, not whole, or smaller; the error contains `name`.
    """
    try:
        whole = operator.index(value)
    except TypeError as error:
        raise InputError(f"{name} must be a whole number, got {value!r}") from error
    if whole < least or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return whole
