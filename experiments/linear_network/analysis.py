"""Reads the records of `linear_network`: optima over width and vocabulary, their powers, and the summary."""

import numpy as np

from lvp import analysis
from lvp.analysis import Optimum
from lvp.experiments.common.shape_powers import optima_lines, power_lines
from lvp.experiments.common.tables import select
from lvp.experiments.linear_network.config import Config, name_of


def losses(table, config: Config, rows: str, steps: int) -> list[np.ndarray]:
    """By shape, losses [seeds, rates] after `steps` steps: NaN for a missing run, infinite for a diverged one."""
    by_shape = []
    for d, m in config.shapes:
        runs = select(table, {"setting.arguments.width": d, "setting.arguments.vocab": m, "run.rows": rows})
        values = np.full((len(config.seeds), len(config.rates)), np.nan)
        for _, run in runs[runs["run.seed"].isin(config.seeds)].iterrows() if len(runs) else ():
            after = np.array(run[f"loss_step{steps}"], float)  # None becomes NaN
            values[config.seeds.index(run["run.seed"])] = np.where(np.isnan(after), np.inf, after)
        by_shape.append(values)
    return by_shape


def optima(table, config: Config, rows: str, steps: int) -> list[Optimum]:
    """The optimal η_E at every shape after `steps` steps."""
    return analysis.optima(config.rates, losses(table, config, rows, steps))


def summary(table, config: Config) -> str:
    """Optima after the last step, and powers of d and m after every number of steps."""
    lines = []
    for rows in config.rows:
        by_steps = {f"{steps} steps": optima(table, config, rows, steps) for steps in config.steps}
        lines.append(f"{name_of(rows)}, after {config.steps[-1]} steps; loss in nats")
        lines += [*optima_lines(config.shapes, list(by_steps.values())[-1]), ""]
        lines.append(f"{name_of(rows)}: power of d or m that the best η_E follows, with its 95 % interval")
        lines += [*power_lines(config.shapes, config.slices, by_steps), ""]
    return "\n".join(lines[:-1])
