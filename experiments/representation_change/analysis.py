"""Reads the records of `representation_change`: measures over training, and the summary."""

import numpy as np

from lvp.experiments.common.tables import finished_by_seed, lists_by_row, mean_of_finite, select
from lvp.experiments.representation_change import equation_nine
from lvp.experiments.representation_change.config import GROUPS, PAPER_BATCH, ROLE, Config, warmup_steps

# Parts of the steps: the end of φ's first values, the start of its last values, and the time that momentum needs.
EARLY, LATE, SETTLED = 0.01, 0.5, 0.05
# φ of the hidden matrices. Equation 9 is about one neuron. The paper does not state how it averages over neurons.
NEURON_SNR, JOINT_SNR = "neuron_snr", "snr"  # the median over neurons; φ of the joint gradient of all matrices


def runs_by_seed(table, config: Config, name: str):
    """One row per seed of a group; no row if no run finished. NaN in the row of a missing or diverged run."""
    group = GROUPS[name]
    columns = {"setting.optimizer.kind": group.optimizer, "run.warmup_steps": warmup_steps(config, group)}
    if not len(select(table, {**columns, "status": "finished"})):
        return table[:0]
    return finished_by_seed(table, columns, config.seeds)


def over_steps(rows, config: Config, measure: str) -> np.ndarray:
    """A measure of the hidden matrices [seeds, measured steps]; NaN for a missing or diverged run."""
    return lists_by_row(rows, f"measures.roles.{ROLE}.{measure}", (len(config.measured_steps),))


def over_training(values: np.ndarray, config: Config, start: float = 0.0, stop: float = 1.0) -> np.ndarray:
    """Means [seeds] of values [seeds, measured steps] over a part of training.

    A measured step has the weight of the steps nearest to it, since the first measured steps lie closer together. A NaN
    has no weight.
    """
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


def falls(rows, config: Config, measure: str) -> np.ndarray:
    """ln of φ's first values over its last values [seeds]; NaN for a ratio that is not positive.

    Args:
      measure: `NEURON_SNR` or `JOINT_SNR`.
    """
    snr = over_steps(rows, config, measure)
    ratio = over_training(snr, config, stop=EARLY) / over_training(snr, config, start=LATE)
    return np.log(np.where(ratio > 0, ratio, np.nan))


def exceeds(rows, config: Config, measure: str, batch: int) -> np.ndarray:
    """The part of training in which a batch B exceeds 1/φ [seeds]; φ is that of training at the configured batch."""
    snr = over_steps(rows, config, measure)
    return over_training(np.where(np.isfinite(snr), batch * snr > 1, np.nan), config)


def alignment(rows, config: Config) -> np.ndarray:
    """The mean cosine of gradient and momentum [seeds], without the first steps, in which momentum builds up."""
    return over_training(over_steps(rows, config, "alignment"), config, start=SETTLED)


def cancelled(rows, config: Config, average=np.median) -> np.ndarray:
    """The part of the gradient that momentum cancels [seeds], averaged over the steps without the first steps.

    The average is the median, because the values of single steps are far beyond the others: a gradient can be much
    smaller than its momentum.
    """
    settled = np.array(config.measured_steps) >= SETTLED * config.steps
    return average(over_steps(rows, config, "cancelled")[:, settled], axis=1)


def summary(table, config: Config) -> str:
    """Equation 9 and its simulation; φ, B φ and momentum of every group."""
    blocks = [equation_nine.lines(table)]
    if any(len(runs_by_seed(table, config, name)) for name in config.groups):
        blocks.append(_trained_lines(table, config))
    return "\n\n".join("\n".join(lines) for lines in blocks if lines) or "nothing has run"


def _trained_lines(table, config: Config) -> list[str]:
    batches = sorted({config.batch, PAPER_BATCH})
    lines = [
        f"hidden matrices, means over seeds and steps; B {config.batch} sequences of {config.context} tokens, "
        f"{config.steps} steps",
        f"{'group':<18} {'bits/byte':>9} {'φ: first':>9} {'last half':>10} "
        + "".join(f"{f'{batch} φ > 1':>9} " for batch in batches)
        + f"{'cosine':>7} {'cancelled':>10}",
    ]
    for name in config.groups:
        rows = runs_by_seed(table, config, name)
        if not len(rows):
            lines.append(f"{name:<18} no finished run")
            continue
        snr = over_steps(rows, config, NEURON_SNR)
        columns = (
            over_training(snr, config, stop=EARLY),
            over_training(snr, config, start=LATE),
            *(exceeds(rows, config, NEURON_SNR, batch) for batch in batches),
            alignment(rows, config),
            cancelled(rows, config),
        )
        first, last, *parts, cosine, part_cancelled = map(mean_of_finite, columns)
        line = f"{name:<18} {rows['valid_bits_per_byte'].mean():>9.3f} {first:>9.2g} {last:>10.2g} "
        line += "".join(f"{part:>9.0%} " for part in parts)
        lines.append((line + f"{cosine:>7.2f} {part_cancelled:>10.2f}").replace("nan", "  –"))
    lines.append(
        f"φ: median over neurons, first {EARLY:.0%} and last {1 - LATE:.0%} of the steps; {PAPER_BATCH} φ > 1: part of "
        f"training in which a batch of {PAPER_BATCH} exceeds 1/φ; cosine of gradient and momentum (mean), and the part "
        f"of the gradient that momentum cancels (median): after {SETTLED:.0%} of the steps"
    )
    return lines
