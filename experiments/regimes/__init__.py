"""How does the best embedding learning rate depend on width and vocabulary, and which rule transfers best?

No paper varies the vocabulary at a fixed width. Here width d × vocabulary m form a grid. Each m has its own BPE
tokenizer on the same slice of text, and every cell makes the same number of passes through the slice.

(a) The embedding rate is swept at a common init (d^(−1/2)) and a common hidden rate (0.2/d): which powers of d and m
does its optimum follow? SP and μP (Hayou & Liu 2025, tables 1 and 2) predict d^0, LVP d^(−1/2), and `interpolated` the
transition between theorem 1's two regimes (`lvp.parametrization.embedding_ratio`).

(b) Each rule has its own init and rates. Its one constant is tuned at the smallest cell and used at all other cells.
How much loss does that cost against the best known setting of a cell?

    python -m sweeps run regimes --tier laptop      2 CPU cores
"""

from experiments.common.experiment import Experiment
from experiments.regimes import analysis, claims, config, figure
from experiments.regimes.config import TIERS, Config

__all__ = ["EXPERIMENT", "TIERS", "Config"]

EXPERIMENT = Experiment(
    name="regimes",
    question="how does the best embedding learning rate depend on width and on vocabulary, and which rule transfers "
    "best?",
    tiers=TIERS,
    cells=config.cells,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    rate_curves=analysis.rate_curves,
    evidence=analysis.evidence,
    paper="Hayou & Liu 2025",
    answers=("table 2",),
)
