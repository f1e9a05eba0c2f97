"""The runs of an adaptive sweep over rates: a coarse grid, a bracket of the optimum, then all seeds in the bracket.

A grid spends most of its runs far from the optimum. This design trains all seeds at three rates only, usually two
steps of the grid apart. The vertex of a parabola through them has 1.12 times the standard error of the vertex from all
five rates of the same range.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from lvp.analysis.curves import optima
from lvp.analysis.estimators import Optimum
from lvp.analysis.noise import as_runs, two_way, usable_rates
from lvp.analysis.quadratic_fit import fit_windows
from lvp.errors import InputError

LEAST_RATES = 5  # with fewer rates, a grid has hardly more runs than this design
# Trained rates on each side of a window's centre. One coarse rate is two steps of the grid, the window of `optima`.
_WINDOW = 1


def coarse_rates(num_rates: int) -> list[int]:
    """The indices of every second rate and of the last rate.

    Raises:
      InputError: there are fewer than `LEAST_RATES` rates.
    """
    if num_rates < LEAST_RATES:
        raise InputError(f"an adaptive design needs at least {LEAST_RATES} rates, got {num_rates}; use a grid")
    return sorted({*range(0, num_rates, 2), num_rates - 1})


def next_runs(rates: ArrayLike, losses: ArrayLike) -> list[tuple[int, int]]:
    """Returns the next runs to train, as (index of the seed, index of the rate); empty when the design is complete.

    1. The first seed trains the coarse rates.
    2. If the best rate is the first or last trained rate, or a neighbour diverged, the first seed trains rates between
       the best rate and its neighbours. This ends when both neighbours of the best rate have finite losses. It also
       ends when no rate is left: the optimum is then at the edge, and the design is complete.
    3. All other seeds train the rate nearest to the fitted optimum, and its two neighbours. If the optimum of the new
       means is elsewhere, steps 2 and 3 are repeated there.

    The design stops no run before its last step. The next runs depend on the losses only.

    Args:
      rates: learning rates [R], increasing.
      losses: [seeds, R]; nan is a run that is not trained, inf a diverged run.

    Raises:
      InputError: there are fewer than `LEAST_RATES` rates; the losses have another shape, are not numbers or are -inf.
    """
    runs, log_rates = as_runs(losses), np.log(np.asarray(rates, float))
    if runs.shape[1:] != log_rates.shape:
        raise InputError(f"{log_rates.size} rates but losses of shape {runs.shape}; the last axis is rates")
    if untrained := [(0, rate) for rate in coarse_rates(log_rates.size) if np.isnan(runs[0, rate])]:
        return untrained
    trained = np.flatnonzero(~np.isnan(runs).all(axis=0))
    usable = usable_rates(runs)[trained]
    if not usable.any():
        return []
    windows = fit_windows(log_rates[trained], usable, _WINDOW)
    located = windows.locate(two_way(runs[:, trained])[0][None])
    best, centre = int(located.best[0]), int(located.centre[0])
    if between := _untrained_neighbours(trained, usable, best):
        return [(0, rate) for rate in between]
    if best in (windows.first, windows.last):  # an optimum at the edge: further seeds do not resolve it
        return []
    points = windows.points(centre)
    window = trained[points[usable[points]]]
    return [(seed, int(rate)) for rate in window for seed in np.flatnonzero(np.isnan(runs[:, rate])).tolist()]


def _untrained_neighbours(trained: np.ndarray, usable: np.ndarray, best: int) -> list[int]:
    """The rates to train until the best rate is bracketed; empty if it is bracketed or no rate is left.

    A candidate is the rate in the middle between the best rate and a trained neighbour. The candidates beside diverged
    neighbours come first. If none is left, the optimum can still be on the other side, so the other candidates follow.

    Args:
      trained: indices of the trained rates.
      usable: mask of the trained rates with a mean loss.
      best: index of the best rate in `trained`.
    """
    sides = [i for i in (best - 1, best + 1) if 0 <= i < len(trained)]
    if len(sides) == 2 and usable[sides].all():
        return []
    middles = {i: int(trained[i] + trained[best] + (i > best)) // 2 for i in sides}
    toward_divergence = [m for i, m in middles.items() if not usable[i] and m not in trained]
    return toward_divergence or sorted(m for m in middles.values() if m not in trained)


def bracketed_optima(
    rates_by_width: Sequence[ArrayLike], losses_by_width: Sequence[ArrayLike], *, num_bootstrap: int = 2000
) -> list[Optimum]:
    """The optimum of every width from the runs of the adaptive design: `lvp.analysis.optima` of the trained rates.

    Args:
      rates_by_width: W lists of learning rates [R].
      losses_by_width: W arrays [seeds, R] as in `next_runs`.
      num_bootstrap: number of curves that the bootstrap simulates.

    Raises:
      InputError: there is no width; a width has fewer than `LEAST_RATES` rates; rates are not positive, finite and
        increasing; losses have another shape, are not numbers or are -inf; num_bootstrap is below 100.
    """
    by_width = [trained_rates(*curve) for curve in zip(rates_by_width, losses_by_width, strict=True)]
    rates, runs = ([curve[i] for curve in by_width] for i in range(2))
    return optima(rates, runs, window=_WINDOW, num_bootstrap=num_bootstrap)


def trained_rates(rates: ArrayLike, losses: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The coarse rates and all other trained rates [K], and their losses [seeds, K].

    Raises:
      InputError: there are fewer than `LEAST_RATES` rates; the losses have another rank, are not numbers or are -inf.
    """
    rates, runs = np.asarray(rates, float), as_runs(losses)
    kept = ~np.isnan(runs).all(axis=0)
    kept[coarse_rates(rates.size)] = True
    return rates[kept], runs[:, kept]
