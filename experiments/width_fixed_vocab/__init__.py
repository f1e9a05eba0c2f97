"""At a fixed vocabulary, how does the best embedding rate depend on width, and can hidden and output be set alike?

Hayou & Liu 2025, figure 1 and appendix C.1: m = 32768, d = 2^8 … 2^12 and 2 seeds. The paper sweeps η_E, η_H,
η_W, σ_E and σ_W, with σ_H = d^(−1/2). It claims that "optimal performance is generally achieved by the same init and LR
for hidden and output", that the optimal η_E falls with width, sublinearly, and that the best init is LVP's, not μP's.

The field `design` is "full" or "star":

- "full" is the product of all five lists. The paper states no values; the lists are ours.
- "star" is small enough for a laptop. It is the product of η_E and η_H at equal settings. Then, for every other value
  of η_W/η_H, σ_E and σ_W, it adds the rates around the best η_E at the width's best η_H. It changes one factor at a
  time, so it misses gains that need two changes.

    python -m lvp.sweeps run width_fixed_vocab --preset laptop      2 CPU cores
    python -m lvp.sweeps run width_fixed_vocab --preset paper       the paper's sizes: two weeks of 4 GH200 there
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.width_fixed_vocab import analysis, claims, config, figure
from lvp.experiments.width_fixed_vocab.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="width_fixed_vocab",
    question="at a fixed vocabulary, how does the best embedding learning rate depend on width, and are the best init "
    "and rate of hidden and output matrices equal?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    rate_curves=analysis.rate_curves,
    paper="Hayou & Liu 2025",
    answers=("figure 1",),
)
