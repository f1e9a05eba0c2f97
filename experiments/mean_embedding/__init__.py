"""Which optimizers drag the embeddings off centre, does Adam's second moment follow token frequency, and what does an
embedding rate √d times the others do to it?

Stollenwerk & Stollenwerk 2025 (paper B): the gradients of an LM head sum to zero over the vocabulary, so SGD leaves the
mean embedding where it was; Adam divides by √v̂_i, which differ between tokens (E[v̂_i] = A p_i), and moves it. Coupled
Adam (arXiv 2502.08441) shares v̂ over the vocabulary. Here with a head of its own and with a tied one, each optimizer
at its tuned rate; and the question that joins paper B to paper A (Hayou & Liu 2025): does the √d-rule worsen the
drift, and does coupling mend that at no loss?

One rate for all roles (times √d for the embedding in the arms that say so), init d^(−1/2). Rates are tuned on the
validation loss of the first seed; the other seeds run at the tuned rate alone.

    python -m sweeps run mean_embedding --tier laptop      2 CPU cores, ten minutes
"""

from experiments.common.experiment import Experiment
from experiments.mean_embedding import analysis, claims, config, figure
from experiments.mean_embedding.config import TIERS, Config

__all__ = ["EXPERIMENT", "TIERS", "Config"]

EXPERIMENT = Experiment(
    name="mean_embedding",
    question="which optimizers drag the embeddings off centre, and does an embedding rate of √d times the others' "
    "worsen it?",
    tiers=TIERS,
    cells=config.cells,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    paper=claims.PAPER_B,
    answers=("toy figure", "second moment against token frequency"),
)
