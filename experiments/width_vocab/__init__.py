"""How does the best embedding learning rate move when width and vocabulary grow together?

Hayou & Liu 2025, section 4.1, figure 3 and appendix C.2: (d, m) = (2^k, 2^(k+3)) for k = 8 … 12. Each m has
its own BPE tokenizer, η_hidden = η_output = 0.2/d, and all init stds are d^(−1/2). Only the embedding rate is swept.
The paper claims that η_E ∝ d^(−1/2) "yields near-optimal training loss" and that the optimum scatters "around the √d
line".

The paper adds a fixed positional encoding to the embedding's rows. It does not state whether the rows are first
multiplied by √d, as in the source of the encoding (Vaswani et al. 2017, section 3.4). Both readings are groups of this
sweep.

    python -m lvp.sweeps run width_vocab --preset laptop      2 CPU cores
    python -m lvp.sweeps run width_vocab --preset workstation 2 CPU cores: widths 64 to 512, η_hidden tuned
    python -m lvp.sweeps run width_vocab --preset gpu         one accelerator
    python -m lvp.sweeps run width_vocab --preset paper       as published: 4 days of 4 GH200 in the paper
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.width_vocab import analysis, blocks, claims, config, figure
from lvp.experiments.width_vocab.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="width_vocab",
    question="how does the best embedding learning rate change when width and vocabulary grow together?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    follow_up=analysis.follow_up,
    limit=config.all_runs,
    rate_curves=analysis.rate_curves,
    blocks=blocks.blocks,
    paper="Hayou & Liu 2025",
    answers=("figure 3",),
)
