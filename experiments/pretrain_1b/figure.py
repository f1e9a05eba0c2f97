"""The figure of `pretrain_1b`."""

import numpy as np

from experiments.pretrain_1b.analysis import ratio_label, tuned_rate, validation_curves, values_by_seed
from experiments.pretrain_1b.config import Config
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Perplexity over training by ratio (figure 4); perplexity at the end and by word over the ratio (figure 5)."""
    steps, over_time = np.array(config.measured_steps) + 1, []
    for ratio in config.ratios:
        losses = validation_curves(table, config, ratio)
        means, band = np.exp(losses.mean(axis=0)), (np.exp(losses.min(axis=0)), np.exp(losses.max(axis=0)))
        if np.isfinite(means).all():
            over_time.append(Series(ratio_label(config, ratio), steps, means, fitted=means, band=band))
    panels = [Panel("over training", "step", "validation perplexity", over_time, legend="η_E/η", ordered=True)]
    by_ratio = {
        "at the end": [np.exp(values_by_seed(table, config, ratio, "valid_loss")) for ratio in config.ratios],
        "by word, scored text": [
            values_by_seed(table, config, ratio, "perplexity_by_tokens") for ratio in config.ratios
        ],
    }
    for title, rows in by_ratio.items():
        values = np.array(rows)
        finished = np.isfinite(values).all(axis=1)
        ratios, values = np.array(config.ratios)[finished], values[finished]
        means, error = values.mean(axis=1), np.ptp(values, axis=1) / 2
        series = [Series("mean over seeds", ratios, means, error=error, fitted=means)]
        panels.append(Panel(title, "η_E/η", "perplexity", series))
    return sheet(
        panels,
        title="Perplexity and the ratio of the embedding's learning rate to the other rates",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            f"√d = {config.root:g}. All other rates are {tuned_rate(table, config) or np.nan:g}.",
            "Bars: half the range over seeds. Bands: from the lowest to the highest seed.",
        ],
    )
