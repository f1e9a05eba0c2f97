"""The configuration of `warmup_batch` at every tier, and its cells."""

from dataclasses import dataclass, fields

from experiments.common.checks import check_count, sorted_values
from experiments.common.experiment import CellLanes
from experiments.warmup import config as warmup

EQUAL = ("tokens", "steps")  # what a run has in common with the run of the base batch
# Field of rates → the power of the batch that rates follow. LionAR's angle is proportional to the root of its rate.
POWERS = {arm.rates_field: 1.0 if arm.kind == "lion_ar" else 0.5 for arm in warmup.ARMS.values()}


@dataclass(frozen=True)
class Config(warmup.Config):
    """Defaults are those of `warmup`. `batch`, `steps` and the rates are those of the base batch."""

    batches: tuple[int, ...] = (120, 480, 1920)  # sequences of a step
    warmups: tuple[float, ...] = (0.0, 0.05)
    arms: tuple[str, ...] = ("AdamW", "LionA", "LionAR")

    def __post_init__(self):
        super().__post_init__()
        check_count(self, "batch")
        sorted_values(self, "batches", least=2, positive=True)
        for equal in EQUAL:
            for batch in self.batches:
                self.at(equal, batch)

    def at(self, equal: str, batch: int) -> warmup.Config:
        """The configuration of `warmup` for one batch. Raises: InputError if it has too few steps for a warm-up."""
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


def _of(tier: str, **changes) -> Config:
    """A tier of `warmup` with 20 % of warm-up: 20 steps in the shortest run of the laptop tier."""
    base = {field.name: getattr(warmup.TIERS[tier], field.name) for field in fields(warmup.Config)}
    return Config(**(base | {"warmups": (0.0, 0.2), "reference": 0.2, "arms": ("AdamW", "LionA", "LionAR")} | changes))


TIERS = {
    "smoke": _of("smoke", steps=200, arms=("AdamW",), batches=(4, 8)),
    "laptop": _of("laptop", seeds=(0, 1, 2), batches=(32, 128, 512)),
    "gpu": _of("gpu", batches=(16, 64, 256)),
    "paper": Config(),
}


def cells(config: Config) -> list[CellLanes]:
    """The cells of `warmup` for every run."""
    return [
        cell._replace(label=f"{cell.label}, {name}") for name, run in config.runs.items() for cell in warmup.cells(run)
    ]
