"""The configuration of `warmup` at every preset, and its settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np

from lvp.analysis.claims import refusal
from lvp.errors import InputError
from lvp.experiments.common.checks import (
    check_count,
    check_names,
    check_points,
    check_schedule,
    check_seeds,
    sorted_values,
)
from lvp.experiments.common.decoder_runs import DecoderRuns, geometric
from lvp.experiments.common.experiment import SettingRuns
from lvp.experiments.warmup.held import lion_ar_held
from lvp.models.configs import GPT2_FORM, NANOGPT_FORM, OMITTED
from lvp.parametrization import uniform
from lvp.training import OptimizerConfig, Run, Setting, check_positive

LEAST_WARMUP_STEPS = 20  # minimum steps of the reference warm-up
STABLE_GROUP = "LionA"  # figure 2, panel 2: its largest stable rate
CURVES_GROUP = "AdamW"  # figure 1: training with and without warm-up at one rate
# Group → factors on the rate that is best without warm-up. LionAR's angle is proportional to the root of its rate.
LARGER_RATES = {"AdamW": (2.0,), "LionA": (2.0,), "LionAR": (2.0, 4.0)}
HIGH_MOMENTUM_OPTIONS = {"nesterov": True, "inverse_bias_correction": True}


class OptimizerGroup(NamedTuple):
    """An optimizer, its grid of rates and its momentum."""

    kind: str  # a key of `lvp.training.OPTIMIZERS`
    rates_field: str  # the field of `Config` with its rates
    options: Mapping[str, Any] = {}  # options of the optimizer, in addition to the configured constants
    momentum_field: str | None = "b1"  # the field of `Config` with its momentum; None is no momentum
    held: Literal["equation 9", "measured"] | None = None  # how it holds the relative representation change
    rate_of: str | None = None  # the group whose best rate without warm-up it has; it then has judging seeds only
    init_factor: float = 1.0  # on the init std of the hidden matrices


GROUPS = {
    "AdamW": OptimizerGroup("adamw", "adam_rates"),
    "AdamW, no β₁ correction": OptimizerGroup("adamw", "adam_rates", {"bias_correction_first": False}, rate_of="AdamW"),
    "LionA": OptimizerGroup("lion_a", "adam_rates"),
    "LionAR": OptimizerGroup("lion_ar", "rotational_rates"),
    "LionAR, RRC held": OptimizerGroup("lion_ar", "held_rates", held="equation 9"),
    "LionAR, measured RRC held": OptimizerGroup("lion_ar", "rotational_rates", held="measured"),
    "LionAR, no momentum": OptimizerGroup("lion_ar", "still_rates", momentum_field=None),
    "LionAR, high momentum": OptimizerGroup("lion_ar", "high_rotational_rates", HIGH_MOMENTUM_OPTIONS, "high_momentum"),
    "LionAR, high momentum only": OptimizerGroup("lion_ar", "high_rotational_rates", momentum_field="high_momentum"),
    "LionA, high momentum": OptimizerGroup("lion_a", "high_adam_rates", HIGH_MOMENTUM_OPTIONS, "high_momentum"),
    "LionA, init × 1/3": OptimizerGroup("lion_a", "adam_rates", init_factor=1 / 3),
    "LionA, init × 3": OptimizerGroup("lion_a", "adam_rates", init_factor=3.0),
}
_ONE_STD = tuple(name for name, group in GROUPS.items() if group.init_factor == 1)


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are the sizes of Kosson et al. 2024, section 3 (GPT-2 124M of nanoGPT), with GPT-2's form, unclipped.

    The preset "paper" has nanoGPT's form, vocabulary and clipping. docs/warmup.md lists what remains different.
    """

    corpus: str = "text:openwebtext"
    layers: int = 12
    context: int = 1024
    batch: int = 480  # sequences per step
    micro_batches: int = 40  # nanoGPT's value
    width: int = 768
    vocab: int = 50257
    gpt2: bool = (
        True  # learned positions, biases, tied head; False is the decoder of the other experiments with tied head
    )
    nanogpt: bool = field(default=False, metadata=OMITTED)  # `NANOGPT_FORM` instead of `GPT2_FORM`
    init_std: float = 0.02  # init std of all matrices
    steps: int = 5000
    cooldown: float = 0.5  # fraction of the steps
    warmups: tuple[float, ...] = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # fractions of the steps
    reference: float = 0.05  # the warm-up that figures 1 to 3 and 5 compare with training without warm-up
    b2: float = 0.95  # AdamW's β₂; b1 is AdamW's β₁ and Lion's β
    weight_decay: float = 0.1
    high_momentum: float = 0.98  # β of the groups with high momentum
    held_decay: float = 3.2  # weight decay of "LionAR, RRC held"; section 6.1: 32 times `weight_decay`, not tuned
    # The grids give all optimizers steps of about the same size. γ is 4.4 times as large without momentum and half as
    # large with high momentum. LionAR's angle is proportional to the root of the rate.
    adam_rates: tuple[float, ...] = geometric(5e-4, 8e-3, 5)  # AdamW, LionA
    high_adam_rates: tuple[float, ...] = geometric(1e-3, 1.6e-2, 5)  # LionA, high momentum
    rotational_rates: tuple[float, ...] = geometric(2.5e-3, 4e-2, 5)  # LionAR; LionAR, measured RRC held
    high_rotational_rates: tuple[float, ...] = geometric(1e-2, 1.6e-1, 5)  # LionAR, high momentum
    still_rates: tuple[float, ...] = geometric(1.5e-4, 2.4e-3, 5)  # LionAR, no momentum
    held_rates: tuple[float, ...] = geometric(2.5e-3, 4e-2, 5)  # LionAR, RRC held
    reserve: int = 0  # rates at each end of a grid that are trained only if the best rate so far is beside them
    more_seeds: tuple[int, ...] = (100, 101, 102)  # seeds whose runs give the gaps; `seeds` choose the rates
    points: int = 16  # number of measured steps, at equal ratios
    measures: tuple[str, ...] = ("movement", "representation", "gradients")  # at these steps
    groups: tuple[str, ...] = _ONE_STD  # keys of `GROUPS`

    def __post_init__(self):
        super().__post_init__()
        check_names("groups", self.groups, GROUPS)
        for name in self.groups:
            if (other := GROUPS[name].rate_of) and other not in self.groups:
                raise InputError(f"groups={self.groups}: {name!r} has the rate of {other!r}; add that group")
        check_count(self, "reserve", least=0)
        for name in sorted({GROUPS[group].rates_field for group in self.groups}):
            sorted_values(self, name, least=2 + 2 * self.reserve, positive=True)
        sorted_values(self, "warmups", least=2)
        for name in ("weight_decay", "held_decay", "init_std"):
            check_positive(name, getattr(self, name))
        check_seeds(self, "more_seeds")
        if line := refusal(self.more_seeds, self.seeds):
            raise InputError(
                f"more_seeds={self.more_seeds} cannot judge the rates that seeds={self.seeds} selected: {line}"
            )
        check_positive("high_momentum", self.high_momentum, zero=True)
        if self.high_momentum >= 1:
            raise InputError(f"high_momentum must be below 1, got {self.high_momentum}")
        check_points(self)
        if self.micro_batches < 2:
            raise InputError(
                f"micro_batches must be at least 2, because φ needs two gradients, got {self.micro_batches}"
            )
        if not {0.0, self.reference} <= set(self.warmups) or not self.reference:
            raise InputError(f"warmups must contain 0 and reference={self.reference:g}, got {self.warmups}")
        check_schedule(self.warmups[0], self.cooldown)
        check_schedule(self.warmups[-1], self.cooldown)
        if self.rise(self.reference) < LEAST_WARMUP_STEPS:
            least, steps = round(LEAST_WARMUP_STEPS / self.reference), self.rise(self.reference)
            raise InputError(
                f"steps={self.steps} must be at least {least}: the reference warm-up of {self.reference:.0%} has "
                f"{steps} steps and needs {LEAST_WARMUP_STEPS}"
            )

    def rise(self, warmup: float) -> int:
        """The number of steps of a warm-up over this fraction of the training."""
        return round(warmup * self.steps)

    @cached_property
    def measured_steps(self) -> tuple[int, ...]:
        """The steps whose updates are measured, counted from 0."""
        return tuple(sorted({round(x) - 1 for x in np.geomspace(1, self.steps, self.points)}))


# nanoGPT's values. Its vocabulary is GPT-2's 50257, padded to a multiple of 64.
NANOGPT: dict[str, Any] = {"nanogpt": True, "vocab": 50304, "clip_norm": 1.0}
_LAPTOP: dict[str, Any] = {
    "corpus": "python-docs",
    "slice_bytes": 4_000_000,
    "valid_bytes": 100_000,
    # At this depth and batch size, AdamW's best rate is large enough that its first updates matter. The gain of
    # hidden matrices, init_std √width, equals the paper's.
    "layers": 4,
    "context": 64,
    "batch": 128,
    "micro_batches": 4,
    "width": 32,
    "vocab": 512,
    "init_std": 0.1,
    "steps": 400,
    "reference": 0.2,  # 8 horizons of momentum; 5 % are 2 horizons here and 25 in the paper
}
# Of the presets "laptop" and "held", which share LionAR's runs.
_WITH_SIXTEEN_JUDGES: dict[str, Any] = {
    **_LAPTOP,
    "seeds": tuple(range(8)),  # two seeds did not show that some seeds are unstable at the best rates
    "more_seeds": tuple(range(200, 216)),  # with eight seeds the interval of LionA's gap is wider than the gap
    "warmups": (0.0, 0.05, 0.2, 0.5),
    "reserve": 2,
    "rotational_rates": (0.0086, 0.015, 0.02621, 0.04579, 0.08, 0.14, 0.244),
}
PRESETS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        seeds=(0,),
        more_seeds=(100, 101, 102),
        layers=1,
        context=16,
        batch=4,
        micro_batches=2,
        width=16,
        vocab=300,
        init_std=0.1,
        steps=400,
        warmups=(0.0, 0.05),
        adam_rates=(0.004, 0.016),
        rotational_rates=(0.02, 0.08),
        points=6,
        groups=("AdamW", "LionAR"),
    ),
    "laptop": Config(
        **_WITH_SIXTEEN_JUDGES,
        # The grids contain the rates of an earlier sweep, so that `--reuse` finds its runs.
        adam_rates=(0.00504, 0.008, *geometric(0.0127, 0.032, 5), 0.0508, 0.0806),
        high_adam_rates=geometric(0.00504, 0.16, 6),
        high_rotational_rates=geometric(0.01265, 0.96, 6),
        still_rates=(0.00063, 0.0015, 0.003557, 0.008434, 0.02, 0.0474, 0.112),
        held_rates=(0.006, 0.01129, 0.02125, 0.04, 0.0753, 0.142, 0.267),
        # The horizon of high momentum is 12 % of 400 steps. The preset "long" has these groups.
        groups=(
            "AdamW",
            "AdamW, no β₁ correction",
            "LionA",
            "LionAR",
            "LionAR, RRC held",
            "LionAR, no momentum",
        ),
    ),
    # The measured representation change is held.
    "held": Config(**_WITH_SIXTEEN_JUDGES, groups=("LionAR", "LionAR, measured RRC held")),
    # High momentum: its horizon of 50 steps is 2 % of the training.
    "long": Config(
        corpus="python-docs",
        slice_bytes=None,
        valid_bytes=100_000,
        seeds=(0, 1, 2),
        more_seeds=tuple(range(200, 208)),
        layers=4,
        context=64,
        batch=32,
        micro_batches=2,
        width=32,
        vocab=512,
        init_std=0.1,
        steps=2500,
        warmups=(0.0, 0.1),
        reference=0.1,  # 5 horizons of momentum, as in the paper
        reserve=2,
        high_adam_rates=geometric(0.0039, 0.0655, 7),
        high_rotational_rates=geometric(0.0155, 0.992, 7),
        measures=("movement",),
        groups=("LionAR, high momentum", "LionAR, high momentum only", "LionA, high momentum"),
    ),
    # The norm of the hidden matrices at the start. In equilibrium LionA's weights have the RMS √(η/(2 λ)): 0.28 at the
    # best rate of the preset "laptop", where init_std is 0.1.
    "initial_norm": Config(
        **_LAPTOP,
        seeds=(0, 1, 2),
        more_seeds=tuple(range(200, 208)),
        warmups=(0.0, 0.2),
        reserve=5,
        adam_rates=geometric(0.002, 0.256, 15),
        measures=("movement",),
        groups=("LionA, init × 1/3", "LionA, init × 3"),
    ),
    "gpu": Config(
        corpus="wikitext2",
        layers=4,
        context=128,
        batch=64,
        micro_batches=4,
        width=128,
        vocab=8192,
        init_std=0.05,
        steps=1000,
        adam_rates=geometric(1e-3, 3.2e-2, 6),
        high_adam_rates=geometric(2e-3, 6.4e-2, 6),
        rotational_rates=geometric(2.5e-3, 8e-2, 6),
        high_rotational_rates=geometric(1e-2, 3.2e-1, 6),
        still_rates=geometric(2.5e-4, 8e-3, 6),
        held_rates=geometric(1e-3, 3.2e-2, 6),
    ),
    "paper": Config(**NANOGPT),
}


def group_setting(config: Config, name: str) -> Setting:
    """The setting of a group. Groups that differ only in traced numbers have equal settings."""
    group = GROUPS[name]
    by_equation = group.held == "equation 9"
    decay = config.held_decay if by_equation else config.weight_decay
    options = {"weight_decay": decay} | dict(group.options)
    if group.kind == "adamw":
        options |= {"b2": config.b2, "eps": config.eps}
    if by_equation:
        options |= {"batch_size": config.batch}
    traced = ("b1" if group.kind == "adamw" else "b",)
    optimizer = OptimizerConfig(group.kind, options, traced)
    if group.held == "measured":
        optimizer = OptimizerConfig("lion_ar_held", options, traced, factory=lion_ar_held)
    form = (NANOGPT_FORM if config.nanogpt else GPT2_FORM) if config.gpt2 else {"tied": True}
    return replace(
        config.setting(config.model(config.width, config.vocab, **form), config.steps),
        optimizer=optimizer,
        measured_steps=config.measured_steps,
        measures=config.measures,
        cooldown=config.cooldown,
    )


def group_run(config: Config, name: str, rate: float, warmup: float, seed: int) -> Run:
    """A run of a group. All roles have the same rate. They have the same init std, up to the group's factor."""
    (traced,) = group_setting(config, name).optimizer.traced
    one_rate = uniform(width=config.width, vocab=config.vocab, init_std=config.init_std)
    options = {traced: momentum_of(config, name)}
    stds = {"hidden": config.init_std * GROUPS[name].init_factor}
    return Run.under(one_rate, rate, seed, stds=stds, warmup_steps=config.rise(warmup), options=options)


def momentum_of(config: Config, name: str) -> float:
    """The momentum of a group; 0 for a group without momentum."""
    momentum = GROUPS[name].momentum_field
    return 0.0 if momentum is None else getattr(config, momentum)


def rates_of(config: Config, name: str) -> tuple[float, ...]:
    """The grid of peak rates of a group, with the rates in reserve."""
    return getattr(config, GROUPS[name].rates_field)


def settings(config: Config) -> list[SettingRuns]:
    """The settings of all groups, with the runs of the first seeds at all rates that are not in reserve."""
    return _settings(config, config.reserve, {name: [] for name in config.groups})


def all_runs(config: Config, further: bool = True) -> list[SettingRuns]:
    """The settings with as many runs as a sweep may train.

    Judging runs have placeholder rates, because the selected rates are not known.

    Args:
      further: as in `lvp.experiments.warmup.analysis.follow_up`.
    """
    judging: dict[str, list[Run]] = {}
    for name in config.groups:
        points = 1 if GROUPS[name].rate_of else len(config.warmups)
        if further:
            points += 2 * (name == STABLE_GROUP) + (name == CURVES_GROUP) + len(LARGER_RATES.get(name, ()))
        rates = [rates_of(config, name)[0] / (1 + point) for point in range(points)]
        judging[name] = [group_run(config, name, *each) for each in product(rates, [0.0], config.more_seeds)]
    return _settings(config, 0, judging)


def _settings(config: Config, reserve: int, judging: Mapping[str, Sequence[Run]]) -> list[SettingRuns]:
    """The settings of all groups. Groups with equal settings share one, which is named after the first of these groups.

    Args:
      reserve: the number of rates at each end of a grid to leave out.
      judging: group → further runs.
    """
    planned: list[SettingRuns] = []
    for name in config.groups:
        rates = rates_of(config, name)
        selecting = () if GROUPS[name].rate_of else config.seeds
        points = product(rates[reserve : len(rates) - reserve], config.warmups, selecting)
        runs = [*(group_run(config, name, *point) for point in points), *judging[name]]
        setting = group_setting(config, name)
        for i, other in enumerate(planned):
            if other.setting == setting:
                planned[i] = other._replace(runs=[*other.runs, *runs])
                break
        else:
            planned.append(SettingRuns(name, setting, runs))
    return planned
