"""Judging a sweep over learning rates, on plain arrays: optima, slopes over widths, claims, figures."""

from lvp.analysis import claims, figures
from lvp.analysis.curves import optima, optimum
from lvp.analysis.estimators import Optimum
from lvp.analysis.noise import seed_noise
from lvp.analysis.slopes import Slope, slope

__all__ = ["Optimum", "Slope", "claims", "figures", "optima", "optimum", "seed_noise", "slope"]
