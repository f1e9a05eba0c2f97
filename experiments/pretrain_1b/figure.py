"""The figure of `pretrain_1b`."""

import numpy as np

from experiments.pretrain_1b.analysis import column, curves, named
from experiments.pretrain_1b.config import Config
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Perplexity over training by ratio (figure 4), and word-level perplexity over the ratio (figure 5)."""
    steps, over_time = np.array(config.measured_steps) + 1, []
    for ratio in config.ratios:
        means = np.exp(curves(table, config, ratio).mean(axis=0))
        if np.isfinite(means).all():
            over_time.append(Series(named(config, ratio), steps, means, fitted=means))
    panels = [Panel("over training", "step", "validation perplexity", over_time, legend="η_E/η", ordered=True)]
    for title, name, of in (
        ("at the end", "valid_loss", np.exp),
        ("by word, scored text", "perplexity_by_tokens", lambda x: x),
    ):
        values = np.array([of(column(table, config, ratio, name)) for ratio in config.ratios])
        known = np.isfinite(values).all(axis=1)
        ratios, values = np.array(config.ratios)[known], values[known]
        means, error = values.mean(axis=1), np.ptp(values, axis=1) / 2
        series = [Series("mean over seeds", ratios, means, error=error, fitted=means)]
        panels.append(Panel(title, "η_E/η", "perplexity", series))
    return sheet(
        panels,
        title="How fast the embedding learns beside the rest",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[f"√d = {config.root:g}. Bars: half the range over seeds. All other rates are {config.rate:g}."],
    )
