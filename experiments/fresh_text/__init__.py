"""At what rate should the embedding train relative to the hidden matrices, on text that is read once?

The ratio is η_E / η_hidden. It is proportional to d in Kalra & Barkeshli 2026 (arXiv 2605.21486), and to √d in Hayou &
Liu 2025. One rate for all parameters is the ratio 1. A run reads every training token at most once. All vocabularies
read the same bytes of text. The loss is the validation loss in bits per byte.

Every shape (d, m) tunes the hidden rate together with the ratio. The selecting seeds train a coarse grid of both and
choose η_hidden · d. The judging seeds, which are other seeds, train at least five ratios at this value.

    python -m lvp.sweeps run fresh_text --preset laptop --corpus wikitext2         LayerNorm, sinusoidal, m 1024
    python -m lvp.sweeps run fresh_text --preset today --corpus wikitext2          RMSNorm, rotary positions, plain rows
    python -m lvp.sweeps run fresh_text --preset vocabulary --corpus wikitext2     m 512 to 8192 at d 64
    python -m lvp.sweeps run fresh_text --preset growing --corpus wikitext2        m = 8 d
    python -m lvp.sweeps run fresh_text --preset practice --corpus wikitext2       decay and schedule; Muon

`docs/embedding_rate.md` has the thresholds that decide the claims. They were fixed on 2026-11-26, before these sweeps.
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.fresh_text import analysis, blocks, claims, config, figure
from lvp.experiments.fresh_text.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="fresh_text",
    question="at what rate should the embedding train relative to the hidden matrices, on text that is read once?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    headline=False,  # the figure's title is the finding
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    limit=config.limit,
    blocks=blocks.blocks,
)
