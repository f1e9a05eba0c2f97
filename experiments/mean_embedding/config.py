"""The configuration of `mean_embedding` at every tier, and its cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from experiments.common.checks import check_count, check_names, sorted_values
from experiments.common.decoder_runs import DecoderRuns, geometric
from experiments.common.experiment import CellLanes
from lvp.errors import InputError
from lvp.parametrization import uniform
from lvp.training import Cell, Lane, OptimizerConfig

# Name → kind, options, and the configured list of its rates. Both kinds of Adam take the configured constants too.
OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "SGD": ("sgd", {}, "sgd_rates"),
    "momentum SGD": ("sgd", {"momentum": 0.9}, "momentum_rates"),
    "SignSGD": ("sign_sgd", {}, "sign_rates"),
    "LionA": ("lion_a", {}, "adam_rates"),
    "Adam": ("adam", {}, "adam_rates"),
    "Coupled Adam": ("coupled_adam", {"couple": ["output", "embedding"]}, "adam_rates"),
}


class Arm(NamedTuple):
    """An optimizer by name, and whether the embedding's rate is √d times the others'."""

    optimizer: str
    scaled: bool = False


ARMS = {name: Arm(name) for name in OPTIMIZERS}
ARMS |= {f"{name} √d": Arm(name, scaled=True) for name in ("Adam", "Coupled Adam")}
HEADS = {"untied": False, "tied": True}
# The vocabulary matrices of each form, by path, as the measures name them.
HEAD = {"untied": "head/kernel", "tied": "tied_embedding/embedding"}
EMBEDDING = {"untied": "embedding/embedding", "tied": "tied_embedding/embedding"}


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Paper B gives no set-up for the section that we have; width and batch of the larger tiers are paper A's."""

    width: int = 768
    vocab: int = 32768
    steps: int = 10_000
    adam_rates: tuple[float, ...] = geometric(2**-13, 2**-7, 7)  # Adam, Coupled Adam, LionA
    sign_rates: tuple[float, ...] = geometric(2**-15, 2**-9, 7)
    sgd_rates: tuple[float, ...] = geometric(2**-3, 2**5, 5)
    momentum_rates: tuple[float, ...] = geometric(2**-6, 2**2, 5)
    measured: tuple[float, ...] = (0.0, 0.05, 0.2, 0.5, 1.0)  # parts of the steps
    arms: tuple[str, ...] = tuple(ARMS)
    heads: tuple[str, ...] = tuple(HEADS)

    def __post_init__(self):
        super().__post_init__()
        check_count(self, "width")
        for name in ("adam_rates", "sign_rates", "sgd_rates", "momentum_rates"):
            sorted_values(self, name, positive=True)
        sorted_values(self, "measured", least=2)
        if not 0 <= self.measured[0] <= self.measured[-1] <= 1:
            raise InputError(f"measured holds parts of the steps, from 0 to 1, got {self.measured}")
        check_names("arms", self.arms, ARMS)
        check_names("heads", self.heads, HEADS)

    @property
    def measured_steps(self) -> tuple[int, ...]:
        return tuple(sorted({min(round(part * self.steps), self.steps - 1) for part in self.measured}))


TIERS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        seeds=(0, 1),
        layers=1,
        context=32,
        batch=4,
        width=16,
        vocab=300,
        steps=40,
        adam_rates=(0.004, 0.016),
        sign_rates=(0.004,),
        sgd_rates=(1.0,),
        momentum_rates=(0.1,),
        measured=(0.0, 0.5, 1.0),
        arms=("SGD", "Adam", "Adam √d"),
        heads=("untied",),
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=400_000,
        valid_bytes=50_000,
        context=64,
        batch=8,
        width=64,
        vocab=2048,
        steps=600,
        adam_rates=geometric(0.0005, 0.016, 6),
        sign_rates=geometric(0.0005, 0.016, 6),
        sgd_rates=geometric(0.125, 32, 5),
        momentum_rates=geometric(0.03125, 8, 5),
    ),
    "gpu": Config(slice_bytes=20_000_000, valid_bytes=400_000, width=256, vocab=8192, steps=2000),
    "paper": Config(),
}


def cells(config: Config) -> list[CellLanes]:
    """A cell for every optimizer and form of head; arms of one optimizer share it."""
    found = []
    for head, name in product(config.heads, OPTIMIZERS):
        arms = [ARMS[arm] for arm in config.arms if ARMS[arm].optimizer == name]
        lanes = [lane(config, arm, head, rate, config.seeds[0]) for arm in arms for rate in rates_of(config, arm)]
        if lanes:
            found.append(CellLanes(f"{name}, {head}", cell_of(config, name, head), lanes))
    return found


def rates_of(config: Config, arm: Arm) -> tuple[float, ...]:
    return getattr(config, OPTIMIZERS[arm.optimizer][2])


def cell_of(config: Config, name: str, head: str) -> Cell:
    kind, options, _ = OPTIMIZERS[name]
    constants = config.adam.options if "adam" in kind else {}
    optimizer = OptimizerConfig(kind, {**constants, **options})
    shape, of = (config.width, config.vocab, config.steps), {"measures": ("vocabulary",)}
    return config.cell(*shape, optimizer, config.measured_steps, of, tied=HEADS[head])


def lane(config: Config, arm: Arm, head: str, rate: float, seed: int) -> Lane:
    """One rate for all, and √d times that for what embeds, if the arm says so."""
    table = uniform(width=config.width, vocab=config.vocab, init_std=config.width**-0.5)
    embeds = "output" if HEADS[head] else "embedding"
    return Lane.under(table, rate, seed, rates={embeds: rate * config.width**0.5} if arm.scaled else {})
