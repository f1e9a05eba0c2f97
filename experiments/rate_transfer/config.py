"""The configuration of `rate_transfer` at every preset, and its settings."""

from dataclasses import dataclass, replace
from itertools import product

from lvp.errors import InputError
from lvp.experiments.common.checks import sorted_values
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
from lvp.parametrization import Shape


@dataclass(frozen=True)
class Config(TransferRuns):
    """Defaults are the paper preset. Sizes and grids are ours."""

    widths: tuple[int, ...] = (256, 512, 1024, 2048)  # the first is the base
    entries: tuple[str, ...] = ("LVP", "SP", "SP (embedding × d)", "μP")  # names of `ENTRIES`
    constants: tuple[float, ...] = geometric(0.00625, 1.6, 9)  # d times the hidden rate, both at the base width

    def __post_init__(self):
        super().__post_init__()
        sorted_values(self, "widths", least=2, positive=True)
        sorted_values(self, "constants", least=3, positive=True)
        if self.widths[0] != self.width:
            raise InputError(f"widths must begin with the base width {self.width}, got {self.widths}")

    @property
    def chosen(self) -> dict[str, Entry]:
        """The configured entries by name."""
        return chosen_entries(self.entries, ENTRIES)

    @property
    def sizes(self) -> dict[str, Shape]:
        """Name → size: the base, and the base with every other width."""
        return {f"d {width}": replace(self.base, width=width) for width in self.widths}


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
        widths=(16, 32),
        vocab=256,
        steps=20,
        entries=("SP", "μP"),
        constants=(0.1, 0.2, 0.4),
    ),
    # A training has fewer tokens than the text, so that the validation loss measures generalization.
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=4_000_000,
        valid_bytes=100_000,
        seeds=tuple(range(11)),
        selecting=3,  # these seeds also give the powers, and a claim needs three; the other eight judge
        context=64,
        batch=8,
        width=32,
        widths=(32, 64, 128, 256),
        vocab=256,
        steps=500,
    ),
    "gpu": Config(
        slice_bytes=50_000_000, valid_bytes=1_000_000, width=128, widths=(128, 256, 512, 1024), vocab=1024, steps=1000
    ),
    "paper": Config(),
}


def labels(config: Config) -> dict[tuple[str, str], str]:
    """(size, entry) → label of the setting, by names."""
    return labels_of_settings(config, config.chosen, config.sizes)


def settings(config: Config) -> list[SettingRuns]:
    """The settings of all entries and widths, with the runs of the selecting seeds at every constant."""
    runs = (
        (size_name, name, run_of(config, entry, size, constant, seed))
        for (size_name, size), (name, entry), constant, seed in product(
            config.sizes.items(), config.chosen.items(), config.constants, config.selecting_seeds
        )
    )
    return settings_of(config, config.chosen, config.sizes, labels(config), runs)
