"""Do first updates that are too large leave dead ReLUs, matrices of low stable rank, or nothing?

Kosson, Messmer & Jaggi 2024, appendix A, train ResNet-20 on CIFAR-10 with rotational AdamW (weight decay
0.01, rate 0.05, cosine). The rate of the first 5 of 205 epochs is scaled by 1, 8 or 128, and the rotation by 1, √8 or
√128.

- Figure 7: the final accuracy falls with the scale, and the fraction of dead ReLUs grows. Random directions
  and leaky ReLUs lose less accuracy. Freezing the biases in the first phase mitigates the effect.
- Figure 8: stable ranks do not explain the loss of accuracy.

Section 5 and appendix B.2: multiplying a normalised kernel by c multiplies its gradient by 1/c and its second
derivative by 1/c². A calculation in the same network at its init tests this, and the angles of SGD and Adam updates.

    python -m lvp.sweeps run large_updates --preset laptop      2 CPU cores; scikit-learn's digits at 16 × 16
    python -m lvp.sweeps run large_updates --preset paper --corpus cifar10:DIR
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.large_updates import analysis, claims, config, figure, scale_invariance
from lvp.experiments.large_updates.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="large_updates",
    question="do updates that are too large at the start of training leave dead ReLUs or matrices of low rank in a "
    "ResNet?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    calculate=scale_invariance.calculate,
    paper="Kosson, Messmer & Jaggi 2024",
    answers=("figure 7", "figure 8", "table of appendix A"),
    undrawn={"figure 6": "800 epochs on CIFAR-10, for an accelerator: `--preset paper --set epochs=800`"},
)
