"""The configuration of `mean_embedding` at every preset, and its settings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, check_names, check_seeds, sorted_values
from lvp.experiments.common.decoder_runs import DecoderRuns, geometric
from lvp.experiments.common.experiment import SettingRuns
from lvp.parametrization import table, uniform
from lvp.training import OptimizerConfig, Run, Setting


class OptimizerChoice(NamedTuple):
    """An optimizer and its grid of rates. Both forms of Adam take the configured constants as well."""

    kind: str  # a key of `lvp.training.OPTIMIZERS`
    options: Mapping[str, Any]  # keyword arguments of the optimizer
    rates_field: str  # the field of `Config` with its rates


OPTIMIZERS = {
    "SGD": OptimizerChoice("sgd", {}, "sgd_rates"),
    "momentum SGD": OptimizerChoice("sgd", {"momentum": 0.9}, "momentum_rates"),
    "SignSGD": OptimizerChoice("sign_sgd", {}, "sign_rates"),
    "LionA": OptimizerChoice("lion_a", {}, "adam_rates"),
    "Adam": OptimizerChoice("adam", {}, "adam_rates"),
    "Coupled Adam": OptimizerChoice("coupled_adam", {"couple": ["output", "embedding"]}, "adam_rates"),
}


class EmbeddingRateGroup(NamedTuple):
    """An optimizer and a rule for the embedding's rate."""

    optimizer: str  # a key of `OPTIMIZERS`
    scaled: bool = False  # the embedding's rate is √d times the other rates


GROUPS = {name: EmbeddingRateGroup(name) for name in OPTIMIZERS}
GROUPS |= {f"{name} √d": EmbeddingRateGroup(name, scaled=True) for name in ("Adam", "Coupled Adam")}
HEADS = {"untied": False, "tied": True}
# Form of the head → path of the output and of the input embeddings, as the measures name them.
HEAD_PATH = {"untied": "head/kernel", "tied": "tied_embedding/embedding"}
EMBEDDING_PATH = {"untied": "embedding/embedding", "tied": "tied_embedding/embedding"}


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are ours: Stollenwerk & Stollenwerk 2025 give no set-up. Larger presets have Hayou & Liu's batch."""

    width: int = 768  # d
    vocab: int = 32768  # m
    steps: int = 10_000  # training steps
    adam_rates: tuple[float, ...] = geometric(2**-13, 2**-7, 7)  # of Adam, Coupled Adam and LionA
    sign_rates: tuple[float, ...] = geometric(2**-15, 2**-9, 7)  # of SignSGD
    sgd_rates: tuple[float, ...] = geometric(2**-3, 2**5, 5)  # of SGD
    momentum_rates: tuple[float, ...] = geometric(2**-6, 2**2, 5)  # of momentum SGD
    measured: tuple[float, ...] = (0.0, 0.05, 0.2, 0.5, 1.0)  # fractions of the steps
    groups: tuple[str, ...] = tuple(GROUPS)  # keys of `GROUPS`
    heads: tuple[str, ...] = tuple(HEADS)  # keys of `HEADS`

    def __post_init__(self):
        super().__post_init__()
        check_seeds(self, "seeds", least=2)  # the first selects rates
        check_count(self, "width")
        for name in ("adam_rates", "sign_rates", "sgd_rates", "momentum_rates"):
            sorted_values(self, name, positive=True)
        sorted_values(self, "measured", least=2)
        if not 0 <= self.measured[0] <= self.measured[-1] <= 1:
            raise InputError(f"measured must be fractions of the steps, from 0 to 1, got {self.measured}")
        check_names("groups", self.groups, GROUPS)
        check_names("heads", self.heads, HEADS)

    @property
    def selecting_seeds(self) -> tuple[int, ...]:
        """The seeds that select the rates: the first."""
        return self.seeds[:1]

    @property
    def judging_seeds(self) -> tuple[int, ...]:
        """The seeds that select no rate."""
        return self.seeds[1:]

    @property
    def measured_steps(self) -> tuple[int, ...]:
        """Steps after which the vocabulary matrices are measured."""
        return tuple(sorted({min(round(part * self.steps), self.steps - 1) for part in self.measured}))


PRESETS = {
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
        groups=("SGD", "Adam", "Adam √d"),
        heads=("untied",),
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=400_000,
        valid_bytes=50_000,
        seeds=tuple(range(9)),  # eight judge
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


def settings(config: Config) -> list[SettingRuns]:
    """One setting per optimizer and form of head; the groups of an optimizer share it."""
    planned = []
    for head, name in product(config.heads, OPTIMIZERS):
        groups = [GROUPS[group] for group in config.groups if GROUPS[group].optimizer == name]
        runs = [run(config, group, head, rate, config.seeds[0]) for group in groups for rate in rates_of(config, group)]
        if runs:
            planned.append(SettingRuns(f"{name}, {head}", setting_of(config, name, head), runs))
    return planned


def rates_of(config: Config, group: EmbeddingRateGroup) -> tuple[float, ...]:
    """The rates at which a group is tuned."""
    return getattr(config, OPTIMIZERS[group.optimizer].rates_field)


def setting_of(config: Config, name: str, head: str) -> Setting:
    """The setting of an optimizer and a form of head."""
    choice = OPTIMIZERS[name]
    constants = config.adam.options if "adam" in choice.kind else {}
    model = replace(config.model(config.width, config.vocab), tied=HEADS[head])
    return replace(
        config.setting(model, config.steps),
        optimizer=OptimizerConfig(choice.kind, {**constants, **choice.options}),
        measured_steps=config.measured_steps,
        measures=("vocabulary",),
    )


def run(config: Config, group: EmbeddingRateGroup, head: str, rate: float, seed: int) -> Run:
    """The run with one rate for all roles. A scaled group has LVP's ratio √d for the matrix that embeds."""
    lvp = table("lvp", width=config.width, vocab=config.vocab)
    one_rate = uniform(width=config.width, vocab=config.vocab, init_std=lvp["hidden"].init_std)
    embeds = "output" if HEADS[head] else "embedding"
    rates = {embeds: rate * lvp["embedding"].lr_multiplier} if group.scaled else {}
    return Run.under(one_rate, rate, seed, rates=rates)
