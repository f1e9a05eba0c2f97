"""The figure of `regimes`."""

from typing import Any

import numpy as np

from experiments.regimes.analysis import gaps, mean_and_worst, optima
from experiments.regimes.config import RULES, Config
from lvp import parametrization
from lvp.analysis.figure_style import sheet
from lvp.analysis.heat_maps import Dots, Heat


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Measured and predicted optima over width and vocabulary; gaps of the rules."""
    best, _ = optima(table, config)
    size = len(config.widths), len(config.vocabs)
    measured = np.reshape([optimum.rate for optimum in best], size)
    doubtful = np.reshape([not optimum.resolved for optimum in best], size)
    names: dict[str, Any] = dict(
        rows=[f"{d}" for d in config.widths],
        columns=[f"{m}" for m in config.vocabs],
        ylabel="width d",
        xlabel="vocabulary m",
        scale="rate",
    )
    panels: list[Heat | Dots] = [Heat("measured best η_E", values=measured, doubtful=doubtful, **names)]
    for rule, title in (("sp", "SP, μP: d^0"), ("lvp", "LVP: d^(−1/2)"), ("interpolated", "interpolated")):
        tables = [parametrization.table(rule, width=d, vocab=m) for d, m in config.shapes]
        predicted = np.reshape([by_role["embedding"].lr_multiplier for by_role in tables], size)
        fitted = np.isfinite(measured) & ~doubtful
        anchor = np.exp(np.mean(np.log(measured[fitted] / predicted[fitted]))) if fitted.any() else 1.0
        panels.append(Heat(f"{title} (height fitted)", values=anchor * predicted, **names))
    percents = {rule: 100 * gaps_of_rule for rule, gaps_of_rule in gaps(table, config).items()}
    series = []
    for name in ("mean", "worst"):
        over_cells = [mean_and_worst(percents[rule])[name] for rule in RULES]
        series.append((f"{name} over cells", [x.value for x in over_cells], [x.interval for x in over_cells]))
    panels.append(
        Dots(
            "constant tuned at the smallest cell only",
            list(RULES.values()),
            series,
            "train loss above best known (%)",
            [percents[rule].mean(axis=1) for rule in RULES],
            "one cell",
        )
    )
    return sheet(
        panels,
        title="Best embedding learning rate over width and vocabulary, and excess loss of each rule after transfer",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "Hatched: flagged (at the edge of the grid or within noise), not fitted. Predictions: each rule's powers, "
            "scaled to the mean of the resolved cells.",
            "Intervals: 95 % over seeds.",
        ],
        size=(4.6, 3.8),
    )
