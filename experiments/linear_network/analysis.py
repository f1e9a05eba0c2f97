"""Reads the records of `linear_network`: optima over width and vocabulary, their powers, and the summary."""

import numpy as np

from experiments.common.optimum_text import OPTIMUM_HEADER, optimum_row
from experiments.common.shape_powers import slope_along
from experiments.common.tables import select
from experiments.linear_network.config import Config, name_of
from lvp import analysis
from lvp.analysis import Optimum
from lvp.analysis.power_laws import in_words, with_interval


def losses(table, config: Config, rows: str, steps: int) -> list[np.ndarray]:
    """By shape, losses [seeds, rates] after `steps` steps: NaN for a missing lane, infinite for a diverged one."""
    by_shape = []
    for d, m in config.shapes:
        lanes = select(table, {"cell.arguments.width": d, "cell.arguments.vocab": m, "lane.rows": rows})
        values = np.full((len(config.seeds), len(config.rates)), np.nan)
        for _, lane in lanes[lanes["lane.seed"].isin(config.seeds)].iterrows() if len(lanes) else ():
            after = np.array(lane[f"loss_step{steps}"], float)  # None becomes NaN
            values[config.seeds.index(lane["lane.seed"])] = np.where(np.isnan(after), np.inf, after)
        by_shape.append(values)
    return by_shape


def optima(table, config: Config, rows: str, steps: int) -> list[Optimum]:
    """The optimal η_E at every shape after `steps` steps."""
    return analysis.optima(config.rates, losses(table, config, rows, steps))


def powers(config: Config, best: list[Optimum]) -> analysis.Powers:
    """The powers of d and m that the resolved optima of all shapes follow together."""
    widths, vocabs = zip(*config.shapes, strict=True)
    return analysis.powers({"d": widths, "m": vocabs}, best)


def summary(table, config: Config) -> str:
    """Optima after the last step, and powers of d and m after every number of steps."""
    lines = []
    for rows in config.rows:
        last = config.steps[-1]
        lines += [f"{name_of(rows)}, after {last} steps", f"{'width':>6} {'vocab':>6} {OPTIMUM_HEADER}  flags"]
        for (d, m), best in zip(config.shapes, optima(table, config, rows, last), strict=True):
            numbers, flags = optimum_row(best)
            lines.append(f"{d:>6} {m:>6} {numbers}  {flags}")
        by_steps = {steps: optima(table, config, rows, steps) for steps in config.steps}
        lines += ["", f"{name_of(rows)}: power of the moving quantity, with its 95 % interval"]
        lines.append(f"{'moves':<6}{'held':<10}" + "".join(f"{f'{t} steps':>24}" for t in config.steps))
        for part in config.slices:
            texts = [in_words(slope_along(part, best)) for best in by_steps.values()]
            lines.append(f"{part.moving:<6}{part.name:<10}" + "".join(f"{text:>24}" for text in texts))
        for name in ("d", "m"):
            fits = [powers(config, best) for best in by_steps.values()]
            texts = [with_interval(fit.powers[name], fit.intervals[name]) for fit in fits]
            lines.append(f"{name:<6}{'all':<10}" + "".join(f"{text:>24}" for text in texts))
        lines.append("")
    return "\n".join(lines[:-1])
