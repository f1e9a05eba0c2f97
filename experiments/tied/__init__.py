"""Which init, rate and multiplier should a matrix have that is both embedding and head?

A tied matrix W enters the model twice: as rows a · W[i] and as logits b · W h. Its update relative to its size is one
number. A rule asks for two: LVP's embedding has the relative update η √d per unit of η d^(−1/2), and its head d^(−1/2)
times that. The groups are the choices that a user has:

- *untied*: two matrices, the reference.
- *output*: the head's init and rate.
- *embedding*: the embedding's init and rate.
- *tied*: the embedding's init and rate, and logits × b. With (σ, η, f) for the init std, rate and forward multiplier of
  a rule's row, b = f_out · min(η_out / η_emb, σ_out / σ_emb). With this b, the logits of the head move as the rule asks
  or less, and start as large as the rule asks or smaller.

Text is read once. The model has learned positions, as GPT-2, whose rows are added to the tied matrix'. Each group tunes
the hidden rate with equally many values and on the same seeds. The claims use other seeds.

    python -m sweeps run tied --preset laptop --corpus wikitext2      2 CPU cores
"""

from experiments.common.experiment import Experiment
from experiments.tied import analysis, config
from experiments.tied.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="tied",
    question="which init, rate and multiplier should a matrix have that is both embedding and head?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=analysis.figure,
    claims=analysis.claims,
    follow_up=analysis.follow_up,
)
