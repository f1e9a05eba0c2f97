"""Which optimizers need warm-up, by which measure are their first updates too large, and what removes the need?

Kosson, Messmer & Jaggi 2024 (paper C) train GPT-2 under a trapezoid schedule whose peak and cool-down do not depend on
the warm-up, and sweep learning rate × warm-up. AdamW without warm-up keeps a lasting gap (figure 1); LionA, whose
update norm follows the schedule, a smaller one (figure 2); so does LionAR, whose angular update does (figure 3). LionAR
that holds the relative representation change gains nothing from warm-up, without momentum it is much worse, and with
high momentum, Nesterov's form and inverse bias correction it needs none, while LionA does (figure 5).

All roles have one rate and one init. The gap is the validation loss without warm-up less that with the best warm-up,
each at its best rate; warm-up and rates are chosen by the first seeds, and the gap is read from other seeds, which run
at the chosen rates alone: the least of several noisy losses would be too good.

    python -m sweeps run warmup --tier laptop --corpus wikitext2      2 CPU cores, two hours
    python -m sweeps run warmup --tier gpu                            one accelerator, an hour or two
"""

from experiments.common.experiment import Experiment
from experiments.warmup import analysis, claims, config, figure
from experiments.warmup.config import TIERS, Config

__all__ = ["EXPERIMENT", "TIERS", "Config"]

EXPERIMENT = Experiment(
    name="warmup",
    question="which optimizers need warm-up, by which measure are their first updates too large, and what removes the "
    "need?",
    tiers=TIERS,
    cells=config.cells,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    paper=claims.PAPER_C,
    answers=("figure 1", "figure 2", "figure 3", "figure 5"),
)
