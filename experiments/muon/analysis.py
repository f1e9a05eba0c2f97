"""Reads the records of `muon`: losses by group and tuned value, tuned groups, and the summary."""

from typing import NamedTuple

import numpy as np

from experiments.common.tables import finished_by_seed, run_columns, with_optimizer
from experiments.muon.config import Config, Group, groups, run, setting_label, setting_of, tuned_values
from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import Tuned, select
from lvp.training import Run

LOSS = "valid_bits_per_byte"


class TunedGroup(NamedTuple):
    """The losses of a group and the value that the selecting seeds choose."""

    group: Group
    losses: np.ndarray  # validation losses [tuned values, selecting seeds] in bits per byte; NaN unless finished
    value: float | None  # with the least mean loss; None if no value finished with all selecting seeds
    at_edge: bool  # the value is the first or last of its grid, so that a better value may lie beyond
    judged: Tuned  # the losses of the judging seeds at the value; NaN without a value


def tuned(table, config: Config, group: Group) -> TunedGroup:
    """The losses of a group at every value of the number that it tunes, and at the best value."""
    rows, values = with_optimizer(table, setting_of(config, group)), tuned_values(config, group)
    losses = np.array([_losses(rows, config, group, value, config.selecting_seeds) for value in values])
    selected = select(losses)
    if selected is None:
        return TunedGroup(group, losses, None, False, Tuned(np.full(len(config.judging_seeds), np.nan)))
    value = values[selected.best]
    of_judges = _losses(rows, config, group, value, config.judging_seeds)
    return TunedGroup(group, losses, value, selected.at_edge, Tuned(of_judges, selected.elsewhere))


def _losses(rows, config: Config, group: Group, value: float, seeds) -> np.ndarray:
    """Validation losses [seeds] of a group at a value; NaN for a missing or diverged run."""
    columns = run_columns(run(config, group, value, config.seeds[0]))
    rows = rows.filter(["lane.seed", "status", LOSS, *columns])  # the full table is slow to copy
    return finished_by_seed(rows, columns, seeds)[LOSS].to_numpy(float)


def follow_up(table, config: Config) -> dict[str, list[Run]]:
    """The runs of the judging seeds of every group, at its tuned value."""
    by_label: dict[str, list[Run]] = {}
    for group in groups(config):
        value = tuned(table, config, group).value
        runs = [] if value is None else [run(config, group, value, seed) for seed in config.judging_seeds]
        by_label.setdefault(setting_label(group), []).extend(runs)
    return by_label


def summary(table, config: Config) -> str:
    """The tuned value and the judging seeds' loss of every group, and its loss above that of the best group."""
    lines = [f"{'hidden matrices, rates':<28} {'tuned':>8} {'bits/byte':<22} {'above the best group':>18}"]
    by_group = {group: tuned(table, config, group) for group in groups(config)}
    means = [best.judged.losses.mean() for best in by_group.values()]
    least = min(filter(np.isfinite, means), default=np.nan)
    for (group, best), mean in zip(by_group.items(), means, strict=True):
        shown = "–" if best.value is None else f"{best.value:.4g}" + ("*" if best.at_edge else " ")
        loss = Measurement.over_seeds(best.judged.losses).text(".3f")
        above = f"{mean - least:.3f}".replace("nan", "–")
        lines.append(f"{group.label:<28} {shown:>8} {loss:<22} {above:>18}")
    lines.append("bits/byte: validation loss of the judging seeds, 95 % interval")
    lines.append("tuned: hidden rate times d, or the factor on nanochat's rates (*: at the edge of its grid)")
    return "\n".join(lines)
