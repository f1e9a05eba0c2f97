"""How does the best embedding learning rate move when width and vocabulary move apart, and which rule transfers best?

No paper moves the vocabulary at a fixed width. Here width d × vocabulary m form a grid, each m with a BPE tokenizer of
its own on the same slice of text, and every cell goes equally often through it.

(a) At a common init (d^(−1/2)) and a common hidden rate (0.2/d), the embedding rate is swept: which powers of d and m
does its optimum follow? SP and μP (Hayou & Liu 2025, tables 1 and 2) say d^0, LVP d^(−1/2), `interpolated` what lies
between theorem 1's two regimes (`lvp.parametrization.embedding_ratio`).

(b) Each rule with its own init and all its rates: its one constant is tuned at the smallest cell and used at all
others. What does that cost against the best that is known of a cell?

    python -m sweeps run regimes --tier laptop      2 CPU cores, an hour
"""

from experiments.common.experiment import Experiment
from experiments.regimes import analysis, claims, config, figure
from experiments.regimes.config import TIERS, Config

__all__ = ["EXPERIMENT", "TIERS", "Config"]

EXPERIMENT = Experiment(
    name="regimes",
    question="how does the best embedding learning rate move when width and vocabulary move apart, and which rule "
    "transfers best?",
    tiers=TIERS,
    cells=config.cells,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    evidence=analysis.evidence,
    paper="Hayou & Liu 2025",
    answers=("table 2",),
)
