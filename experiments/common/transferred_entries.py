"""Entries: rules that are tuned at a base size. Their settings and runs at every size, and the losses of the runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lvp import roles
from lvp.experiments.common.checks import check_count, check_names
from lvp.experiments.common.decoder_runs import TunedRuns
from lvp.experiments.common.experiment import SettingRuns
from lvp.experiments.common.tables import (
    EMBEDDING_RATE,
    losses_by_seed_and_rate,
    run_columns,
    select,
    with_fields,
    with_optimizer,
)
from lvp.models.configs import forward_multipliers
from lvp.parametrization import Shape
from lvp.parametrization.rules import Rule
from lvp.parametrization.scaling import Scaling, scale
from lvp.training import OptimizerConfig, Run, Setting

LOSS = "valid_bits_per_byte"  # comparable between vocabularies
MULTIPLIERS = ("embedding_multiplier", "hidden_multiplier", "output_multiplier", "branch_multiplier", "normalize_rows")


class Entry(NamedTuple):
    """A rule of width and vocabulary with rules of the other axes. The weights do not decay."""

    rule: Rule  # as in `lvp.parametrization.table`
    axes: Mapping[str, str]  # as in `lvp.parametrization.scaling.scale`
    token_rows: str = "plain"  # of `lvp.parametrization.TOKEN_ROWS`
    optimizer: str = "adam"  # "muon": Muon trains the hidden matrices


# The first five differ in the rule of width and vocabulary only. An axis without a rule has the default of `scale`.
SQRT_BATCH = {"batch": "sqrt"}
ENTRIES: Mapping[str, Entry] = {
    "LVP": Entry("lvp", SQRT_BATCH),
    "SP": Entry("sp", SQRT_BATCH),
    "SP (embedding × d)": Entry("sp_embedding_width", SQRT_BATCH),
    "μP": Entry("mup", SQRT_BATCH),
    "interpolated": Entry("interpolated", SQRT_BATCH),
    "LVP (width only)": Entry("lvp", {"depth": "none", "batch": "none"}),
    "LVP (marin's horizon)": Entry("lvp", SQRT_BATCH | {"horizon": "marin"}),
    "u-μP": Entry("umup", {"depth": "depth_mup", "batch": "none"}),
    "CompleteP": Entry("completep", {"depth": "completep", "batch": "none", "epsilon": "completep"}),
    "Complete(d)P": Entry(
        "mup", {"depth": "completep", "batch": "sqrt", "horizon": "completed", "epsilon": "completed"}
    ),
    "nanochat": Entry("nanochat", {"depth": "none", "batch": "sqrt_rate"}, "normalized", "muon"),
}


@dataclass(frozen=True)
class TransferRuns(TunedRuns):
    """Runs of entries that are tuned at a base size."""

    width: int = 256  # d of the base
    vocab: int = 4096  # m of the base
    layers: int = 2  # of the base
    steps: int = 2000  # of the base

    def __post_init__(self):
        super().__post_init__()
        for name in ("width", "vocab", "layers", "steps"):
            check_count(self, name)

    @property
    def base(self) -> Shape:
        """The size at which every entry is tuned."""
        batch = self.batch * self.context
        return Shape(self.width, self.vocab, self.layers, batch, batch * self.steps)


def chosen_entries(names: Sequence[str], entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries with the given names.

    Raises:
      InputError: there is no name, a name is unknown, or a name occurs twice.
    """
    check_names("entries", names, entries)
    return {name: entries[name] for name in names}


def scaling_of(config: TransferRuns, entry: Entry, size: Shape) -> Scaling:
    """The settings of an entry at a size, from those tuned at the base."""
    return _scaling(config.base, size, entry.rule, tuple(entry.axes.items()), entry.token_rows)


@lru_cache  # every run of a sweep asks for the scaling of its entry and size
def _scaling(base: Shape, size: Shape, rule: Rule, axes: tuple[tuple[str, str], ...], token_rows: str) -> Scaling:
    return scale(base, size, rule, axes=dict(axes), token_rows=token_rows)


def setting_of(config: TransferRuns, entry: Entry, size: Shape) -> Setting:
    """The setting of an entry at a size: a decoder with rotary positions."""
    assert size.depth is not None and size.batch is not None and size.steps is not None
    scaling = scaling_of(config, entry, size)
    model = replace(
        config.model(size.width, size.vocab),
        layers=size.depth,
        positions="rotary",
        **forward_multipliers(scaling.table),
    )
    b1, b2 = scaling.betas(config.b1, config.b2)
    eps = {role: config.eps * scaling[role].epsilon for role in roles.ROLES}
    options = {"b1": b1, "b2": b2, "eps": eps if len(set(eps.values())) > 1 else eps["hidden"]}
    if entry.optimizer == "muon":
        options = {"adam_b1": b1, "adam_b2": b2, "eps": options["eps"]}
    return replace(
        config.setting(model, round(size.steps)),
        batch=size.batch // config.context,
        optimizer=OptimizerConfig(entry.optimizer, options),
    )


def run_of(config: TransferRuns, entry: Entry, size: Shape, constant: float, seed: int) -> Run:
    """The run of an entry at a size, for a constant: d times the hidden rate, both at the base width."""
    return Run.under(scaling_of(config, entry, size).table, constant / config.width, seed)


def labels_of_settings(
    config: TransferRuns, entries: Mapping[str, Entry], sizes: Mapping[str, Shape]
) -> dict[tuple[str, str], str]:
    """(size, entry) → label of the setting, by names. Entries with the same program at a size share a setting."""
    label_of = {}
    for size_name, size in sizes.items():
        settings = {name: setting_of(config, entry, size) for name, entry in entries.items()}
        first = {
            name: next(other for other in settings if settings[other] == setting) for name, setting in settings.items()
        }
        shared = len(set(first.values())) == 1
        for name in entries:
            label_of[size_name, name] = size_name if shared else f"{size_name}, {first[name]}"
    return label_of


def runs_by_label(
    label_of: Mapping[tuple[str, str], str], runs: Iterable[tuple[str, str, Run]]
) -> dict[str, list[Run]]:
    """Label → runs of every setting, for (size, entry, run). Runs that occur twice in a setting are planned once."""
    by_label: dict[str, dict[str, Run]] = {label: {} for label in label_of.values()}
    for size_name, name, run in runs:
        by_label[label_of[size_name, name]][repr(run)] = run
    return {label: list(own.values()) for label, own in by_label.items()}


def settings_of(
    config: TransferRuns,
    entries: Mapping[str, Entry],
    sizes: Mapping[str, Shape],
    label_of: Mapping[tuple[str, str], str],
    runs: Iterable[tuple[str, str, Run]],
) -> list[SettingRuns]:
    """The settings with the labels of `label_of`, and their runs.

    Args:
      label_of: as `labels_of_settings` returns it.
      runs: (size, entry, run), by names.
    """
    settings: dict[str, Setting] = {}
    for (size_name, name), label in label_of.items():
        settings.setdefault(label, setting_of(config, entries[name], sizes[size_name]))
    by_label = runs_by_label(label_of, runs)
    return [SettingRuns(label, setting, by_label[label]) for label, setting in settings.items()]


def rows_of(table, setting: Setting):
    """The rows of a setting."""
    size = {"setting.model.width": setting.model.width, "setting.model.vocab": setting.model.vocab}
    size |= {
        "setting.model.layers": setting.model.layers,
        "setting.batch": setting.batch,
        "setting.steps": setting.steps,
    }
    return with_fields(with_optimizer(select(table, size), setting), "setting.model", setting.model, MULTIPLIERS)


def losses_of(rows, example: Run, seeds: Sequence[int]) -> np.ndarray:
    """Validation losses [seeds] in bits per byte of the runs that differ from `example` in the seed only.

    NaN for a missing run, infinite for a diverged run.
    """
    columns = run_columns(example) | {"run.learning_rates.vector": example.learning_rates["vector"]}
    rate = columns.pop(EMBEDDING_RATE)
    return losses_by_seed_and_rate(select(rows, columns), [rate], seeds, LOSS, partial=True)[:, 0]
