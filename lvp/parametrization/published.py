"""Published learning rates of embeddings, in this library's units.

The unit is that of a model whose embedding rows start at std d^(-1/2) and enter the model unchanged. A factor A on the
rows is equivalent to an init and a rate times A under Adam. A rate published at init std σ is therefore multiplied by
d^(-1/2) / σ. The same holds for rows that are divided by their RMS, whose scale has no effect. The numbers are those of
the sources, not of this project. None of them comes with an interval.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Tuned:
    """Rates that a source uses at one width."""

    source: str  # repository and place
    width: int  # d
    embedding_std: float  # init std of the embedding
    embedding_lr: float  # its rate
    output_lr: float  # the head's rate
    hidden_lr: float  # the hidden matrices' rate
    hidden_optimizer: str  # "AdamW" or "Muon"; a ratio of rates is comparable for AdamW only

    @property
    def ratio(self) -> float | None:
        """Embedding over hidden rate at embedding std d^(-1/2); None if Muon trains the hidden matrices."""
        if self.hidden_optimizer != "AdamW":
            return None
        return self.embedding_lr / self.hidden_lr * self.width**-0.5 / self.embedding_std

    @property
    def ratio_over_lvp(self) -> float | None:
        """`ratio` over the √d of Hayou & Liu 2025."""
        return None if self.ratio is None else self.ratio / math.sqrt(self.width)


@dataclass(frozen=True)
class PowerLaw:
    """A rate as a power law of sizes."""

    source: str  # paper or repository and place
    quantity: str  # which rate
    exponents: Mapping[str, float]  # "width", "batch" or "tokens" → exponent
    coefficient: float | None = None  # of the law, in the source's units; None if it has none
    std_exponent: float | None = None  # exponent of the embedding's init std in width; None for other rates
    remark: str = ""  # unit or condition
    other: str = ""  # difference that makes our measurements not comparable

    @property
    def width_exponent(self) -> float | None:
        """Exponent of the embedding's rate in width at embedding std d^(-1/2); None for other rates."""
        if self.std_exponent is None or "width" not in self.exponents:
            return None
        return self.exponents["width"] - 0.5 - self.std_exponent


@dataclass(frozen=True)
class Sweep:
    """The best global rate at several widths."""

    source: str  # repository and place
    rule: str  # parametrization
    best: Mapping[int, float]  # width → rate

    @property
    def slope(self) -> float:
        """Least-squares slope of ln(rate) over ln(width)."""
        x, y = [math.log(width) for width in self.best], [math.log(rate) for rate in self.best.values()]
        mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
        products = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
        return products / sum((a - mean_x) ** 2 for a in x)


_NANOCHAT = "karpathy/nanochat, scripts/base_train.py and nanochat/gpt.py, commit 92d63d4"
_MEGATRON = "NVIDIA/Megatron-LM, pull request 3058, comment of 2026-01-29"
_MARIN = "marin-community/marin, experiments/grug/moe/README.md"

TUNED = (
    Tuned(
        "KellerJordan/modded-nanogpt, pull request 353 (AdamW for all matrices, 4950 steps)",
        width=768,
        embedding_std=1.0,
        embedding_lr=0.7,
        output_lr=0.004,
        hidden_lr=0.001,
        hidden_optimizer="AdamW",
    ),
    Tuned(
        _NANOCHAT,
        width=768,
        embedding_std=0.8,
        embedding_lr=0.3,
        output_lr=0.008,
        hidden_lr=0.02,
        hidden_optimizer="Muon",
    ),
)
MARIN = (
    PowerLaw(
        _MARIN + ", first fit",
        "Adam rate of norms, biases, routers and embeddings beside AdamH",
        {"tokens": -0.2813, "width": -0.3678, "batch": 0.5},
        coefficient=1.63,
        remark="batch in sequences of 4096 tokens",
        other="mixture of experts",
    ),
    PowerLaw(
        _MARIN + ", second fit",
        "Adam rate beside MuonH",
        {"tokens": -0.395, "width": -0.150, "batch": 0.5},
        coefficient=0.06602,
        remark="batch in tokens",
        other="mixture of experts",
    ),
)
POWER_LAWS = (
    PowerLaw(
        _NANOCHAT,
        "embedding, Adam",
        {"width": -0.5, "batch": 0.5},
        coefficient=0.3 * 768**0.5,
        std_exponent=0.0,
        remark="at a batch of 2^19 tokens; the log of 2026-01 says that settings tuned at depth 12 hurt depth 20",
    ),
    PowerLaw("Blake et al. 2024 (u-μP)", "embedding, Adam", {"width": -0.5}, std_exponent=0.0),
    PowerLaw("Hayou & Liu 2025, Table 2 (muP)", "embedding, Adam", {"width": 0.0}, std_exponent=0.0),
    PowerLaw("Hayou & Liu 2025, Table 2 (LVP)", "embedding, Adam", {"width": -0.5}, std_exponent=-0.5),
    *MARIN,
)
SWEEPS = (
    Sweep(_MEGATRON, "sp", {128: 9.77e-4, 256: 4.88e-4, 512: 2.44e-4, 1024: 1.22e-4, 2048: 6.10e-5}),
    Sweep(_MEGATRON, "mup", {128: 9.77e-4, 256: 9.77e-4, 512: 9.77e-4, 1024: 9.77e-4, 2048: 1.95e-3}),
)
