"""The programs of the parts, at full size and shrunken for CPU."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lvp.models.configs import DecoderConfig, hayou_liu_1b
from lvp.training import DataConfig, OptimizerConfig, Setting
from tests.benchmarks.programs import STEPS, TOKENS

ADAM = OptimizerConfig()
ADAMW = OptimizerConfig("adamw", {"b1": 0.9, "b2": 0.95, "eps": 1e-8, "weight_decay": 0.1})


@dataclass(frozen=True)
class Sizes:
    """Sizes of all parts; the defaults are those for an H100."""

    name: str = "full"
    seconds: dict[str, float] = field(  # time limit of each part
        default_factory=lambda: {"right": 40.0, "bits": 25.0, "fast": 135.0, "big": 70.0, "figure": 190.0}
    )
    dtype: str = "bfloat16"
    attention: str = "fused"  # of the fastest program
    rounds: int = 3  # measurements of each side; the row has the median of the ratios
    timed_seconds: float = 0.15  # least duration of a measurement

    # Packs: models of the figure, d by 8 d.
    widths: Sequence[int] = (128, 64, 256, 512)  # the first also has a plain JAX loop and PyTorch
    packs: Sequence[int] = (1, 16, 64)
    layers: int = 2
    batch: int = 32
    context: int = 256
    steps_per_run: int = 1500

    # Single training steps.
    step_widths: Sequence[int] = (1024, 512, 2048)  # the first is also compared with other implementations
    step_vocab: int = 32768
    step_layers: int = 4
    step_batch: int = 16
    step_context: int = 1024

    # Optimizer steps: a decoder of 117 million parameters.
    optimizer_shape: dict[str, int] = field(
        default_factory=lambda: {"vocab": 32768, "width": 1024, "layers": 4, "context": 64}
    )

    # Losses, and the gradient of the look-up.
    loss_tokens: int = 16384  # the dense loss of 32768 ran out of memory on an H100
    loss_width: int = 1024
    loss_vocabs: Sequence[int] = (131072, 32768)
    chunks: Sequence[int] = (1024, 4096)

    # The 1B: (remat, attention, rows of 4096 tokens). `--dry` shows that each fits into 80 GB.
    big: Sequence[tuple[str, str, int]] = (
        ("block", "fused", 8),
        ("dots", "fused", 4),
        ("none", "fused", 2),
    )
    big_changes: dict[str, Any] = field(default_factory=dict)
    big_steps: int = 10

    # The sweep. It also gets the time that other parts leave.
    pack: int = 10
    figure: Sequence[str] = ()  # KEY=VALUE of the configuration

    def packed(self, width: int) -> Setting:
        """The setting of a model of the figure."""
        model = DecoderConfig(8 * width, width, self.layers, self.context, dtype=self.dtype, attention=self.attention)
        return timed(model, self.batch)

    def step(self, width: int, attention: str) -> Setting:
        """The setting of a single training step."""
        model = DecoderConfig(
            self.step_vocab,
            width,
            layers=self.step_layers,
            context=self.step_context,
            attention_block=max(64, self.step_context // 4),
            dtype=self.dtype,
            attention=attention,
        )
        return timed(model, self.step_batch)

    def one_b(self, remat: str, attention: str, rows: int) -> Setting:
        """The setting of the 1B model with `rows` rows a step."""
        return timed(hayou_liu_1b(**({"remat": remat, "attention": attention} | self.big_changes)), rows, ADAMW)


def timed(model: DecoderConfig, batch: int, optimizer: OptimizerConfig = ADAM) -> Setting:
    """A setting that trains on random tokens."""
    return Setting(model, DataConfig("none", slice_bytes=TOKENS), batch, STEPS, optimizer)


FULL = Sizes()
SMALL = Sizes(
    name="small",
    seconds=dict.fromkeys(("right", "bits", "fast", "big", "figure"), 400.0),
    rounds=1,
    timed_seconds=0.02,
    widths=(32,),
    packs=(1, 2),
    layers=1,
    batch=2,
    context=32,
    steps_per_run=20,
    step_widths=(32,),
    step_vocab=256,
    step_layers=1,
    step_batch=2,
    step_context=32,
    optimizer_shape={"vocab": 256, "width": 32, "layers": 1, "context": 16},
    loss_tokens=512,
    loss_width=32,
    loss_vocabs=(1024,),
    chunks=(),
    big=(("block", "fused", 2),),
    big_changes={"vocab": 256, "width": 64, "layers": 2, "context": 64, "heads": 4, "kv_heads": 2, "head_dim": 16}
    | {"window": 32, "attention_block": 32},
    big_steps=3,
    pack=2,
    figure=("widths=32,48", "rates=0.004,0.016,0.064", "seeds=0", "steps=20", "batch=4", "context=32", "layers=1")
    + ("slice_bytes=20000", "valid_bytes=4000"),
)
