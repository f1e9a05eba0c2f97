"""The configuration of `leaderboard` at every tier, its entries, and its cells."""

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from experiments.common.checks import check_count, check_names, sorted_values
from experiments.common.decoder_runs import TunedRuns, geometric
from experiments.common.experiment import CellLanes
from lvp import roles
from lvp.models.configs import forward_multipliers
from lvp.parametrization import Shape, Table
from lvp.parametrization.rules import Rule
from lvp.parametrization.scaling import Scaling, scale
from lvp.training import Cell, Lane, OptimizerConfig


class Entry(NamedTuple):
    """A rule of width and vocabulary with rules of the other axes. The weights do not decay."""

    rule: Rule  # as in `lvp.parametrization.table`
    axes: Mapping[str, str]  # as in `lvp.parametrization.scaling.scale`
    token_rows: str = "plain"  # of `lvp.parametrization.TOKEN_ROWS`
    optimizer: str = "adam"  # "muon": Muon trains the hidden matrices


# The first five differ in the rule of width and vocabulary only. An axis without a rule has the default of `scale`.
ENTRIES: Mapping[str, Entry] = {
    "LVP": Entry("lvp", {}),
    "SP": Entry("sp", {}),
    "SP (embedding × d)": Entry("sp_embedding_width", {}),
    "μP": Entry("mup", {}),
    "interpolated": Entry("interpolated", {}),
    "LVP (width only)": Entry("lvp", {"depth": "none", "batch": "none"}),
    "LVP (marin's horizon)": Entry("lvp", {"horizon": "marin"}),
    "u-μP": Entry("umup", {"depth": "depth_mup", "batch": "none"}),
    "CompleteP": Entry("completep", {"depth": "completep", "batch": "none", "epsilon": "completep"}),
    "Complete(d)P": Entry(
        "mup", {"depth": "completep", "batch": "sqrt", "horizon": "completed", "epsilon": "completed"}
    ),
    "nanochat": Entry("nanochat", {"depth": "none", "batch": "sqrt_rate"}, "normalized", "muon"),
}
RECOMMENDED = "LVP"
REFERENCES = ("LVP", "LVP (width only)")  # the references train in the cells of these entries
BASE = "base"


@dataclass(frozen=True)
class Config(TunedRuns):
    """Defaults are the paper tier. Sizes and grids are ours."""

    width: int = 256  # d of the base
    vocab: int = 4096  # m of the base
    layers: int = 2  # of the base
    steps: int = 2000  # of the base
    factor: int = 8  # by which a held-out size moves its axis
    entries: tuple[str, ...] = tuple(ENTRIES)  # names of entries
    constants: tuple[float, ...] = geometric(0.0125, 1.6, 8)  # hidden rate times d at the base, tuned for every entry
    reference_constants: tuple[float, ...] = geometric(0.05, 0.8, 5)  # hidden rate times d of the references
    reference_ratios: tuple[float, ...] = (0.25, 1.0, 4.0, 16.0)  # embedding rate of the references, over LVP's
    tolerance: float = 0.02  # largest relative gap of `RECOMMENDED` that the claim allows

    def __post_init__(self):
        super().__post_init__()
        for name in ("width", "vocab", "layers", "steps"):
            check_count(self, name)
        check_count(self, "factor", least=2)
        for name in ("constants", "reference_constants", "reference_ratios"):
            sorted_values(self, name, positive=True)

    @property
    def sizes(self) -> dict[str, Shape]:
        """Name → size: the base, and one held-out size per axis."""
        batch = self.batch * self.context
        base = Shape(self.width, self.vocab, self.layers, batch, batch * self.steps)
        moved = {
            f"{name} × {self.factor}": replace(base, **{name: getattr(base, name) * self.factor}) for name in vars(base)
        }
        return {BASE: base, **moved}


TIERS = {
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
        context=64,
        batch=8,
        width=32,
        vocab=256,
        steps=500,
    ),
    "gpu": Config(slice_bytes=50_000_000, valid_bytes=1_000_000, width=128, vocab=1024, steps=1000),
    "paper": Config(),
}


def scaling_of(config: Config, entry: Entry, size: Shape) -> Scaling:
    """The settings of an entry at a size, from those tuned at the base."""
    return scale(config.sizes[BASE], size, entry.rule, axes=entry.axes, token_rows=entry.token_rows)


def cell_of(config: Config, entry: Entry, size: Shape) -> Cell:
    """The cell of an entry at a size: a decoder with rotary positions."""
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
        config.cell(model, round(size.steps)),
        batch=size.batch // config.context,
        optimizer=OptimizerConfig(entry.optimizer, options),
    )


def lane(config: Config, entry: Entry, size: Shape, constant: float, seed: int) -> Lane:
    """The lane of an entry at a size, for a constant (hidden rate times d) at the base."""
    return Lane.under(scaling_of(config, entry, size).table, constant / config.width, seed)


class Reference(NamedTuple):
    """A setting that is tuned at the size itself: LVP's init, with its own hidden rate and embedding rate."""

    entry: str  # of `REFERENCES`: gives depth, β and ε
    constant: float  # hidden rate times d
    ratio: float  # embedding rate over LVP's

    def lane(self, size: Shape, seed: int) -> Lane:
        """The lane of the reference at a size."""
        rate, lvp = self.constant / size.width, _lvp_table(size)
        rates = {"embedding": rate * self.ratio * lvp["embedding"].lr_multiplier}
        return Lane.under(lvp, rate, seed, rates=rates)


@functools.cache
def _lvp_table(size: Shape) -> Table:
    return scale(size, size, "lvp").table


def references(config: Config) -> list[Reference]:
    """The references of a size: every hidden rate with every embedding rate, in the cells of both entries."""
    grid = product(REFERENCES, config.reference_constants, config.reference_ratios)
    return [Reference(*setting) for setting in grid]


def chosen_entries(config: Config, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The configured entries by name. Raises InputError for an unknown name."""
    check_names("entries", config.entries, entries)
    return {name: entries[name] for name in config.entries}


def labels(config: Config, entries: Mapping[str, Entry]) -> dict[tuple[str, str], str]:
    """(size, entry) → label of the cell, by names. Entries with the same program share a cell."""
    trained = {name: ENTRIES[name] for name in REFERENCES} | dict(entries)
    by_size: dict[str, list[tuple[Cell, str]]] = {name: [] for name in config.sizes}
    label_of = {}
    for size_name, (name, entry) in product(config.sizes, trained.items()):
        cell, known = cell_of(config, entry, config.sizes[size_name]), by_size[size_name]
        same = [label for other, label in known if other == cell]
        if not same:
            known.append((cell, f"{size_name}, {name}"))
        label_of[size_name, name] = same[0] if same else f"{size_name}, {name}"
    return label_of


def planned_lanes(
    config: Config, entries: Mapping[str, Entry], lanes: Iterable[tuple[str, str, Lane]]
) -> dict[str, list[Lane]]:
    """Label → lanes of every cell, for (size, entry, lane). Lanes that occur twice in a cell are planned once."""
    label_of = labels(config, entries)
    by_label: dict[str, dict[str, Lane]] = {label: {} for label in label_of.values()}
    for size_name, name, each in lanes:
        by_label[label_of[size_name, name]][repr(each)] = each
    return {label: list(own.values()) for label, own in by_label.items()}


def tuning_lanes(config: Config, entries: Mapping[str, Entry]) -> Iterator[tuple[str, str, Lane]]:
    """(size, entry, lane), by names, of the lanes that tune: entries at the base, references at all sizes."""
    base = config.sizes[BASE]
    for (name, entry), constant, seed in product(entries.items(), config.constants, config.selecting_seeds):
        yield BASE, name, lane(config, entry, base, constant, seed)
    for (name, size), reference, seed in product(config.sizes.items(), references(config), config.selecting_seeds):
        yield name, reference.entry, reference.lane(size, seed)


def cells(config: Config, entries: Mapping[str, Entry] = ENTRIES) -> list[CellLanes]:
    """The cells of all sizes with the lanes that tune. `follow_up` adds the first lanes of the other cells."""
    chosen = chosen_entries(config, entries)
    cell_by_label: dict[str, Cell] = {}
    for (size_name, name), label in labels(config, chosen).items():
        cell_by_label.setdefault(label, cell_of(config, chosen.get(name) or ENTRIES[name], config.sizes[size_name]))
    lanes = planned_lanes(config, chosen, tuning_lanes(config, chosen))
    return [CellLanes(label, cell, lanes[label]) for label, cell in cell_by_label.items()]
