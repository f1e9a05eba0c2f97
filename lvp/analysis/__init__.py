"""Judging a sweep over learning rates, on plain arrays: optima, slopes over widths, claims, figures."""

from lvp.analysis import claims, figures
from lvp.analysis.curves import optima, optimum
from lvp.analysis.estimators import Optimum
from lvp.analysis.noise import seed_noise, t_interval
from lvp.analysis.planes import Powers, powers
from lvp.analysis.slopes import Slope, slope

__all__ = [
    "Optimum",
    "Powers",
    "Slope",
    "claims",
    "figures",
    "optima",
    "optimum",
    "powers",
    "seed_noise",
    "slope",
    "t_interval",
]
