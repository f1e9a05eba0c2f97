"""The claims of `pretrain_1b`."""

from collections.abc import Iterator

import numpy as np

from experiments.pretrain_1b.analysis import values_by_seed
from experiments.pretrain_1b.config import Config
from lvp.analysis.claims import ABOVE_ZERO, Claim, Question
from lvp.analysis.measurement import Measurement

PAPER_A = "Hayou & Liu 2025"


def claims(table, config: Config, context) -> list[Claim]:
    """Claims of figures 4 and 5 on differences of the ratios, seed by seed."""
    return [question.answer(measurement, context) for question, measurement in _questions(table, config)]


def _questions(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    losses = {ratio: values_by_seed(table, config, ratio, "valid_loss") for ratio in config.ratios}
    by_word = {ratio: np.log(values_by_seed(table, config, ratio, "perplexity_by_tokens")) for ratio in config.ratios}
    means = {ratio: x.mean() for ratio, x in losses.items() if np.isfinite(x).all()}
    best = min(means, key=means.__getitem__) if means else config.root
    root, largest = config.root, config.ratios[-1]
    nats, seeds = "nats per token of validation text", f"t interval over {len(config.seeds)} seeds"
    question = Question(
        statement="√d is better than one rate for all",
        source=f"{PAPER_A}, figure 4",
        paper_value="> 0",
        claimed=ABOVE_ZERO,
        note=f"{nats}; {seeds}",
    )
    yield question, Measurement.over_seeds(losses[1.0] - losses[root])
    question = Question(
        statement="√d is within 0.02 nats of the best ratio",
        source=f"{PAPER_A}, figure 4",
        paper_value="near-optimal",
        claimed=(-np.inf, 0.02),
        note=f"{nats}, against ratio {best:g}, the best of these seeds; {seeds}",
    )
    yield question, Measurement.over_seeds(losses[root] - losses[best])
    question = Question(
        statement=f"{largest / root:g} √d gains little over √d",
        source=f"{PAPER_A}, figure 4",
        paper_value="marginal",
        claimed=(-np.inf, 0.02),
        note=f"{nats}, at most 0.02; {seeds}",
    )
    yield question, Measurement.over_seeds(losses[root] - losses[largest])
    question = Question(
        statement="√d is better than one rate for all, by word",
        source=f"{PAPER_A}, figure 5",
        paper_value="> 0",
        claimed=ABOVE_ZERO,
        note=f"difference in ln of word-level perplexity; {seeds}",
    )
    yield question, Measurement.over_seeds(by_word[1.0] - by_word[root])
