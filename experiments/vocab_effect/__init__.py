"""Does the vocabulary move the best embedding learning rate, if the number of steps is fixed?

Hayou & Liu 2025, theorem 1: the power of d depends on the vocabulary. It is d^0 (μP) for m far below d and
d^(−1/2) (LVP) for m far above d. With equal epochs a larger vocabulary would have fewer steps, and the number of steps
moves the optimum by itself. Here every setting of a grid of widths and vocabularies has the same number of steps. Rows
enter times √d, one of the readings in `width_vocab`.

    python -m lvp.sweeps run vocab_effect --preset laptop      2 CPU cores
    python -m lvp.sweeps run vocab_effect --preset gpu         one accelerator
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.vocab_effect import analysis, claims, config, figure
from lvp.experiments.vocab_effect.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="vocab_effect",
    question="does the vocabulary move the best embedding learning rate, if the number of steps is fixed?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    rate_curves=analysis.rate_curves,
)
