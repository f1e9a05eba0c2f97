"""Panels of quantities that follow power laws: measurements, fits and predictions, log-log by default."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lvp.analysis.figure_style import MARKERS, REFERENCE, Drawn, Numbers, decimal
from lvp.analysis.slopes import Slope

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OFFSET = 0.01  # between error bars at the same x, as a part of the axis
LEGEND_CHARACTERS = 62  # characters in a legend line as wide as a panel
# Okabe and Ito's colours, with Tol's wine red in place of yellow, which is hard to see on white. They are distinct for
# colour-blind readers. In grey, markers and dashes distinguish the series.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#882255")

DASHES = (
    *("-", (0, (5, 1.5)), (0, (7, 1.5, 1, 1.5)), (0, (1, 1))),
    *((0, (3, 3)), (0, (4, 1, 1, 1, 1, 1)), (0, (9, 3)), (0, (1, 3))),
)


@dataclass(frozen=True)
class Series:
    """A set of points [N], with a fitted and a predicted curve [N] over the same x."""

    label: str  # in the legend
    x: Numbers  # [N]
    y: Numbers  # [N]
    error: Numbers | None = None  # half-lengths of the bars [N], or those below and above [2, N]
    fitted: Numbers | None = None  # solid curve [N]
    fitted_label: str | None = None  # in the legend
    predicted: Numbers | None = None  # dashed curve [N]
    predicted_label: str | None = None  # in the legend
    line: bool = False  # joins the points and draws no markers, for many points
    band: tuple[Numbers, Numbers] | None = None  # lower and upper ends of a shaded band, [N] each


@dataclass(frozen=True)
class Panel:
    """A panel of several series."""

    title: str  # above the panel
    xlabel: str  # below the panel
    ylabel: str  # beside the panel
    series: Sequence[Series]  # the points and curves
    legend: str | None = None  # the legend's title
    ordered: bool = False  # the series are values of one quantity: colours go from dark to light
    named_ticks: bool = True  # a tick at every x, if there are at most eight
    xscale: str = "log"  # matplotlib's scale
    yscale: str = "log"  # matplotlib's scale
    ylim: tuple[float, float] | None = None  # matplotlib's limits
    levels: Sequence[tuple[float, str]] = ()  # (y, name) of dotted horizontal lines

    def draw(self, axes: "Axes", panels: "Sequence[Drawn]") -> None:
        """Draws the panel, for `lvp.analysis.figure_style.sheet`."""
        _draw(axes, self)


def over_seeds(label: str, x: Numbers, values: np.ndarray) -> Series:
    """The means over seeds of values [N, seeds], joined by lines, with bars from the lowest to the highest seed.

    Values that are NaN are left out.
    """
    known = np.isfinite(values).any(axis=1)
    x, values = np.asarray(x, float)[known], values[known]
    means = np.nanmean(values, axis=1)
    around = np.abs([np.nanmin(values, axis=1) - means, np.nanmax(values, axis=1) - means])
    return Series(label, x, means, error=around, fitted=means)


def in_words(fit: Slope) -> str:
    """The slope and its interval as text for tables and legends: `0.52 [0.51, 0.54]`."""
    return with_interval(fit.slope, fit.interval)


def with_interval(power: float, interval: tuple[float, float]) -> str:
    """A power and its interval as text: `0.52 [0.51, 0.54]`."""
    if not np.isfinite(power):
        return "no fit"
    middle, low, high = (f"{round(x, 2) + 0.0:.2f}" for x in (power, *interval))  # no negative zero
    return f"{middle} [{low}, {high}]" if np.isfinite(interval).all() else f"{middle}, no interval"


def _draw(axes, panel: Panel) -> None:
    import matplotlib

    axes.set(xscale=panel.xscale, yscale=panel.yscale, xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.set_title(panel.title, fontsize=10)
    scale = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(panel.series)))
    for i, series in enumerate(_side_by_side(panel)):
        _draw_series(axes, series, scale[i] if panel.ordered else COLOURS[i % len(COLOURS)], i)
    for level, label in panel.levels:
        axes.axhline(level, color=REFERENCE, linestyle=":", linewidth=1.4, label=label, zorder=2)
    if panel.ylim is not None:
        axes.set_ylim(panel.ylim)
    _ticks(axes, panel)
    axes.grid(which="major", color="#e6e6e6", linewidth=0.6)
    _legend(axes, panel.legend)


def _side_by_side(panel: Panel) -> list[Series]:
    """The series, moved a little to the sides if error bars of several series would coincide."""
    barred = [series for series in panel.series if series.error is not None and not series.line]
    places = [float(x) for series in barred for x in series.x]
    if len(barred) < 2 or len(set(places)) == len(places) or len(set(places)) < 2:
        return list(panel.series)
    log = panel.xscale == "log"
    step = OFFSET * np.ptp(np.log(places) if log else places)
    moved, place = [], {id(series): i for i, series in enumerate(barred)}
    for series in panel.series:
        if id(series) in place:
            shift = step * (place[id(series)] - (len(barred) - 1) / 2)
            x = np.asarray(series.x, float)
            series = replace(series, x=x * np.exp(shift) if log else x + shift)
        moved.append(series)
    return moved


def _draw_series(axes, series: Series, colour, index: int) -> None:
    """Draws the points or the line of a series, with its band, its fit and its prediction."""
    x = np.asarray(series.x, float)
    if series.band is not None:
        axes.fill_between(x, *series.band, color=colour, alpha=0.15, linewidth=0, zorder=1)
    if series.line and series.fitted is None:
        style = dict(linestyle=DASHES[index % len(DASHES)], linewidth=1.7, alpha=0.9)
        axes.plot(x, series.y, color=colour, label=series.label, zorder=4, **style)
    elif series.line:
        # Wide and pale, so that the fit stays visible on top of its line.
        axes.plot(x, series.y, color=colour, linewidth=3, alpha=0.45, label=series.label, zorder=4)
    else:
        style = dict(fmt=MARKERS[index % len(MARKERS)], markersize=5, capsize=2, elinewidth=1, zorder=5)
        axes.errorbar(x, series.y, yerr=series.error, color=colour, label=series.label, **style)
    for values, label, dashes, over in (
        (series.fitted, series.fitted_label, "-", colour),
        (series.predicted, series.predicted_label, "--", REFERENCE),
    ):
        if values is not None:
            axes.plot(x, values, dashes, color=over, linewidth=1.2, label=label, zorder=6 if series.line else 3)


def _ticks(axes, panel: Panel) -> None:
    """Writes decimal numbers at short axes, and names the points of the horizontal axis."""
    from matplotlib.ticker import NullLocator

    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log" and high / low < 1000 and low >= 1e-3:
            decimal(axis)
    values = sorted({float(x) for series in panel.series if not series.line for x in series.x})
    if panel.named_ticks and 0 < len(values) <= 8:
        axes.xaxis.set_minor_locator(NullLocator())
        names = [f"{x:g}" for x in values]
        size = 10 if sum(map(len, names)) < 30 else 8
        axes.set_xticks(values, _without_overlap(axes, values, names, size), fontsize=size)


def _without_overlap(axes, values: Sequence[float], names: Sequence[str], size: int) -> list[str]:
    """The names of ticks, with "" for a name that would overlap the name on its left."""
    inches = axes.get_position().width * axes.figure.get_figwidth()
    character = 0.55 * size / 72 / inches  # width, as a part of the axis
    kept, end = [], -np.inf
    for value, name in zip(values, names, strict=True):
        centre = (axes.transScale + axes.transLimits).transform((value, 1.0))[0]
        kept.append(name if centre - character * len(name) / 2 > end else "")
        if kept[-1]:
            end = centre + character * (len(name) + 1) / 2
    return kept


def _legend(axes, title: str | None) -> None:
    """Draws the legend below the panel, at a fixed distance in inches from the axis."""
    from matplotlib.transforms import ScaledTranslation

    named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # a repeated label once
    labels, handles = list(named), list(named.values())
    fitting = LEGEND_CHARACTERS // (5 + max(map(len, labels), default=0))
    below_labels = axes.transAxes + ScaledTranslation(0, -0.42, axes.figure.dpi_scale_trans)
    axes.legend(
        handles,
        [_minus(label) for label in labels],
        title=title and _minus(title),
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=below_labels,
        ncols=max(1, min(4, fitting)) if len(labels) > 4 else 1,
        fontsize=9,
        title_fontsize=9,
        frameon=False,
    )


def _minus(text: str) -> str:
    """Replaces hyphens before digits by minus signs."""
    return re.sub(r"-(?=\d)", "−", text)
