"""What the records of `width_fixed_vocab` say, and its table."""

from dataclasses import replace
from itertools import product

import numpy as np

from experiments.common.decoder_runs import OPTIMUM_HEAD, best_known, grid, optimum_row, slope_line, where
from experiments.width_fixed_vocab.config import COMMON, FACTORS, Config, all_factors, label, lane, rays
from lvp import analysis
from lvp.training import Lane

REACH = 2


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """The rays of a star: up to REACH rates to either side of the best η_E, at the width's best η_H."""
    if config.design != "star":
        return {}
    found = {}
    for width in config.widths:
        hidden = best_hidden(table, config, width)
        means = ray(table, config, width, hidden, COMMON).mean(axis=0)
        best = int(np.argmin(np.where(np.isfinite(means), means, np.inf)))
        near = config.rates[max(0, best - REACH) : best + REACH + 1]
        found[label(config, width)] = [
            lane(width, config.vocab, rate, hidden, factors, seed)
            for factors, rate, seed in product(rays(config), near, config.seeds)
        ]
    return found


def ray(table, config: Config, width: int, hidden: float, factors: dict[str, float]) -> np.ndarray:
    """Final train loss [seeds, rates] over η_E, all else given."""
    example = lane(width, config.vocab, config.rates[0], hidden, factors, config.seeds[0])
    columns: dict[str, float] = {"cell.model.width": width}
    columns |= {f"lane.learning_rates.{role}": example.learning_rates[role] for role in ("hidden", "output")}
    columns |= {f"lane.init_std.{role}": example.init_std[role] for role in ("embedding", "output")}
    return grid(where(table, columns), config.rates, config.seeds)


def least_loss(lanes: np.ndarray) -> float:
    """The least mean over seeds; NaN where no rate finished with every seed."""
    means = lanes.mean(axis=0)
    return float(np.min(means[np.isfinite(means)], initial=np.inf)) if np.isfinite(means).any() else np.nan


def best_hidden(table, config: Config, width: int) -> float:
    """The η_H d of the least loss at this width, all factors at one."""
    least = [least_loss(ray(table, config, width, hidden, COMMON)) for hidden in config.hidden_rates]
    return config.hidden_rates[int(np.nanargmin(least))] if np.isfinite(least).any() else config.hidden_rates[0]


def curves(table, config: Config) -> list[np.ndarray]:
    """Loss over η_E by width [seeds, rates], at the width's best η_H."""
    return [ray(table, config, d, best_hidden(table, config, d), COMMON) for d in config.widths]


def optima(table, config: Config):
    """Per width the optimal η_E at its best η_H, and the slope of their power law. Flagged "hidden edge" where a better
    η_H may lie beyond the grid."""
    found = []
    for width, best in zip(config.widths, analysis.optima(config.rates, curves(table, config)), strict=True):
        ends = {config.hidden_rates[0], config.hidden_rates[-1]} if len(config.hidden_rates) > 1 else ()
        edge = ("hidden edge",) if best_hidden(table, config, width) in ends else ()
        found.append(replace(best, flags=best.flags + edge))
    return found, analysis.slope(config.widths, found)


def gaps(table, config: Config) -> np.ndarray:
    """[widths, seeds]: the least loss with every factor at one, over the least of all settings, less one, each setting
    chosen by its mean over seeds; NaN where no other setting has run, which is no comparison."""
    found = []
    for width in config.widths:
        rows = where(table, {"cell.model.width": width})
        equal = rows["lane.learning_rates.output"] == rows["lane.learning_rates.hidden"]
        for role in ("embedding", "output"):
            equal &= rows[f"lane.init_std.{role}"] == rows["lane.init_std.hidden"]
        cost = best_known(rows[equal], config.seeds) / best_known(rows, config.seeds) - 1
        found.append(cost if not equal.all() else np.full(len(config.seeds), np.nan))
    return np.array(found)


def near_optimal(table, config: Config) -> tuple[float, tuple[float, float] | None]:
    """What equal init and rate cost: the mean gap over widths, with a 95 % t interval over widths."""
    found = gaps(table, config)
    return float(found.mean()), analysis.t_interval(found.mean(axis=1))


def summary(table, config: Config) -> str:
    """Optima and slope; the least loss of every ray against the common setting's."""
    found, slope = optima(table, config)
    lines = [f"{'width':>6} {'η_H d':>6} {OPTIMUM_HEAD}  flags"]
    for width, best in zip(config.widths, found, strict=True):
        numbers, flags = optimum_row(best)
        lines.append(f"{width:>6} {best_hidden(table, config, width):>6.3g} {numbers}  {flags}")
    lines.append(slope_line(slope, config.widths))
    lines += ["", "least train loss over η_E (and η_H where it is swept), above the common setting's, in %"]
    lines.append(f"{'setting':<22}" + "".join(f"d {d}".rjust(9) for d in config.widths))
    for name, values in ray_gaps(table, config).items():
        lines.append(f"{name:<22}" + "".join(f"{100 * v:>9.1f}" for v in values))
    return "\n".join(lines)


def ray_gaps(table, config: Config) -> dict[str, list[float]]:
    """Name of every value of a factor → by width, its least loss over the least with all factors at one, less one."""
    found = {}
    for name, what in FACTORS.items():
        for value in getattr(config, name):
            if value != 1.0:
                alike = [x for x in product(config.hidden_rates, all_factors(config)) if x[1][name] == value]
                found[f"{what} = {value:g}"] = [_ray_gap(table, config, d, alike) for d in config.widths]
    return found


def _ray_gap(table, config: Config, width: int, alike) -> float:
    common = least_loss(ray(table, config, width, best_hidden(table, config, width), COMMON))
    least = [least_loss(ray(table, config, width, hidden, factors)) for hidden, factors in alike]
    return float(np.nanmin(least)) / common - 1 if np.isfinite(least).any() else np.nan
