"""The configuration of `warmup_batch` at every preset, and its settings."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import product

from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, sorted_values
from lvp.experiments.common.decoder_runs import geometric
from lvp.experiments.common.experiment import SettingRuns
from lvp.experiments.warmup import config as warmup

EQUAL = ("tokens", "steps")  # what a run has in common with the run of the base batch
# Field of rates → the power of the batch that rates follow. LionAR's angle is proportional to the root of its rate.
POWERS = {group.rates_field: 1.0 if group.kind == "lion_ar" else 0.5 for group in warmup.GROUPS.values()}


@dataclass(frozen=True)
class Config(warmup.Config):
    """Defaults are those of `warmup`. `batch`, `steps` and the rates are those of the base batch."""

    batches: tuple[int, ...] = (120, 480, 1920)  # sequences of a step
    warmups: tuple[float, ...] = (0.0, 0.05)
    groups: tuple[str, ...] = ("AdamW", "LionA", "LionAR")

    def __post_init__(self):
        super().__post_init__()
        check_count(self, "batch")
        sorted_values(self, "batches", least=2, positive=True)
        for equal, batch in product(EQUAL, self.batches):
            try:
                self.at(equal, batch)
            except InputError as error:
                raise InputError(
                    f"batches={self.batches}: batch {batch} at equal {equal} is not possible: {error}; "
                    "increase steps or remove the batch"
                ) from None

    def at(self, equal: str, batch: int) -> warmup.Config:
        """The configuration of `warmup` for one batch.

        Args:
          equal: "tokens" or "steps", the number that is equal to that of the base batch.

        Raises:
          InputError: the run has too few steps for a warm-up.
        """
        scale = batch / self.batch
        rates = {
            name: tuple(float(f"{rate * scale**power:.4g}") for rate in getattr(self, name))
            for name, power in POWERS.items()
        }
        base = {field.name: getattr(self, field.name) for field in fields(warmup.Config)}
        steps = self.steps if equal == "steps" else max(1, round(self.steps / scale))
        return warmup.Config(**(base | rates | {"batch": batch, "steps": steps}))

    @property
    def runs(self) -> dict[str, warmup.Config]:
        """Label → configuration of every run. The base batch has one run for equal tokens and steps."""
        each = [self.at(equal, batch) for equal in EQUAL for batch in self.batches]
        return {label(config): config for config in each}


def label(config: warmup.Config) -> str:
    """The name of the run of a batch."""
    return f"B {config.batch}, {config.steps} steps"


def _of(preset: str, **changes) -> Config:
    """A preset of `warmup` with 20 % of warm-up."""
    base = {field.name: getattr(warmup.PRESETS[preset], field.name) for field in fields(warmup.Config)}
    defaults = {"warmups": (0.0, 0.2), "reference": 0.2, "groups": ("AdamW", "LionA", "LionAR")}
    return Config(**(base | defaults | changes))


PRESETS = {
    "smoke": _of("smoke", steps=200, groups=("AdamW",), batches=(4, 8)),
    "laptop": _of(
        "laptop",
        slice_bytes=None,  # 200 steps of the largest batch are about one pass through WikiText-2
        measures=(),
        seeds=tuple(range(5)),
        more_seeds=tuple(range(200, 208)),
        # The base has the fewest steps, so momentum averages over at most 5 % of the steps of every run.
        batch=512,
        steps=200,
        batches=(32, 128, 512),
        adam_rates=geometric(0.00504, 0.128, 8),
        rotational_rates=geometric(0.0172, 0.976, 7),
    ),
    "gpu": _of("gpu", batches=(16, 64, 256)),
    "paper": Config(**warmup.NANOGPT),
}


def all_runs(config: Config) -> list[SettingRuns]:
    """The settings with as many runs as a sweep may train, as in `warmup`."""
    return _of_runs(config, lambda run: warmup.all_runs(run, further=False))


def settings(config: Config) -> list[SettingRuns]:
    """The settings of `warmup` for every run."""
    return _of_runs(config, warmup.settings)


def _of_runs(config: Config, settings_of: Callable[[warmup.Config], list[SettingRuns]]) -> list[SettingRuns]:
    """The settings of every run, with the name of the run in their labels."""
    return [
        setting._replace(label=f"{setting.label}, {name}")
        for name, run in config.runs.items()
        for setting in settings_of(run)
    ]
