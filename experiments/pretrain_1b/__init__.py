"""Is an embedding rate of √d times the other rates still better at production scale?

Hayou & Liu 2025, section 4.2 and C.3, train the "1B" model of Table 3 on the corpus of Phi-3. They state no
optimizer; here it is AdamW. The embedding's rate is a ratio times the rate of all other parameters.

- Figure 4: perplexity over training for the ratios 1 and √d, and for several ratios on 65 B tokens. √d is near-optimal;
  larger ratios have a marginal benefit.
- Figure 5: word-level perplexity on WikiText's test set. √d is better throughout.

The corpus is not public. Any text serves here, since perplexities are compared between ratios and not with the paper.

    python -m lvp.sweeps run pretrain_1b --preset laptop --corpus wikitext2      2 CPU cores
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.pretrain_1b import analysis, claims, config, figure
from lvp.experiments.pretrain_1b.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="pretrain_1b",
    question="does an embedding learning rate of √d times the other rates give the best perplexity at large scale?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    keep_weights=True,
    paper=claims.PAPER_A,
    answers=("figure 4", "figure 5"),
)
