"""Figure of the optimal rate against width: loss curves, optima, fitted slope and reference slopes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from lvp.analysis.curves import optima as find_optima
from lvp.analysis.estimators import Optimum
from lvp.analysis.figure_style import FIT, INK, MARKERS, PAPER, REFERENCE, STYLE, below, decimal, heading, save, stamp
from lvp.analysis.noise import as_runs, two_way
from lvp.analysis.slopes import Slope, positive
from lvp.analysis.slopes import slope as fit_slope
from lvp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["optimum_vs_width", "save"]

# Exponents of width for comparison: of the embedding's rate under μP and SP, and under LVP, and of μP's hidden rate.
REFERENCES = ((0.0, "0 (μP, SP)"), (-0.5, "−1/2 (LVP)"), (-1.0, "−1"))


def optimum_vs_width(
    widths: ArrayLike,
    rates: np.ndarray | Sequence,
    losses_by_width: Sequence,
    *,
    optima: Sequence[Optimum] | None = None,
    fit: Slope | None = None,
    title: str = "Optimal embedding learning rate against width",
    preset: str = "",
    corpus: str = "",
    partial: tuple[int, int] | None = None,
    tolerance: float = 0.2,
    rate_label: str = "embedding learning rate η",
    loss_label: str = "final train loss (nats per token)",
    width_label: str = "width d",
) -> "Figure":
    """Draws loss against rate for every width, and the optimum against width with the slopes 0, −1/2 and −1.

    Left panel: means over seeds with a bar from the lowest to the highest seed. A large marker shows the optimum
    with its 95 % interval. Right panel: optima with 95 % intervals, the fitted line with its band at the level of
    `fit`, and reference slopes through the geometric centre of the fitted points. A dotted line shows the paper's
    estimate: the geometric mean of the rates of all runs within `tolerance` of the best run. A shaded band extends
    from the smallest to the largest of these rates. The estimate needs positive losses. Flagged optima are hollow and
    excluded from the fit; the reasons are below the panels.

    Args:
      widths: [W].
      rates: [R] or a grid per width [W, R], in the unit of `rate_label`.
      losses_by_width: W arrays [seeds, R] (nan missing, inf diverged), in the unit of `loss_label`.
      optima, fit: results of `lvp.analysis.optima` and `slope`; None computes them.
      title, preset, corpus: text above the panels.
      partial: (runs done, runs planned) of an unfinished sweep, written across the figure.
      tolerance: relative distance to the best loss, for the paper's estimate.
      rate_label, loss_label, width_label: axis labels.

    Returns:
      A matplotlib Figure of two panels, without a display. See `save`.

    Raises:
      InputError: widths, rates, losses and optima have different lengths; widths are not finite, above zero and
        distinct; there are fewer than three rates, or they are not positive, finite and increasing; losses are not
        numbers [seeds, R] or are -inf; tolerance is negative or not finite; `partial` does not have two entries.
    """
    import matplotlib
    from matplotlib.figure import Figure

    widths, grids, runs = _checked(widths, rates, losses_by_width)
    optima = find_optima(rates, losses_by_width, tolerance=tolerance) if optima is None else list(optima)
    if len(optima) != len(widths):
        raise InputError(f"{widths.size} widths but {len(optima)} optima: pass an optimum per width")
    fit = fit_slope(widths, optima) if fit is None else fit
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(12, 5.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
        colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(widths)))
        curves_panel(left, widths, grids, runs, optima, colours)
        left.set(xlabel=rate_label, ylabel=loss_label)
        _paper_reading(right, widths, rates, losses_by_width, tolerance)
        _slope_panel(right, widths, optima, fit, colours)
        right.set(xlabel=width_label, ylabel=f"optimal {rate_label}")
        _words(figure, title, preset, corpus, partial, widths, optima)
    return figure


def _checked(widths, rates, losses_by_width) -> tuple[np.ndarray, list, list]:
    """Widths [W], and for each width a grid [R] and runs [S, R]."""
    widths = positive("widths", widths)
    if len(widths) != len(losses_by_width):
        raise InputError(f"{widths.size} widths but {len(losses_by_width)} arrays of losses: pass an array per width")
    runs = [as_runs(losses) for losses in losses_by_width]
    grids = [positive("rates", grid) for grid in (rates if np.ndim(rates) == 2 else [rates] * len(widths))]
    if [len(grid) for grid in grids] != [values.shape[1] for values in runs]:
        raise InputError(f"rates of shape {np.shape(rates)} do not fit the losses' last axes")
    return widths, grids, runs


def curves_panel(
    axes: Any,
    widths: Sequence[float] | np.ndarray,
    grids: Sequence[np.ndarray],
    runs: Sequence[np.ndarray],
    optima: Sequence[Optimum],
    colours: np.ndarray,
) -> None:
    """Draws loss against rate: a curve per width, with a large marker at its optimum."""
    finite = np.concatenate([values[np.isfinite(values)] for values in runs])
    axes.set(xscale="log", xlim=(0.8 * min(map(min, grids)), 1.25 * max(map(max, grids))))
    decimal(axes.xaxis)
    if finite.size and finite.min() > 0 and finite.max() > 4 * finite.min():
        axes.set_yscale("log")
        decimal(axes.yaxis)
    marks = zip(widths, grids, runs, optima, colours, strict=True)
    for index, (width, grid, values, best, colour) in enumerate(marks):
        marker = MARKERS[index % len(MARKERS)]
        means, *_ = two_way(values)
        seen, diverged = np.isfinite(means), np.isinf(values).any(axis=0)
        values = np.where(np.isfinite(values), values, means)[:, seen]  # missing runs add no spread
        style = dict(color=colour, marker=marker, markersize=4, linewidth=1.3, capsize=2, elinewidth=1)
        spread = np.maximum([means[seen] - values.min(axis=0), values.max(axis=0) - means[seen]], 0)
        axes.errorbar(grid[seen], means[seen], yerr=spread, label=f"{width:g}", zorder=2 + index, **style)
        optimum_mark(axes, best.rate, best.loss, best, colour, marker, xerr=best.interval)
        if diverged.any():  # one row of crosses per width, below the upper edge
            place = dict(transform=axes.get_xaxis_transform(), clip_on=False)
            heights = np.full(diverged.sum(), 0.99 - 0.03 * index)
            axes.plot(grid[diverged], heights, "x", color=colour, markersize=5, **place)
    axes.grid(which="major", color="#e6e6e6", linewidth=0.6)
    # Above the axes, so that the legend covers no curve: an entry per width.
    handles, labels = axes.get_legend_handles_labels()
    above = dict(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=len(labels) + 1, frameon=False)
    # A legend that is wider than its panel would move the layout at every drawing.
    style = {} if len(labels) <= 5 else {"fontsize": 8, "handlelength": 1.4}
    title = axes.plot([], [], " ", label="width")
    axes.legend(title + handles, ["width d:", *labels], columnspacing=1.0, handletextpad=0.4, **above, **style)


def optimum_mark(
    axes: Any,
    x: float,
    y: float,
    best: Optimum,
    colour: Any,
    marker: str,
    *,
    xerr: tuple[float, float] | None = None,
    yerr: tuple[float, float] | None = None,
) -> None:
    """Draws a large marker with its interval: filled if the optimum has no flags, hollow if it is flagged."""
    if not (np.isfinite(x) and np.isfinite(y)):
        return
    ends = {}
    for name, at, interval in (("xerr", x, xerr), ("yerr", y, yerr)):
        if interval is not None and np.isfinite(interval).all():
            ends[name] = np.maximum([[at - interval[0]], [interval[1] - at]], 0)
    face = dict(markeredgecolor=INK, markeredgewidth=1.2, markerfacecolor=colour if best.resolved else "white")
    style = dict(color=INK, marker=marker, markersize=8, elinewidth=1.4, capsize=5, capthick=1.4, zorder=30)
    axes.errorbar(x, y, **ends, **face, **style)


def _paper_reading(axes, widths, rates, losses_by_width, tolerance) -> None:
    """Draws the paper's estimate if all losses are positive: it uses relative distances to the best loss."""
    values = np.concatenate([as_runs(losses).ravel() for losses in losses_by_width])
    if not (values[np.isfinite(values)] > 0).all():
        return
    read = find_optima(rates, losses_by_width, method="geometric_mean", tolerance=tolerance, num_bootstrap=100)
    order = [w for w in np.argsort(widths) if np.isfinite(read[w].rate)]
    low, high = ([read[w].band[end] for w in order] for end in (0, 1))
    label = f"rates within {100 * tolerance:g} % of the best loss"
    axes.fill_between(widths[order], low, high, color=PAPER, alpha=0.22, linewidth=0, label=label)
    means = [read[w].rate for w in order]
    axes.plot(widths[order], means, ":", color="#0072B2", linewidth=2, label="their geometric mean")


def _slope_panel(axes, widths, optima, fit: Slope, colours) -> None:
    from matplotlib.ticker import NullLocator

    axes.set(xscale="log", yscale="log")
    reach = np.array([widths.min() / 1.08, widths.max() * 1.08])
    out = {width for width, _ in fit.excluded}
    used = [w for w, best in enumerate(optima) if widths[w] not in out and np.isfinite(best.rate)]
    if used:
        references(axes, reach, widths[used], np.array([optima[w].rate for w in used]), rules=False)
    if fit.degrees_of_freedom > 0:
        dense = np.geomspace(reach[0], reach[1], 50)
        band(axes, dense, fit, optima, FIT)
    ends = fit.line(reach)[0] if np.isfinite(fit.slope) else np.full(2, np.nan)
    axes.plot(reach, ends, color=FIT, linewidth=2, zorder=4, label=_in_words(fit))
    for index, (width, best, colour) in enumerate(zip(widths, optima, colours, strict=True)):
        marker = MARKERS[index % len(MARKERS)]
        optimum_mark(axes, width, best.rate, best, colour, marker, yerr=best.interval)
    # The optima set the limits; the bands may extend beyond them.
    rates = [best.rate for best in optima if np.isfinite(best.rate)] or [1e-3, 1e-1]
    axes.set(xlim=(reach[0] / 1.05, reach[1] * 1.05), ylim=(min(rates) / 4, max(rates) * 2.5))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(widths, [f"{width:g}" for width in widths])
    decimal(axes.yaxis)
    axes.grid(color="#e6e6e6", linewidth=0.6)
    legend_above(axes)


def band(axes: Any, widths: np.ndarray, fit: Slope, optima: Sequence[Optimum], colour: Any) -> None:
    """Draws the band of a line, cut at a factor of two beyond the optima: a noisy fit does not fill the panel."""
    rates = [best.rate for best in optima if np.isfinite(best.rate)]
    _, low, high = fit.line(widths)
    low, high = (np.clip(ends, min(rates) / 2, max(rates) * 2) for ends in (low, high))
    axes.fill_between(widths, low, high, color=colour, alpha=0.18, linewidth=0, zorder=3)


def legend_above(axes: Any) -> None:
    """Draws a legend above the panel, where it covers no data."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=9, frameon=False, loc="lower left", bbox_to_anchor=(-0.01, 1.0))


def references(axes: Any, reach: np.ndarray, widths: np.ndarray, rates: np.ndarray, rules: bool = True) -> None:
    """Draws dashed lines with the slopes of REFERENCES, through the geometric centre of the fitted points.

    Args:
      rules: whether their labels name the rules, which have these exponents for the embedding's rate.
    """
    centre, anchor = np.exp(np.log(widths).mean()), np.exp(np.log(rates).mean())
    for steepness, name in REFERENCES:
        ends = anchor * (reach / centre) ** steepness
        axes.plot(reach, ends, "--", color=REFERENCE, linewidth=1)
        label = name if rules else name.partition(" ")[0]
        axes.annotate(f" {label}", (reach[1], ends[1]), color="#555555", fontsize=9, va="center")


def _in_words(fit: Slope) -> str:
    if not np.isfinite(fit.slope):
        return f"no fit: usable optima: {fit.num_points}"
    if fit.degrees_of_freedom == 0:
        return f"slope {fit.slope:.2f}, no interval from {fit.num_points} widths".replace("-", "−")
    low, high = fit.interval
    text = f"fit: slope {fit.slope:.2f}, {100 * fit.level:g} % interval [{low:.2f}, {high:.2f}]"
    return text.replace("-", "−")


def _words(figure, title, preset, corpus, partial, widths, optima) -> None:
    """Writes the title, the origin, the meaning of the marks, and the reasons for hollow points."""
    heading(figure, title, preset, corpus)
    lines = [
        "Small markers: mean over seeds, bars from lowest to highest seed, × a rate with a diverged run.",
        "Large markers: optimum of a quadratic in ln η, 95 % interval. Dashed: slopes for comparison.",
    ]
    flagged = [f"{w:g} ({', '.join(o.flags)})" for w, o in zip(widths, optima, strict=True) if o.flags]
    if flagged:
        lines.append(f"Hollow: flagged, not in the fit: width {'; '.join(flagged)}.")
    below(figure, lines)
    stamp(figure, partial)
