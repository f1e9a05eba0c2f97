"""The adaptive design on planted curves: its optimum, its number of runs, and the same runs for the same outcomes."""

import numpy as np
import pytest

from lvp.analysis import optima
from lvp.analysis.bracketing import bracketed_optima, coarse_rates, next_runs, trained_rates
from lvp.errors import InputError
from tests.marking import slow

RATES = np.geomspace(0.001, 0.256, 9)
STEP = np.log(2)


def planted(rng, peaks, *, noise=0.03, walls=None, seeds=3):
    """Losses [seeds, 9] of one parabola in the log rate per peak, with seed effects; infinite above each wall."""
    by_width = []
    for width, peak in enumerate(peaks):
        curve = 0.15 * (np.log(RATES) - peak) ** 2
        runs = 1 + curve + 0.1 * rng.standard_normal((seeds, 1)) + noise * rng.standard_normal((seeds, len(RATES)))
        by_width.append(np.where(np.log(RATES) > (np.inf if walls is None else walls[width]), np.inf, runs))
    return by_width


def trained(runs, rng=None):
    """The losses [seeds, R] of the design's runs. With a generator, the runs of a round arrive one by one in random
    order, and the next round is asked for when all have arrived."""
    seen = np.full_like(runs, np.nan)
    while todo := next_runs(RATES, seen):
        for index in range(len(todo)) if rng is None else rng.permutation(len(todo)):
            assert np.isnan(seen[todo[index]])  # no run twice
            seen[todo[index]] = runs[todo[index]]
    return seen


def number(seen):
    return int((~np.isnan(seen)).sum())


@pytest.mark.parametrize(
    "noise, wall, sweeps",
    [(0.04, False, 60), *(slow(noise, wall, 150) for noise in (0.01, 0.04) for wall in (False, True))],
)
def test_half_of_the_runs_cover_the_planted_optimum(noise, wall, sweeps):
    """With a wall, the rates from 1.5 to 4 steps above the optimum diverge."""
    rng = np.random.default_rng([int(100 * noise), wall])
    covered, counts, resolved_by_grid = [], [], 0
    for _ in range(sweeps):
        peaks = np.log(RATES[4]) + rng.uniform(-1.5, 1.5, 4) * STEP
        runs = planted(rng, peaks, noise=noise, walls=peaks + rng.uniform(1.5, 4, 4) * STEP if wall else None)
        seen = [trained(curve) for curve in runs]
        counts += map(number, seen)
        for peak, best in zip(peaks, bracketed_optima([RATES] * 4, seen, num_bootstrap=200), strict=True):
            if best.resolved:
                covered.append(best.interval[0] <= np.exp(peak) <= best.interval[1])
        resolved_by_grid += sum(best.resolved for best in optima(RATES, runs, num_bootstrap=200)) if wall else 4
    assert 0.90 <= np.mean(covered) <= 0.98
    assert len(covered) >= resolved_by_grid
    assert np.mean(counts) <= 27 / 2


def test_a_round_of_each_kind():
    """Every second rate, then the other seeds at the best rate and its neighbours, which are two steps away."""
    runs = planted(np.random.default_rng(0), [np.log(RATES[4]) + 0.2], noise=0.001)[0]
    seen = np.full_like(runs, np.nan)
    first = next_runs(RATES, seen)
    assert first == [(0, rate) for rate in (0, 2, 4, 6, 8)]
    for run in first:
        seen[run] = runs[run]
    second = next_runs(RATES, seen)
    assert second == [(seed, rate) for rate in (2, 4, 6) for seed in (1, 2)]
    for run in second:
        seen[run] = runs[run]
    assert next_runs(RATES, seen) == []


def test_the_order_of_arrival_changes_no_run():
    rng = np.random.default_rng(1)
    for _ in range(30):
        peak = np.log(RATES[4]) + rng.uniform(-2, 2) * STEP
        (runs,) = planted(rng, [peak], noise=0.04, walls=[peak + rng.uniform(0.5, 3) * STEP])
        once, again = trained(runs), trained(runs, rng)
        np.testing.assert_array_equal(once, again)


def test_losses_of_runs_that_the_design_omits_have_no_effect():
    rng = np.random.default_rng(2)
    (runs,) = planted(rng, [np.log(RATES[3])])
    seen = trained(runs)
    np.testing.assert_array_equal(trained(np.where(np.isnan(seen), rng.uniform(size=runs.shape), runs)), seen)


def test_a_diverged_run_moves_the_bracket_to_lower_rates():
    """Rates from index 6 diverge with the first seed, and index 5 with the last seed only."""
    runs = planted(np.random.default_rng(3), [np.log(RATES[4]) - 0.3], noise=0.001)[0]
    runs[:, 6:] = np.inf
    seen = trained(runs)
    rates, _ = trained_rates(RATES, seen)
    assert RATES[5] in rates and np.isfinite(seen[:, 5]).all()  # between the best rate and the diverged rate
    (best,) = bracketed_optima([RATES], [seen])
    assert best.resolved and best.rate == pytest.approx(RATES[4] * np.exp(-0.3), rel=0.02)

    runs[2, 5] = np.inf
    moved = trained(runs)
    assert not np.isnan(moved[0, 3]) and not np.isnan(seen[0, 5]) and np.isnan(seen[0, 3])
    assert np.isnan(moved[1:, 6:]).all()  # a diverged rate gets no other seed


@pytest.mark.parametrize("index", [0, 8])
def test_an_optimum_at_the_edge_gets_no_further_seeds(index):
    """The control: the parabola's minimum lies outside of the rates."""
    runs = planted(np.random.default_rng(4), [np.log(RATES[index]) + np.sign(index - 4) * STEP], noise=0.001)[0]
    seen = trained(runs)
    (best,) = bracketed_optima([RATES], [seen])
    assert "edge" in best.flags and not best.resolved
    assert number(seen) == 6 and np.isnan(seen[1:]).all()


def test_a_curve_that_diverges_everywhere_ends():
    seen = trained(np.full((3, 9), np.inf))
    assert number(seen) == 5
    assert "diverged" in bracketed_optima([RATES], [seen])[0].flags


def test_one_seed_ends_with_the_bracket():
    runs = planted(np.random.default_rng(5), [np.log(RATES[5])], seeds=1)[0]
    assert number(trained(runs)) == 5


def test_coarse_rates_hold_both_ends():
    assert [coarse_rates(n) for n in (5, 6, 9)] == [[0, 2, 4], [0, 2, 4, 5], [0, 2, 4, 6, 8]]
    with pytest.raises(InputError, match="at least 5 rates, got 4"):
        coarse_rates(4)
    with pytest.raises(InputError, match="9 rates but losses of shape"):
        next_runs(RATES, np.full((3, 8), np.nan))
