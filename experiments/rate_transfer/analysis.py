"""Reads the records of `rate_transfer`: tuned constants by entry and width, the transfer metrics, and the summary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from lvp import analysis
from lvp.analysis import Optimum, Slope
from lvp.analysis.measurement import Measurement
from lvp.analysis.power_laws import in_words
from lvp.analysis.tuned import Selected, Tuned, difference, select
from lvp.experiments.common.optimum_text import OPTIMUM_HEADER, optimum_row
from lvp.experiments.common.transferred_entries import losses_of, rows_of, run_of, runs_by_label, setting_of
from lvp.experiments.rate_transfer.config import Config, labels
from lvp.training import Run


@dataclass(frozen=True)
class TunedWidth:
    """An entry at a width: its best constant and the losses of the judging seeds, in bits per byte."""

    optimum: Optimum  # of the constant, from all selecting seeds
    selected: Selected | None  # the best constant of the grid; None if no constant finished with all selecting seeds
    own: Tuned  # at the best constant of the width
    transferred: np.ndarray  # losses at the best constant of the base [judging seeds]

    @property
    def sensitivity(self) -> float:
        """The excess loss at twice the best constant, relative to the loss at it; NaN for an unresolved optimum."""
        if not self.optimum.resolved:
            return np.nan
        return self.optimum.curvature * np.log(2) ** 2 / self.optimum.loss

    @property
    def gap(self) -> np.ndarray:
        """The transfer gap [judging seeds], relative to the loss at the best constant of the width."""
        return self.transferred / self.own.losses - 1


@dataclass(frozen=True)
class Transfer:
    """An entry at every width."""

    widths: Mapping[int, TunedWidth]  # by width, the base first

    @property
    def power(self) -> Slope:
        """The power of the width that the best constant follows; 0 if the rate transfers."""
        return analysis.slope(list(self.widths), [each.optimum for each in self.widths.values()])

    @property
    def fit_error(self) -> float:
        """Root mean square of log₂ best constant minus the fitted power law, in octaves.

        It has two degrees of freedom less than resolved widths. NaN with fewer than three resolved widths.
        """
        power, resolved = self.power, {d: x.optimum.rate for d, x in self.widths.items() if x.optimum.resolved}
        if power.degrees_of_freedom < 1:
            return np.nan
        fitted, _, _ = power.line(list(resolved))
        residuals = np.log2(list(resolved.values())) - np.log2(fitted)
        return float(np.sqrt(np.sum(residuals**2) / power.degrees_of_freedom))

    @property
    def sensitivity_power(self) -> Slope:
        """The power of the width that the sensitivity follows."""
        sensitivities = [each.sensitivity for each in self.widths.values()]
        positive = [x if x > 0 else np.nan for x in sensitivities]
        return analysis.slope(list(self.widths), (positive, None))


def read(table, config: Config) -> dict[str, Transfer]:
    """The tuned widths of every entry."""
    return {name: _transfer(table, config, name) for name in config.entries}


def _transfer(table, config: Config, name: str) -> Transfer:
    entry, sizes = config.chosen[name], dict(zip(config.widths, config.sizes.values(), strict=True))
    rows = {d: rows_of(table, setting_of(config, entry, size)) for d, size in sizes.items()}

    def losses(width: int, constant: float, seeds: Sequence[int]) -> np.ndarray:
        return losses_of(rows[width], run_of(config, entry, sizes[width], constant, config.seeds[0]), seeds)

    def judged(width: int, best: Selected | None) -> np.ndarray:
        if best is None:
            return np.full(len(config.judging_seeds), np.nan)
        return losses(width, config.constants[best.best], config.judging_seeds)

    grids = {d: np.array([losses(d, x, config.selecting_seeds) for x in config.constants]) for d in config.widths}
    optima = analysis.optima([config.constants] * len(grids), [grid.T for grid in grids.values()])
    selected = {d: select(grid) for d, grid in grids.items()}
    base = selected[config.width]
    widths = {}
    for (d, best), optimum in zip(selected.items(), optima, strict=True):
        own = Tuned(judged(d, best), best.regret if best else 0.0)
        widths[d] = TunedWidth(optimum, best, own, judged(d, base))
    return Transfer(widths)


def follow_up(table, config: Config) -> dict[str, list[Run]]:
    """The runs of the judging seeds: every entry at every width, with its best constant and with that of the base."""
    runs = []
    for name, transfer in read(table, config).items():
        base = transfer.widths[config.width].selected
        for (size_name, size), each in zip(config.sizes.items(), transfer.widths.values(), strict=True):
            for best, seed in product(filter(None, (each.selected, base)), config.judging_seeds):
                constant = config.constants[best.best]
                runs.append((size_name, name, run_of(config, config.chosen[name], size, constant, seed)))
    return runs_by_label(labels(config), runs)


def penalty(by_entry: Mapping[str, Transfer], name: str, width: int) -> Measurement:
    """The loss of an entry above the least loss of the other entries, relative to that least loss.

    Every entry is tuned at the width. The penalty of the best entry is negative.
    """
    others = [each.widths[width].own for other, each in by_entry.items() if other != name]
    value, interval = difference([[by_entry[name].widths[width].own]], [others])
    least = float(min(np.mean(other.losses) for other in others))
    return Measurement(value / least, interval and (interval[0] / least, interval[1] / least))


def summary(table, config: Config) -> str:
    """The metrics of every entry, and its optimum, sensitivity and losses at every width."""
    by_entry, last = read(table, config), config.widths[-1]
    lines = [f"every entry tuned at every width; the base is d {config.width}; validation bits per byte"]
    lines.append(
        f"{'entry':<20} {'power of d':<20} {'fit error':>9} {'power of sensitivity':<20} {'penalty':<18} transfer gap"
    )
    for name, each in by_entry.items():
        fits = f"{in_words(each.power):<20} {_shown(each.fit_error, '.2f'):>9} {in_words(each.sensitivity_power):<20}"
        gap = Measurement.over_seeds(each.widths[last].gap)
        lines.append(f"{name:<20} {fits} {penalty(by_entry, name, last).percent():<18} {gap.percent()}")
    lines += [
        f"power of d: of the best constant (d times the hidden rate, both at d {config.width})",
        "fit error: RMS deviation of the best constant from this power, in octaves",
        "sensitivity: excess loss at twice the best constant, in % of the loss",
        f"penalty: loss above the best other entry, each tuned at d {last}, %",
        f"transfer gap: loss at the base's best constant above the loss at the own best constant, at d {last}, %",
        "",
        f"{'entry':<20} {'d':>4} {OPTIMUM_HEADER.replace('η_E', 'constant')} {'sensitivity':>11}  "
        f"{'judging seeds':<20} transfer gap",
    ]
    for (name, transfer), d in product(by_entry.items(), config.widths):
        tuned = transfer.widths[d]
        optimum, flags = optimum_row(tuned.optimum)
        loss, moved = Measurement.over_seeds(tuned.own.losses), Measurement.over_seeds(tuned.gap)
        sensitivity = _shown(100 * tuned.sensitivity, ".1f")
        row = f"{name:<20} {d:>4} {optimum} {sensitivity:>16}  {loss.text('.3f'):<20} {moved.percent():<18}"
        lines.append((row if flags == "–" else f"{row} {flags}").rstrip())
    return "\n".join(lines)


def _shown(value: float, spec: str) -> str:
    """The number in a format; a dash for NaN."""
    return "–" if np.isnan(value) else format(value, spec)
