"""Analysis of a sweep over learning rates, on plain arrays: optima, slopes over widths, claims, figures."""

from lvp.analysis import claims, optimum_figure
from lvp.analysis.curves import optima, optimum
from lvp.analysis.estimators import Optimum
from lvp.analysis.noise import seed_noise, t_interval
from lvp.analysis.power_fits import Powers, powers
from lvp.analysis.slopes import Slope, slope

__all__ = [
    "Optimum",
    "Powers",
    "Slope",
    "claims",
    "optimum_figure",
    "optima",
    "optimum",
    "powers",
    "seed_noise",
    "slope",
    "t_interval",
]
