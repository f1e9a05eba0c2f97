"""Laws of the best embedding rate, and how much the constant of a law varies between variants of the base."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, stdtrit

from lvp.analysis import Optimum
from lvp.analysis.measurement import NORMAL_QUANTILE, Measurement
from lvp.analysis.slopes import paule_mandel

# Quantity → its symbol. The sweep varies the first five; RMS(positions) is proportional to the varied amplitude.
QUANTITIES = {
    "width": "d",
    "steps": "T",
    "row factor": "s",
    "added": "RMS(positions)",
    "σ_E √d": "σ_E √d",
    "initial rows": "s σ_E",
    "input": "RMS(input at the start)",
}
_RANDOM_WALK = {"row factor": -1.0, "steps": -0.5}
# Law → {quantity: power}. The best rate is proportional to the product of the powers. The first law is under test.
LAWS: Mapping[str, Mapping[str, float]] = {
    "rows grow as √T to the positions": _RANDOM_WALK | {"added": 1.0},
    "rows grow as √T to a fixed size": _RANDOM_WALK,
    "rows grow as √T to their initial size": _RANDOM_WALK | {"initial rows": 1.0},
    "rows grow as √T to the initial input": _RANDOM_WALK | {"input": 1.0},
    "rows grow as T to the positions": {"row factor": -1.0, "steps": -1.0, "added": 1.0},
    "steps are a part of the positions": {"row factor": -1.0, "added": 1.0},
    "steps have a fixed size": {"row factor": -1.0},
    "width^(−1/2)": {"width": -0.5},
    "one rate": {},
}


class Spread(NamedTuple):
    """The constant of a law, and how much it varies between variants."""

    constant: Measurement  # the geometric mean of best rate / product of powers
    width: Measurement  # relative half-width of the band that holds 95 % of the constants, without the optima's noise
    num_points: int  # number of optima


def spread(optima: Sequence[Optimum], powers: Mapping[str, float], quantities: Mapping[str, np.ndarray]) -> Spread:
    """The constant of a law and its spread over variants.

    This is a random-effects meta-analysis. The logarithm of a variant's constant is μ + δ + e. δ is the deviation of
    the variant, with variance τ². e is the noise of its optimum, with the known variance s².

    - τ² is Paule and Mandel's estimate. Its interval is the Q profile (Viechtbauer 2007): the values at which the
      weighted residual sum of squares lies between the 2.5 % and 97.5 % quantiles of χ² with n − 1 degrees of freedom.
    - `Spread.width` is exp(1.96 τ) − 1.
    - The constant is exp(μ), with the interval of Knapp and Hartung.

    Args:
      optima: [N], resolved, from different runs.
      powers: quantity → its power in the law.
      quantities: quantity → values [N], positive.

    Returns:
      The spread; its measurements are unknown for fewer than three optima, if a std is unknown, or if all stds are 0.
    """
    unknown, num = Measurement(math.nan, None), len(optima)
    stds = np.array([optimum.log_rate_std for optimum in optima])
    if num < 3 or not (np.isfinite(stds).all() and stds.max() > 0):
        return Spread(unknown, unknown, num)
    y = np.log([optimum.rate for optimum in optima])
    for name, power in powers.items():
        y = y - power * np.log(quantities[name])
    variances, freedom = np.maximum(stds, 1e-3 * stds.max()) ** 2, num - 1

    def scatter(v: np.ndarray) -> float:
        """The weighted residual sum of squares, for the variances v."""
        return float(np.sum((y - np.average(y, weights=1 / v)) ** 2 / v))

    def tau_at(level: float) -> float:
        """τ at which `scatter` equals the quantile of χ² that χ² exceeds with probability `level`."""
        goal = chdtri(freedom, level)
        if scatter(variances) <= goal:
            return 0.0
        # scatter(variances + τ²) is at most scatter(1)/τ², so it is below the goal at this τ².
        high = 2 * scatter(np.ones(num)) / goal
        return math.sqrt(brentq(lambda tau2: scatter(variances + tau2) - goal, 0, high, xtol=1e-14))

    tau2 = paule_mandel(scatter, variances, freedom)
    low, middle, high = (math.expm1(NORMAL_QUANTILE * tau) for tau in (tau_at(0.025), math.sqrt(tau2), tau_at(0.975)))
    weights = 1 / (variances + tau2)
    error = math.sqrt(max(scatter(variances + tau2) / freedom, 1e-12) / weights.sum())
    centre = Measurement.plus_minus(np.average(y, weights=weights), float(stdtrit(freedom, 0.975)) * error)
    return Spread(centre.exp(), Measurement(middle, (low, high)), num)
