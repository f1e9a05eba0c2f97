"""The figure of `warmup`."""

from collections.abc import Sequence

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.experiments.warmup.analysis import at_edge, best_rate, losses, over_steps, runs_by_seed, schedule, stable_rate
from lvp.experiments.warmup.config import GROUPS, STABLE_GROUP, Config, rates_of

# Rows of panels: figures 1, 2, 3 and 5 of Kosson et al. 2024.
LAYOUT = [
    *(("AdamW", "loss"), ("AdamW, no β₁ correction", "loss"), ("AdamW", "curve"), ("AdamW", "norm")),
    *(("LionA", "loss"), ("LionA", "curve"), ("LionA", "norm"), ("LionA", "angle")),
    *(("LionAR", "loss"), ("LionAR", "curve"), ("LionAR", "angle"), ("LionAR", "representation_change")),
    *((name, "loss") for name in list(GROUPS)[4:]),
]


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Loss over rate by warm-up; curves and measures over training, without warm-up and with the reference warm-up."""
    panels = []
    for name, content in LAYOUT:
        if name in config.groups:
            draw = {"loss": _losses, "curve": _curves}.get(content)
            panels.append(draw(table, config, name) if draw else _over_steps(table, config, name, content))
    return sheet(
        panels,
        title="Loss and size of updates with and without warm-up",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            f"Losses: means over seeds {', '.join(map(str, config.seeds))}; bars: half the range over seeds; diverged "
            "runs are not drawn. *: the best rate is at the edge of its grid. Schedule: linear warm-up, constant "
            f"rate, linear cool-down over the last {config.cooldown:.0%} of the steps.",
            "Over steps: mean over seeds, at the rate that is best without warm-up if the title names no other rate. "
            "Norm, angle and representation change: hidden matrices. Dashed: the "
            "schedule, scaled to the value at half of the training.",
        ],
        columns=4,
        size=(4.4, 3.9),
    )


def _losses(table, config: Config, name: str) -> Panel:
    series = []
    for warmup in config.warmups:
        by_seed = losses(table, config, name, warmup)
        finished = np.isfinite(by_seed).all(axis=1)
        rates, by_seed = np.array(rates_of(config, name))[finished], by_seed[finished]
        means, spread = by_seed.mean(axis=1), np.ptp(by_seed, axis=1) / 2
        label = f"{warmup:.0%}" + "*" * at_edge(table, config, name, warmup)
        series.append(Series(label, rates, means, error=spread, fitted=means))
    ylabel = "validation loss (nats per token)"
    return Panel(name, "peak learning rate", ylabel, series, legend="warm-up", ordered=True)


def _at_rate(table, config: Config, name: str, rate: float | None, seeds: Sequence[int]) -> list[tuple]:
    """(label, warm-up, rows by seed) of a group at a rate, without warm-up and with the reference.

    The list is empty if `rate` is None.
    """
    if rate is None:
        return []
    warmups = (0.0, config.reference)
    return [(f"{w:.0%}", w, runs_by_seed(table, config, name, rate, w, seeds)) for w in warmups]


def _curves(table, config: Config, name: str) -> Panel:
    """The panel of training curves.

    `STABLE_GROUP` is drawn at its largest stable rate, as in the paper's figure 2. Other groups are drawn at their best
    rate without warm-up.
    """
    series, rate, seeds = [], best_rate(table, config, name, 0.0), config.seeds
    if name == STABLE_GROUP:
        rate, seeds = stable_rate(table, config, name), config.more_seeds
    for label, _, rows in _at_rate(table, config, name, rate, seeds):
        if "curve_losses" in rows and len(rows := rows.dropna(subset=["curve_losses"])):
            steps = min(rows["curve_steps"], key=len)  # older records may have fewer points
            pairs = zip(rows["curve_steps"], rows["curve_losses"], strict=True)
            series.append(Series(label, steps, np.mean([np.interp(steps, *pair) for pair in pairs], axis=0), line=True))
    return Panel(
        f"{name}: training" + ", largest stable rate" * (name == STABLE_GROUP),
        "step",
        "training loss (nats per token)",
        series,
        legend="warm-up",
        ordered=True,
        named_ticks=False,
    )


AXES = {
    "norm": "update norm",
    "angle": "angle of the update (rad)",
    "representation_change": "relative representation change",
}


def _over_steps(table, config: Config, name: str, measure: str) -> Panel:
    """A measure over training; the dashed schedule passes through the value at half of the training."""
    series, step = [], np.array(config.measured_steps) + 1
    middle = int(np.argmin(np.abs(step - config.steps / 2)))
    rate = best_rate(table, config, name, 0.0)
    for label, warmup, rows in _at_rate(table, config, name, rate, config.seeds):
        values, planned = over_steps(rows, config, measure).mean(axis=0), schedule(config, warmup)
        if np.isfinite(values).all():
            follows = planned * values[middle] / planned[middle]
            series.append(Series(label, step, values, predicted=follows))
    label = AXES[measure]
    return Panel(f"{name}: {label}", "step", label, series, legend="warm-up", ordered=True, named_ticks=False)
