"""The configuration of `representation_change` at every preset, and its settings."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, check_points, check_schedule, sorted_values
from lvp.experiments.common.decoder_runs import DecoderRuns
from lvp.experiments.common.experiment import Calculation, SettingRuns
from lvp.experiments.representation_change import equation_nine
from lvp.models.configs import GPT2_FORM
from lvp.parametrization import table, uniform
from lvp.training import OptimizerConfig, Run, Setting, check_positive


class WarmupGroup(NamedTuple):
    """An optimizer with or without warm-up."""

    optimizer: str  # a key of `lvp.training.OPTIMIZERS`
    warms_up: bool  # whether it uses the configured warm-up


GROUPS = {
    "LionAR": WarmupGroup("lion_ar", False),
    "LionAR + warm-up": WarmupGroup("lion_ar", True),
    "AdamW + warm-up": WarmupGroup("adamw", True),
}
NAMES = {"lion_ar": "LionAR", "adamw": "AdamW"}  # optimizer → label of its setting
ROLE = "hidden"  # of the measured matrices
PAPER_BATCH, PAPER_CONTEXT, PAPER_STEPS = 480, 1024, 5000  # section 3


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are those of Kosson et al. 2024.

    The comments name sections and figures of this paper, or the source of a value that the paper does not state.
    """

    corpus: str = "text:openwebtext"  # section 3; the tokenizer is a BPE trained on the corpus
    layers: int = 12  # GPT-2 124M (section 3)
    width: int = 768  # GPT-2 124M
    vocab: int = 50257  # GPT-2 124M
    gpt2: bool = True  # with learned positions and biases; the head is tied with either value
    context: int = PAPER_CONTEXT  # GPT-2 124M
    batch: int = PAPER_BATCH  # section 3
    micro_batches: int = 40  # nanoGPT's value
    steps: int = PAPER_STEPS  # section 3
    b2: float = 0.95  # section 3; b1 = 0.9 is also the β of LionAR
    weight_decay: float = 0.1  # section 3
    warmup: float = 0.05  # figure 3: fraction of the steps
    cooldown: float = 0.5  # section 3: fraction of the steps
    lion_rate: float = 0.01  # figure 3
    adamw_rate: float = 0.001  # not stated: figure 4 shows LionAR only
    init_std: float | None = 0.02  # nanoGPT's value, which section 3 adopts; None is width^(−1/2)
    seeds: tuple[int, ...] = (0, 1)  # not stated
    points: int = 60  # measured steps at equal distances; `measured_steps` adds early steps
    groups: tuple[str, ...] = tuple(GROUPS)  # keys of `GROUPS`
    batch_sizes: tuple[int, ...] = (1, 16, 480)  # B of equation 9
    fan_ins: tuple[int, ...] = (8, 16, 64, 256, 768)  # C of equation 9
    snrs: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 1 / 480, 5e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # φ of equation 9
    numbers: int = 1_000_000_000  # random numbers in a simulation of equation 9

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
            raise InputError(
                f"micro_batches must be at least 2, because φ needs two gradients, got {self.micro_batches}"
            )
        for given in self.groups:
            if given not in GROUPS:
                raise InputError(f"groups must hold only {', '.join(GROUPS)}, got {given!r}")

    @property
    def measured_steps(self) -> tuple[int, ...]:
        """`points` steps at equal distances, and the powers of two between the first two of them."""
        equidistant = np.linspace(0, self.steps - 1, self.points).round().astype(int)
        early = {2**k for k in range(20) if 2**k < equidistant[1]}
        return tuple(sorted({*equidistant.tolist(), *early}))


PRESETS = {
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
        valid_bytes=100_000,
        seeds=(0, 1, 2, 3),
        layers=2,
        width=64,
        vocab=2048,
        gpt2=False,
        context=64,
        micro_batches=24,
        steps=250,  # with the paper's batch, about 12 minutes on two cores
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


def settings(config: Config) -> list[SettingRuns]:
    """The settings: one without training for each C of equation 9, and one with training for each optimizer."""
    return [*calculations(config), *trained(config)]


def calculations(config: Config) -> list[SettingRuns]:
    """One setting for each C of equation 9, with a run for each B."""
    planned, runs = [], [{"batch": batch} for batch in config.batch_sizes]
    for fan_in in config.fan_ins:
        arguments = {"fan_in": fan_in, "snrs": list(config.snrs), "numbers": config.numbers, "seed": config.seeds[0]}
        setting = Calculation(arguments, equation_nine.FLOPS_PER_NUMBER * config.numbers)
        planned.append(SettingRuns(f"equation 9, C {fan_in}", setting, runs))
    return planned


def trained(config: Config) -> list[SettingRuns]:
    """One setting for each optimizer. The groups of a setting differ in warm-up."""
    planned = []
    for kind, name in NAMES.items():
        groups = [GROUPS[group] for group in config.groups if GROUPS[group].optimizer == kind]
        runs = [run(config, group, seed) for group in groups for seed in config.seeds]
        if runs:
            planned.append(SettingRuns(name, trained_setting(config, kind), runs))
    return planned


def trained_setting(config: Config, kind: str) -> Setting:
    """The setting of an optimizer."""
    constants = {"lion_ar": {"b": config.b1}, "adamw": config.adam.options}[kind]
    optimizer = OptimizerConfig(kind, {**constants, "weight_decay": config.weight_decay})
    model = config.model(config.width, config.vocab)
    return replace(
        config.setting(replace(model, **GPT2_FORM) if config.gpt2 else replace(model, tied=True), config.steps),
        optimizer=optimizer,
        measured_steps=config.measured_steps,
        measures=("gradients",),
        cooldown=config.cooldown,
    )


def run(config: Config, group: WarmupGroup, seed: int) -> Run:
    """The run of a group. All roles have one rate and one init std."""
    rate = config.lion_rate if group.optimizer == "lion_ar" else config.adamw_rate
    hidden = table("lvp", width=config.width, vocab=config.vocab)["hidden"]
    std = hidden.init_std if config.init_std is None else config.init_std
    one_rate = uniform(width=config.width, vocab=config.vocab, init_std=std)
    return Run.under(one_rate, rate, seed, warmup_steps=warmup_steps(config, group))


def warmup_steps(config: Config, group: WarmupGroup) -> int:
    """The steps of a group's warm-up; 0 without warm-up."""
    return round(config.warmup * config.steps) if group.warms_up else 0
