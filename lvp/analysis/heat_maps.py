"""Panels of a figure: heat maps with a number per cell, and columns of dots with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lvp.analysis.figure_style import INK, MARKERS, Drawn, Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Heat:
    """A heat map on a logarithmic colour scale."""

    title: str  # above the panel
    rows: Sequence[str]  # labels of the rows
    columns: Sequence[str]  # labels of the columns
    values: np.ndarray  # [rows, columns], positive
    ylabel: str  # name of the rows
    xlabel: str  # name of the columns
    scale: str  # heat maps with the same scale share their colours
    texts: Sequence[Sequence[str]] | None = None  # labels of the cells; None: the values
    doubtful: np.ndarray | None = None  # [rows, columns], True for hatched cells

    def draw(self, axes: "Axes", panels: "Sequence[Drawn]") -> None:
        """Draws the panel, for `lvp.analysis.figure_style.sheet`."""
        _heat(axes, self, [p for p in panels if isinstance(p, Heat) and p.scale == self.scale])


@dataclass(frozen=True)
class Dots:
    """A column of dots for each of N labels. An infinite value is drawn as ∞ at the upper edge."""

    title: str  # above the panel
    labels: Sequence[str]  # [N]
    series: Sequence[tuple[str, Numbers, Sequence[tuple[float, float] | None]]]  # (name, values [N], intervals [N])
    ylabel: str  # beside the panel
    points: Sequence[Numbers] = ()  # N lists of the values that a dot summarises
    points_label: str = ""  # their name in the legend

    def draw(self, axes: "Axes", panels: "Sequence[Drawn]") -> None:
        """Draws the panel, for `lvp.analysis.figure_style.sheet`."""
        _dots(axes, self)


def _heat(axes, heat: Heat, alike: Sequence[Heat]) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    every = np.concatenate([np.ravel(h.values) for h in alike])
    every = every[np.isfinite(every) & (every > 0)]
    low, high = (every.min(), every.max()) if every.size else (0.1, 1.0)
    norm = LogNorm(low / 1.05, high * 1.05)
    axes.pcolormesh(heat.values, cmap="viridis", norm=norm, edgecolors="white", linewidth=1)
    for i, line in enumerate(heat.values):
        for j, value in enumerate(line):
            text = f"{value:.3g}" if heat.texts is None else heat.texts[i][j]
            dark = np.isfinite(value) and norm(value) < 0.6
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=9, color="white" if dark else INK)
            if heat.doubtful is not None and heat.doubtful[i][j]:
                axes.add_patch(Rectangle((j, i), 1, 1, fill=False, hatch="///", edgecolor="white", linewidth=0))
    axes.set_xticks(np.arange(len(heat.columns)) + 0.5, heat.columns)
    axes.set_yticks(np.arange(len(heat.rows)) + 0.5, heat.rows)
    axes.set(xlabel=heat.xlabel, ylabel=heat.ylabel)
    axes.set_title(heat.title, fontsize=10)


def _dots(axes, dots: Dots) -> None:
    x = np.arange(len(dots.labels))
    for i, points in enumerate(dots.points):
        label = dots.points_label if i == 0 else None
        spread = np.linspace(-0.08, 0.08, len(points)) if len(points) > 1 else np.zeros(len(points))
        axes.plot(i + spread, points, "o", color="#BBBBBB", markersize=3.5, zorder=2, label=label)
    for k, (name, values, intervals) in enumerate(dots.series):
        values, at = np.asarray(values, float), x + 0.22 * (k + 1)
        shown = np.where(np.isfinite(values), values, np.nan)
        known = [ends or (value, value) for ends, value in zip(intervals, shown, strict=True)]
        ends = np.abs(np.transpose(known) - shown)
        colour = ("#0072B2", "#D55E00", "#009E73")[k % 3]
        style = dict(fmt=MARKERS[k], color=colour, markersize=6, capsize=3, elinewidth=1.2, zorder=4)
        axes.errorbar(at, shown, yerr=ends, label=name, **style)
        for place in at[np.isposinf(values)]:
            above = dict(transform=axes.get_xaxis_transform(), ha="center", va="top")
            axes.text(place, 0.98, "∞", color=colour, **above)
    axes.axhline(0, color="#777777", linewidth=0.8, zorder=1)
    axes.set_xticks(x + 0.15, dots.labels, fontsize=8 if len(x) > 6 else None)  # more labels would overlap
    axes.set(ylabel=dots.ylabel, xlim=(-0.4, len(x) - 0.2))
    axes.set_title(dots.title, fontsize=10)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    axes.legend(fontsize=8, framealpha=0.9)
