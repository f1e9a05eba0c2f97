"""The claims of `pretrain_1b`."""

import numpy as np

from experiments.pretrain_1b.analysis import column
from experiments.pretrain_1b.config import Config
from lvp.analysis.claims import ABOVE_ZERO, Claim, of_values

PAPER_A = "Hayou & Liu 2025"


def claims(table, config: Config, context) -> list[Claim]:
    """Figures 4 and 5, seed by seed."""
    losses = {ratio: column(table, config, ratio, "valid_loss") for ratio in config.ratios}
    words = {ratio: np.log(column(table, config, ratio, "perplexity_by_tokens")) for ratio in config.ratios}
    means = {ratio: x.mean() for ratio, x in losses.items() if np.isfinite(x).all()}
    best = min(means, key=means.__getitem__) if means else config.root
    root, largest = config.root, config.ratios[-1]
    nats = "nats per token of validation text"
    made = [
        ("√d is better than one rate for all", 4, losses[1.0] - losses[root], ABOVE_ZERO, "> 0", nats),
        (
            "√d is within 0.02 nats of the best ratio",
            4,
            losses[root] - losses[best],
            (-np.inf, 0.02),
            "near-optimal",
            f"{nats}, against ratio {best:g}, the best of these seeds",
        ),
        (
            f"{largest / root:g} √d gains little over √d",
            4,
            losses[root] - losses[largest],
            (-np.inf, 0.02),
            "marginal",
            f"{nats}, at most 0.02",
        ),
        (
            "√d is better than one rate for all, by word",
            5,
            words[1.0] - words[root],
            ABOVE_ZERO,
            "> 0",
            "difference in ln of word-level perplexity",
        ),
    ]
    return [
        of_values(
            values,
            claimed=claimed,
            statement=statement,
            source=f"{PAPER_A}, figure {number}",
            paper_value=paper,
            note=f"{note}; t interval over {len(values)} seeds",
            **dict(context),
        )
        for statement, number, values, claimed, paper, note in made
    ]
