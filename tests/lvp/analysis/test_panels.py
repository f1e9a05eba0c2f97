"""Panels draw their data in the given scales and limits."""

import numpy as np
import pytest

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, over_seeds

SERIES = [Series("some", [1.0, 10.0, 100.0], [0.5, 2.0, 8.0])]


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_limits_contain_the_data_unless_they_are_given(scale):
    free, given = (
        sheet([Panel("title", "x", "y", SERIES, yscale=scale, ylim=limits)], title="").axes[0]
        for limits in (None, (1, 4))
    )
    low, high = free.get_ylim()
    assert low <= 0.5 and 8.0 <= high and free.get_xlim()[1] >= 100
    assert given.get_ylim() == (1, 4) and free.get_yscale() == given.get_yscale() == scale


def test_levels_are_drawn_and_labelled():
    axes = sheet([Panel("title", "x", "y", SERIES, levels=[(3.0, "three")])], title="").axes[0]
    assert any(list(line.get_ydata()) == [3.0, 3.0] and line.get_label() == "three" for line in axes.get_lines())


def test_error_bars_at_the_same_place_do_not_cover_each_other():
    x, y = [1.0, 10.0], [2.0, 3.0]
    barred = [Series(str(i), x, y, error=[0.1, 0.1]) for i in range(3)]
    for scale in ("log", "linear"):
        axes = sheet([Panel("title", "x", "y", [*barred, Series("bare", x, y)], xscale=scale)], title="").axes[0]
        places = [container.lines[0].get_xdata() for container in axes.containers]
        assert len({float(xs[0]) for xs in places}) == 3  # the middle one and the bare one stay
        middle = np.exp(np.mean(np.log(places), axis=0)) if scale == "log" else np.mean(places, axis=0)
        np.testing.assert_allclose(middle, x)
    alone = sheet([Panel("title", "x", "y", barred[:1])], title="").axes[0].containers[0].lines[0]
    np.testing.assert_array_equal(alone.get_xdata(), x)  # control


def test_bars_of_seeds_reach_from_the_lowest_to_the_highest():
    series = over_seeds("losses", [1.0, 2.0], np.array([[1.0, 2.0, 6.0], [4.0, 4.0, 4.0]]))
    np.testing.assert_allclose(series.y, [3.0, 4.0])
    np.testing.assert_allclose(series.error, [[2.0, 0.0], [3.0, 0.0]])


def test_places_without_a_finished_seed_are_left_out():
    series = over_seeds("losses", [1.0, 2.0, 3.0], np.array([[1.0, np.nan], [np.nan, np.nan], [2.0, 4.0]]))
    np.testing.assert_array_equal(series.x, [1.0, 3.0])
    np.testing.assert_allclose(series.y, [1.0, 3.0])
