"""Reads the records of `large_updates`: accuracies and dead ReLUs by group and scale, and the summary.

The first phase is the first epochs of training. The scale multiplies the rate in this phase.
"""

import numpy as np

from lvp.analysis.measurement import Measurement
from lvp.experiments.common.tables import HORIZON_LOSS, finished_by_seed, lists_by_row, with_fields, with_horizon_loss
from lvp.experiments.large_updates.config import GROUPS, Config, run_of, trained
from lvp.training import steps_of_parts

FEW = "few images"
FINAL_FRACTION = 0.1  # the loss at the end of the first phase is a mean over this last fraction of the phase


def runs_by_seed(table, config: Config, name: str, scale: float):
    """One row per seed of a group at a scale; NaN in the row of a missing or diverged run."""
    run = run_of(config, name, scale, 0)
    fields = ("first_scale", "random", "frozen", "negative_slope", "first_images")
    rows = finished_by_seed(with_fields(table, "run", run, fields), {}, config.seeds)
    return rows.reindex(columns=rows.columns.union(["accuracy", "curve_steps"], sort=False))


def accuracy(table, config: Config, name: str, scale: float) -> np.ndarray:
    """Accuracies on the test images [seeds], in %."""
    return 100 * runs_by_seed(table, config, name, scale)["accuracy"].to_numpy(float)


def over_epochs(table, config: Config, name: str, scale: float, measure: str) -> np.ndarray:
    """A measure [seeds, measured epochs]; NaN for a missing or diverged run."""
    rows = runs_by_seed(table, config, name, scale)
    return lists_by_row(rows, f"measures.{measure}", (len(measured_epochs(table, config)),))


def measured_epochs(table, config: Config) -> np.ndarray:
    """Epochs at which the runs were measured."""
    steps = num_steps(table, config)
    return config.epochs * (np.array(steps_of_parts(config.measured_parts, steps)) + 1) / steps


def num_steps(table, config: Config) -> int:
    """The steps of a trained run: the recorded number, which depends on the corpus, else that of the configuration."""
    recorded = table["setting.steps"].dropna().tolist() if "setting.steps" in table else []
    return int(recorded[0]) if recorded else trained(config).setting.steps


def dead(table, config: Config, name: str, scale: float) -> np.ndarray:
    """Fractions of dead ReLUs at the end [seeds]."""
    return over_epochs(table, config, name, scale, "dead.all")[:, -1]


def loss_after_first_phase(table, config: Config, name: str) -> float:
    """Training loss at the end of the first phase at scale 1, the mean over seeds; NaN if a run is missing."""
    rows = runs_by_seed(table, config, name, 1.0)
    if rows["curve_steps"].isna().any():
        return np.nan
    first_steps = round(config.first_epochs / config.epochs * num_steps(table, config))
    return float(with_horizon_loss(rows, first_steps, FINAL_FRACTION)[HORIZON_LOSS].mean())


def few_images(table, config: Config) -> tuple[str, Measurement]:
    """The effect of a first phase on few images, at scale 1.

    Returns:
      A text with the training losses at the end of a first phase on few images and on all images; and the accuracy of
      the group `standard` minus that of the group of few images, in %.
    """
    standard, few = (loss_after_first_phase(table, config, name) for name in ("standard", FEW))
    losses = f"training loss at the end of the first phase: {few:.2f} on these images, {standard:.2f} on all"
    lost = accuracy(table, config, "standard", 1.0) - accuracy(table, config, FEW, 1.0)
    return losses.replace("nan", "–"), Measurement.over_seeds(lost)


def summary(table, config: Config) -> str:
    """Final accuracy and dead ReLUs of every group by scale."""
    heads = "".join(f"{f'× {scale:g}: accuracy':>22} {'(paper)':>8} {'dead':>7}" for scale in config.scales)
    lines = [f"{'group':<24}{heads}"]
    for name in config.groups:
        line = f"{name:<24}"
        for scale in config.scales:
            values = accuracy(table, config, name, scale)
            spread = f"±{np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
            published = GROUPS[name].paper_accuracy
            paper = f"({published[scale]:.1f})" if scale in published else ""
            line += f"{f'{values.mean():.1f}{spread}':>22} {paper:>8} {dead(table, config, name, scale).mean():>7.1%}"
        lines.append(line)
    if {"standard", FEW} <= set(config.groups):
        losses, lost = few_images(table, config)
        lines.append(f"{FEW}, × 1: {losses}; lost accuracy {lost.text('.1f')} %")
    lines += [
        "",
        "×: factor on the rate in the first phase. Accuracy on the test images in %, ± standard deviation over seeds; "
        "paper: CIFAR-10, 205 epochs. dead: units (channels of a ReLU) that no test image activates, at the end",
    ]
    return "\n".join(lines).replace("nan%", "–").replace("nan±nan", "–").replace("nan", "–")
