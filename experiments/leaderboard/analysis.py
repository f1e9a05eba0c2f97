"""Reads the records of `leaderboard`: tuned constants and references, gaps at every size, and the summary."""

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import numpy as np

from experiments.common.tables import finished_by_seed, lane_columns, select, with_model, with_optimizer
from experiments.leaderboard.config import (
    BASE,
    REFERENCE,
    Config,
    Entry,
    cell_of,
    chosen_entries,
    labels,
    lane,
    reference_lane,
)
from lvp.analysis.measurement import Measurement
from lvp.parametrization import Shape
from lvp.training import Cell, Lane

LOSS = "valid_bits_per_byte"  # comparable between vocabularies
MULTIPLIERS = ("embedding_multiplier", "hidden_multiplier", "output_multiplier", "branch_multiplier", "normalize_rows")


class Reference(NamedTuple):
    """The best reference of a size."""

    constant: float  # hidden rate times d
    ratio: float  # embedding rate over LVP's
    at_edge: bool  # one of both is the first or last of its grid, so that a better reference may lie beyond


def rows_of(table, cell: Cell):
    """The rows of a cell."""
    size = {"cell.model.width": cell.model.width, "cell.model.vocab": cell.model.vocab}
    size |= {"cell.model.layers": cell.model.layers, "cell.batch": cell.batch, "cell.steps": cell.steps}
    return with_model(with_optimizer(select(table, size), cell), cell.model, MULTIPLIERS)


def _losses(rows, lane_: Lane, seeds) -> np.ndarray:
    """Validation losses [seeds] of a setting in bits per byte; NaN for a missing or diverged lane."""
    columns = lane_columns(lane_)
    return finished_by_seed(rows.filter(["lane.seed", "status", LOSS, *columns]), columns, seeds)[LOSS].to_numpy(float)


def tuned_constant(table, config: Config, entry: Entry) -> float | None:
    """The constant with the least mean loss of the selecting seeds at the base; None if no constant finished."""
    base = config.sizes[BASE]
    rows = rows_of(table, cell_of(config, entry, base))
    losses = [
        _losses(rows, lane(config, entry, base, constant, config.seeds[0]), config.selecting_seeds).mean()
        for constant in config.constants
    ]
    return config.constants[int(np.nanargmin(losses))] if np.isfinite(losses).any() else None


def tuned_reference(table, config: Config, size: Shape) -> Reference | None:
    """The reference with the least mean loss of the selecting seeds at a size; None if no reference finished."""
    rows = rows_of(table, cell_of(config, REFERENCE, size))
    settings = list(product(config.reference_constants, config.reference_ratios))
    losses = [
        _losses(rows, reference_lane(size, *setting, config.seeds[0]), config.selecting_seeds).mean()
        for setting in settings
    ]
    if not np.isfinite(losses).any():
        return None
    best = settings[int(np.nanargmin(losses))]
    grids = (config.reference_constants, config.reference_ratios)
    at_edge = any(len(grid) > 1 and x in (grid[0], grid[-1]) for x, grid in zip(best, grids, strict=True))
    return Reference(*best, at_edge)


def follow_up(table, config: Config, *, entries: Mapping[str, Entry]) -> dict[str, list[Lane]]:
    """The lanes of the judging seeds: every entry at every size with its tuned constant, and every tuned reference."""
    chosen = chosen_entries(config, entries)
    by_label: dict[str, list[Lane]] = {}
    constants = {name: tuned_constant(table, config, entry) for name, entry in chosen.items()}
    for (size_name, name), label in labels(config, chosen).items():
        size = config.sizes[size_name]
        if name == "reference":
            best = tuned_reference(table, config, size)
            lanes = [reference_lane(size, *best[:2], s) for s in config.judging_seeds] if best else []
        else:
            constant = constants[name]
            lanes = [lane(config, chosen[name], size, constant, s) for s in config.judging_seeds] if constant else []
        of_label = by_label.setdefault(label, [])
        of_label += [x for x in lanes if x not in of_label]
    return by_label


def gaps(table, config: Config, entries: Mapping[str, Entry]) -> dict[str, dict[str, np.ndarray]]:
    """Entry → size → its loss over that of the size's reference, less 1 [judging seeds].

    Losses are divided seed by seed. The gap is NaN without a reference and infinite for an entry that diverged.
    """
    chosen = chosen_entries(config, entries)
    by_entry: dict[str, dict[str, np.ndarray]] = {name: {} for name in chosen}
    constants = {name: tuned_constant(table, config, entry) for name, entry in chosen.items()}
    for size_name, size in config.sizes.items():
        best, rows = tuned_reference(table, config, size), rows_of(table, cell_of(config, REFERENCE, size))
        if best is None:
            of_reference = np.full(len(config.judging_seeds), np.nan)
        else:
            example = reference_lane(size, *best[:2], config.seeds[0])
            of_reference = _losses(rows, example, config.judging_seeds)
        for name, entry in chosen.items():
            constant = constants[name]
            losses = np.full(len(config.judging_seeds), np.nan)
            if constant is not None:
                rows = rows_of(table, cell_of(config, entry, size))
                losses = _losses(rows, lane(config, entry, size, constant, config.seeds[0]), config.judging_seeds)
            by_entry[name][size_name] = losses / of_reference - 1
    return by_entry


def over_sizes(gaps_of_entry: Mapping[str, np.ndarray]) -> dict[str, Measurement]:
    """The mean and the largest gap over the held-out sizes, each with a 95 % t interval over the judging seeds."""
    held_out = np.array([by_seed for size, by_seed in gaps_of_entry.items() if size != BASE])
    return {
        name: Measurement.over_seeds(over(held_out, axis=0), centre=float(over(held_out.mean(axis=1))))
        for name, over in (("mean", np.mean), ("worst", np.max))
    }


def summary(table, config: Config, *, entries: Mapping[str, Entry]) -> str:
    """The gaps of every entry at every size, and the references."""
    sizes, by_entry = list(config.sizes), gaps(table, config, entries)
    columns = "".join(f"{size:>13}" for size in sizes)
    lines = ["validation loss above the reference tuned at each size, in %; 95 % intervals over the judging seeds"]
    lines.append(f"{'entry':<20} {'constant':>9}{columns} {'mean':>20} {'worst':>20}")
    for name, by_size in by_entry.items():
        constant = tuned_constant(table, config, entries[name])
        edge = "*" if constant in (config.constants[0], config.constants[-1]) else " "
        shown = f"{constant or np.nan:.4g}{edge}".replace("nan", "–")
        cells = "".join(f"{100 * by_size[size].mean():>13.1f}".replace("nan", "  –") for size in sizes)
        both = " ".join(f"{of_all.percent():>20}" for of_all in over_sizes(by_size).values())
        lines.append(f"{name:<20} {shown:>9}{cells} {both}")
    lines += ["constant: hidden rate times d, tuned at the base (*: at the edge of its grid)", ""]
    lines.append("references: hidden rate times d, and embedding rate over LVP's (*: at the edge of a grid)")
    for size_name, size in config.sizes.items():
        best = tuned_reference(table, config, size)
        text = "–" if best is None else f"{best.constant:g}, {best.ratio:g}{'*' if best.at_edge else ''}"
        lines.append(f"{size_name:<13} {text}")
    return "\n".join(lines)
