"""What the records of `regimes` say, and its table."""

from typing import Any

import numpy as np

from experiments.common.decoder_runs import (
    EMBEDDING,
    OPTIMUM_HEAD,
    best_known,
    grid,
    optimum_row,
    setting_of,
    where,
)
from experiments.regimes.config import RULES, Config, label, rule_lane, swept_lane
from lvp import analysis
from lvp.analysis.power_laws import with_interval
from lvp.training import Lane


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """Every rule at every other cell, with the constant that was best at the smallest."""
    chosen = {rule: tuned(table, config, rule) for rule in RULES}
    return {
        label(d, m): [rule_lane(config, rule, c, d, m, s) for rule, c in chosen.items() for s in config.seeds if c]
        for d, m in config.shapes[1:]
    }


# Of a token of another vocabulary a nat is worth another number of bytes: these losses compare.
LOSS = "train_bits_per_byte"


def shape(width: int, vocab: int) -> dict[str, int]:
    """A cell, by the columns of the table."""
    return {"cell.model.width": width, "cell.model.vocab": vocab}


def rule_losses(table, config: Config, rule: str, constant: float, width: int, vocab: int) -> np.ndarray:
    """Final train loss [seeds] of a rule at a cell, in bits per byte; as `grid` has it."""
    columns = setting_of(rule_lane(config, rule, constant, width, vocab, config.seeds[0]))
    rows = where(table, shape(width, vocab) | columns)
    return grid(rows, [columns[EMBEDDING]], config.seeds, LOSS)[:, 0]


def tuned(table, config: Config, rule: str) -> float | None:
    """The constant of the least mean loss at the smallest cell; None where all diverged."""
    means = [rule_losses(table, config, rule, c, *config.shapes[0]).mean() for c in config.constants]
    return config.constants[int(np.nanargmin(means))] if np.isfinite(means).any() else None


def gap(table, config: Config, rule: str, constant: float | None, width: int, vocab: int) -> np.ndarray:
    """Loss of a rule with its tuned constant over the best known of a cell, less one [seeds]: seed by seed, so that
    what a seed does to all settings alike is no gap. NaN without a constant."""
    if constant is None:
        return np.full(len(config.seeds), np.nan)
    best = best_known(where(table, shape(width, vocab)), config.seeds, LOSS)
    return rule_losses(table, config, rule, constant, width, vocab) / best - 1


def gaps(table, config: Config) -> dict[str, np.ndarray]:
    """By rule, its gaps at all cells but the smallest [cells, seeds]."""
    constants = {rule: tuned(table, config, rule) for rule in RULES}
    return {r: np.array([gap(table, config, r, c, *at) for at in config.shapes[1:]]) for r, c in constants.items()}


def mean_and_worst(gap: np.ndarray) -> dict[str, tuple[float, tuple[float, float] | None]]:
    """Of gaps [cells, seeds]: the mean and the largest over cells, each with a 95 % t interval over seeds."""
    made = {}
    for name, over in (("mean", np.mean), ("worst", np.max)):
        value = float(over(gap.mean(axis=1)))
        made[name] = value, analysis.t_interval([over(column) for column in gap.T], centre=value)
    return made


def optima(table, config: Config):
    """The optimum of (a) at every shape, and the powers of width and vocabulary that they follow."""
    found = []
    for d, m in config.shapes:
        fixed = setting_of(swept_lane(config, config.rates[0], d, m, config.seeds[0]))
        del fixed[EMBEDDING]
        found.append(grid(where(table, shape(d, m) | fixed), config.rates, config.seeds, LOSS))
    best = analysis.optima(config.rates, found)
    return best, powers(config, best)


def powers(config: Config, best, *, include_flagged: bool = False) -> analysis.Powers:
    widths, vocabs = zip(*config.shapes, strict=True)
    return analysis.powers({"width": widths, "vocab": vocabs}, best, include_flagged=include_flagged)


def _percent(value: float, interval) -> str:
    middle, *ends = (f"{round(100 * x, 1) + 0:.1f}" for x in (value, *(interval or ())))  # not "-0.0"
    return f"{middle} [{', '.join(ends)}]" if ends else middle


def summary(table, config: Config) -> str:
    """The optima of (a) and their powers; the gaps of (b)."""
    best, fit = optima(table, config)
    lines = [
        f"(a) best η_E at init d^(−1/2) and hidden rate {config.rate_times_width:g}/d; train loss in bits per byte"
    ]
    lines.append(f"{'width':>6} {'vocab':>6} {OPTIMUM_HEAD}  flags")
    for (d, m), o in zip(config.shapes, best, strict=True):
        numbers, flags = optimum_row(o)
        lines.append(f"{d:>6} {m:>6} {numbers}  {flags}")
    every = powers(config, best, include_flagged=True)
    for name in fit.powers:
        words = [
            f"{with_interval(*f.power(name))} from {which}" for which, f in (("resolved cells", fit), ("all", every))
        ]
        lines.append(f"best η_E as a power of {name}, the other held: {', '.join(words)}")
    lines += _slices(config, best)
    lines += ["", "(b) train loss above the best known of each cell but the smallest, in %, 95 % intervals"]
    lines.append(f"{'rule':<13} {'constant':>9} {'where tuned':>12} {'mean':>22} {'worst':>22}  at")
    for rule, found in gaps(table, config).items():
        constant, made = tuned(table, config, rule), mean_and_worst(found)
        edge = "*" if constant in (config.constants[0], config.constants[-1]) else ""
        at = "d {}, m {}".format(*config.shapes[1:][int(np.argmax(found.mean(axis=1)))])
        cells_ = " ".join(f"{_percent(*made[name]):>22}" for name in ("mean", "worst"))
        own = _percent(float(gap(table, config, rule, constant, *config.shapes[0]).mean()), None)
        lines.append(f"{RULES[rule]:<13} {constant or np.nan:>8.4g}{edge or ' '} {own:>12} {cells_}  {at}")
    lines.append("constant: hidden rate times width at the smallest cell, tuned there (*: at the edge of its grid)")
    return "\n".join(lines)


def _slices(config: Config, best) -> list[str]:
    """The power of one quantity at each value of the other, through flagged cells too."""
    logs = dict(zip(config.shapes, np.log([o.rate for o in best]), strict=True))
    lines = []
    for name, moving, held, cell in (
        ("width", config.widths, config.vocabs, lambda d, m: (d, m)),
        ("vocab", config.vocabs, config.widths, lambda m, d: (d, m)),
    ):
        steep = [np.polyfit(np.log(moving), [logs[cell(x, y)] for x in moving], 1)[0] for y in held if len(moving) > 1]
        if steep and np.isfinite(steep).all():
            other = "m" if name == "width" else "d"
            words = ", ".join(f"{x:.2f} at {other} {y}" for x, y in zip(steep, held, strict=True))
            lines.append(f"power of {name} by slice, all cells: {words}")
    return lines


def evidence(table, config: Config) -> dict:
    """Table (b) as data: see `lvp.parametrization.evidence.transfer`."""
    found = {}
    for rule, each in gaps(table, config).items():
        constant = tuned(table, config, rule)
        own = gap(table, config, rule, constant, *config.shapes[0]).mean()
        row: dict[str, Any] = {"constant": constant, "tuned_gap": _finite(float(own))}
        for name, (value, interval) in mean_and_worst(each).items():
            row |= {f"{name}_gap": _finite(value), f"{name}_gap_interval": interval and list(map(_finite, interval))}
        found[rule] = row
    shapes = {"widths": list(config.widths), "vocabs": list(config.vocabs), "seeds": len(config.seeds)}
    return shapes | {"rules": found}


def _finite(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None
