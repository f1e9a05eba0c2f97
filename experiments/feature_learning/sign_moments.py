"""Measures theorems 3 and 4 of Hayou & Liu 2025, from which theorem 1 follows. S is the sign.

Theorem 3: W is [d, m] with rows W_j, and v is [m], both iid N(0, 1). X = Σ_j S(⟨v, W_j⟩) W_j has the covariance
(d + 2 d (d−1) / (π m)) I. Theorem 4: E is [m, d] with iid N(0, 1) entries. M is [m, m] and Gaussian; row i has the
variance α_i². X = E_i S(Eᵀ M) has a diagonal covariance with the variance d + (2/π) (α_i²/ᾱ²) d (d−1) / m. This
variance is exact for equal frequencies only (`lvp.theory`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lvp import theory
from lvp.analysis.measurement import NORMAL_QUANTILE, Measurement

GROUPS = ("theorem 3", "theorem 4")
X_DRAWS_PER_DRAW = 20  # a draw of X costs much less than a step of theorem 1
# Column of the table → group, and the name of X in texts.
VARIANCES = {
    "signs_variance": ("theorem 3", "Theorem 3"),
    "top_variance": ("theorem 4", "Theorem 4, most frequent token"),
    "rare_variance": ("theorem 4", "Theorem 4, median token"),
}


def calculate(arguments: Mapping[str, Any], group: str, alpha: np.ndarray, tokens: list[int]) -> dict[str, float]:
    """The variance and covariance of two coordinates of X, and the variance by the exact form and by the paper's.

    Measured values have standard errors.
    """
    import jax

    from lvp.theory import simulation

    d, draws, key = arguments["width"], X_DRAWS_PER_DRAW * arguments["draws"], jax.random.key(arguments["seed"])
    if group == "theorem 3":
        moments = simulation.theorem_3_moments(key, d, len(alpha), draws=draws)
        variance = float(theory.sign_projection_variance(d, len(alpha)))
        return _columns("signs", moments, (), variance, variance)
    moments = simulation.theorem_4_moments(key, d, alpha, tokens=tokens, draws=draws)
    outcome: dict[str, Any] = {}
    variances = [theory.sign_gaussian_variance(d, alpha, exact=exact) for exact in (True, False)]
    for i, name in enumerate(("top", "rare")):
        outcome |= _columns(name, moments, (i,), *(float(variance[tokens[i]]) for variance in variances))
    return outcome


def _columns(name: str, moments, at: tuple[int, ...], exact: float, paper: float) -> dict[str, float]:
    """The columns of one X: its moments at index `at` with standard errors, and its variance by both forms."""
    outcome = {f"{name}_variance_exact": exact, f"{name}_variance_paper": paper}
    for moment, estimate in (("variance", moments.variance), ("covariance", moments.covariance)):
        outcome[f"{name}_{moment}"] = float(np.asarray(estimate.mean)[at])
        outcome[f"{name}_{moment}_error"] = float(np.asarray(estimate.standard_error)[at])
    return outcome


def correlation(row, variance: str) -> Measurement:
    """The ratio of covariance to variance in a row of the table.

    Args:
      variance: a key of `VARIANCES`.
    """
    covariance = variance.replace("variance", "covariance")
    half_width = NORMAL_QUANTILE * row[f"{covariance}_error"] / row[variance]
    return Measurement.plus_minus(row[covariance] / row[variance], half_width)


def lines(rows_by_group: Mapping[str, Any]) -> list[str]:
    """The moments at the largest width as lines of text; an empty list if no run has run.

    Args:
      rows_by_group: group → rows of the table, by increasing width.
    """
    body = []
    for column, (group, name) in VARIANCES.items():
        rows = rows_by_group[group]
        if len(rows):
            widest = rows.iloc[-1]
            ratios = " ".join(f"{widest[column] / widest[f'{column}_{form}']:>15.3f}" for form in ("exact", "paper"))
            value, _, interval = correlation(widest, column).text(".4f").partition(" ")
            body.append(f"{name:<39} {ratios} {value:>9} {interval}")
    head = f"{'covariance of X at the largest width':<39} {'variance/exact':>15} {'variance/paper':>15}"
    head += "   off-diagonal/variance"
    return [head, *body] if body else []
