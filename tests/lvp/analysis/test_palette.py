"""Figures are readable in print and with colour blindness. Colours differ for readers without red or green cones,
ordered colours also differ in lightness, and no distinction rests on colour alone."""

from itertools import combinations, pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from lvp.analysis import optimum_figure
from lvp.analysis.figure_style import MARKERS, sheet
from lvp.analysis.power_laws import COLOURS, DASHES, Panel, Series

# Machado, Oliveira & Fernandes 2009, table 1, severity 1; for linear RGB.
BLIND = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])  # IEC 61966-2-1
TELL = 15.0  # CIE76: 2.3 is just visible side by side; marks of a few pixels need more


def linear(colour):
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """Returns CIELAB (D65) of linear RGB."""
    x = TO_XYZ @ np.clip(rgb, 0, 1) / (TO_XYZ @ np.ones(3))
    f = np.where(x > (6 / 29) ** 3, np.cbrt(x), x / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colours, sight):
    """Returns the smallest distance between two of the colours, as seen with the cone matrix `sight`."""
    seen = [lab(np.array(sight) @ linear(c)) for c in colours]
    return min(np.linalg.norm(a - b) for a, b in combinations(seen, 2))


def lightness(colours):
    return np.array([lab(linear(c))[0] for c in colours])


@pytest.mark.parametrize("sight", [np.eye(3), *BLIND.values()], ids=["all cones", *BLIND])
def test_colours_are_distinguishable(sight):
    assert nearest(COLOURS, sight) > TELL


def test_red_green_and_brown_are_not_distinguishable():
    """Negative control with matplotlib's own red, green and brown."""
    assert nearest(("#d62728", "#2ca02c", "#8c564b"), np.eye(3)) > TELL
    assert min(nearest(("#d62728", "#2ca02c", "#8c564b"), sight) for sight in BLIND.values()) < TELL


def test_white_and_grey_are_preserved():
    assert lab(linear("#ffffff")) == pytest.approx([100, 0, 0], abs=0.01)
    for sight in BLIND.values():
        assert np.array(sight) @ np.full(3, 0.5) == pytest.approx(np.full(3, 0.5), abs=1e-5)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_ordered_colours_increase_in_lightness(count):
    """The order is visible in print without colour. The lightest colour is visible on white paper."""
    lightnesses = lightness(matplotlib.colormaps["viridis"](np.linspace(0, 0.88, count)))
    assert np.diff(lightnesses).min() > 60 / count and lightnesses.max() < 90


def drawn(count, *, ordered=False, line=False, fitted=False):
    """Returns the lines of a panel of `count` series that differ only in their style."""
    x = np.array([1.0, 2.0, 4.0])
    series = [Series(f"{i}", x, x + i, line=line, fitted=x + i if fitted else None) for i in range(count)]
    axes = sheet([Panel("title", "x", "y", series, ordered=ordered)], title="").axes[0]
    return [curve for curve in axes.get_lines() if len(curve.get_xdata()) == len(x)]


@pytest.mark.parametrize("ordered", [False, True])
def test_series_differ_in_more_than_colour(ordered):
    count = len(COLOURS)
    markers = {line.get_marker() for line in drawn(count, ordered=ordered)} - {"_", "None"}
    assert len(markers) == count == len(set(MARKERS))
    dashes = [str(line._unscaled_dash_pattern) for line in drawn(count, ordered=ordered, line=True)]
    assert len(set(dashes)) == count == len(set(map(str, DASHES)))


def test_widths_differ_in_more_than_colour():
    widths, rates = (16, 32, 64), np.geomspace(0.01, 1, 5)
    losses = [1 + (np.log(rates) - np.log(0.1)) ** 2 * np.ones((2, 1)) + w / 100 for w in widths]
    left = optimum_figure.optimum_vs_width(widths, rates, losses).axes[0]
    curves = [line for line in left.get_lines() if len(line.get_xdata()) == len(rates) and line.get_linestyle() == "-"]
    assert len({line.get_marker() for line in curves}) == len(curves) == 3
    assert all(b > a for a, b in pairwise(lightness([line.get_color() for line in curves])))
