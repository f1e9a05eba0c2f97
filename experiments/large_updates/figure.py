"""The figure of `large_updates`."""

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.experiments.large_updates.analysis import accuracy, measured_epochs, over_epochs
from lvp.experiments.large_updates.config import GROUPS, Config


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Final accuracy by group and scale; dead ReLUs and stable rank over training."""
    series = []
    for name in config.groups:
        values = [accuracy(table, config, name, scale) for scale in config.scales]
        means, spread = ([statistic(x) for x in values] for statistic in (np.mean, np.ptp))
        series.append(Series(name, config.scales, means, error=np.array(spread) / 2, fitted=means))
    words = "scale of the rate in the first phase"
    panels = [Panel("final accuracy", words, "accuracy on the test images (%)", series, yscale="linear")]
    plain = [name for name in config.groups if not GROUPS[name].leaky]
    for names, measure, ylabel in (
        (config.groups, "dead.all", "dead ReLUs (fraction)"),
        (plain, "stable_rank.mean", "mean stable rank"),
    ):
        values = [over_epochs(table, config, name, scale, measure) for name in names for scale in config.scales]
        highest = np.max(np.where(np.isfinite(values), values, 0.0), initial=0.0)
        limits = (-0.03 * highest, 1.05 * highest) if highest else None  # shared, so that panels can be compared
        panels += [_panel_over_epochs(table, config, name, measure, ylabel, limits) for name in names]
    return sheet(
        panels,
        title="Effects of large first updates on a ResNet",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            "Means over seeds; bars: half the range over seeds. A ReLU is dead if no test image activates it. "
            f"The first phase ends at epoch {config.first_epochs:g}."
        ],
        size=(4.8, 3.9),
    )


def _panel_over_epochs(table, config: Config, name: str, measure: str, ylabel: str, limits) -> Panel:
    """A measure of a group over the epochs, by scale."""
    epochs, series = measured_epochs(table, config), []
    for scale in config.scales:
        values = over_epochs(table, config, name, scale, measure)
        if np.isfinite(values).all():
            means, spread = values.mean(axis=0), np.ptp(values, axis=0) / 2
            series.append(Series(f"× {scale:g}", epochs, means, error=spread, fitted=means))
    style = dict(legend="first phase", ordered=True, named_ticks=False, yscale="linear", ylim=limits)
    return Panel(f"{name}: {ylabel}", "epoch", ylabel, series, **style)
