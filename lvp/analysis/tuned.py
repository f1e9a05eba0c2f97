"""Differences of losses at tuned settings, judged on seeds that tuned nothing."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from lvp.analysis.measurement import Measurement
from lvp.analysis.noise import t_interval

LEVEL = 0.95


class Tuned(NamedTuple):
    """The losses of a setting at the rate that other seeds selected."""

    losses: np.ndarray  # [judging seeds]; nan for a missing or diverged lane
    elsewhere: float = np.inf  # least mean loss of the selecting seeds at the other rates

    @property
    def regret(self) -> float:
        """By how much another rate may be better: the mean loss less `elsewhere`, at least 0."""
        return max(0.0, float(np.mean(self.losses)) - self.elsewhere)


def difference(plus: Sequence[Sequence[Tuned]], minus: Sequence[Sequence[Tuned]]) -> Measurement:
    """The sum of the least losses of the groups in `plus`, less that of the groups in `minus`.

    A group holds the candidates for one loss, such as an optimizer with several warm-ups. Its least loss is that of its
    best candidate at the best rate. No candidate is selected. The interval of 95 % therefore allows for every
    candidate: its lower end is the largest over the candidates of `minus` and the least over the candidates of `plus`
    of the lower ends of t intervals, and the upper end likewise. Bonferroni's correction holds the level.

    A regret of a candidate of `plus` moves lower ends down, and that of a candidate of `minus` moves upper ends up. An
    unlucky selection of a rate can therefore not decide a claim.

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
    return Measurement(float(value), (float(lows.min(axis=1).max()), float(highs.min(axis=1).max())))


def _sum(candidates: Sequence[Tuned]) -> Tuned:
    """The sum of losses, seed by seed. Regrets add up."""
    losses = np.sum([c.losses for c in candidates], axis=0)
    return Tuned(losses, float(np.mean(losses)) - sum(c.regret for c in candidates))
