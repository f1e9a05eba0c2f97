"""How far does each matrix of the linear network move its output in one step, and does that survive training?

Theorem 1 of Hayou & Liu 2025 is about one step of SignSGD on f(x) = xᵀ E W (equation 2). Its assumption 2
replaces E W − Z by iid normals. The embedding changes the output by δ̄_E = η_E σ_W √(d + 2 d (d−1) / (π m)). The
projection changes the output of token i by δ̄_W^i = η_W σ_E √(d + (α_i²/ᾱ²) 2 d (d−1) / (π m)). The first form is
exact; the second is not (`lvp.theory` has the exact form). There are three regimes of vocabulary: m fixed, m = 8 d and
m = 64 d.

`lvp.experiments.feature_learning.sign_moments` measures theorems 3 and 4, the covariances behind theorem 1.

Further groups go beyond the theory, with LVP's init stds and rates at m = 8 d: one-hot targets, which are a random
permutation of the tokens, in place of assumption 2; up to 20 steps; Adam; cross-entropy. Do the powers of d survive?
The claims are about the measured change divided by the exact form for one step. In text, δ̄_W follows no power of d,
because the share of the most frequent token does not change smoothly with m.

    python -m lvp.sweeps run feature_learning --preset laptop      2 CPU cores
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.feature_learning import analysis, calculation, claims, config, figure
from lvp.experiments.feature_learning.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="feature_learning",
    question="how much does the update of each matrix change the linear network's output, after one step and after "
    "training?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    calculate=calculation.calculate,
    paper="Hayou & Liu 2025",
    answers=("theorem 1", "theorem 3", "theorem 4"),
)
