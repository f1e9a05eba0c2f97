"""How large are changes of representations for updates of a given size, and why are they large early in training?

Kosson et al. 2024, section 6: for normalised gradient descent on a neuron the squared relative change of its outputs
(RRC², equation 9) grows with the signal-to-noise ratio φ of the gradient, once the batch B exceeds 1/φ; figure 4: φ
starts high and falls, B exceeds 1/φ for nearly all of training, the gradient points against its own momentum, and that
momentum cancels about half of it. Claimed here, each with the paper's value beside ours:

- equation 9 holds within 3 % from C = 64 inputs on, and is off by more below (calculated cells, by Monte Carlo);
- the limit of large C, which figure 4 draws, is equation 9 at the paper's C 768 and B 480 (not claimed, but used);
- φ falls (its first values over those of the last half of training), and B φ > 1 nearly throughout (LionAR with and
  without warm-up, figure 3's two runs);
- gradient and momentum are negatively aligned, and momentum cancels a quarter to three quarters of the gradient (both
  runs, and AdamW).

What is measured in training is of all hidden matrices as one vector; φ is per sequence, and a sequence of the smaller
tiers is shorter than the paper's 1024 tokens. The decoder of the two larger tiers is GPT-2's, that of the smaller ones
has sinusoidal positions and no biases.

    python -m sweeps run representation_change --tier laptop      2 CPU cores, four minutes of CPU time
    python -m sweeps run representation_change --tier laptop --set arms=      equation 9 alone, one minute
"""

from experiments.common.experiment import Experiment
from experiments.representation_change import analysis, calculation, claims, config, figure
from experiments.representation_change.config import TIERS, Config

__all__ = ["EXPERIMENT", "TIERS", "Config"]

EXPERIMENT = Experiment(
    name="representation_change",
    question="how far do updates of a given size change representations, and why most of all early in training?",
    tiers=TIERS,
    cells=config.cells,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    calculate=calculation.calculate,
    paper="Kosson, Messmer & Jaggi 2024",
    answers=("figure 4",),
)
