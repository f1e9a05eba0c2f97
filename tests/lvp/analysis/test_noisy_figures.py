"""Figures of noisy fits: bands are cut, legends cover no data, and a committed picture is compared with a tolerance."""

import numpy as np
import pytest

from lvp.analysis import figure_style, optimum_figure
from lvp.analysis.estimators import Optimum
from lvp.analysis.power_laws import Panel, Series
from lvp.analysis.slopes import slope


@pytest.fixture
def noisy():
    widths, rates = (32, 64, 128), (0.01, 0.001, 0.02)
    optima = [Optimum(rate, 0.1, (rate / 1.2, rate * 1.2), 1.0, "quadratic") for rate in rates]
    return np.array(widths, float), optima, slope(widths, optima)


def drawn(panel):
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axes = figure.subplots()
    panel(axes)
    figure.draw_without_rendering()
    return figure, axes


def test_the_band_of_a_noisy_fit_is_cut(noisy):
    widths, optima, fit = noisy
    _, low, high = fit.line(widths)
    assert (high / low).min() > 100  # the fit's band is very wide
    _, axes = drawn(lambda axes: optimum_figure._slope_panel(axes, widths, optima, fit, ["C0"] * 3))
    band = np.concatenate([path.vertices for shape in axes.collections for path in shape.get_paths()])[:, 1]
    assert band.min() >= 0.001 / 2.001 and band.max() <= 0.02 * 2.001
    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1 - 1


@pytest.mark.slow
def test_eight_widths_have_the_layout_of_the_first_drawing():
    """A legend that is wider than its panel moves the constrained layout at every drawing."""
    widths, rates = [2**i for i in range(6, 14)], np.array([0.001, 0.01, 0.1])
    losses = [np.array([[3.0, 2.0, 2.5], [3.1, 2.1, 2.6]])] * len(widths)
    figure, positions = optimum_figure.optimum_vs_width(widths, rates, losses, title="a title"), []
    for _ in range(3):
        figure_style.drawn(figure, ".png")
        positions.append([axes.get_position().bounds for axes in figure.axes])
    assert np.allclose(positions, positions[0], rtol=0, atol=1e-4)


def test_a_band_spans_the_given_ends():
    series = Series("a", [1, 2], [1, 2], line=True, band=([0.5, 1], [2, 3]))
    _, axes = drawn(lambda axes: Panel("", "x", "y", [series]).draw(axes, []))
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.5, 3)


@pytest.mark.slow
def test_only_an_equal_figure_is_the_same_picture(tmp_path):
    def plot(y, title="a title"):
        return drawn(lambda axes: (axes.plot([1, 2], [1, y]), axes.set_title(title)))[0]

    figure_style.save(plot(2), tmp_path / "figure")
    assert figure_style.same_picture(plot(2), tmp_path / "figure")
    assert not figure_style.same_picture(plot(-2), tmp_path / "figure")
    assert not figure_style.same_picture(plot(2, "a tit1e"), tmp_path / "figure")  # few pixels differ
    assert not figure_style.same_picture(plot(2), tmp_path / "missing")
    (tmp_path / "figure.svg").unlink()
    assert not figure_style.same_picture(plot(2), tmp_path / "figure")
