"""The configuration of `representation_change` at every tier, and its cells."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from experiments.common.checks import check_count, check_points, check_schedule, sorted_values
from experiments.common.decoder_runs import DecoderRuns
from experiments.common.experiment import Calculation, CellLanes
from experiments.representation_change import equation_nine
from lvp.errors import InputError
from lvp.models.configs import GPT2_FORM
from lvp.parametrization import uniform
from lvp.training import Cell, Lane, OptimizerConfig, check_positive


class Arm(NamedTuple):
    """An optimizer by its name in `training.OPTIMIZERS`, and whether its rate warms up."""

    optimizer: str
    warms_up: bool


ARMS = {
    "LionAR": Arm("lion_ar", False),
    "LionAR + warm-up": Arm("lion_ar", True),
    "AdamW + warm-up": Arm("adamw", True),
}
NAMES = {"lion_ar": "LionAR", "adamw": "AdamW"}
ROLE = "hidden"


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are those of Kosson et al. 2024 (paper C), whose sections are named; the rest is ours, and says why.
    `layers` to `b2` are fields of every experiment with decoders."""

    # Section 3: GPT-2 124M on OpenWebText, but for the tokenizer: a BPE of the corpus' own.
    corpus: str = "text:openwebtext"
    layers: int = 12
    width: int = 768
    vocab: int = 50257
    gpt2: bool = True  # learned positions and biases; the head is tied at every tier
    context: int = 1024
    batch: int = 480
    micro_batches: int = 40  # nanoGPT's
    steps: int = 5000
    b2: float = 0.95
    # b1 is 0.9, of AdamW and as LionAR's β.
    weight_decay: float = 0.1
    warmup: float = 0.05  # figure 3
    cooldown: float = 0.5
    lion_rate: float = 0.01  # figure 3
    adamw_rate: float = 0.001  # not stated for figure 4, which has LionAR alone
    init_std: float | None = 0.02  # nanoGPT's, which section 3 adopts; None is width^(−1/2)
    seeds: tuple[int, ...] = (0, 1)
    points: int = 60  # measured steps at equal distances; the first ones come on top
    arms: tuple[str, ...] = tuple(ARMS)
    # Equation 9: B, C and φ, and how many random numbers a simulation may take.
    batch_sizes: tuple[int, ...] = (1, 16, 480)
    fan_ins: tuple[int, ...] = (8, 16, 64, 256, 768)
    snrs: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 1 / 480, 5e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    numbers: int = 1_000_000_000

    def __post_init__(self):
        super().__post_init__()
        check_count(self, "width")
        check_points(self, most=self.steps)
        for name in ("batch_sizes", "fan_ins", "snrs"):
            sorted_values(self, name, positive=True)
        check_count(self, "numbers")
        for name in ("lion_rate", "adamw_rate", "weight_decay"):
            check_positive(name, getattr(self, name))
        check_schedule(self.warmup, self.cooldown)
        if self.micro_batches < 2:
            raise InputError(f"micro_batches must be at least 2, or there is no φ to measure, got {self.micro_batches}")
        for given in self.arms:
            if given not in ARMS:
                raise InputError(f"arms must be of {', '.join(ARMS)}, got {given!r}")

    @property
    def measured_steps(self) -> tuple[int, ...]:
        """At equal distances from the first to the last, and the powers of two before them."""
        spread = np.linspace(0, self.steps - 1, self.points).round().astype(int)
        early = {2**k for k in range(20) if 2**k < spread[1]}
        return tuple(sorted({*spread.tolist(), *early}))


TIERS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        layers=1,
        width=16,
        vocab=300,
        gpt2=False,
        context=32,
        batch=8,
        micro_batches=4,
        steps=40,
        init_std=None,
        points=8,
        batch_sizes=(1, 32),
        fan_ins=(8, 64),
        snrs=(1e-4, 1 / 480, 0.01, 0.1, 0.3, 1.0),
        numbers=4_000_000,
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=4_000_000,
        valid_bytes=100_000,
        layers=2,
        width=64,
        vocab=2048,
        gpt2=False,
        context=64,
        batch=32,
        micro_batches=8,
        steps=800,
        adamw_rate=0.004,
        init_std=None,
        numbers=100_000_000,
    ),
    "gpu": Config(
        corpus="wikitext2",
        layers=4,
        width=256,
        vocab=8192,
        context=256,
        micro_batches=8,
        steps=1500,
        init_std=None,
    ),
    "paper": Config(),
}


def cells(config: Config) -> list[CellLanes]:
    """Equation 9, a cell for every C; and a trained one for every optimizer, in which its arms differ by warm-up."""
    return [*calculations(config), *trained(config)]


def calculations(config: Config) -> list[CellLanes]:
    found, lanes = [], [{"batch": batch} for batch in config.batch_sizes]
    for fan_in in config.fan_ins:
        arguments = {"fan_in": fan_in, "snrs": list(config.snrs), "numbers": config.numbers, "seed": config.seeds[0]}
        cell = Calculation(arguments, equation_nine.FLOPS_PER_NUMBER * config.numbers)
        found.append(CellLanes(f"equation 9, C {fan_in}", cell, lanes))
    return found


def trained(config: Config) -> list[CellLanes]:
    found = []
    for kind, name in NAMES.items():
        arms = [ARMS[arm] for arm in config.arms if ARMS[arm].optimizer == kind]
        lanes = [lane(config, arm, seed) for arm in arms for seed in config.seeds]
        if lanes:
            found.append(CellLanes(name, trained_cell(config, kind), lanes))
    return found


def trained_cell(config: Config, kind: str) -> Cell:
    constants = {"lion_ar": {"b": config.b1}, "adamw": config.adam.options}[kind]
    optimizer = OptimizerConfig(kind, {**constants, "weight_decay": config.weight_decay})
    training = {"micro_batches": config.micro_batches, "cooldown": config.cooldown, "measures": ("gradients",)}
    shape = config.width, config.vocab, config.steps
    model = GPT2_FORM if config.gpt2 else {"tied": True}
    return config.cell(*shape, optimizer, config.measured_steps, training, **model)


def lane(config: Config, arm: Arm, seed: int) -> Lane:
    """One rate for all roles."""
    rate = config.lion_rate if arm.optimizer == "lion_ar" else config.adamw_rate
    std = config.width**-0.5 if config.init_std is None else config.init_std
    table = uniform(width=config.width, vocab=config.vocab, init_std=std)
    return Lane.under(table, rate, seed, warmup_steps=warmup_steps(config, arm))


def warmup_steps(config: Config, arm: Arm) -> int:
    return round(config.warmup * config.steps) if arm.warms_up else 0
