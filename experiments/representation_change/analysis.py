"""What the records of `representation_change` say, and its table."""

import numpy as np

from experiments.common.decoder_runs import where
from experiments.representation_change import equation_nine
from experiments.representation_change.config import ARMS, ROLE, Config, warmup_steps

EARLY, LATE, SETTLED = 0.01, 0.5, 0.05  # parts of the steps: φ's first values, its last ones; momentum is built up


def readings(table, config: Config, name: str):
    """The lanes of an arm, a row a seed and nothing but NaN in it where that one is missing or diverged; empty where
    none finished."""
    arm = ARMS[name]
    columns = {"cell.optimizer.kind": arm.optimizer, "lane.warmup_steps": warmup_steps(config, arm)}
    rows = where(table, columns | {"status": "finished"})
    return rows.set_index("lane.seed").reindex(list(config.seeds)) if len(rows) else rows


def measured(rows, config: Config, what: str) -> np.ndarray:
    """A measure of the hidden matrices [seeds, measured steps]; NaN where there is none."""
    gap = [np.nan] * len(config.measured_steps)
    column = rows.get(f"measures.roles.{ROLE}.{what}", [gap] * len(rows))
    return np.array([x if isinstance(x, list) else gap for x in column], float).reshape(len(rows), len(gap))


def over_training(values: np.ndarray, config: Config, start: float = 0.0, stop: float = 1.0) -> np.ndarray:
    """Means [seeds] of values [seeds, measured steps] over a part of training. A measured step counts for the steps
    nearest to it, for the first ones lie closer together; one that is NaN counts for none."""
    steps = np.array(config.measured_steps)
    within = (steps >= start * config.steps) & ((steps <= stop * config.steps) | (steps == 0))
    weights = np.where(np.isfinite(values), np.gradient(steps.astype(float)), 0.0)[:, within]
    total = weights.sum(axis=1)
    return np.divide(
        (weights * np.nan_to_num(values[:, within])).sum(axis=1),
        total,
        out=np.full(len(values), np.nan),
        where=total > 0,
    )


def falls(rows, config: Config) -> np.ndarray:
    """ln of φ's first values over its last ones [seeds]; NaN where these are not positive."""
    snr = measured(rows, config, "snr")
    ratio = over_training(snr, config, stop=EARLY) / over_training(snr, config, start=LATE)
    return np.log(np.where(ratio > 0, ratio, np.nan))


def exceeds(rows, config: Config) -> np.ndarray:
    """The part of training in which B > 1/φ [seeds]."""
    snr = measured(rows, config, "snr")
    return over_training(np.where(np.isfinite(snr), config.batch * snr > 1, np.nan), config)


def settled(rows, config: Config, what: str) -> np.ndarray:
    """A measure's mean over training once momentum is built up [seeds]."""
    return over_training(measured(rows, config, what), config, start=SETTLED)


def summary(table, config: Config) -> str:
    """Equation 9 against simulation; and of every arm φ, its relation to B, and what momentum does to the gradient."""
    blocks = [equation_nine.lines(table)]
    if any(len(readings(table, config, name)) for name in config.arms):
        blocks.append(_trained_lines(table, config))
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) or "nothing has run"


def _trained_lines(table, config: Config) -> list[str]:
    lines = [
        f"hidden matrices, means over seeds and steps; B {config.batch} sequences of {config.context} tokens, "
        f"{config.steps} steps",
        f"{'arm':<18} {'bits/byte':>9} {'φ: first':>9} {'last half':>10} {'B φ > 1':>8} {'cosine':>7} "
        f"{'cancelled':>10}",
    ]
    for name in config.arms:
        rows = readings(table, config, name)
        if not len(rows):
            lines.append(f"{name:<18} no finished lane")
            continue
        snr = measured(rows, config, "snr")
        ends = [over_training(snr, config, stop=EARLY), over_training(snr, config, start=LATE)]
        rest = [exceeds(rows, config), settled(rows, config, "alignment"), settled(rows, config, "cancelled")]
        first, last, share, cosine, cancelled = (_mean(x) for x in (*ends, *rest))
        line = f"{name:<18} {rows['valid_bits_per_byte'].mean():>9.3f} {first:>9.2g} {last:>10.2g} {share:>8.0%} "
        lines.append((line + f"{cosine:>7.2f} {cancelled:>10.2f}").replace("nan", "  –"))
    lines.append(
        f"φ: first {EARLY:.0%} and last {1 - LATE:.0%} of the steps; B φ > 1: part of training; cosine of gradient and "
        f"momentum, and what part of the gradient momentum cancels: after {SETTLED:.0%} of the steps"
    )
    return lines


def _mean(values: np.ndarray) -> float:
    """Over the seeds that finished; NaN without one."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else np.nan
