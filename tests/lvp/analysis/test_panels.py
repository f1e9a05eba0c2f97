"""Panels draw their data in the given scales and limits."""

import pytest

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series

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
