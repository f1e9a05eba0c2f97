"""The figure of `large_updates`."""

import numpy as np

from experiments.large_updates.analysis import accuracy, course, measured_epochs
from experiments.large_updates.config import ARMS, Config
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Final accuracy by arm and scale; dead ReLUs and stable rank over training."""
    series = []
    for name in config.arms:
        values = [accuracy(table, config, name, scale) for scale in config.scales]
        means, spread = ([of(x) for x in values] for of in (np.mean, np.ptp))
        series.append(Series(name, config.scales, means, error=np.array(spread) / 2, fitted=means))
    words = "scale of the rate in the first phase"
    panels = [Panel("final accuracy", words, "accuracy on the test images (%)", series, yscale="linear")]
    plain = [name for name in config.arms if not ARMS[name].leaky]
    for names, what, ylabel in (
        (config.arms, "dead.all", "dead ReLUs (fraction)"),
        (plain, "stable_rank.mean", "mean stable rank"),
    ):
        of_all = [course(table, config, name, scale, what) for name in names for scale in config.scales]
        highest = np.nanmax(np.where(np.isfinite(of_all), of_all, 0.0), initial=0.0)
        limits = (-0.03 * highest, 1.05 * highest) if highest else None  # one for all, so that they compare
        panels += [_course(table, config, name, what, ylabel, limits) for name in names]
    return sheet(
        panels,
        title="What large first updates leave behind in a ResNet",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "Means over seeds; the length of a bar is what lies between seeds. Dead: no test image activates the unit. "
            f"The first phase ends at epoch {config.first_epochs:g}."
        ],
        size=(4.8, 3.9),
    )


def _course(table, config: Config, name: str, what: str, ylabel: str, limits) -> Panel:
    epochs, series = measured_epochs(table, config), []
    for scale in config.scales:
        values = course(table, config, name, scale, what)
        if np.isfinite(values).all():
            means, spread = values.mean(axis=0), np.ptp(values, axis=0) / 2
            series.append(Series(f"× {scale:g}", epochs, means, error=spread, fitted=means))
    style = dict(legend="first phase", ordered=True, named_ticks=False, yscale="linear", ylim=limits)
    return Panel(f"{name}: {ylabel}", "epoch", ylabel, series, **style)
