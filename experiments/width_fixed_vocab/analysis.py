"""Reads the records of `width_fixed_vocab`: losses and optima by width, the cost of unequal points, the summary."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from lvp import analysis
from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import Tuned, difference
from lvp.analysis.tuned import select as select_rate
from lvp.experiments.common.adaptive_comparison import RateCurves
from lvp.experiments.common.optimum_text import OPTIMUM_HEADER, optimum_row, slope_line
from lvp.experiments.common.tables import EMBEDDING_RATE, HIDDEN_RATE, best_setting, losses_by_seed_and_rate, select
from lvp.experiments.width_fixed_vocab.config import (
    COMMON,
    FACTORS,
    Config,
    all_factors,
    label,
    mup_init,
    mup_rates,
    rays,
    run,
)
from lvp.training import Run

REACH = 2  # rates of a ray to either side of the best η_E


def follow_up(table, config: Config) -> dict[str, list[Run]]:
    """The runs of the rays of a star: `REACH` rates to either side of the best η_E, at the width's best η_H.

    The selecting seeds choose both. μP's init has the rates of `mup_rates`.
    """
    if config.design != "star":
        return {}
    by_label = {}
    for width in config.widths:
        hidden, best = best_hidden(table, config, width, config.selecting_seeds), best_rate(table, config, width)
        near = config.rates[max(0, best - REACH) : best + REACH + 1]
        tried = list(product(rays(config), near))
        if config.mup_init:
            tried += product([mup_init(width)], mup_rates(config, best))
        by_label[label(config, width)] = [
            run(width, config.vocab, rate, hidden, factors, seed)
            for (factors, rate), seed in product(tried, config.seeds)
        ]
    return by_label


def best_rate(table, config: Config, width: int) -> int:
    """The index of the best η_E at the width's best η_H, by the selecting seeds."""
    hidden = best_hidden(table, config, width, config.selecting_seeds)
    means = losses_over_rates(table, config, width, hidden, COMMON, config.selecting_seeds).mean(axis=0)
    return int(np.argmin(np.where(np.isfinite(means), means, np.inf)))


def losses_over_rates(
    table,
    config: Config,
    width: int,
    hidden: float,
    factors: dict[str, float],
    seeds: Sequence[int] | None = None,
    rates: Sequence[float] | None = None,
) -> np.ndarray:
    """Final train losses [seeds, rates] over η_E at a width, η_H d and factors. Default: all seeds and the grid."""
    example = run(width, config.vocab, config.rates[0], hidden, factors, config.seeds[0])
    columns: dict[str, float] = {"setting.model.width": width}
    columns |= {f"run.learning_rates.{role}": example.learning_rates[role] for role in ("hidden", "output")}
    columns |= {f"run.init_std.{role}": example.init_std[role] for role in ("embedding", "output")}
    rows = select(table, columns)
    return losses_by_seed_and_rate(rows, rates or config.rates, config.seeds if seeds is None else seeds)


def least_loss(losses: np.ndarray) -> float:
    """The least mean over seeds of losses [seeds, rates]; NaN if no rate finished with every seed."""
    means = losses.mean(axis=0)
    return float(np.min(means[np.isfinite(means)], initial=np.inf)) if np.isfinite(means).any() else np.nan


def best_hidden(table, config: Config, width: int, seeds: Sequence[int] | None = None) -> float:
    """The η_H d with the least loss at a width, with all factors 1. Default seeds: all."""
    least = [least_loss(losses_over_rates(table, config, width, x, COMMON, seeds)) for x in config.hidden_rates]
    return config.hidden_rates[int(np.nanargmin(least))] if np.isfinite(least).any() else config.hidden_rates[0]


def hidden_power(table, config: Config) -> analysis.Slope:
    """The power of d that the best η_H follows; widths whose best value is at an edge of the grid are left out."""
    best = np.array([best_hidden(table, config, width) for width in config.widths])
    inside = np.isin(best, config.hidden_rates[1:-1])
    return analysis.slope(config.widths, (np.where(inside, best / np.array(config.widths), np.nan), None))


def rate_curves(table, config: Config) -> list[RateCurves]:
    """The final train losses over η_E with equal points, by η_H."""
    rates = [config.rates] * len(config.widths)
    return [
        RateCurves(
            f"η_H = {hidden:g}/d",
            config.widths,
            rates,
            [losses_over_rates(table, config, width, hidden, COMMON) for width in config.widths],
        )
        for hidden in config.hidden_rates
    ]


def optima(table, config: Config, selecting: Sequence[int] | None = None, judging: Sequence[int] | None = None):
    """The optimal η_E at every width's best η_H, and the slope of their power law.

    The selecting seeds choose η_H, and the judging seeds give the optima. Default of both: all seeds. An optimum has
    the flag "hidden edge" if a better η_H may lie beyond the grid.
    """
    hidden = [best_hidden(table, config, width, selecting) for width in config.widths]
    losses = [
        losses_over_rates(table, config, width, best, COMMON, judging)
        for width, best in zip(config.widths, hidden, strict=True)
    ]
    ends = {config.hidden_rates[0], config.hidden_rates[-1]} if len(config.hidden_rates) > 1 else ()
    by_width = [
        replace(best, flags=best.flags + (("hidden edge",) if chosen in ends else ()))
        for best, chosen in zip(analysis.optima(config.rates, losses), hidden, strict=True)
    ]
    return by_width, analysis.slope(config.widths, by_width)


class Compared(NamedTuple):
    """The best point with equal hidden and output matrices at a width, and the best of all points.

    Equal matrices have the same init std and rate; the embedding's init is free. The selecting seeds choose both
    points. Losses are in logarithms.
    """

    equal: Tuned
    best: Tuned  # of all points
    equal_at_edge: bool  # whether a better equal point may lie beyond a grid
    best_at_edge: bool  # whether a better point may lie beyond a grid; σ_E is not checked: both points choose it
    has_unequal: bool  # whether unequal points were trained
    at_selected_rate: bool  # whether unequal points were trained at the η_H that the selecting seeds choose

    @property
    def gap(self) -> float:
        """The relative excess of the mean loss of the equal point; NaN without unequal points."""
        return float(np.expm1(np.mean(self.equal.losses - self.best.losses))) if self.has_unequal else np.nan


def compare(table, config: Config, width: int) -> Compared:
    """Compares the best equal point of a width with its best point. Runs with μP's init have no part in it."""
    rows = select(table, {"setting.model.width": width})
    rows = rows[~np.isclose(rows["run.init_std.output"] * width, 1.0)]
    rows = rows.assign(log_loss=np.log(rows["train_loss"].astype(float)))
    equal = np.isclose(rows["run.learning_rates.output"], rows["run.learning_rates.hidden"])
    equal &= np.isclose(rows["run.init_std.output"], rows["run.init_std.hidden"])
    chosen = [
        best_setting(some, config.judging_seeds, "log_loss", selecting=config.selecting_seeds)
        for some in (rows[equal], rows)
    ]
    of_equal, of_all = (Tuned(each.losses, each.regret) for each in chosen)
    equal_at_edge, best_at_edge = (_at_edge(rows, config, width, each.columns) for each in chosen)
    hidden = best_hidden(table, config, width, config.selecting_seeds)
    at_selected = np.isclose(rows.loc[~equal, HIDDEN_RATE] * width, hidden).any()
    return Compared(of_equal, of_all, equal_at_edge, best_at_edge, not equal.all(), bool(at_selected))


def _at_edge(rows, config: Config, width: int, columns: Mapping[str, float]) -> bool:
    """Whether a point has the first or last of several tried rates, or an end of a grid of factors that is not 1.

    The tried η_E are those of the runs that differ from the point in η_E only: a ray has few of the rates.
    """
    if not columns:
        return False
    hidden = columns[HIDDEN_RATE]
    alike = select(rows, {name: value for name, value in columns.items() if name != EMBEDDING_RATE})
    rates = [
        (columns[EMBEDDING_RATE], sorted(set(alike[EMBEDDING_RATE]))),
        (hidden * width, config.hidden_rates),
    ]
    factors = [
        (columns["run.learning_rates.output"] / hidden, config.output_rate_factors),
        (columns["run.init_std.output"] * width**0.5, config.output_std_factors),
    ]
    ends = [(value, {grid[0], grid[-1]}) for value, grid in rates if len(grid) > 1]
    ends += [(value, {grid[0], grid[-1]} - {1.0}) for value, grid in factors]
    return any(np.isclose(value, end) for value, grid in ends for end in grid)


class Init(NamedTuple):
    """The best η_E under an init, at the η_H that is best with LVP's. Losses are in logarithms."""

    loss: Tuned
    at_edge: bool  # whether the best rate is the first or last tried


def best_of_init(table, config: Config, width: int, *, mup: bool) -> Init:
    """The best η_E of a width under μP's init or LVP's. The selecting seeds choose it."""
    hidden = best_hidden(table, config, width, config.selecting_seeds)
    factors, rates = COMMON, config.rates
    if mup:
        factors = mup_init(width)
        rates = mup_rates(config, best_rate(table, config, width)) if config.design == "star" else config.rates
    first, others = (
        np.log(losses_over_rates(table, config, width, hidden, factors, seeds, rates)).T
        for seeds in (config.selecting_seeds, config.judging_seeds)
    )
    selected = select_rate(first)
    if selected is None:
        return Init(Tuned(np.full(len(config.judging_seeds), np.nan)), False)
    return Init(Tuned(others[selected.best], selected.regret), selected.at_edge)


def mup_over_lvp(inits: Sequence[tuple[Init, Init]]) -> Measurement:
    """The loss under μP's init over that under LVP's. Arguments: (μP's, LVP's) by width."""
    return _mean_ratio(*([each.loss for each in side] for side in zip(*inits, strict=True)))


def _mean_ratio(losses: Sequence[Tuned], others: Sequence[Tuned]) -> Measurement:
    """A tuned loss over another, as a geometric mean over widths. The interval allows for the selection.

    Args:
      losses, others: by width, in logarithms.
    """
    parts = [[[Tuned(x.losses / len(side), x.regret / len(side))] for x in side] for side in (losses, others)]
    return difference(*parts).exp()


def cost_of_equal(compared: Sequence[Compared]) -> Measurement:
    """The loss of the best equal point over that of the best point, as a geometric mean over widths.

    The interval allows for the selection of the points. Unknown if a width has no unequal point.
    """
    if not all(each.has_unequal for each in compared):
        return Measurement(np.nan, None)
    return _mean_ratio([each.equal for each in compared], [each.best for each in compared])


def summary(table, config: Config) -> str:
    """Optima and slope; the least loss of every unequal point over that of equal points."""
    by_width, slope = optima(table, config)
    lines = [f"{'width':>6} {'η_H d':>6} {OPTIMUM_HEADER}  flags"]
    for width, best in zip(config.widths, by_width, strict=True):
        numbers, flags = optimum_row(best)
        lines.append(f"{width:>6} {best_hidden(table, config, width):>6.3g} {numbers}  {flags}")
    lines.append(slope_line(slope, config.widths))
    lines += ["", "least train loss over η_E (and η_H where it is swept), above the common point's, in %"]
    lines.append(f"{'point':<22}" + "".join(f"d {d}".rjust(9) for d in config.widths))
    for name, costs in ray_gaps(table, config).items():
        lines.append(f"{name:<22}" + "".join(f"{100 * cost:>z9.1f}" for cost in costs))
    return "\n".join(lines)


def ray_gaps(table, config: Config) -> dict[str, list[float]]:
    """Value of a factor → by width, its least loss over the least loss with all factors 1, minus 1."""
    by_setting = {}
    for name, quantity in FACTORS.items():
        for value in getattr(config, name):
            if value != 1.0:
                alike = [x for x in product(config.hidden_rates, all_factors(config)) if x[1][name] == value]
                by_setting[f"{quantity} = {value:g}"] = [_ray_gap(table, config, d, alike) for d in config.widths]
    if config.mup_init:
        pairs = [
            (best_of_init(table, config, d, mup=True), best_of_init(table, config, d, mup=False)) for d in config.widths
        ]
        by_setting["μP's init, judging"] = [
            float(np.expm1(np.mean(mup.loss.losses - lvp.loss.losses))) for mup, lvp in pairs
        ]
    return by_setting


def _ray_gap(table, config: Config, width: int, alike) -> float:
    common = least_loss(losses_over_rates(table, config, width, best_hidden(table, config, width), COMMON))
    least = [least_loss(losses_over_rates(table, config, width, *point)) for point in alike]
    return float(np.nanmin(least)) / common - 1 if np.isfinite(least).any() else np.nan
