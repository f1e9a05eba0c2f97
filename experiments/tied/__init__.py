"""Which init, rate and multiplier should a matrix have that is both embedding and head?

A tied matrix W enters the model twice: as rows a · W[i] and as logits b · W h. Its update relative to its size is one
number. LVP asks for two: the embedding's is √d times that of the head. The groups are the choices that a user has:

- *untied*: two matrices, the reference.
- *output*: the head's init and rate.
- *tied*: the embedding's init and rate, and logits × b. With (σ, η, f) for the init std, rate and forward multiplier of
  a rule's row, b = f_out · σ_out / σ_emb, so that the head starts as the rule says.
- *bounded*: the same with a smaller b under LVP, at most f_out · η_out / η_emb, so that the head also moves no faster
  than the rule says.

Text is read once. The model has learned positions, as GPT-2, whose rows are added to the tied matrix'. Each group tunes
the hidden rate with equally many values and on the same seeds. The claims use other seeds.

    python -m lvp.sweeps run tied --preset laptop --corpus wikitext2      2 CPU cores
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.tied import analysis, config
from lvp.experiments.tied.config import PRESETS, Config

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
