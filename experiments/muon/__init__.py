"""Does the ratio of the embedding's rate to the hidden rate still matter if Muon trains the hidden matrices?

Hayou & Liu 2025 derive the ratio √d for Adam. modded-nanogpt and nanochat use Muon for the hidden matrices
and Adam for the other parameters. The paper makes no statement about Muon.

The groups are ratios d^p under Adam and under Muon. p = 0 is one rate, p = 1/2 is LVP, p = 1 is μP's ratio. They have
LVP's init and LVP's other rates. Muon's updates have an RMS of 0.2, so that its rate has the unit of Adam's (Liu
et al. 2025, arXiv 2502.16982). A further group has nanochat's rates, init and Muon, and normalized rows.

Every group tunes one hyperparameter, with equally many values and on the same seeds. The claims use other seeds.

    python -m lvp.sweeps run muon --preset laptop --corpus wikitext2      2 CPU cores
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.muon import analysis, claims, config, figure
from lvp.experiments.muon.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="muon",
    question="does the ratio of the embedding's rate to the hidden rate still matter if Muon trains the hidden "
    "matrices?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
)
