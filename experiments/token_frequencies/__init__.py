"""Do token frequencies follow a power of rank, and does the top token's square over the mean square grow as m?

Hayou & Liu 2025, figure 2, lemma 1 and theorem 2. Figure 2 uses BPE tokenizers with m = 8192 and 32768
tokens on WikiText-2. Frequencies α fall as a power of rank. For α_i ∝ i^(−a) the mean square relative to the top token,
m⁻¹ Σ_i (α_i/α_1)², is Θ(1/m). Theorem 2 uses max_i α_i² / ᾱ² = Θ(m), which does not depend on the normalisation of α.
The mean square ᾱ² = m⁻¹ Σ_i α_i² depends on the normalisation. The summary shows ᾱ² for Σ α = 1 and for α_1 = 1.

    python -m lvp.sweeps run token_frequencies --preset laptop      2 CPU cores
"""

from lvp.experiments.common.experiment import Experiment
from lvp.experiments.token_frequencies import analysis, calculation, claims, config, figure
from lvp.experiments.token_frequencies.config import PRESETS, Config

__all__ = ["EXPERIMENT", "PRESETS", "Config"]

EXPERIMENT = Experiment(
    name="token_frequencies",
    question="do token frequencies follow a power law, and does the top token's square over the mean square grow as m?",
    presets=PRESETS,
    settings=config.settings,
    summary=analysis.summary,
    figure=figure.figure,
    claims=claims.claims,
    calculate=calculation.calculate,
    paper="Hayou & Liu 2025",
    answers=("figure 2", "lemma 1", "theorem 2"),
)
