"""The configuration that all experiments with decoders share."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, check_seeds
from lvp.models.configs import CHOICES, OMITTED, DecoderConfig
from lvp.training import DataConfig, OptimizerConfig, Setting, check_positive
from lvp.training.batches import ORDERS


def geometric(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` rates from `low` to `high` at equal ratios, rounded to 4 digits so that labels can show them in full."""
    return tuple(float(f"{x:.4g}") for x in np.geomspace(low, high, count))


def hidden_rate(constant: float, width: int) -> float:
    """The hidden matrices' rate η/d of a constant η.

    The division η / d may differ in the last bit. The runs of committed results would then have other hashes.
    """
    return constant * (1 / width)


# The fields of `DecoderRuns` that `DecoderConfig` has too.
_OF_MODEL = (
    *("layers", "context", "head_dim", "mlp_factor", "norm", "position_amplitude", "down_init"),
    *("dtype", "param_dtype", "attention", "scan", "remat"),
)


@dataclass(frozen=True)
class DecoderRuns:
    """Settings of a decoder's training. The defaults are those of Hayou & Liu 2025.

    A comment names the paper's section, or gives the reason for a value that the paper does not state.
    """

    corpus: str = "wikitext2"  # C.1, C.2
    slice_bytes: int | None = None  # the whole corpus: about 186 epochs at m 2048, 288 at 32768
    valid_bytes: int | None = None  # the whole validation split
    seeds: tuple[int, ...] = (0, 1, 2)  # C.2: 3 seeds
    layers: int = 2  # C.1
    head_dim: int | None = None  # C.1: 64; None is 64 if it divides the width, else the largest fit below
    mlp_factor: int = 4  # not stated ("up/GeLU/down"): the usual expansion
    context: int = 256  # C.1
    batch: int = 256  # C.1
    norm: str = "layer"  # not stated: pre-norm LayerNorm as in the paper's 1B model (Table 3)
    position_amplitude: float = 1.0  # not stated: the encoding of Vaswani et al. unscaled, although it is far above σ_E
    b1: float = 0.9  # Adam's constants are not stated: optax's and PyTorch's defaults
    b2: float = 0.999  # as b1
    eps: float = 1e-8  # as b1
    dtype: str = "float32"  # not stated; the compute dtype
    attention: str = field(default="masked", metadata=OMITTED)  # ours; "fused" is the device's kernel, in bfloat16
    # Not stated ("Kaiming"): the init std of mlp/down is d^(−1/2) as the others' ("width"), or (4 d)^(−1/2) ("fan_in").
    down_init: str = field(default="width", metadata=OMITTED)
    # The fields below are for size and precision; none is stated, except where an experiment says so.
    order: str = field(default="windows", metadata=OMITTED)  # of the batches (`lvp.training.DataConfig.order`)
    micro_batches: int = field(default=1, metadata=OMITTED)  # parts of a batch, for memory
    scan: bool = field(default=False, metadata=OMITTED)  # blocks compiled once
    remat: str = field(default="none", metadata=OMITTED)  # "dots", "block": recomputed in the backward pass
    clip_norm: float | None = field(default=None, metadata=OMITTED)  # largest norm of the gradient
    param_dtype: str = field(default="float32", metadata=OMITTED)  # of the parameters and, as a rule, the moments
    moment_dtype: str | None = field(default=None, metadata=OMITTED)  # of the first moment; None: `param_dtype`
    # The train loss is the mean over this last part of the steps. Section 4.1 has that of one step, t = 1e4.
    final_fraction: float = 0.1

    def __post_init__(self):
        check_seeds(self, "seeds")
        check_positive("eps", self.eps)
        for name in ("position_amplitude", "b1", "b2"):
            check_positive(name, getattr(self, name), zero=True)
        check_count(self, "micro_batches")
        chosen = ("remat", "param_dtype", "down_init")
        for name, allowed in (("order", ORDERS), *((name, CHOICES[name]) for name in chosen)):
            if getattr(self, name) not in allowed:
                raise InputError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.clip_norm is not None:
            check_positive("clip_norm", self.clip_norm)
        if max(self.b1, self.b2) >= 1:
            raise InputError(f"b1 and b2 must be below 1, got {self.b1} and {self.b2}")

    @property
    def adam(self) -> OptimizerConfig:
        """Adam with the configured constants."""
        return OptimizerConfig("adam", {"b1": self.b1, "b2": self.b2, "eps": self.eps})

    def model(self, width: int, vocab: int, **changes: Any) -> DecoderConfig:
        """The decoder of one shape, with `changes` to its fields."""
        shared = {name: getattr(self, name) for name in _OF_MODEL}
        # More than four blocks make the program of a deep model slow to compile.
        block = max(DecoderConfig.attention_block, -(-self.context // 4))
        return DecoderConfig(**{"vocab": vocab, "width": width, "attention_block": block} | shared | changes)

    def setting(self, model: DecoderConfig, steps: int) -> Setting:
        """The setting of one model under Adam at constant rates. `dataclasses.replace` changes further fields."""
        return Setting(
            model=model,
            data=DataConfig(self.corpus, self.slice_bytes, self.valid_bytes, self.order),
            batch=self.batch,
            steps=steps,
            optimizer=self.adam,
            final_fraction=self.final_fraction,
            micro_batches=self.micro_batches,
            clip_norm=self.clip_norm,
            moment_dtype=self.moment_dtype,
        )


@dataclass(frozen=True)
class TunedRuns(DecoderRuns):
    """Runs whose first seeds tune settings and whose other seeds judge the tuned settings."""

    selecting: int = 2  # number of seeds that tune
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # ours: two tune and three judge

    def __post_init__(self):
        super().__post_init__()
        check_count(self, "selecting")
        check_seeds(self, "seeds", least=self.selecting + 1)

    @property
    def selecting_seeds(self) -> tuple[int, ...]:
        """The seeds that tune."""
        return self.seeds[: self.selecting]

    @property
    def judging_seeds(self) -> tuple[int, ...]:
        """The seeds that tune nothing."""
        return self.seeds[self.selecting :]
