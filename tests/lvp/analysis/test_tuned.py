"""Differences of tuned losses: closed forms, and error rates of verdicts on planted sweeps."""

from collections import Counter

import numpy as np
import pytest

from lvp.analysis.claims import judge
from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import Tuned, difference, select

SELECTING, JUDGING, DRAWS = 8, 16, 100  # as the laptop preset of `warmup`
RATES = np.geomspace(0.008, 0.0508, 5)
WARMUPS = (0.0, 0.05, 0.2, 0.5)
GAP = (0.01, np.inf)  # nats; the region that the sentence "warm-up helps" claims


def swept(rng, helps: float, *, edge: bool, selecting: int = SELECTING) -> dict[float, Tuned]:
    """Returns, by warm-up, the losses of a planted sweep at the selected rate.

    The curve is the same for every warm-up. Without warm-up, the loss is larger by `helps` at every rate. With `edge`,
    a run loses 0.3 nats with a probability that grows with the rate: about 1/7 at the rate of the least mean.
    """
    curve = 3.4 + 0.06 * np.log(RATES / 0.02) ** 2
    unstable = 1 / (1 + np.exp(-4 * np.log(RATES / 0.02))) if edge else np.zeros(len(RATES))
    by_warmup = {}
    for warmup in WARMUPS:
        shape = (len(RATES), selecting + JUDGING)
        losses = curve[:, None] + helps * (warmup == 0) + 0.02 * rng.normal(size=shape)
        losses += 0.3 * (rng.random(shape) < unstable[:, None])
        chosen = select(losses[:, :selecting])
        by_warmup[warmup] = Tuned(losses[chosen.best, selecting:], chosen.regret)
    return by_warmup


def verdicts(helps: float, *, edge: bool, selecting: int = SELECTING) -> Counter:
    """Counts the verdicts on "warm-up helps" over planted sweeps."""
    rng = np.random.default_rng(0)
    counts: Counter = Counter()
    for _ in range(DRAWS):
        sweep = swept(rng, helps, edge=edge, selecting=selecting)
        gap = difference([[sweep[0.0]]], [[sweep[w] for w in WARMUPS if w]])
        counts[judge(*gap, claimed=GAP)] += 1
    return counts


@pytest.mark.parametrize("edge", [False, True])
@pytest.mark.parametrize("selecting", [2, 8])
def test_verdicts_on_planted_effects_are_rarely_wrong(edge, selecting):
    assert verdicts(0.1, edge=edge, selecting=selecting)["contradicted"] <= 0.05 * DRAWS
    assert verdicts(0.0, edge=edge, selecting=selecting)["supported"] <= 0.05 * DRAWS


@pytest.mark.parametrize(("edge", "helps"), [(False, 0.1), (True, 0.3)])
def test_a_planted_effect_is_detected_in_either_direction(edge, helps):
    """Positive control: an interval that is always wide would pass the test above."""
    assert verdicts(helps, edge=edge)["supported"] >= 0.9 * DRAWS
    assert verdicts(-helps, edge=edge)["contradicted"] >= 0.9 * DRAWS


def test_selecting_seeds_support_an_absent_effect():
    """Negative control: other seeds do not."""
    rng = np.random.default_rng(0)
    wrong = np.zeros(2)  # judged on the same seeds, and on others
    for _ in range(DRAWS):
        without, with_warmup = 0.05 * rng.normal(size=(2, JUDGING)), 0.05 * rng.normal(size=(2, 20, JUDGING))
        best = with_warmup[0].mean(axis=1).argmin()
        gaps = [Measurement.over_seeds(without[i] - with_warmup[i, best]) for i in (0, 1)]
        wrong += [judge(*gap, claimed=(0.0, np.inf)) == "supported" for gap in gaps]
    assert wrong[0] > 0.1 * DRAWS and wrong[1] <= 0.05 * DRAWS


def test_one_candidate_on_each_side_has_the_t_interval():
    first, second = np.array([1.0, 1.2, 1.1]), np.array([0.9, 1.0, 0.8])
    value, interval = Measurement.over_seeds(first - second)
    assert difference([[Tuned(first)]], [[Tuned(second)]]) == (pytest.approx(value), pytest.approx(interval))


def test_a_regret_widens_the_end_that_it_could_change():
    first, second = np.array([1.0, 1.2, 1.1]), np.array([0.9, 1.0, 0.8])
    value, (low, high) = difference([[Tuned(first)]], [[Tuned(second)]])
    of_plus = difference([[Tuned(first, 0.3)]], [[Tuned(second)]])
    of_minus = difference([[Tuned(first)]], [[Tuned(second, 0.4)]])
    assert of_plus.value == of_minus.value == value
    assert of_plus.interval == pytest.approx((low - 0.3, high))
    assert of_minus.interval == pytest.approx((low, high + 0.4))


def drawn(rng, *, block: float, selecting: int, judging: int) -> tuple[Tuned, float]:
    """A tuned group and its least true loss.

    A step of the grid from the optimum costs 0.01. `block` is the std of a seed's effect on all rates.
    """
    curve = 2.0 + 0.01 * (np.arange(5) - 2 - rng.uniform(-0.5, 0.5)) ** 2
    seeds = np.random.default_rng(7).normal(0, block, selecting + judging)  # the same for every group
    losses = curve[:, None] + seeds + 0.01 * rng.normal(size=(5, selecting + judging))
    chosen = select(losses[:, :selecting])
    return Tuned(losses[chosen.best, selecting:], chosen.regret), curve.min()


@pytest.mark.parametrize(("selecting", "judging"), [(2, 3), (3, 8), (2, 16)])
def test_the_interval_contains_the_difference_of_the_least_losses(selecting, judging):
    rng, covered, draws = np.random.default_rng(0), 0, 1000
    for _ in range(draws):
        (first, of_first), (second, of_second) = (
            drawn(rng, block=0.1, selecting=selecting, judging=judging) for _ in range(2)
        )
        low, high = difference([[first]], [[second]]).interval
        covered += low <= of_first - of_second <= high
    assert 0.90 * draws <= covered <= 0.98 * draws


def test_effects_of_the_seeds_change_no_interval():
    """A seed that has a higher loss at every rate says nothing about the difference of two groups."""
    intervals = []
    for block in (0.0, 1.0):
        rng = np.random.default_rng(0)
        groups = [drawn(rng, block=block, selecting=2, judging=3)[0] for _ in range(2)]
        intervals.append(difference(*([[group]] for group in groups)).interval)
    assert intervals[0] == pytest.approx(intervals[1])


def test_the_regret_is_known_from_two_seeds_and_two_values():
    losses = np.array([[1.0, 1.2], [1.1, 1.2], [1.5, 1.7]])  # residuals of the nearest three: freedom 2
    residuals = losses - losses.mean(axis=1, keepdims=True) - losses.mean(axis=0) + losses.mean()
    error = np.sqrt((residuals**2).sum() / 2 * 2 / 2)
    assert select(losses).regret == pytest.approx(max(0.0, error - 0.05)) and select(losses).best == 0
    assert select(losses[:1]).regret == 0 and select(losses[:, :1]).regret == np.inf


def test_least_losses_of_groups_are_added_and_subtracted():
    """With little noise: min(3, 2) + 5 − min(1, 4) = 6."""
    noise = np.array([-1e-6, 0.0, 1e-6])
    plus = [[Tuned(3 + noise), Tuned(2 - noise)], [Tuned(5 + noise)]]
    measured = difference(plus, [[Tuned(1 + noise), Tuned(4 + noise)]])
    assert measured.value == pytest.approx(6) and measured.interval == pytest.approx((6, 6), abs=1e-4)


def test_exchanged_groups_give_the_opposite_interval():
    plus, minus = ([Tuned(row, 0.1) for row in rows] for rows in np.random.default_rng(0).normal(size=(2, 3, 5)))
    (low, high), (other_low, other_high) = (
        difference(*pair).interval for pair in ([[plus], [minus]], [[minus], [plus]])
    )
    assert (low, high) == pytest.approx((-other_high, -other_low)) and low < high


@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_a_run_without_a_loss_leaves_the_interval_unknown(lost):
    rows = [Tuned(np.array([1.0, 1.1, 1.2])), Tuned(np.array([1.0, lost, 1.2]))]
    assert difference([rows[:1]], [rows]).interval is None


@pytest.mark.parametrize(("beside", "at_edge"), [(np.nan, True), (np.inf, False), (2.0, False)])
def test_the_edge_is_that_of_the_tried_values(beside, at_edge):
    """A value without runs is not tried; a diverged one is."""
    assert select(np.array([[beside] * 2, [1.0, 1.1], [2.0, 2.1]])).at_edge == at_edge
