"""Powers of several quantities: agreement with the slope of one quantity, planted laws and coverage; and Paule–Mandel
and Student's interval, which both fits use."""

import numpy as np
import pytest
from scipy import stats

from lvp.analysis import Optimum, powers, slope, t_interval
from lvp.analysis.slopes import paule_mandel
from lvp.errors import InputError
from tests.marking import slow

WIDTHS = np.array([32, 48, 64, 96, 128])
GRID = {"width": np.repeat([32.0, 64, 128], 3), "vocab": np.tile([256.0, 1024, 4096], 3)}


def optimum(rate, std=0.1, flags=()):
    return Optimum(rate, std, (rate / 1.2, rate * 1.2), 1.0, "quadratic", flags)


def law(width, vocab):
    """Returns 0.1 · d^width · m^vocab on the grid."""
    return 0.1 * GRID["width"] ** width * GRID["vocab"] ** vocab


STDS = {
    "unknown": None,
    "equal": [0.1] * 5,
    "unequal": [0.02, 0.3, 0.1, 0.01, 0.05],
    "one exactly known": [0.0, 0.1, 0.1, 0.1, 0.1],
    "all exactly known": [0.0] * 5,
    "one unknown": [0.1, np.nan, 0.1, 0.1, 0.1],
}


@pytest.mark.parametrize("scatter", [0.0, 0.02, 0.5], ids=["on a line", "within noise", "beyond noise"])
@pytest.mark.parametrize("stds", STDS.values(), ids=STDS)
@pytest.mark.parametrize("level", [0.95, 0.5])
def test_one_quantity_equals_the_slope(stds, scatter, level):
    rates = 0.1 * WIDTHS**-0.5 * np.exp(scatter * np.array([0.6, -0.9, 0.4, 0.8, -0.5]))
    fit, line = powers({"width": WIDTHS}, (rates, stds), level=level), slope(WIDTHS, (rates, stds), level=level)
    assert fit.powers["width"] == pytest.approx(line.slope, abs=1e-9)
    assert fit.intercept == pytest.approx(line.intercept, abs=1e-9)
    assert fit.intervals["width"] == pytest.approx(line.interval, abs=1e-9)
    assert (fit.degrees_of_freedom, fit.num_points, fit.level) == (3, 5, level)
    assert line.degrees_of_freedom == 3


@pytest.mark.parametrize("num", [1, 2, 3, 4])
def test_one_quantity_equals_the_slope_with_flagged_points(num):
    noise = np.exp([0.3, -0.4, 0.2, 0.5, -0.3])
    points = [
        optimum(rate, 0.1 + 0.02 * i, () if i < num else ("edge",)) for i, rate in enumerate(0.1 * WIDTHS**-0.5 * noise)
    ]
    fit, line = powers({"width": WIDTHS}, points), slope(WIDTHS, points)
    assert fit.num_points == line.num_points == num and fit.degrees_of_freedom == line.degrees_of_freedom
    assert fit.powers["width"] == pytest.approx(line.slope, abs=1e-9, nan_ok=True)
    assert fit.intervals["width"] == pytest.approx(line.interval, abs=1e-9)


@pytest.mark.parametrize("stds", [None, [0.1] * 9, 0.01 * np.arange(9)], ids=["unknown", "equal", "unequal"])
@pytest.mark.parametrize("planted", [(-0.5, 0.0), (0.0, -1.0), (-0.8, 0.37)])
def test_planted_powers_are_recovered(planted, stds):
    fit = powers(GRID, (law(*planted), stds))
    assert tuple(fit.powers) == ("width", "vocab")
    assert tuple(fit.powers.values()) == pytest.approx(planted, abs=1e-9)
    assert fit.intercept == pytest.approx(np.log(0.1), abs=1e-9)
    assert (fit.degrees_of_freedom, fit.num_points) == (6, 9)
    for name, value in zip(fit.powers, planted, strict=True):
        low, high = fit.intervals[name]
        assert low - 1e-9 <= value <= high + 1e-9


def test_unknown_stds_give_ordinary_least_squares():
    """The expected interval is (XᵀX)⁻¹ s² with the t quantile of n − 3."""
    y = np.log(law(-0.5, 0.2)) + np.random.default_rng(0).normal(0, 0.2, 9)
    fit = powers(GRID, (np.exp(y), None))
    design = np.stack([np.ones(9), *np.log(list(GRID.values()))], axis=1)
    inverse = np.linalg.inv(design.T @ design)
    solution = inverse @ design.T @ y
    errors = np.sqrt(np.diag(inverse) * np.sum((y - design @ solution) ** 2) / 6)
    for k, name in enumerate(GRID, start=1):
        half = stats.t.ppf(0.975, 6) * errors[k]
        assert fit.powers[name] == pytest.approx(solution[k], rel=1e-9)
        assert fit.intervals[name] == pytest.approx((solution[k] - half, solution[k] + half), rel=1e-9)


def test_flagged_points_are_left_out():
    points = [optimum(rate) for rate in law(-0.5, 0.25)]
    points[0], points[4] = optimum(7.0, flags=("noise",)), optimum(np.nan, np.nan)
    fit = powers(GRID, points)
    assert (fit.num_points, fit.degrees_of_freedom) == (7, 4)
    assert fit.powers == pytest.approx({"width": -0.5, "vocab": 0.25})
    points[0] = optimum(7.0)  # negative control: without its flag the point changes the fit
    assert abs(powers(GRID, points).powers["width"] + 0.5) > 0.3


def test_uncertain_points_have_less_weight():
    rates = law(-0.5, 0.0)
    rates[0] *= 3
    certain, doubtful = powers(GRID, (rates, [0.1] * 9)), powers(GRID, (rates, [2.0] + [0.1] * 8))
    assert abs(doubtful.powers["width"] + 0.5) < 0.02 < 0.1 < abs(certain.powers["width"] + 0.5)


@pytest.mark.parametrize(("scatter", "noise"), [(0.0, 0.1), (0.05, 0.1), (0.05, 0.02), (0.2, 0.1)])
def test_intervals_have_their_coverage(scatter, noise):
    """Uses 300 grids of 3 widths × 3 vocabularies, with known seed noise that differs between settings and an unknown
    scatter."""
    rng, covered = np.random.default_rng([int(1000 * scatter), int(1000 * noise)]), []
    for _ in range(300):
        planted = dict(zip(GRID, rng.uniform(-1, 0.2, 2), strict=True))
        stds = noise * rng.uniform(0.5, 1.5, 9)
        rates = law(*planted.values()) * np.exp(scatter * rng.standard_normal(9) + stds * rng.standard_normal(9))
        fit = powers(GRID, (rates, stds))
        covered += [fit.intervals[k][0] <= planted[k] <= fit.intervals[k][1] for k in planted]
    assert 0.90 <= np.mean(covered) <= 0.98


@pytest.mark.parametrize("num", [0, 1, 2, 3])
def test_too_few_points_give_no_interval(num):
    corners = [0, 2, 6]  # these span both directions
    points = [optimum(rate, flags=() if i in corners[:num] else ("edge",)) for i, rate in enumerate(law(-0.5, 0.1))]
    fit = powers(GRID, points)
    assert fit.num_points == num and fit.degrees_of_freedom == 0
    assert set(fit.intervals.values()) == {(-np.inf, np.inf)}
    if num == 3:  # three points determine a plane but not its uncertainty
        assert fit.powers == pytest.approx({"width": -0.5, "vocab": 0.1})
    else:
        assert np.isnan([fit.intercept, *fit.powers.values()]).all()


@pytest.mark.parametrize("vocab", [8 * GRID["width"], GRID["width"] ** 2, np.full(9, 4096.0)])
def test_collinear_quantities_give_no_powers(vocab):
    fit = powers({"width": GRID["width"], "vocab": vocab}, (law(-0.5, 0.0), [0.1] * 9))
    assert np.isnan([fit.intercept, *fit.powers.values()]).all() and fit.num_points == 9
    assert set(fit.intervals.values()) == {(-np.inf, np.inf)}


RATES = law(-0.5, 0.0)
BAD = {
    "width zero": (GRID | {"width": np.arange(9)}, (RATES, None), {}, "width must be"),
    "vocab nan": (GRID | {"vocab": [np.nan] * 9}, (RATES, None), {}, "vocab must be"),
    "no numbers": (GRID | {"vocab": ["a"] * 9}, (RATES, None), {}, "vocab must be numbers"),
    "one quantity too short": (GRID | {"vocab": [256.0] * 8}, (RATES, None), {}, "9 optima but .* 9, 8"),
    "one optimum too few": (GRID, [optimum(1.0)] * 8, {}, "8 optima"),
    "no quantity": ({}, (RATES, None), {}, "quantities is empty"),
    "rate negative": (GRID, (-RATES, None), {}, "rates must be positive"),
    "std negative": (GRID, (RATES, [-0.1] * 9), {}, "not negative"),
    "numbers in the place of optima": (GRID, list(RATES), {}, "list of Optimum"),
    "level in percent": (GRID, (RATES, None), {"level": 95}, "level must lie between 0 and 1, got 95"),
    "level nan": (GRID, (RATES, None), {"level": np.nan}, "level"),
}


@pytest.mark.parametrize(("quantities", "optima", "options", "says"), BAD.values(), ids=BAD)
def test_bad_input_gives_a_one_line_error(quantities, optima, options, says):
    with pytest.raises(InputError, match=says) as caught:
        powers(quantities, optima, **options)
    assert len(str(caught.value).splitlines()) == 1


# --- Paule–Mandel and Student's interval ------------------------------------------------------------------------------


def about_their_mean(y):
    """Returns the weighted residual sum of squares of y about its weighted mean, as a function of the variances."""

    def scatter(variances):
        return np.sum((y - np.average(y, weights=1 / variances)) ** 2 / variances)

    return scatter


def test_paule_mandel_has_a_closed_form_for_equal_variances():
    """Σ (y − ȳ)² / (s² + τ²) = n − 1, so τ² = var(y) − s²."""
    y = np.array([0.3, -0.4, 0.2, 0.5, -0.3, 0.1])
    for variance in (1e-6, 0.01, 0.1):
        tau2 = paule_mandel(about_their_mean(y), np.full(6, variance), 5)
        assert tau2 == pytest.approx(y.var(ddof=1) - variance, rel=1e-9)
    assert paule_mandel(about_their_mean(y), np.full(6, 2 * y.var(ddof=1)), 5) == 0.0


def test_paule_mandel_accepts_a_scatter_of_rounding_errors():
    """Points on a line have residuals of rounding errors, which depend on the weights."""

    def scatter(variances):
        return 1e-31 * (1 if variances[0] > 0.5 else 50) / variances[0]

    tau2 = paule_mandel(scatter, np.full(3, 1e-40), 1)
    assert 0 <= tau2 < 1e-14


def test_paule_mandel_makes_the_scatter_equal_its_expectation():
    rng = np.random.default_rng(1)
    for _ in range(20):
        variances, y = rng.uniform(0.001, 0.2, 8) ** 2, rng.standard_normal(8)
        tau2 = paule_mandel(about_their_mean(y), variances, 7)
        assert tau2 > 0 and about_their_mean(y)(variances + tau2) == pytest.approx(7, rel=1e-9)


def test_negligible_noise_gives_the_fit_of_unknown_noise():
    """Runs agree to rounding. The bracket of τ² once closed on its root here."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        rates = law(-0.5, 0.2) * np.exp(0.3 * rng.standard_normal(9))
        tiny, unknown = (powers(GRID, (rates, stds)) for stds in ([1e-12] * 9, None))
        for name in GRID:
            assert tiny.intervals[name] == pytest.approx(unknown.intervals[name], rel=1e-9)


def test_t_interval_is_students_t():
    values = np.random.default_rng(2).normal(1, 0.3, 4)
    for level in (0.95, 0.5):
        theirs = stats.ttest_1samp(values, 0).confidence_interval(level)
        assert t_interval(values, level=level) == pytest.approx((theirs.low, theirs.high), rel=1e-12)
    low, high = t_interval(values)
    assert t_interval(values, centre=values.mean() + 3) == pytest.approx((low + 3, high + 3))
    assert t_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, np.inf], [1.0, np.nan], [np.inf, np.inf]])
def test_no_t_interval_for_one_value_or_infinite_values(values):
    assert t_interval(values) is None


def test_t_interval_has_its_coverage():
    draws = np.random.default_rng(3).standard_normal((4000, 3))
    held = [low <= 0 <= high for low, high in map(t_interval, draws)]
    assert np.mean(held) == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 4000))


def at_the_edge(bound):
    return Optimum(bound, np.nan, (bound, np.inf), 1.0, "quadratic", ("edge", "noise"))


@pytest.mark.parametrize("sweeps", [60, slow(400)])
def test_censored_optima_are_bounds(sweeps):
    """The optima above the grid are known to be above it. The fit without them is biased and less certain."""
    rng, truth, top = np.random.default_rng(0), law(-1.0, 0.8), 0.7
    errors, covered, halves, beyond = {True: [], False: []}, 0, {True: [], False: []}, 0
    for _ in range(sweeps):
        rates = truth * np.exp(0.4 * rng.standard_normal(9))
        made = [optimum(rate) if rate < top else at_the_edge(top) for rate in rates]
        beyond += int((rates >= top).sum())
        for censored in errors:
            fit = powers(GRID, made, censored=censored)
            low, high = fit.intervals["vocab"]
            errors[censored].append(fit.powers["vocab"] - 0.8)
            halves[censored].append((high - low) / 2)
            assert fit.num_bounds == censored * (rates >= top).sum()
            covered += censored and low <= 0.8 <= high
    assert 1 < beyond / sweeps < 4
    assert abs(np.mean(errors[True])) < abs(np.mean(errors[False])) and np.std(errors[True]) < np.std(errors[False])
    assert np.median(halves[True]) < np.median(halves[False])
    assert covered / sweeps >= 0.9 and (sweeps < 400 or covered / sweeps <= 0.98)


def test_only_bounds_from_one_sided_intervals_count():
    rates = law(-1.0, 0.8)
    exact = [optimum(rate) for rate in rates]
    plain = powers(GRID, exact)
    assert powers(GRID, exact, censored=True) == plain  # nothing is censored
    diverged = Optimum(0.1, np.nan, (0.1, np.inf), 1.0, "quadratic", ("edge", "diverged"))
    unknown = Optimum(0.1, np.nan, (np.nan, np.nan), 1.0, "quadratic", ("edge",))
    for other in (diverged, unknown):
        assert powers(GRID, [*exact[:8], other], censored=True).num_bounds == 0
    far = powers(GRID, [*exact[:8], at_the_edge(rates[8] / 1e3)], censored=True)  # a bound that says nothing
    assert far.powers["vocab"] == pytest.approx(
        powers({name: x[:8] for name, x in GRID.items()}, exact[:8]).powers["vocab"], abs=1e-6
    )
    tight = powers(GRID, [*exact[:8], at_the_edge(rates[8] * 3)], censored=True)
    assert tight.powers["vocab"] > plain.powers["vocab"] + 0.05
    below = Optimum(0.1, np.nan, (0.0, rates[8] / 3), 1.0, "quadratic", ("edge",))
    assert powers(GRID, [*exact[:8], below], censored=True).powers["vocab"] < plain.powers["vocab"] - 0.05
