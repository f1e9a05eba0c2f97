"""Which optimizers need warm-up, by which measure are their first updates too large, and what removes the need?

Kosson, Messmer & Jaggi 2024 train GPT-2 under a trapezoid schedule, whose peak and cool-down do not depend on
the warm-up, and sweep learning rate × warm-up.

- Figure 1: AdamW without warm-up trains faster at first, and keeps a lasting gap.
- Section 4: the first updates are large mostly because of the correction of β₁'s bias.
- Figure 2: LionA, whose update norm follows the schedule, keeps a smaller gap.
- Figure 3: LionAR, whose angular update follows the schedule, also keeps a smaller gap. It is more stable across rates.
- Figure 5: LionAR that holds the relative representation change gains nothing from warm-up. LionAR without momentum is
  much worse. With high momentum, Nesterov's form and inverse bias correction, LionAR needs no warm-up. LionA still
  needs warm-up.
- Section 8: the smaller the initial weights are, compared with those in equilibrium, the larger are the first angles.

All roles have one rate, and one init std except in the groups of section 8. The gap is the validation loss without
warm-up minus the least loss with warm-up, each at its best rate. The selecting seeds choose the rates. If the best rate
is the first or last tried rate, the sweep adds the next rate of the grid. The judging seeds run at the chosen rates
only and give the gap, because the least of several noisy losses would be biased. The interval allows for every warm-up
and for a wrong choice of rates.

    python -m lvp.sweeps run warmup --preset laptop --corpus wikitext2      2 CPU cores
    python -m lvp.sweeps run warmup --preset long --corpus wikitext2        2 CPU cores, the groups with high momentum
    python -m lvp.sweeps run warmup --preset initial_norm --corpus wikitext2    2 CPU cores, the groups of section 8
    python -m lvp.sweeps run warmup --preset gpu                            one accelerator
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.warmup import analysis, claims, config, figure
from lvp.experiments.warmup.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="warmup",
    question="which optimizers need warm-up, by which measure are their first updates too large, and which changes "
    "make warm-up unnecessary?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    limit=config.all_runs,
    paper=claims.PAPER_C,
    answers=("figure 1", "figure 2", "figure 3", "figure 5"),
)
