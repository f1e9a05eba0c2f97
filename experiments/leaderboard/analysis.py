"""Reads the records of `leaderboard`: tuned constants and references, gaps at every size, summary and evidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lvp.analysis import tuned
from lvp.analysis.measurement import Measurement
from lvp.experiments.common.transferred_entries import (
    ENTRIES,
    Entry,
    chosen_entries,
    losses_of,
    rows_of,
    run_of,
    runs_by_label,
    setting_of,
)
from lvp.experiments.leaderboard.config import BASE, Config, Reference, labels, references
from lvp.training import Run


@dataclass(frozen=True)
class TunedReference:
    """The best reference of a size."""

    reference: Reference
    at_edge: bool  # constant or ratio is the first or last of its grid, so that a better reference may lie beyond
    losses: np.ndarray  # [judging seeds], bits per byte
    regret: float  # by how much another reference may be better, relative to the loss


@dataclass(frozen=True)
class TunedEntry:
    """An entry at the constant that is best at the base."""

    constant: float  # hidden rate times d at the base
    at_edge: bool  # the constant is the first or last of its grid
    regret: float  # at the base: by how much another constant may be better, relative to the loss
    gaps: Mapping[str, np.ndarray]  # size → gap [judging seeds]: nan if a run is missing, infinite if it diverged


@dataclass(frozen=True)
class Reading:
    """The results of a sweep. A reference or an entry is missing if no setting finished with all selecting seeds."""

    references: Mapping[str, TunedReference]  # by size
    entries: Mapping[str, TunedEntry]  # by name

    def mean_gaps(self, name: str, without: str | None = None) -> np.ndarray:
        """The mean gap of an entry over the held-out sizes, or over all but one of them [judging seeds]."""
        held_out = self.entries[name].gaps.items()
        return np.mean([gaps for size, gaps in held_out if size not in (BASE, without)], axis=0)

    def diverged(self, name: str) -> bool:
        """True if a run of an entry diverged at a held-out size."""
        return any(np.isinf(gaps).any() for size, gaps in self.entries[name].gaps.items() if size != BASE)

    def mean(self, name: str) -> Measurement:
        """The mean gap of an entry over the held-out sizes, with an interval that allows for the tuning."""
        regrets = self._held_out_regrets
        return Measurement.over_seeds(self.mean_gaps(name)).widened(self.entries[name].regret, float(np.mean(regrets)))

    def worst(self, name: str) -> Measurement:
        """The largest gap of an entry over the held-out sizes, with an interval that allows for the tuning."""
        gaps = np.array([gaps for size, gaps in self.entries[name].gaps.items() if size != BASE])
        measured = Measurement.over_seeds(gaps.max(axis=0), centre=float(gaps.mean(axis=1).max()))
        return measured.widened(self.entries[name].regret, max(self._held_out_regrets))

    @property
    def _held_out_regrets(self) -> list[float]:
        """The regrets of the references at the held-out sizes; NaN if no reference is known."""
        return [best.regret for size, best in self.references.items() if size != BASE] or [np.nan]


def read(table, config: Config, entries: Mapping[str, Entry]) -> Reading:
    """The tuned references, the tuned entries and their gaps."""
    best = {name: _tuned_reference(table, config, name) for name in config.sizes}
    known = {name: each for name, each in best.items() if each is not None}
    by_name = {name: _tuned_entry(table, config, entry, known) for name, entry in entries.items()}
    return Reading(known, {name: each for name, each in by_name.items() if each is not None})


def _tuned_reference(table, config: Config, size_name: str) -> TunedReference | None:
    size, every = config.sizes[size_name], references(config)
    programs = {name: setting_of(config, ENTRIES[name], size) for name in {x.entry for x in every}}
    # Some entries differ at other sizes only. A twin of the best reference is not another one.
    distinct = {(repr(programs[x.entry]), repr(x.run(size, config.seeds[0]))): x for x in reversed(every)}
    settings = list(reversed(distinct.values()))
    rows = {name: rows_of(table, program) for name, program in programs.items()}

    def losses(setting: Reference, seeds) -> np.ndarray:
        return losses_of(rows[setting.entry], setting.run(size, config.seeds[0]), seeds)

    selected = tuned.select(np.array([losses(x, config.selecting_seeds) for x in settings]))
    if selected is None:
        return None
    best = settings[selected.best]
    of_judges = losses(best, config.judging_seeds)
    regret = selected.regret / float(np.mean(of_judges))
    grids = ((best.constant, config.reference_constants), (best.ratio, config.reference_ratios))
    at_edge = any(len(grid) > 1 and value in (grid[0], grid[-1]) for value, grid in grids)
    return TunedReference(best, at_edge, of_judges, regret)


def _tuned_entry(table, config: Config, entry: Entry, best: Mapping[str, TunedReference]) -> TunedEntry | None:
    rows = {name: rows_of(table, setting_of(config, entry, size)) for name, size in config.sizes.items()}

    def losses(name: str, constant: float, seeds) -> np.ndarray:
        return losses_of(rows[name], run_of(config, entry, config.sizes[name], constant, config.seeds[0]), seeds)

    selected = tuned.select(np.array([losses(BASE, x, config.selecting_seeds) for x in config.constants]))
    if selected is None:
        return None
    constant = config.constants[selected.best]
    at_base = losses(BASE, constant, config.judging_seeds)
    regret = selected.regret / float(np.mean(at_base))
    missing = np.full(len(config.judging_seeds), np.nan)
    references = {name: best[name].losses if name in best else missing for name in config.sizes}
    gaps = {
        name: losses(name, constant, config.judging_seeds) / np.where(np.isfinite(reference), reference, np.nan) - 1
        for name, reference in references.items()
    }
    return TunedEntry(constant, selected.at_edge, regret, gaps)


def follow_up(table, config: Config, *, entries: Mapping[str, Entry]) -> dict[str, list[Run]]:
    """The runs of the judging seeds: every entry at every size with its tuned constant, and every tuned reference."""
    chosen = chosen_entries(config.entries, entries)
    reading = read(table, config, chosen)
    runs = []
    for name, size in config.sizes.items():
        for seed in config.judging_seeds:
            if name in reading.references:
                best = reading.references[name].reference
                runs.append((name, best.entry, best.run(size, seed)))
            for entry, each in reading.entries.items():
                runs.append((name, entry, run_of(config, chosen[entry], size, each.constant, seed)))
    return runs_by_label(labels(config, chosen), runs)


def summary(table, config: Config, *, entries: Mapping[str, Entry]) -> str:
    """The gaps of every entry at every size, and the references."""
    reading = read(table, config, chosen_entries(config.entries, entries))
    columns = "".join(f"{size:>13}" for size in config.sizes)
    lines = ["validation loss above the reference tuned at each size, in %; 95 % intervals that allow for the tuning"]
    lines.append(f"{'entry':<22} {'constant':>9}{columns} {'mean':>22} {'largest':>22}")
    for name in config.entries:
        each = reading.entries.get(name)
        if each is None:
            lines.append(f"{name:<22} no constant finished with all selecting seeds")
            continue
        shown = f"{each.constant:.4g}{'*' if each.at_edge else ' '}"
        settings = "".join(f"{100 * each.gaps[size].mean():>z13.1f}".replace("nan", "  –") for size in config.sizes)
        both = " ".join(f"{over.percent():>22}" for over in (reading.mean(name), reading.worst(name)))
        lines.append(f"{name:<22} {shown:>9}{settings} {both}")
    lines += ["constant: hidden rate times d, tuned at the base (*: at the edge of its grid)", ""]
    lines.append("references: hidden rate times d, embedding rate over LVP's, setting (*: at the edge of a grid)")
    for size_name, best in reading.references.items():
        entry, constant, ratio = best.reference
        lines.append(f"{size_name:<13} {constant:g}, {ratio:g}, {entry}{' *' if best.at_edge else ''}")
    return "\n".join(lines)


def evidence(table, config: Config, *, entries: Mapping[str, Entry]) -> dict[str, Any]:
    """The gaps as data: see `lvp.parametrization.evidence.transfer`."""
    chosen = chosen_entries(config.entries, entries)
    reading, shapes = read(table, config, chosen), list(config.sizes.values())
    by_axis = {axis: [getattr(shape, axis) for shape in shapes] for axis in vars(shapes[0])}
    by_name = {}
    for name, each in reading.entries.items():
        row: dict[str, Any] = {"rule": chosen[name].rule, "constant": each.constant, "constant_at_edge": each.at_edge}
        gaps = {size: _rounded(float(of_size.mean())) for size, of_size in each.gaps.items()}
        row |= {"base_gap": gaps.pop(BASE), "gaps": gaps}
        for which, measured in (("mean", reading.mean(name)), ("worst", reading.worst(name))):
            row[f"{which}_gap"] = _rounded(measured.value)
            row[f"{which}_gap_interval"] = measured.interval and [_rounded(end) for end in measured.interval]
        by_name[name] = row
    return {
        "seeds": len(config.judging_seeds),
        "measured": {axis: [min(values), max(values)] for axis, values in by_axis.items()},
        "references_at_edge": [size for size, best in reading.references.items() if best.at_edge],
        "entries": by_name,
    }


def _rounded(value: float) -> float | None:
    """A number to 6 decimals; None for nan and inf, which JSON does not have."""
    return round(value, 6) if np.isfinite(value) else None
