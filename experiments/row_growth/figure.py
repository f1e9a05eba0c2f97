"""The figure of `row_growth`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lvp.analysis.figure_style import FIT, INK, REFERENCE, decimal, sheet
from lvp.analysis.heat_maps import Dots
from lvp.analysis.measurement import Measurement
from lvp.analysis.power_laws import Panel, Series
from lvp.experiments.row_growth.analysis import (
    LAW,
    Point,
    exponents,
    inputs_over_steps,
    losses,
    points,
    prefix_points,
    records_of,
    spreads,
)
from lvp.experiments.row_growth.config import Config, base, growths, measured_steps
from lvp.experiments.row_growth.laws import LAWS, QUANTITIES


@dataclass(frozen=True)
class Ranges:
    """A panel of values with intervals, one per line, on a logarithmic axis. Unknown values are not drawn."""

    title: str  # above the panel
    labels: Sequence[str]  # [N], from the top line to the bottom line
    values: Sequence[Measurement]  # [N]
    xlabel: str  # below the panel
    hollow: Sequence[bool]  # [N], True for a hollow marker: no fit contains the value
    band: Measurement | None = None  # drawn as a vertical line and a shaded band

    def draw(self, axes, panels) -> None:
        """Draws the panel on `axes`, for `lvp.analysis.figure_style.sheet`."""
        axes.set(xscale="log", xlabel=self.xlabel, ylim=(max(1, len(self.labels)) - 0.5, -0.5))
        axes.set_title(self.title, fontsize=10)
        axes.set_yticks(range(len(self.labels)), self.labels, fontsize=8)
        if self.band is not None and np.isfinite(self.band.value) and self.band.interval is not None:
            axes.axvspan(*self.band.interval, color=REFERENCE, alpha=0.15, linewidth=0)
            axes.axvline(self.band.value, color=REFERENCE, linewidth=1)
        known = [x for m in self.values for x in (m.value, *(m.interval or ())) if np.isfinite(x) and x > 0]
        low, high = (min(known) / 1.3, max(known) * 1.3) if known else (0.1, 10.0)
        for row, (measured, hollow) in enumerate(zip(self.values, self.hollow, strict=True)):
            if not np.isfinite(measured.value):
                continue
            ends = np.clip(measured.interval or (measured.value, measured.value), low, high)
            axes.plot(ends, (row, row), color=FIT, linewidth=1.3, alpha=0.4 if hollow else 1.0)
            fill = "white" if hollow else FIT
            axes.plot(np.clip(measured.value, low, high), row, "o", color=fill, markeredgecolor=INK, markersize=5)
        axes.set_xlim(low, high)
        decimal(axes.xaxis)
        axes.grid(axis="x", color="#e6e6e6", linewidth=0.6)


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Draws six panels.

    They are the law's constant for every variant, the spread of every law's constant, the fitted power of each factor,
    the law's constant over the number of steps, the size of the rows during training, and the loss over the rate.
    """
    made = points(table, config)
    return sheet(
        [
            _constants(made, config),
            _laws(made),
            _powers(config, made),
            _horizons(table, config),
            _growth(table, config, made),
            _losses(table, config),
        ],
        title="Does the best embedding rate let the rows grow to the size of the positions?",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            f"Base: d {config.width}, T = {config.steps} steps, rows × √d, sinusoidal positions of amplitude "
            f"{config.position_amplitude:g}, σ_E = d^(−1/2), Adam; m = {config.vocab}. s: factor on the rows.",
            "Optima: quadratic in ln η, 95 % intervals; hollow: flagged, in no fit. Spread: half-width of the band "
            "that holds 95 % of the variants' constants, without the noise of the optima.",
        ],
        columns=2,
        size=(7.0, 4.6),
    )


def _constants(made: Sequence[Point], config: Config) -> Ranges:
    law = spreads(made)[LAW].constant
    shown = [p for p in made if p.added > 0]
    ends = (law.value / (1 + config.tolerance), law.value * (1 + config.tolerance))
    return Ranges(
        f"constant of every variant; grey: common constant ±{config.tolerance:.0%}",
        [p.variant.label for p in shown],
        [p.constant for p in shown],
        "best η_E · s · √T / RMS(positions)",
        [not p.optimum.resolved for p in shown],
        Measurement(law.value, ends),
    )


def _laws(made: Sequence[Point]) -> Ranges:
    by_law = spreads(made)
    names = sorted(by_law, key=lambda name: np.nan_to_num(by_law[name].width.value, nan=np.inf))
    percent = [_percent(by_law[name].width) for name in names]
    return Ranges("spread of the constant under each law", names, percent, "spread (%)", [False] * len(names))


def _percent(width: Measurement) -> Measurement:
    """A spread in percent. Numbers below 1 % become 1 %, because the axis is logarithmic."""
    ends = width.interval and (max(1.0, 100 * width.interval[0]), max(1.0, 100 * width.interval[1]))
    return Measurement(max(1.0, 100 * width.value) if np.isfinite(width.value) else np.nan, ends)


def _powers(config: Config, made: Sequence[Point]) -> Dots:
    fitted = exponents(config, made)
    predicted = [LAWS[LAW].get(name, 0.0) for name in fitted]
    return Dots(
        "power of each factor, fitted together",
        [QUANTITIES[name] for name in fitted],
        [
            ("fitted", [power.value for power in fitted.values()], [power.interval for power in fitted.values()]),
            ("law", predicted, [None] * len(predicted)),
        ],
        "power of the best η_E",
    )


def _horizons(table, config: Config) -> Panel:
    start, series = base(config), []
    for width in config.widths:
        for steps in config.horizons:
            variant = replace(start, width=width, steps=steps)
            read = [p for p in prefix_points(table, config, variant) if p.optimum.resolved and p.constant.interval]
            if not read:
                continue
            values = np.array([p.constant.value for p in read])
            ends = np.abs(np.transpose([p.constant.interval for p in read]) - values)
            label = f"d {width}, runs of T {steps}"
            series.append(Series(label, [p.steps for p in read], values, error=ends, fitted=values))
    title = "constant over the horizon; lines: prefixes of the same runs"
    return Panel(title, "steps T", "best η_E · s · √T / RMS(positions)", series, named_ticks=False, ordered=True)


def _growth(table, config: Config, made: Sequence[Point]) -> Panel:
    series = []
    for point in made:
        variant = point.variant
        on_base = variant == replace(base(config), width=variant.width, steps=config.horizons[-1])
        if not (on_base and point.optimum.rate > 0):
            continue
        runs = records_of(table, config, variant)
        rows, added = inputs_over_steps(runs, config, variant, point.optimum.rate)
        if np.isfinite([rows, added]).all():
            steps = np.array(measured_steps(config, variant)) + 1
            series.append(Series(f"rows, d {variant.width}", steps, rows, line=True, predicted=added))
    title = "size of the rows as they enter, near the best rate; dashed: positions"
    return Panel(title, "step", "RMS of the entries", series, named_ticks=False, ordered=True)


def _losses(table, config: Config) -> Panel:
    start, series = base(config), []
    for width in config.widths:
        # Both numbers of steps, or one if they are equal.
        for steps in (config.steps, config.horizons[-1])[: 1 + (config.horizons[-1] != config.steps)]:
            variant = replace(start, width=width, steps=steps)
            means = losses(records_of(table, config, variant), config, variant, steps).mean(axis=0)
            finished = np.isfinite(means)
            if finished.any():
                x = np.array(growths(config, variant))[finished]
                series.append(Series(f"d {width}, T {steps}", x, means[finished], fitted=means[finished]))
    ylabel = "final train loss (nats per token)"
    return Panel("loss over the rate", "η_E · s · √T", ylabel, series, named_ticks=False, ordered=True)
