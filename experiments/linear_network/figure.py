"""The figure of `linear_network`."""

from lvp.analysis.figure_style import sheet
from lvp.experiments.common.shape_powers import LINES, optima_panel
from lvp.experiments.linear_network.analysis import optima
from lvp.experiments.linear_network.config import GROWING, GROWTH, POWERS, Config, name_of


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """For each form of the rows: the optimum over width after few and after many steps, and over vocabulary."""
    panels = []
    for rows in config.rows:
        for steps in dict.fromkeys((config.steps[0], config.steps[-1])):
            best, title = optima(table, config, rows, steps), f"{name_of(rows)}, {steps} steps"
            panels.append(optima_panel(config.slices, best, "d", title, {GROWING: POWERS[GROWTH][rows]}))
        panels.append(optima_panel(config.slices, best, "m", title))
    return sheet(
        panels,
        title="The linear network's optimal embedding learning rate, infinite batch",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            LINES,
            f"Dashed: the power of d that the argument of growth gives, through the optima at {GROWING}.",
        ],
    )
