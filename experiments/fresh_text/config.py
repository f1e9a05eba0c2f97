"""The configuration of `fresh_text` at every preset: its groups, settings and runs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, check_names, check_schedule
from lvp.experiments.common.decoder_runs import TunedRuns, hidden_rate
from lvp.experiments.common.experiment import SettingRuns
from lvp.models.configs import forward_multipliers
from lvp.parametrization import Table, row_multiplier, table
from lvp.parametrization.rules import ADAM_RMS
from lvp.training import OptimizerConfig, Run, Setting, check_positive

MOST_EPOCHS = 0.99  # the number of steps is rounded, so that a whole epoch could draw some rows twice
COARSE_STEP = 2  # factors of 2 between the ratios that the selecting seeds train
LEAST_JUDGED = 5  # ratios with all judging seeds; a cubic needs five
_TODAY = {"norm": "rms", "positions": "rotary", "position_amplitude": 1.0}


class Group(NamedTuple):
    """A model with its optimizer and schedule, and the centre of its grids."""

    label: str  # in tables and figures
    token_rows: str  # of `lvp.parametrization.TOKEN_ROWS`
    model: Mapping[str, Any]  # fields of `DecoderConfig`
    constant: float  # η_hidden · d in the middle of its grid
    ratio: float  # η_E / η_hidden in the middle of its grid
    optimizer: str = "adam"  # of the hidden matrices; Adam trains the others under "muon"
    scheduled: bool = False  # warm-up and cool-down; otherwise constant rates


# The grids are centred on the committed results and on two short runs; `docs/embedding_rate.md` names them.
GROUPS: Mapping[str, Group] = {
    "paper": Group("LayerNorm, sinusoidal", "sqrt", {}, 0.2, 1.0),
    "today": Group("RMSNorm, rotary", "plain", _TODAY, 0.2, 64.0),
    "decayed": Group("RMSNorm, rotary, decay and schedule", "plain", _TODAY, 0.2, 64.0, "adamw", scheduled=True),
    "muon": Group("RMSNorm, rotary, Muon", "plain", _TODAY, 0.4, 64.0, "muon"),
}


class ModelShape(NamedTuple):
    """Width and vocabulary of a model."""

    width: int  # d
    vocab: int  # m


class Point(NamedTuple):
    """A place in the grids of a group, in factors of 2 from the middle."""

    constant: int  # of η_hidden · d
    ratio: int  # of η_E / η_hidden


@dataclass(frozen=True)
class Config(TunedRuns):
    """Defaults are the laptop preset's design; sizes are those of the paper preset. All values are ours.

    The selecting seeds train 3 × 3 places around the middle of the grids. They follow the best place until it has all
    neighbours. The judging seeds then train five ratios at the chosen constant.
    """

    groups: tuple[str, ...] = ("paper",)  # names of `GROUPS`
    widths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)  # d of every shape
    vocabs: tuple[int, ...] = (32768,) * 5  # m of every shape
    seeds: tuple[int, ...] = tuple(range(10))  # two tune and eight judge
    order: str = "rows"  # of the batches; "rows" draws each row once
    epochs: float = MOST_EPOCHS  # passes through the text. All vocabularies read the same bytes
    constant_reach: int = 2  # factors of 2 from the middle of the constants to their first and last; 0: not tuned
    ratio_reach: int = 6  # the same for the ratios
    margin: float = 0.005  # a constant farther from the middle must lower the loss by this part of the loss
    most_places: int = 15  # places that the selecting seeds train, at most
    most_ratios: int = 7  # ratios that the judging seeds train, at most
    weight_decay: float = 0.1  # of the group "decayed"
    warmup_steps: int = 80  # of the group "decayed": about 5 % of the steps
    cooldown: float = 0.5  # of the group "decayed": fraction of the steps

    def __post_init__(self):
        super().__post_init__()
        check_names("groups", self.groups, GROUPS)
        if not self.widths or len(self.widths) != len(self.vocabs):
            raise InputError(
                f"widths and vocabs must have one value per shape, got {len(self.widths)} widths and "
                f"{len(self.vocabs)} vocabs"
            )
        if len(set(self.shapes)) < len(self.shapes):
            raise InputError(f"widths and vocabs hold a shape twice: {self.shapes}; remove the repetition")
        if not check_positive("epochs", self.epochs) <= MOST_EPOCHS:
            raise InputError(f"epochs must be at most {MOST_EPOCHS}, so that no row is drawn twice; got {self.epochs}")
        for name, least, most in (
            ("constant_reach", 0, 20),
            ("ratio_reach", COARSE_STEP, 40),
            ("most_places", 3, 1000),
            ("most_ratios", LEAST_JUDGED, 81),
            ("warmup_steps", 0, None),
        ):
            check_count(self, name, least=least, most=most)
        for name in ("margin", "weight_decay"):
            check_positive(name, getattr(self, name), zero=True)
        check_schedule(0.0, self.cooldown)

    @property
    def shapes(self) -> list[ModelShape]:
        """The shapes in the given order."""
        return [ModelShape(*shape) for shape in zip(self.widths, self.vocabs, strict=True)]


_LAPTOP: dict[str, Any] = {
    "slice_bytes": 4_200_000,  # 1.6 M tokens at m 1024
    "valid_bytes": 400_000,
    "context": 64,
    "batch": 16,
}
WIDTHS = (48, 64, 96, 128, 192, 256)
PRESETS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        seeds=(0, 1, 2),
        selecting=1,
        layers=1,
        context=32,
        batch=4,
        widths=(16, 24, 32),
        vocabs=(300,) * 3,
    ),
    # `make figure`: few seeds, short runs, and one η_hidden · d
    "quick": Config(
        corpus="python-docs",
        slice_bytes=700_000,
        valid_bytes=100_000,
        context=64,
        batch=8,
        seeds=(0, 1, 2),
        selecting=1,
        constant_reach=0,
        widths=(48, 64, 96, 128),
        vocabs=(512,) * 4,
    ),
    "laptop": Config(**_LAPTOP, widths=WIDTHS, vocabs=(1024,) * 6),
    "today": Config(**_LAPTOP, groups=("today",), widths=WIDTHS, vocabs=(1024,) * 6),
    "vocabulary": Config(**_LAPTOP, groups=("today",), widths=(64,) * 5, vocabs=(512, 1024, 2048, 4096, 8192)),
    "growing": Config(**_LAPTOP, groups=("today",), widths=WIDTHS, vocabs=tuple(8 * width for width in WIDTHS)),
    "practice": Config(**_LAPTOP, groups=("today", "decayed", "muon"), widths=(96,), vocabs=(1024,)),
    "gpu": Config(
        corpus="tfds:c4/en:3.1.0",
        slice_bytes=5_000_000_000,
        valid_bytes=5_000_000,
        epochs=0.1,
        dtype="bfloat16",
        batch=256,
        widths=(128, 256, 512, 1024),
        vocabs=(8192,) * 4,
    ),
    "paper": Config(
        corpus="tfds:c4/en:3.1.0", slice_bytes=20_000_000_000, valid_bytes=5_000_000, dtype="bfloat16", batch=1024
    ),
}


def constant_at(group: Group, place: float) -> float:
    """η_hidden · d at a place of its grid."""
    return group.constant * 2.0**place


def ratio_at(group: Group, place: int) -> float:
    """η_E / η_hidden at a place of its grid. All shapes of a group share the grid."""
    return group.ratio * 2.0**place


def entering(group: Group, width: int) -> float:
    """The factor from a ratio to the ratio in units of what enters the first block."""
    return row_multiplier(group.token_rows, width)


def _table(group: Group, shape: ModelShape) -> Table:
    return table("lvp", width=shape.width, vocab=shape.vocab, token_rows=group.token_rows)


def setting_of(config: Config, group: Group, shape: ModelShape) -> Setting:
    """The setting of a group at a shape. Its number of steps is a guess until the text has been encoded."""
    model = replace(config.model(*shape), **group.model, **forward_multipliers(_table(group, shape)))
    setting = config.setting(model, 1)
    steps = max(1, round(config.epochs * _tokens(config, shape.vocab) / setting.tokens_per_step))
    return replace(
        setting,
        steps=steps,
        optimizer=_optimizer(config, group),
        cooldown=config.cooldown if group.scheduled else None,
    )


def _tokens(config: Config, vocab: int) -> float:
    """The number of tokens of the training text, guessed from WikiText-2's bytes per token at m 512 to 8192."""
    bytes_per_token = max(1.0, 2.58 + 0.475 * math.log2(vocab / 1024))
    return (config.slice_bytes or 10_800_000) / bytes_per_token


def _optimizer(config: Config, group: Group) -> OptimizerConfig:
    if group.optimizer == "muon":
        constants = {"adam_b1": config.b1, "adam_b2": config.b2, "eps": config.eps, "consistent_rms": ADAM_RMS}
        return OptimizerConfig("muon", constants)
    if group.optimizer == "adamw":
        return OptimizerConfig("adamw", {**config.adam.options, "weight_decay": config.weight_decay})
    return config.adam


def run(config: Config, group: Group, shape: ModelShape, at: Point, seed: int) -> Run:
    """The run of a group at a shape and a place of the grids."""
    constant = constant_at(group, at.constant)
    rates = {"embedding": constant / shape.width * ratio_at(group, at.ratio)}
    warmup = config.warmup_steps if group.scheduled else 0
    return Run.under(_table(group, shape), hidden_rate(constant, shape.width), seed, rates=rates, warmup_steps=warmup)


def label(config: Config, name: str, shape: ModelShape) -> str:
    """The name of the setting of a group at a shape; the group is left out if there is one."""
    of_shape = f"d {shape.width}, m {shape.vocab}"
    return of_shape if len(config.groups) == 1 else f"{of_shape}, {GROUPS[name].label}"


def first_points(config: Config) -> list[Point]:
    """The places that all selecting seeds train."""
    constants = (-1, 0, 1) if config.constant_reach else (0,)
    return [Point(i, j) for i, j in product(constants, (-COARSE_STEP, 0, COARSE_STEP))]


def settings(config: Config) -> list[SettingRuns]:
    """One setting per group and shape, with the runs of the selecting seeds at the first places."""
    return [
        SettingRuns(
            label(config, name, shape),
            setting_of(config, GROUPS[name], shape),
            [
                run(config, GROUPS[name], shape, at, seed)
                for at in first_points(config)
                for seed in config.selecting_seeds
            ],
            config.epochs,
        )
        for name, shape in product(config.groups, config.shapes)
    ]


def limit(config: Config) -> list[SettingRuns]:
    """The settings with as many runs as a sweep may train."""
    most = config.most_places * len(config.selecting_seeds) + config.most_ratios * len(config.judging_seeds)
    return [planned._replace(runs=[planned.runs[0]] * most) for planned in settings(config)]
