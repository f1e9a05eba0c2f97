"""Reads the records of `vocab_effect`: optima over width and vocabulary by horizon, their powers, and the summary."""

import numpy as np

from lvp import analysis
from lvp.analysis import Optimum
from lvp.experiments.common.adaptive_comparison import RateCurves
from lvp.experiments.common.shape_powers import optima_lines, power_lines
from lvp.experiments.common.tables import select
from lvp.experiments.vocab_effect.config import Config
from lvp.experiments.width_vocab.analysis import losses_of_setting
from lvp.experiments.width_vocab.config import READINGS


def losses(table, config: Config, steps: int | None = None) -> list[np.ndarray]:
    """By shape, final train losses [seeds, rates] of a run of `steps` steps; None is the configured number."""
    (rows,) = config.token_rows
    return [
        losses_of_setting(select(table, {"setting.model.vocab": m}), config, rows, d, steps) for d, m in config.shapes
    ]


def optima(table, config: Config, steps: int | None = None) -> list[Optimum]:
    """The optimal η_E at every shape."""
    (rows,) = config.token_rows
    rates = [config.embedding_rates(rows, d) for d, _ in config.shapes]
    return analysis.optima(rates, losses(table, config, steps))


def rate_curves(table, config: Config) -> list[RateCurves]:
    """The final train losses over η_E at every vocabulary of the grid."""
    (rows,) = config.token_rows
    by_shape = dict(zip(config.shapes, losses(table, config), strict=True))
    rates = [config.embedding_rates(rows, d) for d in config.widths]
    return [
        RateCurves(f"m = {m}", config.widths, rates, [by_shape[d, m] for d in config.widths]) for m in config.vocabs
    ]


def by_horizon(table, config: Config) -> dict[int, list[Optimum]]:
    """Number of steps → optima. Rates are constant, so the first part of a run is a shorter run."""
    shorter = {steps: optima(table, config, steps) for steps in config.horizons if steps < config.steps}
    return shorter | {config.steps: optima(table, config)}


def summary(table, config: Config) -> str:
    """The optima, and the powers of d and m by horizon."""
    read = by_horizon(table, config)
    name = READINGS[config.token_rows[0]]
    lines = [f"{name}, {config.steps} steps in every setting; train loss in nats per token"]
    lines += [*optima_lines(config.shapes, read[config.steps]), ""]
    lines.append("power of d or m that the best η_E follows, with its 95 % interval, read at")
    columns = {f"{steps} steps": best for steps, best in read.items()}
    return "\n".join([*lines, *power_lines(config.shapes, config.slices, columns)])
