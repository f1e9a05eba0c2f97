"""The configuration of `leaderboard` at every preset, its entries, and its settings."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from lvp.experiments.common.checks import check_count, sorted_values
from lvp.experiments.common.decoder_runs import geometric
from lvp.experiments.common.experiment import SettingRuns
from lvp.experiments.common.transferred_entries import (
    ENTRIES,
    Entry,
    TransferRuns,
    chosen_entries,
    labels_of_settings,
    run_of,
    settings_of,
)
from lvp.parametrization import Shape, Table
from lvp.parametrization.scaling import scale
from lvp.training import Run

RECOMMENDED = "LVP"
REFERENCES = ("LVP", "LVP (width only)")  # the references train in the settings of these entries
BASE = "base"


@dataclass(frozen=True)
class Config(TransferRuns):
    """Defaults are the paper preset. Sizes and grids are ours."""

    factor: int = 8  # by which a held-out size moves its axis
    entries: tuple[str, ...] = tuple(ENTRIES)  # names of entries
    constants: tuple[float, ...] = geometric(0.0125, 1.6, 8)  # as in `run_of`, tuned for every entry
    reference_constants: tuple[float, ...] = geometric(0.05, 0.8, 5)  # hidden rate times d of the references
    reference_ratios: tuple[float, ...] = (0.25, 1.0, 4.0, 16.0, 64.0)  # embedding rate of the references, over LVP's
    tolerance: float = 0.02  # largest relative gap of `RECOMMENDED` that the claim allows

    def __post_init__(self):
        super().__post_init__()
        check_count(self, "factor", least=2)
        for name in ("constants", "reference_constants", "reference_ratios"):
            sorted_values(self, name, positive=True)

    @property
    def sizes(self) -> dict[str, Shape]:
        """Name → size: the base, and one held-out size per axis."""
        moved = {
            f"{name} × {self.factor}": replace(self.base, **{name: value * self.factor})
            for name, value in vars(self.base).items()
        }
        return {BASE: self.base, **moved}


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
        vocab=256,
        steps=20,
        factor=2,
        entries=(RECOMMENDED, "μP"),
        constants=(0.1, 0.4),
        reference_constants=(0.1, 0.4),
        reference_ratios=(1.0,),
    ),
    # Every training has fewer tokens than the text, so that the validation loss measures generalization.
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=4_000_000,
        valid_bytes=100_000,
        seeds=tuple(range(10)),  # two tune and eight judge
        context=64,
        batch=8,
        width=32,
        vocab=256,
        steps=500,
    ),
    "gpu": Config(slice_bytes=50_000_000, valid_bytes=1_000_000, width=128, vocab=1024, steps=1000),
    "paper": Config(),
}


class Reference(NamedTuple):
    """A setting that is tuned at the size itself: LVP's init, with its own hidden rate and embedding rate."""

    entry: str  # of `REFERENCES`: gives depth, β and ε
    constant: float  # hidden rate times d
    ratio: float  # embedding rate over LVP's

    def run(self, size: Shape, seed: int) -> Run:
        """The run of the reference at a size."""
        rate, lvp = self.constant / size.width, _lvp_table(size)
        rates = {"embedding": rate * self.ratio * lvp["embedding"].lr_multiplier}
        return Run.under(lvp, rate, seed, rates=rates)


@functools.cache
def _lvp_table(size: Shape) -> Table:
    return scale(size, size, "lvp").table


def references(config: Config) -> list[Reference]:
    """The references of a size: every hidden rate with every embedding rate, in the settings of both entries."""
    grid = product(REFERENCES, config.reference_constants, config.reference_ratios)
    return [Reference(*setting) for setting in grid]


def labels(config: Config, entries: Mapping[str, Entry]) -> dict[tuple[str, str], str]:
    """(size, entry) → label of the setting, by names, for the given entries and those of the references."""
    trained = {name: ENTRIES[name] for name in REFERENCES} | dict(entries)
    return labels_of_settings(config, trained, config.sizes)


def tuning_runs(config: Config, entries: Mapping[str, Entry]) -> Iterator[tuple[str, str, Run]]:
    """(size, entry, run), by names, of the runs that tune: entries at the base, references at all sizes."""
    base = config.sizes[BASE]
    for (name, entry), constant, seed in product(entries.items(), config.constants, config.selecting_seeds):
        yield BASE, name, run_of(config, entry, base, constant, seed)
    for (name, size), reference, seed in product(config.sizes.items(), references(config), config.selecting_seeds):
        yield name, reference.entry, reference.run(size, seed)


def settings(config: Config, entries: Mapping[str, Entry] = ENTRIES) -> list[SettingRuns]:
    """The settings of all sizes with the runs that tune. `follow_up` adds the first runs of the other settings."""
    chosen = chosen_entries(config.entries, entries)
    runs = tuning_runs(config, chosen)
    return settings_of(config, {**ENTRIES, **chosen}, config.sizes, labels(config, chosen), runs)
