"""The figure of `pretrain_1b`."""

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, over_seeds
from lvp.experiments.pretrain_1b.analysis import (
    ratio_label,
    tuned_rate,
    validation_curves,
    values_by_seed,
    word_perplexities,
)
from lvp.experiments.pretrain_1b.config import Config


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Perplexity over training (figure 4) and at the end, and by word at the end and over training (figure 5)."""
    curves = {ratio_label(config, ratio): validation_curves(table, config, ratio) for ratio in config.ratios}
    over_time = _over_training(config.measured_steps, curves)
    panels = [Panel("over training", "step", "validation perplexity", over_time, legend="η_E/η", ordered=True)]
    by_ratio = {
        "at the end": [np.exp(values_by_seed(table, config, ratio, "valid_loss")) for ratio in config.ratios],
        "by word, at the end": [
            values_by_seed(table, config, ratio, "perplexity_by_tokens") for ratio in config.ratios
        ],
    }
    for title, rows in by_ratio.items():
        values = np.array(rows)
        finished = np.isfinite(values).all(axis=1)
        ratios, values = np.array(config.ratios)[finished], values[finished]
        series = [over_seeds("mean over seeds", ratios, values)]
        panels.append(Panel(title, "η_E/η", "perplexity", series))
    if config.scored_points:
        curves = {
            f"{ratio_label(config, ratio)}, η = {tuned_rate(table, config, ratio) or np.nan:g}": np.log(
                word_perplexities(table, config, ratio)
            )
            for ratio in (1.0, config.root)
        }
        compared = _over_training((*config.scored_steps, config.steps - 1), curves)
        panels.append(Panel("by word, over training", "step", "perplexity", compared, legend="η_E/η"))
    return sheet(
        panels,
        columns=2,
        title="Perplexity and the ratio of the embedding's learning rate to the other rates",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            f"√d = {config.root:g}. All other rates are {tuned_rate(table, config) or np.nan:g}, or η of the legend.",
            "Bars and bands: from the lowest to the highest seed.",
        ],
    )


def _over_training(steps, losses: dict[str, np.ndarray]) -> list[Series]:
    """Perplexities by name of the curve, from losses [seeds, steps]. A curve without all losses is left out."""
    series = []
    for name, curve in losses.items():
        mean, low, high = (np.exp(x) for x in (curve.mean(axis=0), curve.min(axis=0), curve.max(axis=0)))
        if np.isfinite(mean).all():
            series.append(Series(name, np.array(steps) + 1, mean, fitted=mean, band=(low, high)))
    return series
