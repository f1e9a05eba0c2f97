"""How does the linear network's best embedding learning rate move with width and vocabulary?

Hayou & Liu 2025 (paper A) derive the √d rule from the linear network f(x) = xᵀ E W (equation 2). This experiment sweeps
that network's embedding rate and reads the optimum. The batch is infinite: the loss is the cross-entropy over all pairs
of successive tokens. Both matrices have init std d^(−1/2). Adam trains them with η_W = 0.2/d. Adam's ε is so small that
rare tokens move.

The rows of E enter plain or divided by their root mean square. A scaling argument gives a power of d for each:

- rows plain: t steps of W move a logit by η_W t d times the RMS of a row. With η_W = 0.2/d this is of order 1 if the
  rows have grown to RMS 1. They grow by η_E t, so η_E ∝ d^0.
- rows / RMS: a row turns by an angle of order 1 if η_E t equals its initial RMS, so η_E ∝ d^(−1/2).

The first argument leaves out the initial W. The growth of a row also moves a logit by η_E t √d through the initial W.
This part gives η_E ∝ d^(−1/2) for plain rows too.

    python -m sweeps run linear_network --tier laptop      2 CPU cores
    python -m sweeps run linear_network --tier gpu         one accelerator
"""

from experiments.common.experiment import Experiment
from experiments.linear_network import analysis, calculation, claims, config, figure
from experiments.linear_network.config import TIERS, Config

__all__ = ["EXPERIMENT", "TIERS", "Config"]

EXPERIMENT = Experiment(
    name="linear_network",
    question="how does the linear network's best embedding learning rate move with width and vocabulary?",
    tiers=TIERS,
    cells=config.cells,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    calculate=calculation.calculate,
    paper="Hayou & Liu 2025",
    answers=("equation 2",),
)
