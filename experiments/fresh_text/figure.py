"""The figure of `fresh_text`: loss over the embedding's rate or ratio, the same over a power law, and the optima."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvp.analysis.figure_style import INK, MARKERS, REFERENCE, decimal, sheet
from lvp.analysis.power_laws import COLOURS, DASHES
from lvp.analysis.slopes import Slope
from lvp.experiments.fresh_text.analysis import (
    Reading,
    law,
    power_in_words,
    power_of_rate,
    power_of_ratio,
    read,
    sizes,
    varied,
)
from lvp.experiments.fresh_text.config import GROUPS, Config

_RATE, _RATIO = "embedding's learning rate η_E", "ratio η_E / η_hidden"
_HIGHEST = 8.0  # % above the best, the upper end of the panels of curves


@dataclass(frozen=True)
class Shown:
    """What the panels over d show."""

    label: str  # of an axis
    symbol: str
    sentence: str  # the subject of the title
    title: str  # of the panel over the width
    rules: dict[float, str]  # power of d → whose rule it is


# The rules are about the ratio. A rule for the rate follows if the hidden rate falls as 1/d.
RATE = Shown(
    _RATE,
    "η_E",
    "the best embedding rate",
    "Best rate over width; rules for η_hidden ∝ 1/d",
    {0.0: "Kalra & Barkeshli: constant", -0.5: "Hayou & Liu: 1/√d", -1.0: "a constant ratio: 1/d"},
)
RATIO = Shown(
    _RATIO,
    "ratio",
    f"the best {_RATIO}",
    "Best ratio over width",
    {1.0: "Kalra & Barkeshli: d", 0.5: "Hayou & Liu: √d", 0.0: "a constant ratio"},
)


@dataclass(frozen=True)
class Curve:
    """The losses of a shape over its ratios, and their minimum."""

    name: str  # in the legend
    x: np.ndarray  # [R]
    above: np.ndarray  # loss above the loss at the best ratio [R], in %
    best: float  # on the x axis
    resolved: bool


@dataclass(frozen=True)
class Curves:
    """A panel of loss against ratio."""

    title: str
    xlabel: str
    curves: Sequence[Curve]
    legend: str | None = None  # its title; None: no legend
    ordered: bool = True  # colours go from dark to light

    def draw(self, axes, panels) -> None:
        """Draws the panel on `axes`, for `lvp.analysis.figure_style.sheet`."""
        axes.set(xscale="log", xlabel=self.xlabel, ylabel="validation loss above the best (%)")
        axes.set_title(self.title, fontsize=10)
        for k, (curve, colour) in enumerate(zip(self.curves, _colours(len(self.curves), self.ordered), strict=True)):
            marker = MARKERS[k % len(MARKERS)]
            axes.plot(curve.x, curve.above, "-", color=colour, marker=marker, markersize=3.5, label=curve.name)
            face = colour if curve.resolved else "white"
            dot = dict(marker="o", markersize=9, markeredgecolor=INK, markerfacecolor=face, zorder=20 + k)
            axes.plot([curve.best], [0.0], color=colour, clip_on=False, **dot)
        above = np.concatenate([np.zeros(1), *(curve.above for curve in self.curves)])
        highest = min(_HIGHEST, float(above.max()) or 1.0)
        axes.set_ylim(float(above.min()) - 0.05 * highest, 1.05 * highest)
        axes.grid(which="major", color="#e6e6e6", linewidth=0.6)
        decimal(axes.xaxis)
        if self.legend is not None and self.curves:
            axes.legend(title=self.legend, fontsize=8, title_fontsize=8, frameon=False)


@dataclass(frozen=True)
class Line:
    """Best values over one quantity, with the ends of their intervals."""

    name: str  # in the legend
    x: Sequence[float]
    readings: Sequence[Reading]
    scales: Sequence[float]  # factors from the best ratios to the values


@dataclass(frozen=True)
class Best:
    """A panel of the best rate or ratio over d or m, with a reference line for each exponent."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]
    exponents: Sequence[tuple[float, str]]  # exponent, name
    fit: Slope | None = None  # the law whose band is drawn

    def draw(self, axes, panels) -> None:
        """Draws the panel on `axes`, for `lvp.analysis.figure_style.sheet`."""
        from matplotlib.ticker import NullLocator

        axes.set(xscale="log", yscale="log", xlabel=self.xlabel, ylabel=f"best {self.ylabel}")
        axes.set_title(self.title, fontsize=10)
        known: list[tuple[float, float]] = []
        for k, line in enumerate(self.lines):
            for x, each, scale in zip(line.x, line.readings, line.scales, strict=True):
                best = each.best.optimum
                if not np.isfinite(best.rate):
                    continue
                y = best.rate * scale
                ends = np.abs(np.array(best.interval)[:, None] * scale - y) if best.resolved else None
                face = COLOURS[k] if best.resolved else "white"
                style = dict(color=COLOURS[k], marker=MARKERS[k], markersize=7, capsize=3, markerfacecolor=face)
                axes.errorbar([x], [y], yerr=ends, label=line.name, zorder=5, **style)
                known += [(x, y)] * best.resolved
        if len(known) > 1:
            self._references(axes, np.log(known))
        if self.fit is not None and np.isfinite(self.fit.interval).all():
            self._band(axes, self.fit)
        ticks = sorted({x for line in self.lines for x in line.x})
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(ticks, [f"{x:g}" for x in ticks], fontsize=9)
        axes.grid(which="major", color="#e6e6e6", linewidth=0.6)
        decimal(axes.yaxis)
        handles, labels = axes.get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True))
        if named:
            axes.legend(list(named.values()), list(named), fontsize=8, frameon=False)

    def _references(self, axes, points: np.ndarray) -> None:
        """A line per exponent through the centre of the points [N, (ln x, ln ratio)]."""
        centre, anchor = points.mean(axis=0)
        reach = np.array([points[:, 0].min(), points[:, 0].max()])
        for k, (power, name) in enumerate(self.exponents):
            line = np.exp(anchor + power * (reach - centre))
            axes.plot(np.exp(reach), line, linestyle=DASHES[k], color=REFERENCE, linewidth=1.3, label=name, zorder=2)

    def _band(self, axes, fit: Slope) -> None:
        """The fitted power law with its interval of 95 %, as high as the points and lines need."""
        widths = np.geomspace(min(self.lines[0].x), max(self.lines[0].x), 60)
        limits = axes.get_ylim()
        middle, low, high = fit.line(widths)
        axes.fill_between(widths, low, high, color=REFERENCE, alpha=0.2, linewidth=0, zorder=1, label="95 % of the fit")
        axes.plot(widths, middle, color=INK, linewidth=1.0, zorder=3, label="fit")
        axes.set_ylim(limits)


@dataclass(frozen=True)
class ByGroup:
    """A panel of the best ratio of every group at one shape."""

    readings: Sequence[Reading]

    def draw(self, axes, panels) -> None:
        """Draws the panel on `axes`, for `lvp.analysis.figure_style.sheet`."""
        axes.set(xscale="log", xlabel=f"best {_RATIO}", ylim=(len(self.readings) - 0.5, -0.5))
        axes.set_title("Best ratio, 95 % interval", fontsize=10)
        for k, each in enumerate(self.readings):
            best = each.best.optimum
            if np.isfinite(best.rate):
                ends = np.abs(np.array(best.interval)[:, None] - best.rate) if best.resolved else None
                face = COLOURS[k] if best.resolved else "white"
                axes.errorbar([best.rate], [k], xerr=ends, fmt="o", color=COLOURS[k], capsize=3, markerfacecolor=face)
        axes.set_yticks(range(len(self.readings)), [each.group.label.replace(", ", ",\n") for each in self.readings])
        decimal(axes.xaxis)


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Loss over the ratio, loss over the ratio divided by a power of d or m, and the best ratio over d or m."""
    readings = list(read(table, config).values())
    quantity = varied(config)
    if len(config.groups) > 1 or not quantity:
        panels, title = _of_groups(readings), _title_of_groups(config, readings)
    else:
        panels, title = _of_law(config, readings, quantity), _title(config, readings, quantity)
    hidden = "the η_hidden that other seeds chose" if config.constant_reach else "one value of η_hidden · d"
    words = [
        f"Means of {len(config.judging_seeds)} judging seeds at {hidden}. Dots: minima of cubics (hollow: unresolved).",
        "Bars: 95 % intervals, which contain the vertex of the parabola through the same points.",
    ]
    return sheet(panels, title=title, preset=preset, corpus=corpus, partial=partial, words=words, columns=len(panels))


def _better_resolved(readings: Sequence[Reading]) -> tuple[Shown, Slope, list[float]]:
    """The rate or the ratio, whose power of d has the narrower interval, its fit, and its unit over the ratio."""
    rate, ratio = power_of_rate(readings), power_of_ratio(readings)
    if np.ptp(ratio.interval) < np.ptp(rate.interval):  # False without an interval
        return RATIO, ratio, [1.0] * len(readings)
    return RATE, rate, [each.hidden_rate for each in readings]


def _of_law(config: Config, readings: Sequence[Reading], quantity: str) -> list:
    """Over d the panels show `_better_resolved`; over m they show the ratio."""
    shown, fit, units = _better_resolved(readings) if quantity == "d" else (RATIO, None, [1.0] * len(readings))
    measured = fit.slope if fit else law(config, readings).power.value
    power = _shown_power(measured, shown.rules if quantity == "d" else None)
    values = [each.shape.width if quantity == "d" else each.shape.vocab for each in readings]
    middle = float(np.exp(np.mean(np.log(values))))
    moved = [unit * (middle / value) ** power for unit, value in zip(units, values, strict=True)]
    printed, inverse = (f"{x:.2g}".replace("-", "−") for x in (power, -power))
    names = "width d" if quantity == "d" else "d, m"
    panels: list[Any] = [Curves(f"Loss over the {shown.label}", shown.label, _curves(config, readings, units), names)]
    if power:  # otherwise the panel would repeat the first
        title = f"Dots coincide if best {shown.symbol} ∝ {quantity}{f'^{printed}' if power != 1 else ''}"
        over = f"{shown.symbol} · ({quantity}/{middle:.0f})^{inverse}"
        panels.append(Curves(title, over, _curves(config, readings, moved)))
    if quantity == "d":
        line = Line(readings[0].group.label, config.widths, readings, units)
        best = Best(shown.title, "width d", shown.label, [line], list(shown.rules.items()), fit)
    else:
        best = _over_vocabulary(config, readings)
    return [*panels, best]


def _curves(config: Config, readings: Sequence[Reading], units: Sequence[float]) -> list[Curve]:
    return [_curve(_name(config, each), each, unit) for each, unit in zip(readings, units, strict=True)]


def _over_vocabulary(config: Config, readings: Sequence[Reading]) -> Best:
    lines = []
    for width in sorted(set(config.widths)):
        own = [each for each in readings if each.shape.width == width]
        lines.append(Line(f"d {width}", [each.shape.vocab for each in own], own, [1.0] * len(own)))
    return Best("Best ratio over vocabulary", "vocabulary m", _RATIO, lines, [(0.0, "m^0")])


def _of_groups(readings: Sequence[Reading]) -> list:
    several = len({each.shape for each in readings}) > 1
    names = [f"{each.group.label}, d {each.shape.width}" if several else each.group.label for each in readings]
    curves = [_curve(name, each, 1.0) for name, each in zip(names, readings, strict=True)]
    return [Curves("Loss over the ratio", _RATIO, curves, "", ordered=several), ByGroup(readings)]


def _colours(count: int, ordered: bool) -> Sequence[Any]:
    import matplotlib

    return list(matplotlib.colormaps["viridis"](np.linspace(0, 0.88, count)) if ordered else COLOURS[:count])


def _curve(name: str, each: Reading, unit: float) -> Curve:
    best = each.best.optimum
    losses = each.judged[1].mean(axis=0) if each.judged else np.array([])
    finite = np.isfinite(losses)
    above = 100 * (losses[finite] / best.loss - 1)
    return Curve(name, each.ratios[finite] * unit, above, best.rate * unit, best.resolved)


def _name(config: Config, each: Reading) -> str:
    return f"{each.shape.width}, {each.shape.vocab}" if varied(config) == "m" else f"{each.shape.width}"


def _shown_power(value: float, rules: dict[float, str] | None) -> float:
    """The power of the nearest rule, or the value if there are no rules; 0 if it is unknown."""
    if not np.isfinite(value):
        return 0.0
    return round(value, 2) if rules is None else min(rules, key=lambda power: abs(power - value))


def _title(config: Config, readings: Sequence[Reading], quantity: str) -> str:
    shown, power = RATIO, law(config, readings).power
    if quantity == "d":
        shown, fit, _ = _better_resolved(readings)
        power = fit.measurement
    where = ", ".join(filter(None, (readings[0].group.label, sizes(config))))
    told = power_in_words(power, quantity, otherwise=f"no resolved power of {quantity}")
    return f"Text read once: {shown.sentence} follows {told} ({where})"


def _title_of_groups(config: Config, readings: Sequence[Reading]) -> str:
    by_group = [f"{each.best.optimum.rate:.2g} ({each.group.label})" for each in readings if each.best.optimum.resolved]
    d, m = config.shapes[0]
    names = ", ".join(by_group) or ", ".join(GROUPS[name].label for name in config.groups) + ": not resolved yet"
    return f"Best ratio η_E / η_hidden at d {d}, m {m}: {names}"
