"""The configuration of `tied` at every preset, and its settings."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from lvp.experiments.common.checks import check_count, check_names, sorted_values
from lvp.experiments.common.decoder_runs import TunedRuns, geometric, hidden_rate
from lvp.experiments.common.experiment import SettingRuns
from lvp.models.configs import forward_multipliers
from lvp.parametrization import Table, table
from lvp.training import Run, Setting


class Group(NamedTuple):
    """A rule, and what the matrix of embedding and head takes from it."""

    rule: str
    choice: str  # "untied", "output", "tied" or "bounded"

    @property
    def label(self) -> str:
        """The name in tables."""
        return f"{self.rule}, {self.choice}"


GROUPS: Mapping[str, Group] = {
    f"{rule}_{choice}": Group(rule, choice)
    for rule, choice in [
        *product(("lvp",), ("untied", "output", "tied", "bounded")),
        *product(("mup",), ("untied", "output", "tied")),
    ]
}


@dataclass(frozen=True)
class Config(TunedRuns):
    """Defaults are those of the paper preset. All values are ours."""

    groups: tuple[str, ...] = tuple(GROUPS)  # names of `GROUPS`
    widths: tuple[int, ...] = (256, 512, 1024)  # d
    vocab: int = 32768  # m
    steps: int = 10_000
    order: str = "rows"  # of the batches; "rows" draws each row once
    rates_times_width: tuple[float, ...] = geometric(0.05, 0.8, 5)  # hidden rate times d

    def __post_init__(self):
        super().__post_init__()
        check_names("groups", self.groups, GROUPS)
        sorted_values(self, "widths", positive=True)
        sorted_values(self, "rates_times_width", least=3, positive=True)
        for name in ("vocab", "steps"):
            check_count(self, name)


PRESETS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=40_000,
        valid_bytes=4_000,
        seeds=(0, 1),
        selecting=1,
        layers=1,
        context=32,
        batch=4,
        widths=(16,),
        vocab=300,
        steps=30,
        rates_times_width=(0.1, 0.2, 0.4),
    ),
    # 800 steps read 410,000 tokens, of about 430,000 in the text.
    "laptop": Config(
        slice_bytes=1_150_000,
        valid_bytes=200_000,
        seeds=tuple(range(10)),  # two tune and eight judge
        context=64,
        batch=8,
        widths=(64, 128),
        vocab=1024,
        steps=800,
    ),
    "gpu": Config(
        corpus="tfds:c4/en:3.1.0",
        slice_bytes=2_000_000_000,
        valid_bytes=5_000_000,
        order="windows",
        dtype="bfloat16",
        widths=(128, 256, 512),
        vocab=8192,
        steps=4000,
    ),
    "paper": Config(corpus="tfds:c4/en:3.1.0", slice_bytes=4_000_000_000, valid_bytes=5_000_000, dtype="bfloat16"),
}


def groups(config: Config) -> list[Group]:
    """The groups in the given order."""
    return [GROUPS[name] for name in config.groups]


def _table(config: Config, group: Group, width: int) -> Table:
    """The table of a group. A tied matrix has the role `output`."""
    tied = group.choice in ("tied", "bounded")
    of_rule = table(group.rule, width=width, vocab=config.vocab, tied=tied)
    if group.choice != "bounded":
        return of_rule
    row, head = of_rule["tied"], of_rule["output"]
    slower = min(row.head_multiplier, head.forward_multiplier * head.lr_multiplier / row.lr_multiplier)
    return of_rule.with_rows(replace(row, head_multiplier=slower))


def setting_of(config: Config, group: Group, width: int) -> Setting:
    """The setting of a group at a width: a decoder with learned positions."""
    model = config.model(width, config.vocab, positions="learned", tied=group.choice != "untied")
    return config.setting(replace(model, **forward_multipliers(_table(config, group, width))), config.steps)


def run(config: Config, group: Group, width: int, constant: float, seed: int) -> Run:
    """The run of a group at a width, with a hidden rate of `constant` / d."""
    return Run.under(_table(config, group, width), hidden_rate(constant, width), seed)


def label(group: Group, width: int) -> str:
    """The name of the setting of a group at a width."""
    return f"{group.label}, d {width}"


def settings(config: Config) -> list[SettingRuns]:
    """One setting per group and width, with the runs of the selecting seeds."""
    return [
        SettingRuns(
            label(group, width),
            setting_of(config, group, width),
            [run(config, group, width, x, seed) for x in config.rates_times_width for seed in config.selecting_seeds],
        )
        for width, group in product(config.widths, groups(config))
    ]
