"""Differences of losses at tuned settings, judged on seeds that tuned nothing."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from lvp.analysis.measurement import Measurement
from lvp.analysis.noise import t_interval, two_way

LEVEL = 0.95
_RIVALS = 4  # values that may be better than the selected one: those with the next means


class Tuned(NamedTuple):
    """The losses of a setting at the rate that other seeds selected."""

    losses: np.ndarray  # [judging seeds]; nan for a missing or diverged run
    regret: float = 0.0  # the amount by which another rate may be better; see `Selected`


class Selected(NamedTuple):
    """The value of a grid that the selecting seeds choose."""

    best: int  # index of the value
    at_edge: bool  # the first or last of the tried values, so that a better value may lie beyond
    regret: float  # the amount by which another value may be better


def select(losses: np.ndarray) -> Selected | None:
    """The value with the least mean loss; None if no value has a finite loss for every selecting seed.

    Another value may be better by the standard error of the difference of two means, less the measured difference. The
    error is that of the selecting seeds, without the effects that a seed has on all values. It is infinite with one
    selecting seed.

    Args:
      losses: [values, selecting seeds]; nan or inf for a missing or diverged run. A value without a run was not tried.
    """
    means = np.where(np.isfinite(losses).all(axis=1), losses.mean(axis=1), np.inf)
    if not np.isfinite(means).any():
        return None
    best = int(np.argmin(means))
    tried = np.flatnonzero(~np.isnan(losses).all(axis=1))
    at_edge = len(means) > 1 and best in (tried[0], tried[-1])
    return Selected(best, at_edge, _regret(losses, means))


def _regret(losses: np.ndarray, means: np.ndarray) -> float:
    nearest = np.argsort(means, kind="stable")[: 1 + _RIVALS]
    nearest = nearest[np.isfinite(means[nearest])]
    if len(nearest) == 1:
        return 0.0
    _, _, residuals, freedom = two_way(losses[nearest].T)
    if not freedom:
        return np.inf
    error = np.sqrt(np.sum(residuals**2) / freedom * 2 / losses.shape[1])
    return max(0.0, float(error - (means[nearest[1]] - means[nearest[0]])))


def difference(plus: Sequence[Sequence[Tuned]], minus: Sequence[Sequence[Tuned]]) -> Measurement:
    """The sum of the least losses of the groups in `plus`, minus the sum of the least losses of the groups in `minus`.

    A group holds the candidates for one loss, such as an optimizer with several warm-ups. Its least loss is that of its
    best candidate at the best rate. No candidate is selected, so the 95 % interval allows for every candidate. It uses
    the t intervals of all pairs of a candidate of `plus` and a candidate of `minus`.

    - Lower end: for each candidate of `plus`, the largest lower end over the candidates of `minus`. The result is the
      least of these values.
    - Upper end: for each candidate of `minus`, the least upper end over the candidates of `plus`. The result is the
      largest of these values.

    Bonferroni's correction keeps the level at 95 %.

    A regret of a candidate of `plus` moves lower ends down, and that of a candidate of `minus` moves upper ends up. An
    unlucky selection of a rate therefore cannot decide a claim.

    Args:
      plus, minus: groups of candidates. All losses have the same judging seeds. Differences are taken seed by seed.

    Returns:
      The measurement. Its interval is unknown if a loss is not finite or if there are fewer than two seeds.
    """
    added, taken = ([_sum(candidates) for candidates in product(*groups)] for groups in (plus, minus))
    value = min(np.mean(a.losses) for a in added) - min(np.mean(t.losses) for t in taken)
    lows, highs = np.full((2, len(taken), len(added)), np.nan)
    for i, t in enumerate(taken):
        for j, a in enumerate(added):
            low = t_interval(a.losses - t.losses, level=1 - (1 - LEVEL) / len(taken))
            high = t_interval(a.losses - t.losses, level=1 - (1 - LEVEL) / len(added))
            if low is None or high is None:
                return Measurement(float(value), None)
            lows[i, j], highs[i, j] = low[0] - a.regret, high[1] + t.regret
    return Measurement(float(value), (float(lows.max(axis=0).min()), float(highs.min(axis=1).max())))


def _sum(candidates: Sequence[Tuned]) -> Tuned:
    """The sum of losses, seed by seed. Regrets add up."""
    return Tuned(np.sum([c.losses for c in candidates], axis=0), sum(c.regret for c in candidates))
