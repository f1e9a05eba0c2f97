"""How much does each matrix of the linear network move its output in one step, and what of that survives training?

Hayou & Liu 2025 (paper A), theorem 1: after one step of SignSGD on f(x) = xᵀ E W (equation 2) the embedding's part of
the change of the output is δ̄_E = η_E σ_W √(d + 2 d (d−1) / (π m)) and the projection's, for token i, δ̄_W^i =
η_W σ_E √(d + (α_i²/ᾱ²) 2 d (d−1) / (π m)), under assumption 2 (E W − Z replaced by iid normals). The first is exact;
the second is not (`lvp.theory` has the exact form). Three regimes of vocabulary: m fixed, m = 8 d, m = 64 d.

Theorems 3 and 4, the covariances behind it, stand beside (`experiments.feature_learning.sign_moments`).

Beyond theory, with LVP's init and rates at m = 8 d: true one-hot targets in place of assumption 2, up to 20 steps,
Adam, cross-entropy. Do the powers of d survive? This is asked of the ratio to the exact form's one step: δ̄_W itself
follows no power in text, where the share of the most frequent token jumps about as m grows.

    python -m sweeps run feature_learning --tier laptop      2 CPU cores, two and a half minutes
"""

from experiments.common.experiment import Experiment
from experiments.feature_learning import analysis, calculation, claims, config, figure
from experiments.feature_learning.config import TIERS, Config

__all__ = ["EXPERIMENT", "TIERS", "Config"]

EXPERIMENT = Experiment(
    name="feature_learning",
    question="how much does each matrix of the linear network move its output, and what of that survives training?",
    tiers=TIERS,
    cells=config.cells,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    calculate=calculation.calculate,
    paper="Hayou & Liu 2025",
    answers=("theorem 1", "theorem 3", "theorem 4"),
)
