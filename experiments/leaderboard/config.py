"""The configuration of `leaderboard` at every tier, its entries, and its cells."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from experiments.common.checks import check_count, check_names, check_seeds, sorted_values
from experiments.common.decoder_runs import DecoderRuns, geometric
from experiments.common.experiment import CellLanes
from lvp import roles
from lvp.models.configs import forward_multipliers
from lvp.parametrization import Shape
from lvp.parametrization.rules import PAPER_RULES, Rule
from lvp.parametrization.scaling import Scaling, scale
from lvp.training import Cell, Lane, OptimizerConfig


class Entry(NamedTuple):
    """A rule of width and vocabulary with rules of the other axes."""

    rule: Rule  # as in `lvp.parametrization.table`
    axes: Mapping[str, str]  # as in `lvp.parametrization.scaling.scale`; the weights do not decay

    @property
    def muon(self) -> bool:
        """True if Muon trains the hidden matrices."""
        return isinstance(self.rule, str) and PAPER_RULES[self.rule].muon


_WIDTH_ONLY = {"depth": "none", "batch": "none"}
ENTRIES: Mapping[str, Entry] = {
    "SP": Entry("sp", _WIDTH_ONLY),
    "SP (embedding × d)": Entry("sp_embedding_width", _WIDTH_ONLY),
    "μP": Entry("mup", _WIDTH_ONLY),
    "u-μP": Entry("umup", {"depth": "depth_mup", "batch": "none"}),
    "CompleteP": Entry("completep", {"depth": "completep", "batch": "none", "epsilon": "completep"}),
    "Complete(d)P": Entry(
        "mup", {"depth": "completep", "batch": "sqrt", "horizon": "completed", "epsilon": "completed"}
    ),
    "interpolated": Entry("interpolated", _WIDTH_ONLY),
    "LVP": Entry("lvp", _WIDTH_ONLY),
    "LVP on all axes": Entry("lvp", {"depth": "completep", "batch": "sqrt", "horizon": "marin"}),
    "nanochat": Entry("nanochat", {"depth": "none", "batch": "sqrt_rate"}),
}
RECOMMENDED = "LVP on all axes"
REFERENCE = ENTRIES["LVP"]  # its cells also train the references, since none of its multipliers differs from 1
BASE = "base"


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are the paper tier. Sizes and grids are ours."""

    width: int = 256  # d of the base
    vocab: int = 4096  # m of the base
    layers: int = 2  # of the base
    steps: int = 2000  # of the base
    factor: int = 8  # by which a held-out size moves its axis
    entries: tuple[str, ...] = tuple(ENTRIES)  # names of entries
    constants: tuple[float, ...] = geometric(0.0125, 1.6, 8)  # hidden rate times d at the base, tuned by every entry
    reference_constants: tuple[float, ...] = geometric(0.05, 0.8, 5)  # hidden rate times d of the references
    reference_ratios: tuple[float, ...] = (0.25, 1.0, 4.0)  # embedding rate of the references, over LVP's
    selecting: int = 2  # the first seeds, which tune; the others judge
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    tolerance: float = 0.02  # largest gap of a recommended entry

    def __post_init__(self):
        super().__post_init__()
        for name in ("width", "vocab", "layers", "steps", "selecting"):
            check_count(self, name)
        check_count(self, "factor", least=2)
        check_seeds(self, "seeds", least=self.selecting + 1)
        for name in ("constants", "reference_constants", "reference_ratios"):
            sorted_values(self, name, positive=True)

    @property
    def selecting_seeds(self) -> tuple[int, ...]:
        """The seeds that tune every entry and every reference."""
        return self.seeds[: self.selecting]

    @property
    def judging_seeds(self) -> tuple[int, ...]:
        """The seeds that tune nothing."""
        return self.seeds[self.selecting :]

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
        entries=("μP", RECOMMENDED),
        constants=(0.1, 0.4),
        reference_constants=(0.1, 0.4),
        reference_ratios=(1.0,),
    ),
    # Most sizes read the text less than once, so that the validation loss measures what was learned.
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
    return scale(
        config.sizes[BASE], size, entry.rule, axes=entry.axes, token_rows="normalized" if entry.muon else "plain"
    )


def cell_of(config: Config, entry: Entry, size: Shape) -> Cell:
    """The cell of an entry at a size: a decoder with rotary positions."""
    assert size.depth is not None and size.batch is not None and size.steps is not None
    scaling = scaling_of(config, entry, size)
    model = replace(
        config.model(size.width, size.vocab),
        layers=size.depth,
        positions="rotary",
        position_amplitude=1.0,
        **forward_multipliers(scaling.table),
    )
    b1, b2 = scaling.betas(config.b1, config.b2)
    eps = {role: config.eps * scaling[role].epsilon for role in roles.ROLES}
    options = {"b1": b1, "b2": b2, "eps": eps if len(set(eps.values())) > 1 else eps["hidden"]}
    if entry.muon:
        options = {"adam_b1": b1, "adam_b2": b2, "eps": options["eps"]}
    return replace(
        config.cell(model, round(size.steps)),
        batch=size.batch // config.context,
        optimizer=OptimizerConfig("muon" if entry.muon else "adam", options),
    )


def lane(config: Config, entry: Entry, size: Shape, constant: float, seed: int) -> Lane:
    """The lane of an entry at a size, for the constant tuned at the base."""
    return Lane.under(scaling_of(config, entry, size).table, constant / config.width, seed)


def reference_lane(size: Shape, constant: float, ratio: float, seed: int) -> Lane:
    """The lane of a reference: LVP's init, with its own hidden rate and embedding rate at this size."""
    rate = constant / size.width
    rates = {"embedding": rate * ratio * math.sqrt(size.width)}
    return Lane.under(scale(size, size, "lvp", axes=REFERENCE.axes).table, rate, seed, rates=rates)


def chosen_entries(config: Config, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The configured entries by name. Raises InputError for an unknown name."""
    check_names("entries", config.entries, entries)
    return {name: entries[name] for name in config.entries}


def labels(config: Config, entries: Mapping[str, Entry]) -> dict[tuple[str, str], str]:
    """(name of a size, name of an entry) → label of the cell. Entries with the same program share a cell."""
    by_cell: dict[str, list[tuple[Cell, str]]] = {}
    label_of = {}
    for size, (name, entry) in product(config.sizes, [("reference", REFERENCE), *entries.items()]):
        cell, known = cell_of(config, entry, config.sizes[size]), by_cell.setdefault(size, [])
        if all(cell != other for other, _ in known):
            known.append((cell, f"{size}, {name}"))
        label_of[size, name] = next(label for other, label in known if other == cell)
    return label_of


def cells(config: Config, entries: Mapping[str, Entry] = ENTRIES) -> list[CellLanes]:
    """The cells of all sizes. They hold the lanes that tune: entries at the base, references at every size."""
    chosen = chosen_entries(config, entries)
    planned: dict[str, CellLanes] = {}
    for (size_name, name), label in labels(config, chosen).items():
        size, entry = config.sizes[size_name], chosen.get(name, REFERENCE)
        if name == "reference":
            grid = product(config.reference_constants, config.reference_ratios, config.selecting_seeds)
            lanes = [reference_lane(size, *setting) for setting in grid]
        elif size_name == BASE:
            tuned = product(config.constants, config.selecting_seeds)
            lanes = [lane(config, entry, size, *setting) for setting in tuned]
        else:
            lanes = []
        before = planned.setdefault(label, CellLanes(label, cell_of(config, entry, size), []))
        planned[label] = before._replace(lanes=[*before.lanes, *(x for x in lanes if x not in before.lanes)])
    return list(planned.values())
