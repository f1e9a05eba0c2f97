"""Optima of single curves: exact where they must be, flagged where there is none, one line for bad input."""

import numpy as np
import pytest

from lvp.analysis import optima, optimum
from lvp.errors import InputError

RATES = 0.001 * 2.0 ** np.arange(9)
LOG_RATES = np.log(RATES)
PEAK = LOG_RATES[4] + 0.3


def parabola(peak=PEAK, curvature=0.15):
    return 0.5 + curvature * (LOG_RATES - peak) ** 2


def sweep(noise=0.02, seeds=3, seed=0, curve=None, block=0.1):
    """Lanes [seeds, 9] about a parabola, with seed blocks."""
    rng = np.random.default_rng(seed)
    curve = parabola() if curve is None else curve
    blocks = block * rng.standard_normal((seeds, 1))
    return 1 + curve + blocks + noise * rng.standard_normal((seeds, 9))


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("shift", np.linspace(-1.9, 1.9, 7))
def test_exact_parabola_has_its_exact_vertex(window, shift):
    found = optimum(RATES, parabola(LOG_RATES[4] + shift), window=window)
    assert abs(np.log(found.rate) - (LOG_RATES[4] + shift)) < 1e-10
    assert found.loss == pytest.approx(0.5, abs=1e-10)
    assert found.curvature == pytest.approx(0.15, abs=1e-10)
    assert not found.flags


def test_exact_parabola_on_an_uneven_grid():
    logs = np.array([-7.0, -6.1, -5.5, -4.9, -4.0, -3.3])
    found = optimum(np.exp(logs), 2 * (logs + 5.2) ** 2)
    assert abs(np.log(found.rate) + 5.2) < 1e-10


def test_identical_seeds_leave_no_uncertainty():
    found = optimum(RATES, np.tile(parabola(), (3, 1)))
    assert found.noise_std == 0 and found.log_rate_std < 1e-12 and found.resolved
    assert found.interval == pytest.approx((found.rate, found.rate))


@pytest.mark.parametrize("method", ["quadratic", "geometric_mean", "argmin"])
def test_order_of_seeds_changes_nothing(method):
    lanes = sweep()
    one, other = optimum(RATES, lanes, method=method), optimum(RATES, lanes[[2, 0, 1]], method=method)
    assert one.rate == pytest.approx(other.rate, rel=1e-12)
    assert one.log_rate_std == pytest.approx(other.log_rate_std, rel=1e-9)
    assert one.interval == pytest.approx(other.interval, rel=1e-9)


@pytest.mark.parametrize("method", ["quadratic", "argmin"])
def test_a_constant_per_seed_changes_nothing_but_the_loss(method):
    lanes = sweep()
    one = optimum(RATES, lanes, method=method)
    other = optimum(RATES, lanes + np.array([[0.7], [-0.3], [0.2]]), method=method)
    assert other.rate == pytest.approx(one.rate, rel=1e-9)
    assert other.log_rate_std == pytest.approx(one.log_rate_std, rel=1e-9)
    assert other.noise_std == pytest.approx(one.noise_std, rel=1e-9)
    assert other.loss == pytest.approx(one.loss + 0.2, rel=1e-9)


@pytest.mark.parametrize("method", ["quadratic", "geometric_mean", "argmin"])
def test_scaled_rates_scale_the_optimum(method):
    one, other = (optimum(scale * RATES, sweep(), method=method) for scale in (1.0, 37.0))
    assert np.log(other.rate / one.rate) == pytest.approx(np.log(37.0), abs=1e-10)
    assert other.log_rate_std == pytest.approx(one.log_rate_std, rel=1e-6)


def test_scaled_losses_change_nothing_but_losses():
    one, other = optimum(RATES, sweep()), optimum(RATES, 1000 * sweep())
    assert other.rate == pytest.approx(one.rate, rel=1e-9)
    assert other.log_rate_std == pytest.approx(one.log_rate_std, rel=1e-9)
    assert other.noise_std == pytest.approx(1000 * one.noise_std, rel=1e-9)


def test_the_same_seed_gives_the_same_bits():
    assert optimum(RATES, sweep(), seed=5) == optimum(RATES, sweep(), seed=5)
    assert optimum(RATES, sweep(), seed=5).interval != optimum(RATES, sweep(), seed=6).interval


def test_std_is_the_spread_of_optima_over_sweeps():
    found = [optimum(RATES, sweep(0.04, seed=s), num_bootstrap=300, seed=s) for s in range(400)]
    logs = np.log([f.rate for f in found])
    claimed = np.median([f.log_rate_std for f in found])
    assert np.mean(logs) == pytest.approx(PEAK, abs=0.01)
    assert claimed == pytest.approx(np.std(logs), rel=0.12)
    inside = np.mean([f.interval[0] <= np.exp(PEAK) <= f.interval[1] for f in found])
    assert 0.90 <= inside <= 0.98


def test_where_the_grid_falls_on_a_lopsided_curve_hardly_matters():
    def wall(z):
        return 0.1 * z**2 + 0.6 * np.log1p(np.exp(2 * (z - 1.5)))

    peaks = LOG_RATES[4] + np.linspace(-0.7, 0.7, 29)
    errors = [np.log(optimum(RATES, wall(LOG_RATES - peak)).rate) - peak for peak in peaks]
    assert np.ptp(errors) < 0.01  # of a common shift of 0.13; 0.05 without the average over positions


def test_methods_agree_on_a_symmetric_curve_and_know_their_grid():
    found = {m: optimum(RATES, sweep(0.005), method=m) for m in ("quadratic", "geometric_mean", "argmin")}
    for one in found.values():
        assert abs(np.log(one.rate) - PEAK) < 2.5 * max(one.log_rate_std, 0.01)
    assert found["argmin"].rate == RATES[4]
    assert found["argmin"].log_rate_std >= np.log(2) / 12**0.5
    assert found["quadratic"].log_rate_std < 0.02


def test_geometric_mean_is_the_papers():
    losses = np.array([9.0, 3.0, 1.19, 1.0, 1.1, 1.21, 4.0, 9.0, 9.0])
    found = optimum(RATES, losses, method="geometric_mean", tolerance=0.2)
    assert found.rate == pytest.approx((RATES[2] * RATES[3] * RATES[4]) ** (1 / 3))
    assert found.band == (RATES[2], RATES[4])
    two = np.array([losses, losses + 0.15])  # of the second seed, only 1.15 is within 20 % of the best lane
    found = optimum(RATES, two, method="geometric_mean", tolerance=0.2)
    assert found.rate == pytest.approx((RATES[2] * RATES[3] ** 2 * RATES[4]) ** (1 / 4))


def test_geometric_mean_beside_a_diverged_lane():
    lanes = sweep(0.01)
    whole = optimum(RATES, lanes, method="geometric_mean")
    lanes[0, 7] = np.inf
    found = optimum(RATES, lanes, method="geometric_mean")
    assert found.rate == whole.rate
    assert found.log_rate_std == pytest.approx(whole.log_rate_std, rel=0.1)


@pytest.mark.parametrize(
    ("curve", "open_end"),
    [(0.3 * (LOG_RATES[-1] - LOG_RATES), 1), (0.3 * (LOG_RATES - LOG_RATES[0]), 0)],
    ids=["falling", "rising"],
)
@pytest.mark.parametrize("method", ["quadratic", "argmin"])
def test_monotone_curves_are_flagged_edge(curve, open_end, method):
    found = optimum(RATES, sweep(curve=curve), method=method)
    assert "edge" in found.flags and not found.resolved
    assert np.isnan(found.log_rate_std)
    assert found.interval[open_end] == (0.0, np.inf)[open_end]


def test_a_band_that_runs_off_the_grid_is_flagged_edge():
    found = optimum(RATES, sweep(curve=0.01 * parabola()), method="geometric_mean")
    assert "edge" in found.flags and found.interval == (0.0, np.inf)


def test_flat_noise_is_flagged_noise():
    found = [optimum(RATES, sweep(curve=0 * RATES, seed=s), num_bootstrap=100, seed=s) for s in range(300)]
    assert sum(f.resolved for f in found) <= 3  # 1 % of them
    assert np.mean(["noise" in f.flags for f in found]) > 0.97


def test_a_curve_that_falls_and_stays_flat_has_no_optimum():
    curve = np.exp(-(LOG_RATES - LOG_RATES[0] - 1))
    found = [optimum(RATES, sweep(0.05, curve=curve, seed=s), num_bootstrap=200, seed=s) for s in range(100)]
    assert sum(f.resolved for f in found) <= 5


def test_clear_curves_are_not_flagged():
    assert all(optimum(RATES, sweep(0.03, seed=s), num_bootstrap=200).resolved for s in range(100))


def test_divergence_beyond_the_window_is_a_note_within_it_a_flag():
    lanes = sweep()
    lanes[1, 8] = np.inf
    found = optimum(RATES, lanes)
    assert not found.flags and "diverged" in found.notes[0]
    lanes[0, 6] = np.inf
    assert optimum(RATES, lanes).flags == ("diverged",)
    lanes[:, 5:] = np.inf  # the best point is now the last with a loss
    assert {"edge", "diverged"} <= set(optimum(RATES, lanes).flags)


def test_missing_lanes():
    lanes = sweep(block=1.0)
    lanes[2, 0] = np.nan
    found = optimum(RATES, lanes)
    assert not found.flags and "missing" in found.notes[0]
    lanes[0, 4] = np.nan
    found = optimum(RATES, lanes)
    assert found.flags == ("missing",)
    assert abs(np.log(found.rate) - PEAK) < 0.1  # a plain mean would be off by a third of the seed's block


def test_nothing_to_look_at():
    for value, flag in ((np.nan, "missing"), (np.inf, "diverged")):
        for method in ("quadratic", "geometric_mean", "argmin"):
            found = optimum(RATES, np.full((3, 9), value), method=method)
            assert found.flags == (flag,) and np.isnan(found.rate) and not found.resolved
    lanes = np.full((3, 9), np.nan)
    lanes[:, 3:5] = [[1.0, 1.1]]
    assert "missing" in optimum(RATES, lanes).flags


def test_one_seed_has_no_std_unless_the_noise_is_given():
    found = optimum(RATES, parabola())
    assert found.resolved and np.isnan(found.log_rate_std) and np.isnan(found.interval).all()
    assert any("noise unknown" in note for note in found.notes)
    given = optimum(RATES, parabola(), noise_std=0.02)
    assert 0.01 < given.log_rate_std < 0.1 and np.isinf(given.degrees_of_freedom)


def test_an_asymmetric_curve_is_noted_a_symmetric_one_is_not():
    z = LOG_RATES - PEAK
    found = optimum(RATES, sweep(0.003, curve=0.15 * z**2 + 0.03 * z**3))
    assert any("asymmetric" in note for note in found.notes)
    notes = [optimum(RATES, sweep(0.03, seed=s), num_bootstrap=100).notes for s in range(100)]
    assert sum(map(bool, notes)) <= 15


def test_optima_pool_the_noise_and_take_grids_by_width():
    lanes = [sweep(seed=s) for s in range(4)]
    pooled = optima(RATES, lanes)
    assert max(o.noise_std for o in pooled) / min(o.noise_std for o in pooled) < 1.5
    assert pooled[0].degrees_of_freedom > optimum(RATES, lanes[0]).degrees_of_freedom
    by_width = optima(np.array([RATES, 2 * RATES, RATES, RATES]), lanes)
    assert by_width[1].rate == pytest.approx(2 * pooled[1].rate)


BAD = {
    "rates not increasing": dict(rates=RATES[::-1]),
    "rates repeated": dict(rates=np.where(np.arange(9) == 4, RATES[3], RATES)),
    "rate zero": dict(rates=np.r_[0.0, RATES[1:]]),
    "rate negative": dict(rates=np.r_[-1.0, RATES[1:]]),
    "rate nan": dict(rates=np.r_[RATES[:-1], np.nan]),
    "rate infinite": dict(rates=np.r_[RATES[:-1], np.inf]),
    "rates no numbers": dict(rates=["a"] * 9),
    "too few rates": dict(rates=RATES[:2], losses=np.ones((3, 2))),
    "no rates": dict(rates=[], losses=[]),
    "shapes differ": dict(losses=np.ones((3, 8))),
    "three axes": dict(losses=np.ones((2, 3, 9))),
    "no seeds": dict(losses=np.ones((0, 9))),
    "ragged losses": dict(losses=[[1.0, 2.0], [1.0]]),
    "losses no numbers": dict(losses=["x"] * 9),
    "minus infinity": dict(losses=np.full(9, -np.inf)),
    "unknown method": dict(method="cubic"),
    "window zero": dict(window=0),
    "window no integer": dict(window=1.5),
    "tolerance negative": dict(tolerance=-0.1),
    "tolerance no number": dict(tolerance="20%"),
    "noise negative": dict(noise_std=-1.0),
    "noise nan": dict(noise_std=np.nan),
    "bootstrap too small": dict(num_bootstrap=10),
    "geometric mean of negative losses": dict(losses=sweep() - 10, method="geometric_mean"),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_bad_input_gets_one_line(change):
    arguments = {"rates": RATES, "losses": sweep(), **change}
    with pytest.raises(InputError) as caught:
        optimum(arguments.pop("rates"), arguments.pop("losses"), **arguments)
    assert len(str(caught.value).splitlines()) == 1


def test_bad_input_of_optima():
    with pytest.raises(InputError, match="empty"):
        optima(RATES, [])
    with pytest.raises(InputError, match="2 grids"):
        optima([RATES, RATES], [sweep()])
