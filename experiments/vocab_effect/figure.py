"""The figure of `vocab_effect`."""

import numpy as np

from lvp.analysis import Optimum
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.experiments.common.shape_powers import LINES, joint_powers, optima_panel
from lvp.experiments.vocab_effect.analysis import by_horizon
from lvp.experiments.vocab_effect.config import Config
from lvp.experiments.width_vocab.config import READINGS


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """The optimum over width at each vocabulary, over vocabulary at each width, and both powers over the horizon."""
    read = by_horizon(table, config)
    best = read[config.steps]
    parts, title = config.slices, f"{config.steps} steps in every setting"
    return sheet(
        [
            optima_panel(parts, best, "d", title, {part.name: -0.5 for part in parts if part.moving == "d"}),
            optima_panel(parts, best, "m", title),
            _horizon_panel(config, read),
        ],
        title=f"Best embedding rate over width and vocabulary at fixed steps, {READINGS[config.token_rows[0]]}",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            LINES,
            "Dashed: −1/2. Right: powers of d and m fitted together to all shapes, read at the first steps of the same "
            "runs. Shaded: 95 % intervals.",
        ],
    )


def _horizon_panel(config: Config, read: dict[int, list[Optimum]]) -> Panel:
    fits = {steps: joint_powers(config.shapes, best) for steps, best in read.items()}
    series = []
    for name in ("d", "m"):
        known = {steps: fit for steps, fit in fits.items() if np.isfinite(fit.intervals[name]).all()}
        if known:
            low, high = np.transpose([fit.intervals[name] for fit in known.values()])
            values = [fit.powers[name] for fit in known.values()]
            series.append(Series(f"power of {name}", list(known), values, band=(low, high)))
    levels = [(0.0, "0"), (-0.5, "−1/2")]
    return Panel("All shapes together", "steps", "power", series, yscale="linear", levels=levels)
