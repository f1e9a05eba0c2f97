"""Reads the records of `width_vocab`: optima by width, slopes by horizon, the cost of the √d rule, and the summary."""

from itertools import product

import numpy as np

from experiments.common.adaptive_replay import RateCurves
from experiments.common.optimum_text import OPTIMUM_HEADER, optimum_row, slope_line, slope_text
from experiments.common.tables import HORIZON_LOSS, losses_by_seed_and_rate, with_horizon_loss, with_model
from experiments.width_vocab.config import ADAPTIVE, GRID, READINGS, Config, cell_model, grid_cells, lanes_at
from lvp import analysis
from lvp.analysis.arms_figure import Arm
from lvp.analysis.bracketing import bracketed_optima, next_lanes, trained_rates
from lvp.analysis.measurement import Measurement
from lvp.training import Lane


def losses(table, config: Config, token_rows: str, steps: int | None = None) -> list[np.ndarray]:
    """By width, the losses of `losses_of_cell`."""
    return [losses_of_cell(table, config, token_rows, width, steps) for width in config.widths]


def losses_of_cell(table, config: Config, token_rows: str, width: int, steps: int | None = None) -> np.ndarray:
    """Final train losses [seeds, rates] of a run of `steps` steps; None is the configured number.

    The final train loss is the mean over the last part of the steps (`final_fraction`). For fewer steps it is read from
    the curve. `table` has one vocabulary per width.
    """
    model = cell_model(config, token_rows, width)
    kept = with_model(table, model, ("width", "embedding_multiplier", "normalize_rows"))
    column = "train_loss"
    if steps is not None:
        column, kept = HORIZON_LOSS, with_horizon_loss(kept, steps, config.final_fraction)
    return losses_by_seed_and_rate(kept, config.embedding_rates(token_rows, width), config.seeds, column)


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """Label of a cell → next lanes of the adaptive design; {} for the grid."""
    if config.design == GRID:
        return {}
    shapes = product(config.token_rows, config.widths)
    return {
        planned.label: lanes_at(
            config,
            planned,
            next_lanes(config.embedding_rates(*shape), losses_of_cell(table, config, *shape)),
        )
        for planned, shape in zip(grid_cells(config), shapes, strict=True)
    }


def optima(table, config: Config, token_rows: str, steps: int | None = None):
    """The optimum at every width, and the slope of their power law."""
    rates = [config.embedding_rates(token_rows, width) for width in config.widths]
    of_design = analysis.optima if config.design == GRID else bracketed_optima
    by_width = of_design(rates, losses(table, config, token_rows, steps))
    return by_width, analysis.slope(config.widths, by_width)


def rate_curves(table, config: Config) -> list[RateCurves]:
    """The final train losses over η_E, by reading."""
    return [
        RateCurves(
            READINGS[token_rows],
            config.widths,
            [config.embedding_rates(token_rows, width) for width in config.widths],
            losses(table, config, token_rows),
        )
        for token_rows in config.token_rows
    ]


def arms(table, config: Config) -> list[Arm]:
    """Losses, optima and slopes of each reading, for the figure and the summary."""
    readings = []
    for token_rows in config.token_rows:
        by_width, fit = optima(table, config, token_rows)
        by_horizon = {steps: optima(table, config, token_rows, steps)[1] for steps in config.horizons}
        rates = [config.embedding_rates(token_rows, width) for width in config.widths]
        lanes = losses(table, config, token_rows)
        if config.design == ADAPTIVE:
            rates, lanes = zip(*map(trained_rates, rates, lanes), strict=True)
        readings.append(Arm(READINGS[token_rows], rates, lanes, by_width, fit, by_horizon))
    return readings


def summary(table, config: Config) -> str:
    """Optima, slope, and slope by horizon of each reading."""
    within = f"within {config.tolerance:.0%}"
    lines = []
    for arm in arms(table, config):
        lines += [arm.name, f"{'width':>6} {'vocab':>6} {OPTIMUM_HEADER} {within:>11}  flags"]
        for width, rates, lanes, best in zip(config.widths, arm.rates, arm.losses, arm.optima, strict=True):
            mean = analysis.optimum(rates, lanes, method="geometric_mean", tolerance=config.tolerance)
            numbers, flags = optimum_row(best)
            cut = "*" if "edge" in mean.flags else " "
            lines.append(f"{width:>6} {config.vocab_per_width * width:>6} {numbers} {mean.rate:>10.4g}{cut}  {flags}")
        lines.append(slope_line(arm.slope, config.widths))
        for steps, fit in arm.slope_by_horizon.items():
            lines.append(f"  read at {steps} steps: {slope_text(fit)}, {fit.num_points} widths")
        lines.append("")
    lines.append(
        f"{within}: geometric mean of the rates whose loss is {within} of the best (*: the grid does not contain all)"
    )
    return "\n".join(lines)


def transfer_gap(table, config: Config, token_rows: str, power: float = -0.5) -> Measurement:
    """The largest relative excess of the train loss if the embedding's rate moves as width^power.

    The best rate of the smallest width is moved to the other widths. The excess is relative to the least loss of a
    width, and the largest of all widths but the smallest is reported. The interval is a t interval over seeds.

    Unknown if the optimum of the smallest width is not resolved, or if the rule leaves the grid or meets a diverged
    lane.
    """
    value, by_seed = _worst_excess(table, config, token_rows, power)
    return Measurement.over_seeds(by_seed, centre=value) if np.isfinite(value) else Measurement(np.nan, None)


def gap_difference(table, config: Config, token_rows: str, power: float, rival: float) -> Measurement:
    """The gap of width^rival minus the gap of width^power, with its t interval; unknown if either gap is unknown."""
    (value, by_seed), (other, other_by_seed) = (_worst_excess(table, config, token_rows, x) for x in (power, rival))
    if not np.isfinite([value, other]).all():
        return Measurement(np.nan, None)
    return Measurement.over_seeds(other_by_seed - by_seed, centre=other - value)


def _worst_excess(table, config: Config, token_rows: str, power: float) -> tuple[float, np.ndarray]:
    """The gap that `transfer_gap` describes, for the mean losses and for each seed [seeds]; NaN if it is unknown."""
    by_width, smallest = losses(table, config, token_rows), optima(table, config, token_rows)[0][0]
    unknown = np.nan, np.full(len(config.seeds), np.nan)
    tuned = [
        (smallest.rate * (width / config.widths[0]) ** power, config.embedding_rates(token_rows, width))
        for width in config.widths[1:]
    ]
    inside = tuned and all(rates[0] <= rate <= rates[-1] for rate, rates in tuned)
    if not smallest.resolved or not inside:
        return unknown

    def worst(curves):
        with np.errstate(invalid="ignore"):
            at_rule = [np.interp(np.log(r), np.log(rates), c) for (r, rates), c in zip(tuned, curves, strict=True)]
        best = [np.min(c[np.isfinite(c)], initial=np.inf) for c in curves]
        return max(loss / least - 1 for loss, least in zip(at_rule, best, strict=True))

    value = worst([lanes.mean(axis=0) for lanes in by_width[1:]])
    by_seed = np.array([worst([lanes[s] for lanes in by_width[1:]]) for s in range(len(config.seeds))])
    return (float(value), by_seed) if np.isfinite([value, *by_seed]).all() else unknown
