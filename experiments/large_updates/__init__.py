"""What do updates that are too large at first leave behind: dead ReLUs, matrices of few directions, or nothing?

Kosson, Messmer & Jaggi 2024 (paper C), appendix A: ResNet-20 on CIFAR-10 under rotational AdamW (weight decay 0.01,
rate 0.05, cosine), whose rate is × 1, 8 or 128 in the first 5 of 205 epochs (the rotation × 1, √8, √128). Final
accuracy falls with the scale, along with a growing fraction of dead ReLUs (figure 7); less so for random directions and
for leaky ReLUs; and not at all where biases are frozen meanwhile. Stable ranks do not explain it (figure 8).

    python -m sweeps run large_updates --tier laptop      2 CPU cores, 20 minutes; scikit-learn's digits at 16 × 16
    python -m sweeps run large_updates --tier paper --corpus cifar10:DIR
"""

from experiments.common.experiment import Experiment
from experiments.large_updates import analysis, claims, config, figure
from experiments.large_updates.config import TIERS, Config

__all__ = ["EXPERIMENT", "TIERS", "Config"]

EXPERIMENT = Experiment(
    name="large_updates",
    question="what do updates that are too large at first leave behind in a ResNet: dead ReLUs, matrices of few "
    "directions, or nothing?",
    tiers=TIERS,
    cells=config.cells,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    paper="Kosson, Messmer & Jaggi 2024",
    answers=("figure 7", "figure 8", "table of appendix A"),
    undrawn={"figure 6": "800 epochs on CIFAR-10, for an accelerator: `--tier paper --set epochs=800`"},
)
