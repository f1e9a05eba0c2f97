"""The configuration of `muon` at every preset, and its settings."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, sorted_values
from lvp.experiments.common.decoder_runs import TunedRuns, geometric
from lvp.experiments.common.experiment import SettingRuns
from lvp.models.configs import forward_multipliers
from lvp.parametrization import table
from lvp.parametrization.rules import ADAM_RMS, PAPER_RULES
from lvp.training import OptimizerConfig, Run, Setting

LVP_POWER = 0.5  # of d, in LVP's ratio


class Group(NamedTuple):
    """An optimizer of the hidden matrices, and the rates of the other roles. Adam trains the other roles."""

    optimizer: str  # "Adam" or "Muon"
    power: float | None = None  # the embedding's rate is d^power times the hidden rate; None: nanochat's table

    @property
    def label(self) -> str:
        """The name in tables."""
        if self.power is None:
            return f"{self.optimizer}, nanochat's constants"
        named = {0.0: "one rate", LVP_POWER: "LVP, ratio √d", 1.0: "ratio d"}
        return f"{self.optimizer}, {named.get(self.power, f'ratio d^{self.power:g}')}"


NANOCHAT = Group("Muon")


@dataclass(frozen=True)
class Config(TunedRuns):
    """Defaults are ours. The shape of the paper preset is that of nanochat's smallest published model."""

    width: int = 768  # d
    layers: int = 12
    vocab: int = 32768  # m
    steps: int = 10_000  # training steps
    powers: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)  # of d, in the ratio of the embedding's to the hidden rate
    rates_times_width: tuple[float, ...] = geometric(0.05, 0.8, 5)  # hidden rate times d, of every group but nanochat's
    factors: tuple[float, ...] = geometric(0.25, 4.0, 5)  # on all rates of nanochat's table

    def __post_init__(self):
        super().__post_init__()
        for name in ("width", "vocab", "steps"):
            check_count(self, name)
        sorted_values(self, "powers", least=2)
        for name in ("rates_times_width", "factors"):
            sorted_values(self, name, least=2, positive=True)
        if not {0.0, LVP_POWER} <= set(self.powers):
            raise InputError(f"powers must contain 0 (one rate) and {LVP_POWER} (LVP), got {self.powers}")
        if len(self.factors) != len(self.rates_times_width):
            raise InputError(
                f"factors ({len(self.factors)} values) and rates_times_width ({len(self.rates_times_width)} values) "
                "must have the same length: every group is tuned with the same number of runs"
            )


PRESETS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        seeds=(0, 1),
        selecting=1,
        layers=1,
        context=32,
        batch=4,
        width=16,
        vocab=300,
        steps=30,
        powers=(0.0, 0.5),
        rates_times_width=(0.1, 0.4),
        factors=(0.5, 2.0),
    ),
    # The training has fewer tokens than the text, so that the validation loss measures generalization.
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=2_000_000,
        valid_bytes=100_000,
        seeds=tuple(range(10)),  # two tune and eight judge
        layers=2,
        context=64,
        batch=8,
        width=64,
        vocab=1024,
        steps=1000,
    ),
    "gpu": Config(slice_bytes=50_000_000, valid_bytes=1_000_000, layers=4, width=256, vocab=8192, steps=2000),
    "paper": Config(),
}


def groups(config: Config) -> list[Group]:
    """Every ratio under Adam and under Muon, and nanochat's constants."""
    return [Group(optimizer, power) for optimizer in ("Adam", "Muon") for power in config.powers] + [NANOCHAT]


def tuned_values(config: Config, group: Group) -> tuple[float, ...]:
    """The values of the one number that a group tunes."""
    return config.factors if group == NANOCHAT else config.rates_times_width


def setting_label(group: Group) -> str:
    """The name of a group's setting. The ratios of an optimizer share a setting."""
    return group.label if group == NANOCHAT else group.optimizer


def _table(config: Config, group: Group):
    rule, rows = ("nanochat", "normalized") if group == NANOCHAT else ("lvp", "plain")
    return table(rule, width=config.width, vocab=config.vocab, token_rows=rows)


def setting_of(config: Config, group: Group) -> Setting:
    """The setting of a group: a decoder with rotary positions."""
    model = replace(config.model(config.width, config.vocab), positions="rotary")
    setting = config.setting(replace(model, **forward_multipliers(_table(config, group))), config.steps)
    if group.optimizer == "Adam":
        return setting
    constants = {"adam_b1": config.b1, "adam_b2": config.b2, "eps": config.eps}
    rms = {} if group == NANOCHAT else {"consistent_rms": ADAM_RMS}
    return replace(setting, optimizer=OptimizerConfig("muon", constants | rms))


def run(config: Config, group: Group, value: float, seed: int) -> Run:
    """The run of a group at a value of the number that it tunes."""
    rule = _table(config, group)
    if group.power is None:  # nanochat's constants times the value
        published = PAPER_RULES["nanochat"].rows(config.width, config.vocab, 1.0)
        rates = {role: value * numbers[1] for role, numbers in published.items()}
        return Run.under(rule, rates["hidden"], seed, rates=rates)
    hidden = value / config.width
    return Run.under(rule, hidden, seed, rates={"embedding": hidden * config.width**group.power})


def settings(config: Config) -> list[SettingRuns]:
    """One setting per optimizer, and one for nanochat's constants, with the runs of the selecting seeds."""
    by_label: dict[str, SettingRuns] = {}
    for group in groups(config):
        planned = by_label.setdefault(
            setting_label(group), SettingRuns(setting_label(group), setting_of(config, group), [])
        )
        runs = [run(config, group, x, seed) for x in tuned_values(config, group) for seed in config.selecting_seeds]
        by_label[planned.label] = planned._replace(runs=[*planned.runs, *runs])
    return list(by_label.values())
