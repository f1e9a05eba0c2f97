"""Reads the records of `width_vocab`: optima by width, slopes by horizon, the cost of the √d rule, and the summary."""

import numpy as np

from experiments.common.optimum_text import OPTIMUM_HEADER, optimum_row, slope_line, slope_text
from experiments.common.tables import losses_by_seed_and_rate, select
from experiments.width_vocab.config import READINGS, Config
from lvp import analysis, parametrization
from lvp.analysis.arms_figure import Arm
from lvp.analysis.measurement import Measurement


def _records_of_cell(table, config: Config, token_rows: str, width: int):
    """The records of one cell. Records leave out model settings at their defaults."""
    kept = select(table, {"cell.model.width": width})
    for name, default, value in (
        ("embedding_multiplier", 1.0, parametrization.row_multiplier(token_rows, width)),
        ("normalize_rows", False, token_rows == "normalized"),
    ):
        column = f"cell.model.{name}"
        values = [default] * len(kept) if column not in kept else kept[column].where(kept[column].notna(), default)
        kept = kept[[bool(x == value) for x in values]]
    return kept


def losses(table, config: Config, token_rows: str, steps: int | None = None) -> list[np.ndarray]:
    """By width, the losses of `losses_of_cell`."""
    return [losses_of_cell(table, config, token_rows, width, steps) for width in config.widths]


def losses_of_cell(table, config: Config, token_rows: str, width: int, steps: int | None = None) -> np.ndarray:
    """Final train losses [seeds, rates] of a run of `steps` steps; None is the configured number.

    The final train loss is the mean over the last part of the steps (`final_fraction`). For fewer steps it is read from
    the curve. `table` has one vocabulary per width.
    """
    kept = _records_of_cell(table, config, token_rows, width)
    column = "train_loss"
    if steps is not None:
        column = "horizon_loss"
        kept = kept.assign(horizon_loss=[_loss_at(steps, config, *curve) for curve in _curves(kept)])
    return losses_by_seed_and_rate(kept, config.embedding_rates(token_rows, width), config.seeds, column)


def _curves(kept):
    """Pairs of steps and losses, one per row; a table without rows may lack the columns."""
    return zip(kept["curve_steps"], kept["curve_losses"], strict=True) if len(kept) else ()


def _loss_at(steps: int, config: Config, curve_steps, curve_losses) -> float:
    """Mean of the curve over the last part of the first `steps` steps; infinite for a diverged lane.

    NaN if no point of the curve lies in that part.
    """
    first = steps * (1 - config.final_fraction)
    parts = [loss for at, loss in zip(curve_steps, curve_losses, strict=True) if first < at <= steps]
    if not parts:
        return np.nan
    return np.inf if None in parts else float(np.mean(parts))


def optima(table, config: Config, token_rows: str, steps: int | None = None):
    """The optimum at every width, and the slope of their power law."""
    rates = [config.embedding_rates(token_rows, width) for width in config.widths]
    by_width = analysis.optima(rates, losses(table, config, token_rows, steps))
    return by_width, analysis.slope(config.widths, by_width)


def arms(table, config: Config) -> list[Arm]:
    """Losses, optima and slopes of each reading, for the figure and the summary."""
    readings = []
    for token_rows in config.token_rows:
        by_width, fit = optima(table, config, token_rows)
        by_horizon = {steps: optima(table, config, token_rows, steps)[1] for steps in config.horizons}
        rates = [config.embedding_rates(token_rows, width) for width in config.widths]
        readings.append(Arm(READINGS[token_rows], rates, losses(table, config, token_rows), by_width, fit, by_horizon))
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
            lines.append(f"{width:>6} {config.vocab_per_width * width:>6} {numbers} {mean.rate:>11.4g}  {flags}")
        lines.append(slope_line(arm.slope, config.widths))
        for steps, fit in arm.slope_by_horizon.items():
            lines.append(f"  read at {steps} steps: {slope_text(fit)}, {fit.num_points} widths")
        lines.append("")
    return "\n".join(lines[:-1])


def transfer_gap(table, config: Config, token_rows: str) -> Measurement:
    """The largest relative excess of the train loss under the √d rule, over all widths but the smallest.

    The rule takes the best rate of the smallest width to the other widths as LVP's embedding rate. The excess is
    relative to the least loss of a width. The interval is a t interval over seeds.

    Unknown if the optimum of the smallest width is not resolved, or if the rule leaves the grid or meets a diverged
    lane.
    """
    by_width, smallest = losses(table, config, token_rows), optima(table, config, token_rows)[0][0]
    unknown = Measurement(np.nan, None)
    tuned = [
        (smallest.rate * _embedding_rate_ratio(config, width), config.embedding_rates(token_rows, width))
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
    by_seed = [worst([lanes[s] for lanes in by_width[1:]]) for s in range(len(config.seeds))]
    if not np.isfinite([value, *by_seed]).all():
        return unknown
    return Measurement.over_seeds(by_seed, centre=float(value))


def _embedding_rate_ratio(config: Config, width: int) -> float:
    """LVP's embedding rate at a width over that at the smallest width."""
    smallest, larger = (
        parametrization.table("lvp", width=w, vocab=config.vocab_per_width * w)["embedding"].lr_multiplier
        for w in (config.widths[0], width)
    )
    return larger / smallest
