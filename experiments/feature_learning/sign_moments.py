"""Theorems 3 and 4 of Hayou & Liu 2025, the covariances behind theorem 1, as lanes of `feature_learning`.

Theorem 3: X = Σ_j S(⟨v, W_j⟩) W_j has covariance (d + 2 d (d−1) / (π m)) I. Theorem 4: X = E_i S(Eᵀ M) has a diagonal
covariance of d + (2/π) (α_i²/ᾱ²) d (d−1) / m; its diagonal is exact for equal frequencies only (`lvp.theory`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lvp import theory

ARMS = ("theorem 3", "theorem 4")
PER_STEP = 20  # draws: a draw of X has hardly more to say than one of its squares
# By column: the theorem, and what its X is of.
VARIANCES = {
    "signs_variance": ("theorem 3", "Theorem 3"),
    "top_variance": ("theorem 4", "Theorem 4, most frequent token"),
    "rare_variance": ("theorem 4", "Theorem 4, median token"),
}


def calculate(arguments: Mapping[str, Any], arm: str, alpha: np.ndarray, tokens: list[int]) -> dict[str, float]:
    """Variance and covariance of two coordinates of X with standard errors, and the exact and printed variance."""
    import jax

    from lvp.theory import simulation

    d, draws, key = arguments["width"], PER_STEP * arguments["draws"], jax.random.key(arguments["seed"])
    if arm == "theorem 3":
        found = simulation.theorem_3_moments(key, d, len(alpha), draws=draws)
        form = float(theory.sign_projection_variance(d, len(alpha)))
        return _read("signs", found, (), form, form)
    found = simulation.theorem_4_moments(key, d, alpha, tokens=tokens, draws=draws)
    out: dict[str, Any] = {}
    forms = [theory.sign_gaussian_variance(d, alpha, exact=exact) for exact in (True, False)]
    for i, name in enumerate(("top", "rare")):
        out |= _read(name, found, (i,), *(float(form[tokens[i]]) for form in forms))
    return out


def _read(name: str, found, at: tuple[int, ...], exact: float, paper: float) -> dict[str, float]:
    out = {f"{name}_variance_exact": exact, f"{name}_variance_paper": paper}
    for what, estimate in (("variance", found.variance), ("covariance", found.covariance)):
        out[f"{name}_{what}"] = float(np.asarray(estimate.mean)[at])
        out[f"{name}_{what}_error"] = float(np.asarray(estimate.standard_error)[at])
    return out


def correlation(row, variance: str) -> tuple[float, tuple[float, float]]:
    """Covariance over variance of a row of the table, with a 95 % interval."""
    covariance = variance.replace("variance", "covariance")
    value, half = row[covariance] / row[variance], 1.96 * row[f"{covariance}_error"] / row[variance]
    return float(value), (float(value - half), float(value + half))


def lines(rows_by_arm: Mapping[str, Any]) -> list[str]:
    """The largest width's numbers as a table; nothing where none has run. `rows_by_arm`: rows by width."""
    made = []
    for column, (arm, name) in VARIANCES.items():
        rows = rows_by_arm[arm]
        if len(rows):
            last = rows.iloc[-1]
            ratios = " ".join(f"{last[column] / last[f'{column}_{form}']:>15.3f}" for form in ("exact", "paper"))
            value, (low, high) = correlation(last, column)
            made.append(f"{name:<39} {ratios} {value:>9.4f} [{low:.4f}, {high:.4f}]")
    head = f"{'covariance of X at the largest width':<39} {'variance/exact':>15} {'variance/paper':>15}"
    head += "   off-diagonal/variance"
    return [head, *made] if made else []
