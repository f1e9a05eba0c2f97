"""A measurement: its interval over seeds, and its text."""

import math

import numpy as np
import pytest

from lvp.analysis.measurement import Measurement


def test_the_interval_over_seeds_is_students_t():
    half = 4.302653 * 0.1 / 3**0.5  # Student's 97.5 % quantile of two degrees of freedom
    mean = Measurement.over_seeds([0.9, 1.0, 1.1])
    assert mean.value == pytest.approx(1.0) and mean.interval == pytest.approx((1 - half, 1 + half), rel=1e-6)
    other = Measurement.over_seeds([0.9, 1.0, 1.1], centre=2.0)
    assert other.value == 2.0 and other.interval == pytest.approx((2 - half, 2 + half), rel=1e-6)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [1.0, math.inf]])
def test_too_few_or_diverged_seeds_have_no_interval(values):
    assert Measurement.over_seeds(values).interval is None


@pytest.mark.parametrize(
    "measurement, text, percent",
    [
        (Measurement(0.125, (0.0625, 0.25)), "0.125 [0.0625, 0.25]", "12.5 [6.2, 25.0]"),
        (Measurement(-0.0001, None), "-0.0001", "0.0"),
        (Measurement(math.nan, None), "–", "–"),
        (Measurement(math.inf, None), "inf", "inf"),
    ],
)
def test_text_of_a_measurement(measurement, text, percent):
    assert (measurement.text(), measurement.percent()) == (text, percent)


def test_the_exponential_keeps_the_interval_ordered():
    measurement = Measurement.plus_minus(0.0, math.log(2)).exp()
    assert measurement.value == 1.0 and measurement.interval == pytest.approx((0.5, 2.0))


@pytest.mark.parametrize("relative", [-1e-14, -1e-15, 0.0, 1e-15, 1e-14])
def test_the_last_bits_of_a_number_do_not_change_its_text(relative):
    """0.04525 is in the middle of two texts. The controls are on each side of it."""
    assert Measurement(0.04525 * (1 + relative), None).text() == Measurement(0.04525, None).text()
    assert Measurement(2.0, (-math.inf, math.inf)).text() == "2"
    assert [Measurement(x, None).text() for x in (0.045249, 0.045251)] == ["0.0452", "0.0453"]


def test_an_interval_that_contains_two_intervals():
    low, high, unknown = Measurement(1.0, (0.0, 2.0)), Measurement(-5.0, (1.0, 3.0)), Measurement(2.0, None)
    assert low.containing(high) == Measurement(1.0, (0.0, 3.0))
    assert high.containing(low) == Measurement(-5.0, (0.0, 3.0))
    assert low.containing(unknown) == Measurement(1.0, None) and unknown.containing(low) == unknown


def test_words_have_two_decimals_and_a_minus_sign():
    assert Measurement(-0.001, (-0.126, 0.5)).in_words() == "0.00 [−0.13, 0.50]"


def test_a_correlation_has_fishers_interval():
    """The interval of 40 pairs with ρ = 0.6 contains 0.6 in about 95 % of draws."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        first, second = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 40).T
        low, high = Measurement.correlation(first, second).interval
        covered += low <= 0.6 <= high
    assert 0.92 <= covered / 400 <= 0.98
    assert Measurement.correlation(range(4), range(4)) == (1, (1, 1))
    assert Measurement.correlation([1, 2, 3], [1, 2, 4]).interval is None  # three pairs have no interval
    assert Measurement.correlation([1, 2, 3, np.nan], [1, 2, 4, 5]).interval is None
