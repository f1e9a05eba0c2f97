"""Figure of the optimal rate against width for several groups of one sweep, and of its slope against the horizon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from lvp.analysis.estimators import Optimum
from lvp.analysis.figure_style import FIT, INK, MARKERS, REFERENCE, STYLE, below, decimal, heading, stamp
from lvp.analysis.noise import as_runs
from lvp.analysis.optimum_figure import REFERENCES, band, curves_panel, legend_above, optimum_mark, references
from lvp.analysis.slopes import Slope
from lvp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = (FIT, "#0072B2", "#009E73", "#CC79A7")  # Okabe and Ito's


@dataclass(frozen=True)
class Group:
    """One group of a sweep over widths and rates.

    Attributes:
      name: what distinguishes the group, for legends.
      rates: [W, R], increasing along each row.
      losses: W arrays [seeds, R], nats per token (nan missing, inf diverged).
      optima: W optima.
      slope: their power of width.
      slope_by_horizon: number of steps → the slope read at that step.
    """

    name: str
    rates: Sequence[Sequence[float]]
    losses: Sequence[np.ndarray]
    optima: Sequence[Optimum]
    slope: Slope
    slope_by_horizon: Mapping[int, Slope] = field(default_factory=dict)


def optima_by_group(
    widths: Sequence[int],
    groups: Sequence[Group],
    *,
    title: str,
    preset: str = "",
    corpus: str = "",
    partial: tuple[int, int] | None = None,
) -> "Figure":
    """Returns a matplotlib Figure: loss against rate for every group, optima against width, slope against horizon.

    Args:
      widths: [W].
      groups: one to four.
      title, preset, corpus: text above the panels.
      partial: (runs done, runs planned) of an unfinished sweep.

    Raises:
      InputError: there is no group or more than four; the lists of a group do not have one entry per width; losses are
        not [seeds, R] numbers or are -inf; `partial` does not have two entries.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if not 1 <= len(groups) <= len(COLOURS):
        raise InputError(f"groups must number 1 to {len(COLOURS)}, got {len(groups)}")
    for group in groups:
        for name in ("rates", "losses", "optima"):
            if len(getattr(group, name)) != len(widths):
                raise InputError(f"group {group.name}: {len(getattr(group, name))} {name} for {len(widths)} widths")
    with matplotlib.rc_context(STYLE):
        num_rows = -(-(len(groups) + 2) // 2)
        figure = Figure(figsize=(12, 5.0 * num_rows), layout="constrained")
        panels = figure.subplots(num_rows, 2).ravel()
        colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(widths)))
        for axes, group in zip(panels, groups, strict=False):
            runs = [as_runs(losses) for losses in group.losses]
            curves_panel(axes, widths, [np.asarray(r) for r in group.rates], runs, group.optima, colours)
            axes.set(xlabel=f"embedding learning rate η_E ({group.name})", ylabel="final train loss (nats per token)")
        _optima_panel(panels[len(groups)], np.asarray(widths, float), groups)
        _horizon_panel(panels[len(groups) + 1], groups)
        for axes in panels[len(groups) + 2 :]:
            axes.set_axis_off()
        heading(figure, title, preset, corpus)
        lines = [
            "Curves: means over seeds, bars from lowest to highest seed, × a rate with a diverged run.",
            "Optima: quadratic in ln η, 95 % intervals. Dashed: slopes for comparison.",
        ]
        flagged = [
            f"{group.name}, width {w} ({', '.join(best.flags)})"
            for group in groups
            for w, best in zip(widths, group.optima, strict=True)
            if best.flags
        ]
        below(figure, lines + ([f"Hollow: flagged, not in the fit: {'; '.join(flagged)}."] if flagged else []))
        stamp(figure, partial)
    return figure


def _optima_panel(axes, widths: np.ndarray, groups: Sequence[Group]) -> None:
    from matplotlib.ticker import NullLocator

    axes.set(xscale="log", yscale="log", xlabel="width d", ylabel="optimal embedding learning rate η_E")
    reach = np.array([widths.min() / 1.08, widths.max() * 1.08])
    dense = np.geomspace(reach[0], reach[1], 50)
    for group, colour, marker in zip(groups, COLOURS, MARKERS, strict=False):
        excluded = {width for width, _ in group.slope.excluded}
        used = [w for w, best in enumerate(group.optima) if widths[w] not in excluded and np.isfinite(best.rate)]
        if used:
            references(axes, reach, widths[used], np.array([group.optima[w].rate for w in used]))
        if group.slope.degrees_of_freedom > 0:
            band(axes, dense, group.slope, group.optima, colour)
        if np.isfinite(group.slope.slope):
            axes.plot(dense, group.slope.line(dense)[0], color=colour, linewidth=2, label=_named(group))
        for width, best in zip(widths, group.optima, strict=True):
            optimum_mark(axes, width, best.rate, best, colour, marker, yerr=best.interval)
    rates = [best.rate for group in groups for best in group.optima if np.isfinite(best.rate)] or [1e-3, 1e-1]
    axes.set(xlim=(reach[0] / 1.05, reach[1] * 1.3), ylim=(min(rates) / 3, max(rates) * 3))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(widths, [f"{width:g}" for width in widths])
    decimal(axes.yaxis)
    axes.grid(color="#e6e6e6", linewidth=0.6)
    legend_above(axes)


def _named(group: Group) -> str:
    low, high = group.slope.interval
    interval = f" [{low:.2f}, {high:.2f}]" if np.isfinite([low, high]).all() else ""
    return f"{group.name}: slope {group.slope.slope:.2f}{interval}".replace("-", "−")


def _horizon_panel(axes, groups: Sequence[Group]) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    steps = sorted({steps for group in groups for steps in group.slope_by_horizon})
    axes.set(xscale="log", xlabel="horizon: steps at which the loss is read", ylabel="slope of the optimum over width")
    for steepness, name in REFERENCES:
        axes.axhline(steepness, linestyle="--", color=REFERENCE, linewidth=1)
        axes.annotate(f" {name}", (1, steepness), xycoords=("axes fraction", "data"), fontsize=9, va="center")
    for index, (group, colour, marker) in enumerate(zip(groups, COLOURS, MARKERS, strict=False)):
        read = [(at, fit) for at, fit in sorted(group.slope_by_horizon.items()) if np.isfinite(fit.slope)]
        if not read:
            continue
        at = np.array([at for at, _ in read]) * 1.02**index  # so that bars of two groups do not cover each other
        slopes = np.array([fit.slope for _, fit in read])
        ends = np.array([fit.interval for _, fit in read], float)
        known = np.isfinite(ends).all(axis=1)
        style = dict(color=colour, marker=marker, markersize=7, markeredgecolor=INK, linewidth=1.3)
        axes.plot(at, slopes, label=group.name, **style)
        bars = np.abs(ends[known].T - slopes[known])
        axes.errorbar(at[known], slopes[known], yerr=bars, fmt="none", ecolor=colour, capsize=4)
    axes.set_ylim(-2.2, 1.7)
    if steps:
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xticks(steps, [f"{s:g}" for s in steps])
    axes.grid(color="#e6e6e6", linewidth=0.6)
    legend_above(axes)
