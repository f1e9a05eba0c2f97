"""What the records say: optima by width, their slope at the end of training and at shorter horizons."""

import numpy as np

from experiments.common.decoder_runs import OPTIMUM_HEAD, grid, optimum_row, slope_line, where
from experiments.width_vocab.config import READINGS, Config
from lvp import analysis
from lvp.analysis.arms_figure import Arm
from lvp.parametrization import row_multiplier


def _of_reading(table, config: Config, rows: str, width: int):
    """The records of one cell. Records leave out model settings at their defaults."""
    kept = where(table, {"cell.model.width": width})
    for name, default, value in (
        ("embedding_multiplier", 1.0, row_multiplier(rows, width)),
        ("normalize_rows", False, rows == "normalized"),
    ):
        column = f"cell.model.{name}"
        values = [default] * len(kept) if column not in kept else kept[column].where(kept[column].notna(), default)
        kept = kept[[bool(x == value) for x in values]]
    return kept


def losses(table, config: Config, rows: str, steps: int | None = None) -> list[np.ndarray]:
    """Train loss by width, [seeds, rates] each: at the end, or as a run of fewer steps would report it.

    A run of `steps` steps reports the mean over their last part (`final_fraction`), read from the curve's equal parts.
    """
    by_width = []
    for width in config.widths:
        kept = _of_reading(table, config, rows, width)
        column = "train_loss"
        if steps is not None:
            column = "horizon_loss"
            kept = kept.assign(horizon_loss=[_loss_at(steps, config, *curve) for curve in _curves(kept)])
        by_width.append(grid(kept, config.embedding_rates(rows, width), config.seeds, column))
    return by_width


def _curves(kept):
    return zip(kept["curve_steps"], kept["curve_losses"], strict=True) if len(kept) else ()


def _loss_at(steps: int, config: Config, curve_steps, curve_losses) -> float:
    """Mean of the curve over the last part of the first `steps` steps; infinite for a diverged lane."""
    first = steps * (1 - config.final_fraction)
    parts = [loss for at, loss in zip(curve_steps, curve_losses, strict=True) if first < at <= steps]
    if not parts:  # the curve is coarser than the last part of so few steps
        return np.nan
    return np.inf if None in parts else float(np.mean(parts))


def optima(table, config: Config, rows: str, steps: int | None = None):
    """Per width the optimum, and the slope of their power law."""
    rates = [config.embedding_rates(rows, width) for width in config.widths]
    by_width = analysis.optima(rates, losses(table, config, rows, steps))
    return by_width, analysis.slope(config.widths, by_width)


def arms(table, config: Config) -> list[Arm]:
    """What the figure and the summary show of each reading."""
    made = []
    for rows in config.rows:
        by_width, fit = optima(table, config, rows)
        by_horizon = {steps: optima(table, config, rows, steps)[1] for steps in config.horizons}
        rates = [config.embedding_rates(rows, width) for width in config.widths]
        made.append(Arm(READINGS[rows], rates, losses(table, config, rows), by_width, fit, by_horizon))
    return made


def summary(table, config: Config) -> str:
    """The tables of optima, the slopes, and the slopes by horizon, as text."""
    within = f"within {config.tolerance:.0%}"
    lines = []
    for arm in arms(table, config):
        lines += [arm.name, f"{'width':>6} {'vocab':>6} {OPTIMUM_HEAD} {within:>11}  flags"]
        for width, rates, lanes, best in zip(config.widths, arm.rates, arm.losses, arm.optima, strict=True):
            mean = analysis.optimum(rates, lanes, method="geometric_mean", tolerance=config.tolerance)
            numbers, flags = optimum_row(best)
            lines.append(f"{width:>6} {config.vocab_per_width * width:>6} {numbers} {mean.rate:>11.4g}  {flags}")
        lines.append(slope_line(arm.slope, config.widths))
        for steps, fit in arm.slope_by_horizon.items():
            low, high = fit.interval
            lines.append(
                f"  read at {steps} steps: {fit.slope:.2f}, 95 % interval {low:.2f} … {high:.2f}, "
                f"{fit.num_points} widths"
            )
        lines.append("")
    return "\n".join(lines[:-1])


def transfer_gap(table, config: Config, rows: str) -> tuple[float, tuple[float, float] | None]:
    """What the √d-rule costs: the rate tuned at the smallest width, moved by d^(−1/2), against each width's best, as
    the largest relative excess of the train loss over the other widths. With a 95 % t interval over seeds.

    NaN without an interval where the smallest width's optimum is not resolved, or the rule leaves the grid or meets a
    diverged lane: then the sweep does not say.
    """
    grids, base = losses(table, config, rows), optima(table, config, rows)[0][0]
    tuned = [(base.rate * (w / config.widths[0]) ** -0.5, config.embedding_rates(rows, w)) for w in config.widths[1:]]
    inside = tuned and all(rates[0] <= rate <= rates[-1] for rate, rates in tuned)
    if not base.resolved or not inside:
        return np.nan, None

    def worst(curves):
        with np.errstate(invalid="ignore"):
            at_rule = [np.interp(np.log(r), np.log(rates), c) for (r, rates), c in zip(tuned, curves, strict=True)]
        best = [np.min(c[np.isfinite(c)], initial=np.inf) for c in curves]
        return max(loss / least - 1 for loss, least in zip(at_rule, best, strict=True))

    value = worst([g.mean(axis=0) for g in grids[1:]])
    by_seed = [worst([g[s] for g in grids[1:]]) for s in range(len(config.seeds))]
    if not np.isfinite([value, *by_seed]).all():
        return np.nan, None
    return float(value), analysis.t_interval(by_seed, centre=value)
