"""How does the linear network's best embedding learning rate move with width and vocabulary?

Hayou & Liu 2025 derive the √d rule from the linear network f(x) = xᵀ E W (equation 2). This experiment sweeps
that network's embedding rate and reads the optimum. The batch is infinite: the loss is the cross-entropy over all pairs
of successive tokens. Both matrices have init std d^(−1/2). Adam trains them with η_W = 0.2/d. Adam's ε is so small that
rare tokens move.

The rows of E enter plain or divided by their root mean square. Two scaling arguments give powers of d
(docs/theory.md):

- growth: plain rows grow from RMS d^(−1/2) to RMS 1, so that t steps of W move a logit by order 1 (d^0). Rows / RMS
  turn by an angle of order 1 (d^(−1/2)).
- alignment: the move of a row, aligned with the columns of the initial W, moves a logit by order 1. The logit moves by
  η_E t √d for plain rows (d^(−1/2)), and by √d times as much for rows / RMS (d^(−1)).

    python -m lvp.sweeps run linear_network --preset laptop      2 CPU cores
    python -m lvp.sweeps run linear_network --preset gpu         one accelerator
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.linear_network import analysis, calculation, claims, config, figure
from lvp.experiments.linear_network.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="linear_network",
    question="how does the linear network's best embedding learning rate move with width and vocabulary?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    calculate=calculation.calculate,
    paper="Hayou & Liu 2025",
    answers=("equation 2",),
)
