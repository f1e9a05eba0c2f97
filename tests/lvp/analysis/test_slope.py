"""Slopes over widths: exact laws, weights, exclusions and bad input. test_coverage.py tests the coverage."""

import numpy as np
import pytest
from scipy.special import stdtrit

from lvp.analysis import Optimum, slope
from lvp.analysis.slopes import scatter_about, without_each
from lvp.errors import InputError

WIDTHS = np.array([32, 48, 64, 96, 128])


def optimum(rate, std=0.1, flags=()):
    return Optimum(rate, std, (rate / 1.2, rate * 1.2), 1.0, "quadratic", flags)


def law(widths=WIDTHS, power=-0.5):
    return 0.1 * np.asarray(widths, float) ** power


@pytest.mark.parametrize("stds", [None, 0.0, 0.1, [0.1, 0.2, 0.3, 0.1, 0.05], [0.0, 0.1, 0.1, 0.1, 0.1]])
@pytest.mark.parametrize("power", [-1.0, -0.5, 0.0, 0.37])
def test_an_exact_power_law_is_recovered(power, stds):
    stds = None if stds is None else np.broadcast_to(stds, WIDTHS.shape)
    fit = slope(WIDTHS, (law(power=power), stds))
    assert fit.slope == pytest.approx(power, abs=1e-10)
    assert np.exp(fit.intercept) == pytest.approx(0.1, rel=1e-9)
    assert fit.num_points == 5 and fit.degrees_of_freedom == 3
    rates, low, high = fit.line(WIDTHS)
    assert rates == pytest.approx(law(power=power)) and (low <= rates).all() and (rates <= high).all()


def test_units_of_width_and_rate_do_not_matter():
    rates = law() * np.exp([0.1, -0.2, 0.05, 0.1, -0.1])
    plain, scaled = slope(WIDTHS, (rates, [0.1] * 5)), slope(WIDTHS / 7, (3 * rates, [0.1] * 5))
    assert scaled.slope == pytest.approx(plain.slope) and scaled.interval == pytest.approx(plain.interval)


def test_equal_stds_give_ordinary_least_squares_for_a_poor_fit():
    rates = law() * np.exp([0.3, -0.4, 0.2, 0.5, -0.3])
    known, unknown = slope(WIDTHS, (rates, [0.01] * 5)), slope(WIDTHS, (rates, None))
    assert known.slope == pytest.approx(unknown.slope) and known.interval == pytest.approx(unknown.interval)
    x = np.log(WIDTHS)
    (steep, _), covariance = np.polyfit(x, np.log(rates), 1, cov=True)
    half = stdtrit(3, 0.975) * np.sqrt(covariance[0, 0])
    assert unknown.interval == pytest.approx((steep - half, steep + half))
    assert known.tau > 0.3 and known.lack_of_fit < 1e-6 and np.isnan(unknown.lack_of_fit)


def test_uncertain_points_have_less_weight():
    rates = law() * np.array([1, 1, 1, 1, 3.0])
    certain, doubtful = slope(WIDTHS, (rates, [0.1] * 5)), slope(WIDTHS, (rates, [0.1] * 4 + [2.0]))
    assert abs(doubtful.slope + 0.5) < 0.1 < abs(certain.slope + 0.5)


def test_points_on_a_line_keep_their_standard_error():
    fit = slope(WIDTHS, (law(), [0.1] * 5))
    error = 0.1 / np.sqrt(np.sum((np.log(WIDTHS) - np.log(WIDTHS).mean()) ** 2))
    assert fit.interval == pytest.approx((-0.5 - error, -0.5 + error))


def test_the_level_is_the_quantile():
    rates = law() * np.exp([0.1, -0.2, 0.05, 0.1, -0.1])
    wide, narrow = (slope(WIDTHS, (rates, None), level=level) for level in (0.95, 0.5))
    assert (wide.interval[1] - wide.slope) / (narrow.interval[1] - narrow.slope) == pytest.approx(
        stdtrit(3, 0.975) / stdtrit(3, 0.75)
    )


def test_flagged_points_are_left_out_unless_requested():
    points = [optimum(rate) for rate in law()]
    points[0] = optimum(5.0, flags=("edge", "noise"))
    fit = slope(WIDTHS, points)
    assert fit.slope == pytest.approx(-0.5) and fit.num_points == 4
    assert fit.excluded == ((32.0, "edge, noise"),)
    with_flagged = slope(WIDTHS, points, include_flagged=True)
    assert with_flagged.num_points == 5 and with_flagged.slope < -2 and not with_flagged.excluded
    points[1] = optimum(np.nan, np.nan)
    fit = slope(WIDTHS, points, include_flagged=True)
    assert fit.num_points == 4 and fit.excluded == ((48.0, "no rate"),)


def test_one_unknown_std_makes_the_fit_unweighted():
    points = [optimum(rate, std) for rate, std in zip(law(), [0.1, 0.1, np.nan, 0.1, 9.0], strict=True)]
    fit, plain = slope(WIDTHS, points), slope(WIDTHS, (law(), None))
    assert fit.slope == pytest.approx(plain.slope) and np.isnan(fit.tau)


@pytest.mark.parametrize("num", [0, 1, 2])
def test_fewer_than_three_points_give_no_interval(num):
    points = [optimum(rate, flags=() if w < num else ("edge",)) for w, rate in enumerate(law())]
    fit = slope(WIDTHS, points)
    assert fit.interval == (-np.inf, np.inf) and fit.num_points == num and len(fit.excluded) == 5 - num
    assert fit.slope == pytest.approx(-0.5) if num == 2 else np.isnan(fit.slope)
    fit.line(WIDTHS)


BAD = {
    "width zero": ([0, 1, 2], (law(), None)),
    "width nan": ([np.nan, 1, 2, 3, 4], (law(), None)),
    "widths repeated": ([32, 32, 64, 96, 128], (law(), None)),
    "no widths": ([], ([], None)),
    "widths no numbers": (["a"] * 5, (law(), None)),
    "one optimum too few": (WIDTHS, [optimum(1.0)] * 4),
    "shapes differ": (WIDTHS, (law(), [0.1] * 4)),
    "rate negative": (WIDTHS, (-law(), None)),
    "rate infinite": (WIDTHS, (law() * np.inf, None)),
    "std negative": (WIDTHS, (law(), [-0.1] * 5)),
    "no optima": (WIDTHS, None),
    "numbers in the place of optima": (WIDTHS, list(law())),
}


@pytest.mark.parametrize(("widths", "points"), BAD.values(), ids=BAD)
def test_bad_input_gives_a_one_line_error(widths, points):
    with pytest.raises(InputError) as caught:
        slope(widths, points)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("level", [0.0, 1.0, 95, np.nan])
def test_bad_levels(level):
    with pytest.raises(InputError, match="level"):
        slope(WIDTHS, (law(), None), level=level)


def test_the_scatter_about_a_given_power():
    """p is uniform if the optima lie on the line up to their noise. A line of another power is rejected."""
    rng, widths, p_values = np.random.default_rng(0), np.array([32, 48, 64, 96, 128]), []

    def optima_of(power):
        rates = 0.1 * widths**power * np.exp(0.05 * rng.standard_normal(5))
        return [optimum(rate, 0.05) for rate in rates]

    for _ in range(400):
        p_values.append(scatter_about(-0.5, widths, optima_of(-0.5)))
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.08
    assert scatter_about(-0.5, widths, optima_of(-1.0)) < 1e-6
    assert np.isnan(scatter_about(-0.5, widths[:1], optima_of(-0.5)[:1]))


def test_the_slopes_without_each_width():
    optima = [optimum(rate) for rate in (0.4, 0.2, 0.1, 0.5)]
    without = without_each([1, 2, 4, 8], optima)
    assert list(without) == [1, 2, 4, 8] and without[8].slope == pytest.approx(-1) and without[1].slope > 0


def test_the_interval_contains_another_slope_of_the_cubics_only_beyond_their_noise():
    widths = [32, 48, 64, 96, 128]

    def fitted(shifts, error):
        best = [
            Optimum(w**-0.5, 0.02, (np.nan, np.nan), 1.0, "quadratic", cubic_shift=(s, error))
            for w, s in zip(widths, shifts, strict=True)
        ]
        return slope(widths, best)

    plain, trend = fitted([0.0] * 5, 0.0), 0.3 * np.log(np.array(widths) / 64)
    assert (
        fitted(trend, 1.0) == plain and fitted([0.2] * 5, 0.01).interval == plain.interval
    )  # noise; the same everywhere
    moved = fitted(trend, 0.01)
    assert moved.slope == plain.slope and moved.cubic_shift == pytest.approx(0.3, abs=1e-6)
    assert moved.interval[0] == plain.interval[0] and moved.interval[1] > plain.interval[1] + 0.25
