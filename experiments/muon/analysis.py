"""Reads the records of `muon`: losses by group and tuned value, tuned groups, and the summary."""

from functools import partial

import numpy as np

from lvp.analysis.measurement import Measurement
from lvp.experiments.common.tables import with_optimizer
from lvp.experiments.common.tuned_groups import TunedGroup, judging_runs, tuned_group
from lvp.experiments.muon.config import Config, Group, groups, run, setting_label, setting_of, tuned_values
from lvp.training import Run


def tuned(table, config: Config, group: Group) -> TunedGroup:
    """The losses of a group at every value of the number that it tunes, and at the best value."""
    rows = with_optimizer(table, setting_of(config, group))
    return tuned_group(group.label, rows, config, tuned_values(config, group), partial(run, config, group))


def follow_up(table, config: Config) -> dict[str, list[Run]]:
    """The runs of the judging seeds of every group, at its tuned value."""
    by_label: dict[str, list[Run]] = {}
    for group in groups(config):
        runs = judging_runs(tuned(table, config, group), config, partial(run, config, group))
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
