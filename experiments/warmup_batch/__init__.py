"""Does the need for warm-up grow with the batch?

Kosson, Messmer & Jaggi 2024, section 8, expect so, and show no measurement. They give two reasons: larger
batches are more likely to exceed the critical batch, and scaling the rate alone makes early angular updates larger.

The optimizers of `warmup` train with several batches, each with its own grid of rates and with and without warm-up. A
run has either as many tokens as the run of the base batch, or as many steps. Rates are scaled so that the update sizes
of AdamW and LionA, and the angle of LionAR, are proportional to the square root of the batch.

    python -m lvp.sweeps run warmup_batch --preset laptop --corpus wikitext2      2 CPU cores
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.warmup.claims import PAPER_C
from lvp.experiments.warmup_batch import analysis, claims, config, figure
from lvp.experiments.warmup_batch.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="warmup_batch",
    question="does the need for warm-up grow with the batch, at equal tokens or at equal steps?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    limit=config.all_runs,
    paper=PAPER_C,
    answers=("section 8",),
)
