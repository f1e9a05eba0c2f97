"""Reads the records of `regimes`: optima over width and vocabulary, gaps of the rules, summary and evidence."""

from typing import Any

import numpy as np

from experiments.common.adaptive_replay import RateCurves
from experiments.common.optimum_text import OPTIMUM_HEADER, optimum_row
from experiments.common.tables import (
    EMBEDDING_RATE,
    lane_columns,
    losses_by_seed_and_rate,
    losses_of_best_setting,
    select,
)
from experiments.regimes.config import RULES, Config, label, rule_lane, swept_lane
from lvp import analysis
from lvp.analysis.measurement import Measurement
from lvp.analysis.power_laws import with_interval
from lvp.training import Lane


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """The lanes of every rule at every other cell, with the constant that is best at the smallest cell."""
    constants = {rule: tuned_constant(table, config, rule) for rule in RULES}
    return {
        label(d, m): [rule_lane(config, rule, c, d, m, s) for rule, c in constants.items() for s in config.seeds if c]
        for d, m in config.shapes[1:]
    }


# The bytes per token depend on the vocabulary, so losses per byte are comparable and losses per token are not.
LOSS = "train_bits_per_byte"


def shape_columns(width: int, vocab: int) -> dict[str, int]:
    """The values of the table's columns for the cell of a shape."""
    return {"cell.model.width": width, "cell.model.vocab": vocab}


def rule_losses(table, config: Config, rule: str, constant: float, width: int, vocab: int) -> np.ndarray:
    """Final train losses [seeds] of a rule at a cell in bits per byte, as in `losses_by_seed_and_rate`."""
    columns = lane_columns(rule_lane(config, rule, constant, width, vocab, config.seeds[0]))
    rows = select(table, shape_columns(width, vocab) | columns)
    return losses_by_seed_and_rate(rows, [columns[EMBEDDING_RATE]], config.seeds, LOSS)[:, 0]


def tuned_constant(table, config: Config, rule: str) -> float | None:
    """The constant with the least mean loss at the smallest cell; None if all diverged."""
    means = [rule_losses(table, config, rule, c, *config.shapes[0]).mean() for c in config.constants]
    return config.constants[int(np.nanargmin(means))] if np.isfinite(means).any() else None


def gap(table, config: Config, rule: str, constant: float | None, width: int, vocab: int) -> np.ndarray:
    """Loss of a rule at a constant over the loss of the cell's best known setting, less 1 [seeds].

    Losses are divided seed by seed, since a seed shifts the losses of all settings alike. NaN without a constant.
    """
    if constant is None:
        return np.full(len(config.seeds), np.nan)
    best = losses_of_best_setting(select(table, shape_columns(width, vocab)), config.seeds, LOSS)
    return rule_losses(table, config, rule, constant, width, vocab) / best - 1


def gaps(table, config: Config) -> dict[str, np.ndarray]:
    """Gaps [cells, seeds] of every rule at all cells but the smallest, by rule."""
    constants = {rule: tuned_constant(table, config, rule) for rule in RULES}
    return {
        rule: np.array([gap(table, config, rule, constant, *shape) for shape in config.shapes[1:]])
        for rule, constant in constants.items()
    }


def mean_and_worst(gaps_of_rule: np.ndarray) -> dict[str, Measurement]:
    """The mean and the largest gap over cells, from gaps [cells, seeds]; each with a 95 % t interval over seeds."""
    by_name = {}
    for name, over_cells in (("mean", np.mean), ("worst", np.max)):
        value = float(over_cells(gaps_of_rule.mean(axis=1)))
        by_name[name] = Measurement.over_seeds([over_cells(seed) for seed in gaps_of_rule.T], centre=value)
    return by_name


def losses(table, config: Config, width: int, vocab: int) -> np.ndarray:
    """The losses of (a) at a shape in bits per byte [seeds, rates], as in `losses_by_seed_and_rate`."""
    columns = lane_columns(swept_lane(config, config.rates[0], width, vocab, config.seeds[0]))
    del columns[EMBEDDING_RATE]
    rows = select(table, shape_columns(width, vocab) | columns)
    return losses_by_seed_and_rate(rows, config.rates, config.seeds, LOSS)


def optima(table, config: Config) -> tuple[list[analysis.Optimum], analysis.Powers]:
    """The optimum of (a) at every shape, and the powers of width and vocabulary that they follow."""
    best = analysis.optima(config.rates, [losses(table, config, *shape) for shape in config.shapes])
    return best, powers(config, best)


def rate_curves(table, config: Config) -> list[RateCurves]:
    """The losses of (a) over η_E, by vocabulary."""
    rates = [config.rates] * len(config.widths)
    return [
        RateCurves(f"m = {m}", config.widths, rates, [losses(table, config, d, m) for d in config.widths])
        for m in config.vocabs
    ]


def powers(config: Config, best, *, include_flagged: bool = False) -> analysis.Powers:
    """The powers of width and vocabulary that the optima follow."""
    widths, vocabs = zip(*config.shapes, strict=True)
    return analysis.powers({"width": widths, "vocab": vocabs}, best, include_flagged=include_flagged)


def summary(table, config: Config) -> str:
    """The optima of (a) and their powers; the gaps of (b)."""
    best, fit = optima(table, config)
    lines = [
        f"(a) best η_E at init d^(−1/2) and hidden rate {config.rate_times_width:g}/d; train loss in bits per byte"
    ]
    lines.append(f"{'width':>6} {'vocab':>6} {OPTIMUM_HEADER}  flags")
    for (d, m), optimum in zip(config.shapes, best, strict=True):
        numbers, flags = optimum_row(optimum)
        lines.append(f"{d:>6} {m:>6} {numbers}  {flags}")
    every = powers(config, best, include_flagged=True)
    for name in fit.powers:
        resolved, all_cells = (with_interval(f.powers[name], f.intervals[name]) for f in (fit, every))
        lines.append(
            f"best η_E as a power of {name}, the other held: {resolved} from resolved cells, {all_cells} from all"
        )
    lines += _powers_by_slice(config, best)
    lines += ["", "(b) train loss above the best known of each cell but the smallest, in %, 95 % intervals"]
    lines.append(f"{'rule':<13} {'constant':>9} {'where tuned':>12} {'mean':>22} {'worst':>22}  at")
    for rule, gaps_of_rule in gaps(table, config).items():
        constant, over_cells = tuned_constant(table, config, rule), mean_and_worst(gaps_of_rule)
        edge = "*" if constant in (config.constants[0], config.constants[-1]) else ""
        worst_cell = "d {}, m {}".format(*config.shapes[1:][int(np.argmax(gaps_of_rule.mean(axis=1)))])
        columns = " ".join(f"{over_cells[name].percent():>22}" for name in ("mean", "worst"))
        tuned = Measurement(float(gap(table, config, rule, constant, *config.shapes[0]).mean()), None).percent()
        lines.append(f"{RULES[rule]:<13} {constant or np.nan:>8.4g}{edge or ' '} {tuned:>12} {columns}  {worst_cell}")
    lines.append("constant: hidden rate times width at the smallest cell, tuned there (*: at the edge of its grid)")
    return "\n".join(lines)


def _powers_by_slice(config: Config, best) -> list[str]:
    """The power of width at each vocabulary, and of vocabulary at each width, through flagged cells too."""
    logs = dict(zip(config.shapes, np.log([optimum.rate for optimum in best]), strict=True))
    lines = []
    for name, moving, fixed, shape in (
        ("width", config.widths, config.vocabs, lambda d, m: (d, m)),
        ("vocab", config.vocabs, config.widths, lambda m, d: (d, m)),
    ):
        slopes = [
            np.polyfit(np.log(moving), [logs[shape(x, y)] for x in moving], 1)[0] for y in fixed if len(moving) > 1
        ]
        if slopes and np.isfinite(slopes).all():
            other = "m" if name == "width" else "d"
            text = ", ".join(f"{x:.2f} at {other} {y}" for x, y in zip(slopes, fixed, strict=True))
            lines.append(f"power of {name} by slice, all cells: {text}")
    return lines


def evidence(table, config: Config) -> dict[str, Any]:
    """Table (b) as data: see `lvp.parametrization.evidence.transfer`."""
    by_rule = {}
    for rule, gaps_of_rule in gaps(table, config).items():
        constant = tuned_constant(table, config, rule)
        tuned_gap = gap(table, config, rule, constant, *config.shapes[0]).mean()
        row: dict[str, Any] = {"constant": constant, "tuned_gap": _rounded(float(tuned_gap))}
        for name, (value, interval) in mean_and_worst(gaps_of_rule).items():
            row[f"{name}_gap"] = _rounded(value)
            row[f"{name}_gap_interval"] = interval and [_rounded(end) for end in interval]
        by_rule[rule] = row
    shapes = {"widths": list(config.widths), "vocabs": list(config.vocabs), "seeds": len(config.seeds)}
    return shapes | {"rules": by_rule}


def _rounded(value: float) -> float | None:
    """A number to 6 decimals; None for nan and inf, which JSON does not have."""
    return round(value, 6) if np.isfinite(value) else None
