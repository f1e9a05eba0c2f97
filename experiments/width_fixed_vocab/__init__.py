"""At a fixed vocabulary, how does the best embedding learning rate move with width, and do hidden and output matrices
want the same init and rate?

Hayou & Liu 2025 (paper A), figure 1 and appendix C.1: m = 32768, d = 2^8 … 2^12, sweeping η_E, η_H, η_W, σ_E and σ_W
(σ_H = d^(−1/2)), 2 seeds. Claims: "optimal performance is generally achieved by the same init and LR for hidden and
output", and the optimal η_E falls with width, sublinearly.

`design` "full" is the product of all five lists, as published. "star" is the product of η_E and η_H with everything
else equal, and then, for every other value of η_W/η_H, σ_E and σ_W, the rates around the best η_E at the width's best
η_H: what a laptop can pay. It changes one thing at a time, so it can miss what two changes gain together.

    python -m sweeps run width_fixed_vocab --tier laptop      2 CPU cores, half an hour
    python -m sweeps run width_fixed_vocab --tier paper       as published: two weeks of 4 GH200 in the paper
"""

from experiments.common.experiment import Experiment
from experiments.width_fixed_vocab import analysis, claims, config, figure
from experiments.width_fixed_vocab.config import TIERS, Config

__all__ = ["EXPERIMENT", "TIERS", "Config"]

EXPERIMENT = Experiment(
    name="width_fixed_vocab",
    question="at a fixed vocabulary, how does the best embedding learning rate move with width, and do hidden and "
    "output matrices want the same init and rate?",
    tiers=TIERS,
    cells=config.cells,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    paper="Hayou & Liu 2025",
    answers=("figure 1",),
)
