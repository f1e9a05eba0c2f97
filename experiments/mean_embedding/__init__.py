"""Which optimizers move the mean embedding, and does an embedding rate of √d times the other rates increase the drift?

Stollenwerk & Stollenwerk 2025: the gradients of an LM head sum to zero over the vocabulary. SGD therefore
keeps the mean embedding. Adam divides each row by its own √v̂_i, with E[v̂_i] = A p_i for token frequency p_i, and moves
the mean. Coupled Adam (arXiv 2502.08441) shares v̂ over the vocabulary.

This sweep trains every optimizer at its tuned rate, with an untied and with a tied head. It adds a question that joins
their paper to Hayou & Liu 2025: does the √d rule increase the drift, and does coupling remove the drift without a
higher loss?

All roles have one rate and init std d^(−1/2). Groups named "√d" multiply the embedding's rate by √d. Rates are tuned on
the validation loss of the first seed; the other seeds run at the tuned rate only.

    python -m lvp.sweeps run mean_embedding --preset laptop      2 CPU cores
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.mean_embedding import analysis, claims, config, figure
from lvp.experiments.mean_embedding.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="mean_embedding",
    question="under which optimizers does the mean embedding drift, and does an embedding rate of √d times the other "
    "rates increase the drift?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    paper=claims.PAPER_B,
    answers=("toy figure", "second moment against token frequency"),
)
