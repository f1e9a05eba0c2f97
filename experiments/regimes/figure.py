"""The figure of `regimes`."""

from typing import Any

import numpy as np

from experiments.regimes.analysis import gaps, mean_and_worst, optima
from experiments.regimes.config import RULES, Config
from lvp import parametrization
from lvp.analysis.figure_style import sheet
from lvp.analysis.heat_maps import Dots, Heat


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Optima over width and vocabulary beside what the rules predict; and the rules' gaps."""
    best, _ = optima(table, config)
    size = len(config.widths), len(config.vocabs)
    measured = np.reshape([o.rate for o in best], size)
    doubtful = np.reshape([not o.resolved for o in best], size)
    names: dict[str, Any] = dict(
        rows=[f"{d}" for d in config.widths],
        columns=[f"{m}" for m in config.vocabs],
        ylabel="width d",
        xlabel="vocabulary m",
        scale="rate",
    )
    panels: list[Heat | Dots] = [Heat("measured best η_E", values=measured, doubtful=doubtful, **names)]
    for rule, title in (("sp", "SP, μP: d^0"), ("lvp", "LVP: d^(−1/2)"), ("interpolated", "interpolated")):
        rows = [parametrization.table(rule, width=d, vocab=m)["embedding"].lr_multiplier for d, m in config.shapes]
        predicted = np.reshape(rows, size)
        known = np.isfinite(measured) & ~doubtful
        anchor = np.exp(np.mean(np.log(measured[known] / predicted[known]))) if known.any() else 1.0
        panels.append(Heat(f"{title} (height fitted)", values=anchor * predicted, **names))
    found = {rule: 100 * each for rule, each in gaps(table, config).items()}
    made = {rule: mean_and_worst(each) for rule, each in found.items()}
    series = [
        (f"{name} over cells", [made[r][name][0] for r in RULES], [made[r][name][1] for r in RULES])
        for name in ("mean", "worst")
    ]
    panels.append(
        Dots(
            "constant tuned at the smallest cell only",
            list(RULES.values()),
            series,
            "train loss above best known (%)",
            [found[rule].mean(axis=1) for rule in RULES],
            "a cell",
        )
    )
    return sheet(
        panels,
        title="Best embedding learning rate over width and vocabulary, and what each rule's transfer costs",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "Hatched: flagged (edge of the grid or within noise), not fitted. Predictions: each rule's powers, through "
            "the mean of the resolved cells.",
            "Intervals: 95 % over seeds.",
        ],
        size=(4.6, 3.8),
    )
