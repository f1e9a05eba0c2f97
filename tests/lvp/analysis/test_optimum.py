"""Optima of single curves: exact for exact curves, flagged without a clear optimum, one-line errors for bad input."""

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
    """Returns runs [seeds, 9] about a parabola, with seed blocks."""
    rng = np.random.default_rng(seed)
    curve = parabola() if curve is None else curve
    blocks = block * rng.standard_normal((seeds, 1))
    return 1 + curve + blocks + noise * rng.standard_normal((seeds, 9))


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("shift", np.linspace(-1.9, 1.9, 7))
def test_an_exact_parabola_has_its_exact_vertex(window, shift):
    estimate = optimum(RATES, parabola(LOG_RATES[4] + shift), window=window)
    assert abs(np.log(estimate.rate) - (LOG_RATES[4] + shift)) < 1e-10
    assert estimate.loss == pytest.approx(0.5, abs=1e-10)
    assert estimate.curvature == pytest.approx(0.15, abs=1e-10)
    assert not estimate.flags


def test_an_exact_parabola_on_an_uneven_grid():
    logs = np.array([-7.0, -6.1, -5.5, -4.9, -4.0, -3.3])
    estimate = optimum(np.exp(logs), 2 * (logs + 5.2) ** 2)
    assert abs(np.log(estimate.rate) + 5.2) < 1e-10


def test_identical_seeds_have_no_uncertainty():
    estimate = optimum(RATES, np.tile(parabola(), (3, 1)))
    assert estimate.noise_std == 0 and estimate.log_rate_std < 1e-12 and estimate.resolved
    assert estimate.interval == pytest.approx((estimate.rate, estimate.rate))


@pytest.mark.parametrize("method", ["quadratic", "geometric_mean", "argmin"])
def test_the_order_of_seeds_does_not_matter(method):
    runs = sweep()
    ordered, permuted = optimum(RATES, runs, method=method), optimum(RATES, runs[[2, 0, 1]], method=method)
    assert ordered.rate == pytest.approx(permuted.rate, rel=1e-12)
    assert ordered.log_rate_std == pytest.approx(permuted.log_rate_std, rel=1e-9)
    assert ordered.interval == pytest.approx(permuted.interval, rel=1e-9)


@pytest.mark.parametrize("method", ["quadratic", "argmin"])
def test_a_constant_per_seed_changes_only_the_loss(method):
    runs = sweep()
    plain = optimum(RATES, runs, method=method)
    shifted = optimum(RATES, runs + np.array([[0.7], [-0.3], [0.2]]), method=method)
    assert shifted.rate == pytest.approx(plain.rate, rel=1e-9)
    assert shifted.log_rate_std == pytest.approx(plain.log_rate_std, rel=1e-9)
    assert shifted.noise_std == pytest.approx(plain.noise_std, rel=1e-9)
    assert shifted.loss == pytest.approx(plain.loss + 0.2, rel=1e-9)


@pytest.mark.parametrize("method", ["quadratic", "geometric_mean", "argmin"])
def test_scaled_rates_scale_the_optimum(method):
    plain, scaled = (optimum(scale * RATES, sweep(), method=method) for scale in (1.0, 37.0))
    assert np.log(scaled.rate / plain.rate) == pytest.approx(np.log(37.0), abs=1e-10)
    assert scaled.log_rate_std == pytest.approx(plain.log_rate_std, rel=1e-6)


def test_scaled_losses_change_only_the_losses():
    plain, scaled = optimum(RATES, sweep()), optimum(RATES, 1000 * sweep())
    assert scaled.rate == pytest.approx(plain.rate, rel=1e-9)
    assert scaled.log_rate_std == pytest.approx(plain.log_rate_std, rel=1e-9)
    assert scaled.noise_std == pytest.approx(1000 * plain.noise_std, rel=1e-9)


def test_the_same_seed_gives_the_same_bits():
    assert optimum(RATES, sweep(), seed=5) == optimum(RATES, sweep(), seed=5)
    assert optimum(RATES, sweep(), seed=5).interval != optimum(RATES, sweep(), seed=6).interval


def test_the_std_equals_the_spread_of_optima_over_sweeps():
    estimates = [optimum(RATES, sweep(0.04, seed=s), num_bootstrap=300, seed=s) for s in range(400)]
    logs = np.log([f.rate for f in estimates])
    claimed = np.median([f.log_rate_std for f in estimates])
    assert np.mean(logs) == pytest.approx(PEAK, abs=0.01)
    assert claimed == pytest.approx(np.std(logs), rel=0.12)
    inside = np.mean([f.interval[0] <= np.exp(PEAK) <= f.interval[1] for f in estimates])
    assert 0.90 <= inside <= 0.98


def test_the_grid_hardly_affects_an_asymmetric_optimum():
    def wall(z):
        return 0.1 * z**2 + 0.6 * np.log1p(np.exp(2 * (z - 1.5)))

    peaks = LOG_RATES[4] + np.linspace(-0.7, 0.7, 29)
    errors = [np.log(optimum(RATES, wall(LOG_RATES - peak)).rate) - peak for peak in peaks]
    assert np.ptp(errors) < 0.01  # the common shift is 0.13; without the average over positions the range is 0.05


def test_methods_agree_on_a_symmetric_curve_within_the_grid():
    estimates = {m: optimum(RATES, sweep(0.005), method=m) for m in ("quadratic", "geometric_mean", "argmin")}
    for estimate in estimates.values():
        assert abs(np.log(estimate.rate) - PEAK) < 2.5 * max(estimate.log_rate_std, 0.01)
    assert estimates["argmin"].rate == RATES[4]
    assert estimates["argmin"].log_rate_std >= np.log(2) / 12**0.5
    assert estimates["quadratic"].log_rate_std < 0.02


def test_the_geometric_mean_follows_the_paper():
    losses = np.array([9.0, 3.0, 1.19, 1.0, 1.1, 1.21, 4.0, 9.0, 9.0])
    estimate = optimum(RATES, losses, method="geometric_mean", tolerance=0.2)
    assert estimate.rate == pytest.approx((RATES[2] * RATES[3] * RATES[4]) ** (1 / 3))
    assert estimate.band == (RATES[2], RATES[4])
    two = np.array([losses, losses + 0.15])  # of the second seed, only 1.15 is within 20 % of the best run
    estimate = optimum(RATES, two, method="geometric_mean", tolerance=0.2)
    assert estimate.rate == pytest.approx((RATES[2] * RATES[3] ** 2 * RATES[4]) ** (1 / 4))


def test_the_geometric_mean_ignores_a_diverged_run():
    runs = sweep(0.01)
    whole = optimum(RATES, runs, method="geometric_mean")
    runs[0, 7] = np.inf
    estimate = optimum(RATES, runs, method="geometric_mean")
    assert estimate.rate == whole.rate
    assert estimate.log_rate_std == pytest.approx(whole.log_rate_std, rel=0.1)


@pytest.mark.parametrize(
    ("curve", "open_end"),
    [(0.3 * (LOG_RATES[-1] - LOG_RATES), 1), (0.3 * (LOG_RATES - LOG_RATES[0]), 0)],
    ids=["falling", "rising"],
)
@pytest.mark.parametrize("method", ["quadratic", "argmin"])
def test_monotone_curves_are_flagged_edge(curve, open_end, method):
    estimate = optimum(RATES, sweep(curve=curve), method=method)
    assert "edge" in estimate.flags and not estimate.resolved
    assert np.isnan(estimate.log_rate_std)
    assert estimate.interval[open_end] == (0.0, np.inf)[open_end]


def test_a_band_beyond_the_grid_is_flagged_edge():
    estimate = optimum(RATES, sweep(curve=0.01 * parabola()), method="geometric_mean")
    assert "edge" in estimate.flags and estimate.interval == (0.0, np.inf)


def test_pure_noise_is_flagged_noise():
    estimates = [optimum(RATES, sweep(curve=0 * RATES, seed=s), num_bootstrap=100, seed=s) for s in range(300)]
    assert sum(f.resolved for f in estimates) <= 3  # 1 % of the sweeps
    assert np.mean(["noise" in f.flags for f in estimates]) > 0.97


def test_a_curve_that_falls_to_a_plateau_has_no_optimum():
    curve = np.exp(-(LOG_RATES - LOG_RATES[0] - 1))
    estimates = [optimum(RATES, sweep(0.05, curve=curve, seed=s), num_bootstrap=200, seed=s) for s in range(100)]
    assert sum(f.resolved for f in estimates) <= 5


def test_clear_curves_are_not_flagged():
    assert all(optimum(RATES, sweep(0.03, seed=s), num_bootstrap=200).resolved for s in range(100))


def test_divergence_is_a_flag_inside_the_window_only():
    runs = sweep()
    runs[1, 8] = np.inf
    estimate = optimum(RATES, runs)
    assert not estimate.flags and "diverged" in estimate.notes[0]
    runs[0, 6] = np.inf
    assert optimum(RATES, runs).flags == ("diverged",)
    runs[:, 5:] = np.inf  # the best point is now the last finite one
    assert {"edge", "diverged"} <= set(optimum(RATES, runs).flags)


def test_missing_runs():
    runs = sweep(block=1.0)
    runs[2, 0] = np.nan
    estimate = optimum(RATES, runs)
    assert not estimate.flags and "missing" in estimate.notes[0]
    runs[0, 4] = np.nan
    estimate = optimum(RATES, runs)
    assert estimate.flags == ("missing",)
    assert abs(np.log(estimate.rate) - PEAK) < 0.1  # a plain mean would be off by a third of the seed's block


def test_grids_without_enough_losses():
    for value, flag in ((np.nan, "missing"), (np.inf, "diverged")):
        for method in ("quadratic", "geometric_mean", "argmin"):
            estimate = optimum(RATES, np.full((3, 9), value), method=method)
            assert estimate.flags == (flag,) and np.isnan(estimate.rate) and not estimate.resolved
    runs = np.full((3, 9), np.nan)
    runs[:, 3:5] = [[1.0, 1.1]]
    assert "missing" in optimum(RATES, runs).flags


def test_one_seed_has_no_std_unless_the_noise_is_given():
    estimate = optimum(RATES, parabola())
    assert estimate.resolved and np.isnan(estimate.log_rate_std) and np.isnan(estimate.interval).all()
    assert any("noise unknown" in note for note in estimate.notes)
    given = optimum(RATES, parabola(), noise_std=0.02)
    assert 0.01 < given.log_rate_std < 0.1 and np.isinf(given.degrees_of_freedom)


def test_only_asymmetric_curves_are_noted():
    z = LOG_RATES - PEAK
    estimate = optimum(RATES, sweep(0.003, curve=0.15 * z**2 + 0.03 * z**3))
    assert any("asymmetric" in note for note in estimate.notes)
    notes = [optimum(RATES, sweep(0.03, seed=s), num_bootstrap=100).notes for s in range(100)]
    assert sum(map(bool, notes)) <= 15


def test_optima_pool_the_noise_and_accept_a_grid_per_width():
    runs = [sweep(seed=s) for s in range(4)]
    pooled = optima(RATES, runs)
    assert max(o.noise_std for o in pooled) / min(o.noise_std for o in pooled) < 1.5
    assert pooled[0].degrees_of_freedom > optimum(RATES, runs[0]).degrees_of_freedom
    by_width = optima(np.array([RATES, 2 * RATES, RATES, RATES]), runs)
    assert by_width[1].rate == pytest.approx(2 * pooled[1].rate)
    shorter = optima([RATES[1:], *[RATES] * 3], [runs[0][:, 1:], *runs[1:]])
    assert [o.rate for o in shorter] == pytest.approx([o.rate for o in pooled], rel=0.02)


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
def test_bad_input_gives_a_one_line_error(change):
    arguments = {"rates": RATES, "losses": sweep(), **change}
    with pytest.raises(InputError) as caught:
        optimum(arguments.pop("rates"), arguments.pop("losses"), **arguments)
    assert len(str(caught.value).splitlines()) == 1


def test_bad_input_of_optima():
    with pytest.raises(InputError, match="empty"):
        optima(RATES, [])
    with pytest.raises(InputError, match="2 grids"):
        optima([RATES, RATES], [sweep()])
