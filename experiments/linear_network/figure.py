"""The figure of `linear_network`."""

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.experiments.common.shape_powers import optima_panel
from lvp.experiments.linear_network.analysis import losses, optima
from lvp.experiments.linear_network.config import GROWING, GROWTH, POWERS, VOCAB_PER_WIDTH, Config, name_of


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """For each form of the rows: the optimum over width and over vocabulary, and the loss over the rate.

    The optimum over width is drawn after each number of steps, the rest after the last step.
    """
    last = config.steps[-1]
    panels, over_vocab = [], []
    for rows in config.rows:
        for steps in config.steps:
            best, title = optima(table, config, rows, steps), f"{name_of(rows)}, {steps} steps"
            panels.append(optima_panel(config.slices, best, "d", title, {GROWING: POWERS[GROWTH][rows]}))
        over_vocab.append(optima_panel(config.slices, best, "m", title))
    return sheet(
        [*panels, *over_vocab, _loss_panel(table, config, last)],
        title="The linear network's optimal embedding learning rate, infinite batch",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            "Legends: the power of d or m with its 95 % interval. Bars: standard errors of resolved optima; "
            "optima with a flag are left out.",
            f"Dashed: the power of d that the argument of growth gives, through the optima at {GROWING}.",
        ],
    )


def _loss_panel(table, config: Config, steps: int) -> Panel:
    """Loss over rate at the smallest and the largest shape of m = 8 d, for each form of the rows."""
    shapes = [shape for shape in config.shapes if shape[1] == VOCAB_PER_WIDTH * shape[0]]
    series = []
    for rows in config.rows:
        by_shape = dict(zip(config.shapes, losses(table, config, rows, steps), strict=True))
        for d, m in dict.fromkeys([shapes[0], shapes[-1]]) if shapes else ():
            means = by_shape[d, m].mean(axis=0)
            series.append(
                Series(f"{name_of(rows)}, d {d}", config.rates, np.where(np.isfinite(means), means, np.nan), line=True)
            )
    low = min((np.nanmin(s.y) for s in series if np.isfinite(s.y).any()), default=1.0)
    return Panel(
        f"{GROWING}, {steps} steps",
        "embedding learning rate η_E",
        "loss (nats)",
        series,
        named_ticks=False,
        yscale="linear",
        ylim=(low - 0.1, low + 1.5),
    )
