"""Figures of quantities that follow powers: log-log panels of what was measured, its fit, and what was predicted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lvp.analysis.frame import INK, MARKERS, REFERENCE, STYLE, below, decimal, heading, stamp

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#999999")  # Okabe and Ito's


@dataclass(frozen=True)
class Series:
    """One set of points [N] with their standard errors [N], or none, and curves [N] over the same x: `fitted` (solid),
    `predicted` (dashed), named in the legend where they have a label. `line`: points joined, so many that no marker is
    drawn."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    fitted: Sequence[float] | None = None
    fitted_label: str | None = None
    predicted: Sequence[float] | None = None
    predicted_label: str | None = None
    line: bool = False


@dataclass(frozen=True)
class Panel:
    """`ordered`: series are values of one quantity, which `legend` names: their colours go from dark to light.
    `named_ticks`: a tick at every x, where they are few."""

    title: str
    xlabel: str
    ylabel: str
    series: Sequence[Series]
    legend: str | None = None
    ordered: bool = False
    named_ticks: bool = True


def power_laws(
    panels: Sequence[Panel],
    *,
    title: str,
    tier: str = "",
    corpus: str = "",
    partial: tuple[int, int] | None = None,
    words: Sequence[str] = (),
    columns: int | None = None,
):
    """Panels side by side (or in rows of `columns`), both axes logarithmic. `words` stand beneath: what marks mean.

    Returns: a matplotlib Figure tied to no display; see `lvp.analysis.figures.save`.
    """
    import matplotlib
    from matplotlib.figure import Figure

    columns = columns or len(panels)
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(min(15, 5.2 * columns), 0.9 + 4.3 * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for place, panel in zip(axes, panels, strict=False):
            draw_panel(place, panel)
        for empty in axes[len(panels) :]:
            empty.set_axis_off()
        heading(figure, title, tier, corpus)
        below(figure, words)
        stamp(figure, partial)
    return figure


def draw_panel(axes, panel: Panel) -> None:
    """One panel into one matplotlib axes."""
    import matplotlib
    from matplotlib.ticker import NullLocator

    axes.set(xscale="log", yscale="log", xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.set_title(panel.title, fontsize=10)
    scale = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(panel.series)))
    for i, series in enumerate(panel.series):
        colour = scale[i] if panel.ordered else COLOURS[i % len(COLOURS)]
        x = np.asarray(series.x, float)
        if series.line:
            axes.plot(x, series.y, color=colour, linewidth=1.4, label=series.label, zorder=4)
        else:
            style = dict(fmt=MARKERS[i % len(MARKERS)], markersize=5, capsize=2, elinewidth=1, zorder=5)
            axes.errorbar(x, series.y, yerr=series.error, color=colour, label=series.label, **style)
        for values, label, dashes, over in (
            (series.fitted, series.fitted_label, ":" if series.line else "-", INK if series.line else colour),
            (series.predicted, series.predicted_label, "--", REFERENCE),
        ):
            if values is not None:
                axes.plot(x, values, dashes, color=over, linewidth=1.2, label=label, zorder=6 if series.line else 3)
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        if high / low < 1000 and low >= 1e-3:
            decimal(axis)
    values = sorted({float(x) for series in panel.series if not series.line for x in series.x})
    if panel.named_ticks and 0 < len(values) <= 8:
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(values, [f"{x:g}" for x in values])
    axes.grid(which="major", color="#e6e6e6", linewidth=0.6)
    axes.legend(fontsize=8, framealpha=0.9, title=panel.legend, title_fontsize=8)
