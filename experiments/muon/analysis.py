"""Reads the records of `muon`: losses by arm and tuned value, tuned arms, and the summary."""

import numpy as np

from experiments.common.tables import finished_by_seed, lane_columns, with_optimizer
from experiments.muon.config import Arm, Config, arms, cell_label, cell_of, lane, tuned_values
from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import Tuned
from lvp.training import Lane

LOSS = "valid_bits_per_byte"


def losses(table, config: Config, arm: Arm) -> np.ndarray:
    """Validation losses [tuned values, selecting seeds] of an arm, in bits per byte; infinite unless finished."""
    seeds = config.selecting_seeds
    values = np.array([_losses(table, config, arm, value, seeds) for value in tuned_values(config, arm)])
    return np.where(np.isfinite(values), values, np.inf)


def _losses(table, config: Config, arm: Arm, value: float, seeds) -> np.ndarray:
    """Validation losses [seeds] of an arm at a value; NaN for a missing or diverged lane."""
    columns = lane_columns(lane(config, arm, value, config.seeds[0]))
    rows = with_optimizer(table, cell_of(config, arm)).filter(["lane.seed", "status", LOSS, *columns])
    return finished_by_seed(rows, columns, seeds)[LOSS].to_numpy(float)


def tuned_value(table, config: Config, arm: Arm) -> float | None:
    """The value with the least mean loss over the selecting seeds; None if no value finished with all of them."""
    means = losses(table, config, arm).mean(axis=1)
    return tuned_values(config, arm)[int(np.argmin(means))] if np.isfinite(means).any() else None


def at_edge(table, config: Config, arm: Arm) -> bool:
    """True if the tuned value is the first or last of its grid, so that a better value may lie beyond."""
    return tuned_value(table, config, arm) in (tuned_values(config, arm)[0], tuned_values(config, arm)[-1])


def tuned(table, config: Config, arm: Arm) -> Tuned:
    """The losses of the judging seeds at the tuned value, and the selecting seeds' least mean loss elsewhere."""
    value = tuned_value(table, config, arm)
    if value is None:
        return Tuned(np.full(len(config.judging_seeds), np.nan))
    elsewhere = losses(table, config, arm).mean(axis=1)[np.array(tuned_values(config, arm)) != value]
    return Tuned(_losses(table, config, arm, value, config.judging_seeds), float(np.min(elsewhere)))


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """The lanes of the judging seeds of every arm, at its tuned value."""
    by_label: dict[str, list[Lane]] = {}
    for arm in arms(config):
        value = tuned_value(table, config, arm)
        lanes = [] if value is None else [lane(config, arm, value, seed) for seed in config.judging_seeds]
        by_label.setdefault(cell_label(arm), []).extend(lanes)
    return by_label


def summary(table, config: Config) -> str:
    """The tuned value and the judging seeds' loss of every arm, and its loss above that of the best arm."""
    lines = [f"{'hidden matrices, rates':<28} {'tuned':>8} {'bits/byte':<22} {'above the best arm':>18}"]
    by_arm = {arm: tuned(table, config, arm).losses for arm in arms(config)}
    least = min((losses.mean() for losses in by_arm.values() if np.isfinite(losses).all()), default=np.nan)
    for arm, of_arm in by_arm.items():
        value = tuned_value(table, config, arm)
        shown = "–" if value is None else f"{value:.4g}" + ("*" if at_edge(table, config, arm) else " ")
        loss = Measurement.over_seeds(of_arm).text(".3f")
        above = f"{of_arm.mean() - least:.3f}".replace("nan", "–")
        lines.append(f"{arm.label:<28} {shown:>8} {loss:<22} {above:>18}")
    lines.append("bits/byte: validation loss of the judging seeds, 95 % interval")
    lines.append("tuned: hidden rate times d, or the factor on nanochat's rates (*: at the edge of its grid)")
    return "\n".join(lines)
