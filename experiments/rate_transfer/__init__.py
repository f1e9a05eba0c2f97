"""How well does the tuned learning rate of a rule transfer over width?

Kalra & Barkeshli 2026 (arXiv 2605.21486, abstract) judge transfer by three metrics: the quality of the scaling law's
fit, the robustness to extrapolation errors, and the asymptotic loss penalty of the parametrization. The definitions
here are ours. Every rule is tuned at every width:

- Fit error: the RMS deviation of the best constant from a power of the width, in octaves. The constant is d times the
  hidden rate, both at the base width. The rule transfers if this power is 0.
- Sensitivity: the excess loss at twice the best constant, relative to the loss. Its power of the width says whether an
  error of the rate costs more in a wider model.
- Penalty: the loss of the rule above the least loss of the other rules, each tuned at the width.

The transfer gap is the cost of not tuning at the width: the loss with the constant that is best at the base, above the
loss with the constant that is best at the width.

    python -m lvp.sweeps run rate_transfer --preset laptop --corpus wikitext2      2 CPU cores
    python -m lvp.sweeps run rate_transfer --preset gpu                            one accelerator
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.rate_transfer import analysis, blocks, claims, config, figure
from lvp.experiments.rate_transfer.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="rate_transfer",
    question="how well does the tuned learning rate of a rule transfer over width?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    blocks=blocks.blocks,
)
