"""How far do updates of a given size change representations, and why is the change largest early in training?

Kosson et al. 2024, section 6: under normalised gradient descent on a neuron, the squared relative change of its outputs
(RRC², equation 9) grows with the gradient's signal-to-noise ratio φ once the batch B exceeds 1/φ. Figure 4: φ starts
high and falls, B exceeds 1/φ for nearly all of training, the gradient points against its own momentum, and momentum
cancels about half of the gradient. This experiment calculates:

- Equation 9 holds within 3 % from C = 64 inputs on and is off by more below (calculated settings, by Monte Carlo).
- At the paper's C = 768 and B = 480, equation 9 is larger than its limit for large C. Figure 4 draws the limit.

It also trains the runs of figure 3 (LionAR with and without warm-up) and AdamW with warm-up, and measures:

- φ in the first steps and in the last half of training, and the part of training in which B φ > 1.
- The cosine of gradient and momentum, and the part of the gradient that momentum cancels.

φ is the median over the neurons of the hidden matrices. The claims also use the joint φ of all hidden matrices, whose
gradients are concatenated. The alignment and the cancelled part are those of the concatenated gradients. The claims
about LionAR are tested at the paper's batch of 480 only. φ is per sequence. The smaller presets have shorter sequences
than the paper's 1024 tokens. With the same model, φ is then smaller, because a gradient averages over fewer tokens. The
two larger presets train GPT-2's decoder. The decoder of the smaller presets has sinusoidal positions and no biases.

    python -m lvp.sweeps run representation_change --preset laptop      2 CPU cores
    python -m lvp.sweeps run representation_change --preset laptop --set groups=      equation 9 alone
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.representation_change import analysis, claims, config, equation_nine, figure
from lvp.experiments.representation_change.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="representation_change",
    question="how much do updates of a given size change representations, and why is the change largest early in "
    "training?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    calculate=equation_nine.calculate,
    paper="Kosson, Messmer & Jaggi 2024",
    answers=("figure 4",),
)
