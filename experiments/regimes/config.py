"""The configuration of `regimes` at every tier, and its cells."""

from dataclasses import dataclass

import numpy as np

from experiments.common.checks import sorted_values
from experiments.common.decoder_runs import DecoderRuns, geometric
from experiments.common.experiment import CellLanes
from lvp import parametrization
from lvp.errors import InputError
from lvp.training import Lane, check_positive

RULES = {"sp": "SP", "mup": "μP", "lvp": "LVP", "interpolated": "interpolated"}


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are ours. Depth, batch and the common hidden rate are those of Hayou & Liu 2025, figure 3."""

    widths: tuple[int, ...] = (256, 512, 1024, 2048)  # d
    vocabs: tuple[int, ...] = (2048, 8192, 32768)  # m
    epochs: float = 20.0  # passes through the slice; its number of tokens depends on the vocabulary
    rates: tuple[float, ...] = geometric(2**-12, 2**-4, 9)  # of (a): η_E
    rate_times_width: float = 0.2  # of (a): η_hidden = η_output = 0.2/d
    constants: tuple[float, ...] = geometric(0.0125, 1.6, 8)  # of (b): the hidden rate at the smallest cell, times d

    def __post_init__(self):
        super().__post_init__()
        for name in ("widths", "vocabs"):
            sorted_values(self, name)
        for name in ("rates", "constants"):
            sorted_values(self, name, least=3, positive=True)
        for name in ("epochs", "rate_times_width", "batch", "context"):
            check_positive(name, getattr(self, name))
        if min(self.widths) < 8:
            raise InputError(f"widths must be at least 8, got {self.widths}")
        if len(self.shapes) < 2:
            raise InputError(
                "widths and vocabs give a single cell, and transfer needs two; add a width or a vocabulary"
            )

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(width, vocab) of every cell, the smallest first."""
        return [(d, m) for d in self.widths for m in self.vocabs]


TIERS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=8_000,
        valid_bytes=2_000,
        seeds=(0, 1),
        widths=(16, 24),
        vocabs=(256, 320),
        epochs=2.0,
        rates=geometric(0.004, 0.064, 3),
        constants=geometric(0.05, 0.8, 3),
        context=32,
        batch=4,
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=60_000,
        valid_bytes=20_000,
        widths=(32, 64, 128),
        vocabs=(256, 1024, 4096),
        epochs=16.0,
        rates=geometric(0.002, 0.512, 9),
        context=64,
        batch=8,
    ),
    "gpu": Config(widths=(128, 256, 512, 1024), slice_bytes=2_000_000, valid_bytes=200_000, epochs=30.0),
    "paper": Config(epochs=180.0),  # figure 3's 10,000 steps at m 2048
}


def label(width: int, vocab: int) -> str:
    """The name of the cell of a shape."""
    return f"d {width}, m {vocab}"


def cells(config: Config) -> list[CellLanes]:
    """One cell per shape with the lanes of (a); the smallest cell also has every constant of every rule."""
    planned = []
    for width, vocab in config.shapes:
        lanes = [swept_lane(config, rate, width, vocab, seed) for rate in config.rates for seed in config.seeds]
        if (width, vocab) == config.shapes[0]:
            for rule in RULES:
                lanes += [rule_lane(config, rule, c, width, vocab, s) for c in config.constants for s in config.seeds]
        cell = config.cell(config.model(width, vocab), _guessed_steps(config, vocab))
        planned.append(CellLanes(label(width, vocab), cell, lanes, config.epochs))
    return planned


def _guessed_steps(config: Config, vocab: int) -> int:
    """Steps for the forecast: a token of English text stands for about log₂(m)/4 bytes."""
    num_bytes = config.slice_bytes or 10_000_000
    return max(1, round(config.epochs * num_bytes * 4 / np.log2(vocab) / (config.batch * config.context)))


def swept_lane(config: Config, rate: float, width: int, vocab: int, seed: int) -> Lane:
    """LVP's lane at a shape, with another embedding rate."""
    lvp = parametrization.table("lvp", width=width, vocab=vocab)
    return Lane.under(lvp, config.rate_times_width, seed, rates={"embedding": rate})


def rule_lane(config: Config, rule: str, constant: float, width: int, vocab: int, seed: int) -> Lane:
    """A rule's lane at a shape, with the η at which the hidden rate of the smallest cell is constant/d."""
    smallest, fewest = config.shapes[0]
    tuned = parametrization.table(rule, width=smallest, vocab=fewest)
    eta = constant / smallest / tuned["hidden"].lr_multiplier
    return Lane.under(parametrization.table(rule, width=width, vocab=vocab), eta, seed)
