"""At what rate should the embedding train relative to the hidden matrices, on text that is read once?

The ratio is η_E / η_hidden. Kalra & Barkeshli 2026 (arXiv 2605.21486) give ratio ∝ d, Hayou & Liu 2025 (paper A) √d,
and one rate for all parameters gives 1. Every training token is read at most once. All vocabularies read the same bytes
of text, and the loss is that of validation text in bits per byte.

The hidden rate is tuned together with the ratio at every shape. Selecting seeds choose η_hidden · d on a coarse grid.
Judging seeds train at least five ratios at the chosen value.

    python -m sweeps run fresh_text --preset laptop --corpus wikitext2         the paper's model, m 1024
    python -m sweeps run fresh_text --preset today --corpus wikitext2          RMSNorm, rotary positions, rows plain
    python -m sweeps run fresh_text --preset vocabulary --corpus wikitext2     m 512 to 8192 at d 64 and 128
    python -m sweeps run fresh_text --preset growing --corpus wikitext2        m = 8 d
    python -m sweeps run fresh_text --preset practice --corpus wikitext2       decay and schedule; Muon

`docs/fresh_text.md` has the thresholds of the claims. They were fixed on 2026-11-26, before these sweeps.
"""

from experiments.common.experiment import Experiment
from experiments.fresh_text import analysis, claims, config, figure
from experiments.fresh_text.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="fresh_text",
    question="at what rate should the embedding train relative to the hidden matrices, on text that is read once?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    limit=config.limit,
)
