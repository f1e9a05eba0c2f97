"""Does an embedding that learns √d times as fast as the rest still win at production scale?

Hayou & Liu 2025 (paper A), section 5 and C.3: the "1B" (Table 3) under AdamW on the corpus of Phi-3, its embedding
learning ratio times as fast as all the rest. Figure 4: perplexity over training for ratios 1 and √d, and for several on
65 B tokens (√d near-optimal, larger ones of marginal benefit). Figure 5: word-level perplexity on WikiText's test set,
√d better throughout. The corpus is not public: any text serves; perplexities compare ratios, not papers.

    python -m sweeps run pretrain_1b --tier laptop --corpus wikitext2      2 CPU cores, an hour
"""

from experiments.common.experiment import Experiment
from experiments.pretrain_1b import analysis, claims, config, figure
from experiments.pretrain_1b.config import TIERS, Config

__all__ = ["EXPERIMENT", "TIERS", "Config"]

EXPERIMENT = Experiment(
    name="pretrain_1b",
    question="does an embedding that learns √d times as fast as the rest still win at production scale?",
    tiers=TIERS,
    cells=config.cells,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    paper=claims.PAPER_A,
    answers=("figure 4", "figure 5"),
)
