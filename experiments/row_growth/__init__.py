"""Does the best embedding rate let the rows grow to the size of the positions?

Adam's steps are like signs times the rate. A row that takes T such steps in random directions grows to about η_E √T per
entry, and enters the model as s · η_E √T, with s the factor on the rows. The law says that at the best constant rate
this is the RMS of the positions that the model adds to the rows, up to one constant:

    η_E · s · √T / RMS(positions) = constant within ±25 %

The sweep changes one factor at a time: width, row factor, horizon, amplitude of the positions, init std of the rows,
kind of positions, optimizer. Other laws are compared on the same optima.

    python -m lvp.sweeps run row_growth --preset laptop      2 CPU cores
    python -m lvp.sweeps run row_growth --preset gpu         one accelerator
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.row_growth import analysis, claims, config, figure
from lvp.experiments.row_growth.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="row_growth",
    question="does the best embedding rate let the rows grow to the size of the positions?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
)
