"""The figure of `warmup`."""

from collections.abc import Sequence

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, over_seeds
from lvp.experiments.warmup.analysis import at_edge, best_rate, losses, over_steps, schedule, tuned_runs, with_reference
from lvp.experiments.warmup.config import CURVES_GROUP, GROUPS, Config, rates_of

FIGURES = {"AdamW": "figure 1", "LionA": "figure 2", "LionAR": "figure 3"}  # optimizer → place in Kosson et al. 2024
# As `FIGURES`, for a sweep that trains none of these optimizers.
OTHERS = {name: "figure 5" for name, group in GROUPS.items() if group.momentum_field == "high_momentum"}
OTHERS |= {name: "section 8" for name, group in GROUPS.items() if group.init_factor != 1}
OTHERS |= {name: "figure 5" for name, group in GROUPS.items() if group.held == "measured"}
# (group, measure) in the panel of first updates. LionA holds the norm and LionAR the angle; the next measure follows.
FIRST: tuple[tuple[str, str], ...] = (
    ("AdamW", "norm"),
    ("AdamW, no β₁ correction", "norm"),
    ("LionA", "norm"),
    ("LionA", "angle"),
    ("LionAR", "angle"),
    ("LionAR", "representation_change"),
)
FIRST_OF_OTHERS = (
    *((name, "angle") for name in OTHERS),
    *((name, "representation_change") for name in ("LionAR", "LionAR, measured RRC held")),
)
MEASURES = {"norm": "norm", "angle": "angle", "representation_change": "representation change"}


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Loss over warm-up for all optimizers, loss over rate, a training curve, and the size of the first updates."""
    panels = [_over_warmup(table, config)]
    of_paper = CURVES_GROUP in config.groups
    figures, first = (FIGURES, FIRST) if of_paper else (OTHERS, FIRST_OF_OTHERS)
    panels += [_losses(table, config, name, place) for name, place in figures.items() if name in config.groups]
    panels += [_curves(table, config)] if CURVES_GROUP in config.groups else []
    held = any(GROUPS[name].held for name in config.groups)
    panels += [_first_updates(table, config, first)] + [_schedules(config)] * (not of_paper and not held)
    return sheet(
        panels,
        title="Loss and size of updates with and without warm-up",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            f"Losses: means over seeds {', '.join(map(str, config.seeds))}; bars: from the lowest to the highest seed; "
            "diverged runs are not drawn. *: the best rate is at the edge of its grid.",
            f"Schedule: linear warm-up, constant rate, linear cool-down over the last {config.cooldown:.0%} of the "
            "steps. Training and updates: means over the judging seeds, at the rate that is best without warm-up; "
            "updates of the hidden matrices.",
        ],
        size=(5.0, 4.4),
    )


def _over_warmup(table, config: Config) -> Panel:
    """The loss at the best rate over the warm-up, by optimizer."""
    series = []
    for name in config.groups:
        rates, selected = rates_of(config, name), {}
        for warmup in () if GROUPS[name].rate_of else config.warmups:
            if (best := best_rate(table, config, name, warmup)) is not None:
                selected[100 * warmup] = losses(table, config, name, warmup)[rates.index(best)]
        if selected:
            series.append(over_seeds(name, list(selected), np.array(list(selected.values()))))
    ylabel = "validation loss (nats per token)"
    return Panel("each at its best rate", "warm-up (% of the steps)", ylabel, series, xscale="linear", yscale="linear")


def _losses(table, config: Config, name: str, place: str) -> Panel:
    series = []
    for warmup in config.warmups:
        by_seed = losses(table, config, name, warmup)
        finished = np.isfinite(by_seed).all(axis=1)
        rates, by_seed = np.array(rates_of(config, name))[finished], by_seed[finished]
        label = f"{warmup:.0%}" + "*" * at_edge(table, config, name, warmup)
        series.append(over_seeds(label, rates, by_seed))
    ylabel = "validation loss (nats per token)"
    return Panel(f"{name} ({place})", "peak learning rate", ylabel, series, legend="warm-up", ordered=True)


def _curves(table, config: Config) -> Panel:
    """`CURVES_GROUP` without warm-up and with the reference warm-up, at the rate that is best without."""
    series = []
    for warmup, rows in zip((0.0, config.reference), with_reference(table, config, CURVES_GROUP), strict=True):
        if "curve_losses" in rows and len(rows := rows.dropna(subset=["curve_losses"])):
            steps = min(rows["curve_steps"], key=len)  # older records may have fewer points
            pairs = zip(rows["curve_steps"], rows["curve_losses"], strict=True)
            means = np.mean([np.interp(steps, *pair) for pair in pairs], axis=0)
            series.append(Series(f"{warmup:.0%}", steps, means, line=True))
    ylabel = "training loss (nats per token)"
    return Panel(f"{CURVES_GROUP} (figure 1)", "step", ylabel, series, "warm-up", ordered=True, named_ticks=False)


def _schedules(config: Config) -> Panel:
    """The learning rate over the steps for every warm-up, as in the first panel of figure 1."""
    series, fall = [], (1 - config.cooldown) * config.steps
    for warmup in config.warmups:
        corners = np.array([0, config.rise(warmup), fall, config.steps])
        series.append(Series(f"{warmup:.0%}", corners, np.array([not warmup, 1.0, 1.0, 0.0]), line=True))
    ylabel = "rate / peak rate"
    return Panel(
        "schedule (figure 1)", "step", ylabel, series, "warm-up", xscale="linear", yscale="linear", ordered=True
    )


def _first_updates(table, config: Config, first: Sequence[tuple[str, str]]) -> Panel:
    """Measures without warm-up, over their value at half of the training; dashed: the schedule."""
    series, step, planned = [], np.array(config.measured_steps) + 1, schedule(config, 0.0)
    middle = int(np.argmin(np.abs(step - config.steps / 2)))
    drawn = planned > 0.05 * planned[middle]  # the last steps of the cool-down would take most of the axis
    for name, measure in first:
        rows = tuned_runs(table, config, name, 0.0) if name in config.groups else None
        values = over_steps(rows, config, measure).mean(axis=0)
        if np.isfinite(values).all():
            follows = planned[drawn] / planned[middle]
            label, size = f"{name}: {MEASURES[measure]}", (values / values[middle])[drawn]
            series.append(Series(label, step[drawn], size, predicted=follows, predicted_label="schedule"))
    return Panel(
        "updates without warm-up" + " (figures 1, 2, 3; section 4)" * (first is FIRST),
        "step",
        "size / size at half of the training",
        series,
        named_ticks=False,
    )
