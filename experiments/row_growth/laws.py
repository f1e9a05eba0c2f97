"""Laws of the best embedding rate, and the spread of a law's constant over variants."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri, stdtrit

from lvp.analysis import Optimum
from lvp.analysis.measurement import NORMAL_QUANTILE, Measurement
from lvp.analysis.slopes import paule_mandel

# Quantity → its symbol. The first five are the factors of the sweep, up to constants.
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
# Law → powers of the quantities that the best rate follows. The first is the law under test.
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
    """A law's constant over variants."""

    constant: Measurement  # the geometric mean of optimum / prediction
    width: Measurement  # relative half-width of the band that holds 95 % of the variants, without the optima's noise
    num_points: int


def spread(optima: Sequence[Optimum], powers: Mapping[str, float], quantities: Mapping[str, np.ndarray]) -> Spread:
    """The constant of a law and its spread over variants.

    The logarithm of a variant's constant is μ + δ + e. The optimum's noise e has the known variance s², and δ has the
    variance τ². τ² is Paule and Mandel's. Its interval is that of the Q profile (Viechtbauer 2007): the values at which
    the weighted residual sum of squares is between the 2.5 % and 97.5 % quantiles of χ² with n − 1 degrees of freedom.
    The width is exp(1.96 τ) − 1. The interval of μ is Knapp and Hartung's.

    Args:
      optima: [N], resolved, from different runs.
      powers: quantity → power of the best rate under the law.
      quantities: name → values [N], positive.

    Returns:
      Unknown measurements for fewer than three optima or if a std is unknown.
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
        return float(np.sum((y - np.average(y, weights=1 / v)) ** 2 / v))

    def tau_at(level: float) -> float:
        """τ at which the scatter is the quantile of χ² that is exceeded with probability `level`."""
        goal = chdtri(freedom, level)
        if scatter(variances) <= goal:
            return 0.0
        high = 2 * scatter(np.ones(num)) / goal
        return math.sqrt(brentq(lambda tau2: scatter(variances + tau2) - goal, 0, high, xtol=1e-14))

    tau2 = paule_mandel(scatter, variances, freedom)
    low, middle, high = (math.expm1(NORMAL_QUANTILE * tau) for tau in (tau_at(0.025), math.sqrt(tau2), tau_at(0.975)))
    weights = 1 / (variances + tau2)
    error = math.sqrt(max(scatter(variances + tau2) / freedom, 1e-12) / weights.sum())
    centre = Measurement.plus_minus(np.average(y, weights=weights), float(stdtrit(freedom, 0.975)) * error)
    return Spread(centre.exp(), Measurement(middle, (low, high)), num)
