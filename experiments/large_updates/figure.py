"""The figure of `large_updates`."""

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, over_seeds
from lvp.experiments.large_updates.analysis import accuracy, measured_epochs, over_epochs
from lvp.experiments.large_updates.config import GROUPS, Config

DRAWN = 2  # scales whose training is drawn, from the largest: at scale 1 all groups are alike


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Final accuracy over the scale; dead ReLUs and stable rank over training, of all groups, by scale."""
    series, groups = [], sorted(config.groups, key=lambda name: GROUPS[name].leaky)  # the same colours in all panels
    for name in groups:
        by_seed = np.array([accuracy(table, config, name, scale) for scale in config.scales])
        series.append(over_seeds(name, config.scales, by_seed))
    words = "scale of the rate in the first phase"
    panels = [Panel("final accuracy", words, "accuracy on the test images (%)", series, yscale="linear")]
    plain = [name for name in groups if not GROUPS[name].leaky]
    scales = sorted(config.scales)[-DRAWN:]
    for names, measure, ylabel in (
        (groups, "dead.all", "dead ReLUs (fraction)"),
        (plain, "stable_rank.mean", "mean stable rank"),
    ):
        drawn = [over_epochs(table, config, name, scale, measure) for name in names for scale in scales]
        highest = np.max(np.where(np.isfinite(drawn), drawn, 0.0), initial=0.0)
        limits = (-0.03 * highest, 1.05 * highest) if highest else None  # shared, so that panels can be compared
        panels += [_panel_over_epochs(table, config, names, scale, measure, ylabel, limits) for scale in scales]
    return sheet(
        panels,
        title="Effects of large first updates on a ResNet",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            "Means over seeds; bars and bands: from the lowest to the highest seed. A ReLU is dead if no test image "
            f"activates it. The first phase ends at epoch {config.first_epochs:g}."
        ],
        size=(4.8, 4.4),
    )


def _panel_over_epochs(table, config: Config, names, scale: float, measure: str, ylabel: str, limits) -> Panel:
    """A measure over the epochs at a scale, by group."""
    epochs, series = measured_epochs(table, config), []
    for name in names:
        values = over_epochs(table, config, name, scale, measure)
        band = values.min(axis=0), values.max(axis=0)
        series.append(Series(name, epochs, values.mean(axis=0), line=True, band=band))
    title = f"{ylabel}, first phase × {scale:g}"
    return Panel(title, "epoch", ylabel, series, named_ticks=False, yscale="linear", ylim=limits)
