"""What the records of `experiments.warmup` say: losses by arm, rate and warm-up, gaps, and the size of updates."""

import re

import numpy as np
import pandas as pd

from experiments.common.decoder_runs import of_optimizer, where
from experiments.warmup.config import Config, arm_cell, arm_lane, cells, rates_of
from lvp import analysis
from lvp.training import Lane


def rows(table, config: Config, name: str, rate: float, warmup: float, seeds) -> pd.DataFrame:
    """The lanes of a setting, a row a seed; nothing but NaN in the row of one that is missing or diverged."""
    lane = arm_lane(config, name, rate, warmup, seeds[0])
    columns = {"lane.learning_rates.hidden": rate, "lane.warmup_steps": lane.warmup_steps}
    columns |= {f"lane.options.{option}": value for option, value in lane.options.items()}
    found = where(of_optimizer(table, arm_cell(config, name)), columns | {"status": "finished"})
    return found.set_index("lane.seed").reindex(list(seeds))


def losses(table, config: Config, name: str, warmup: float) -> np.ndarray:
    """Validation loss [rates, first seeds] in nats per token; NaN where a lane is missing or diverged."""
    found = [rows(table, config, name, rate, warmup, config.seeds)["valid_loss"] for rate in rates_of(config, name)]
    return np.array(found, float)


def best_rate(table, config: Config, name: str, warmup: float) -> float | None:
    """The rate of the least mean loss over the first seeds, of those at which all of them finished."""
    means = losses(table, config, name, warmup).mean(axis=1)
    return rates_of(config, name)[int(np.nanargmin(means))] if np.isfinite(means).any() else None


def at_edge(table, config: Config, name: str, warmup: float) -> bool:
    """Whether the best rate is the first or last of its grid, so that a better one may lie beyond."""
    rates = rates_of(config, name)
    return best_rate(table, config, name, warmup) in (rates[0], rates[-1])


def chosen(table, config: Config, name: str, warmup: float):
    """The lanes of the other seeds at the best rate; None where no rate finished."""
    rate = best_rate(table, config, name, warmup)
    return None if rate is None else rows(table, config, name, rate, warmup, config.more_seeds)


def tuned_losses(table, config: Config, name: str, warmup: float) -> np.ndarray:
    """Validation loss [other seeds] at the best rate."""
    found = chosen(table, config, name, warmup)
    return np.full(len(config.more_seeds), np.nan) if found is None else found["valid_loss"].to_numpy(float)


def gap(table, config: Config, name: str, warmup: float) -> np.ndarray:
    """What no warm-up costs against this one in validation loss [other seeds], seed by seed."""
    return tuned_losses(table, config, name, 0.0) - tuned_losses(table, config, name, warmup)


def best_warmup(table, config: Config, name: str, *, none: bool = False) -> float | None:
    """The warm-up, and with `none` perhaps none, at whose best rate the mean loss over the first seeds is least."""
    means = {w: losses(table, config, name, w).mean(axis=1) for w in config.warmups if w or none}
    least = {w: np.nanmin(x) for w, x in means.items() if np.isfinite(x).any()}
    return min(least, key=least.__getitem__) if least else None


def over_time(found, config: Config, what: str) -> np.ndarray:
    """A measure of the hidden matrices [seeds, measured steps]: their update norm or angle together, the mean of their
    representation changes. NaN where there is none."""
    empty = np.full((1 if found is None else len(found), len(config.measured_steps)), np.nan)
    if found is None:
        return empty
    names = [f"measures.roles.hidden.{what}"]
    if what == "representation_change":
        names = [c for c in found if re.fullmatch(rf"measures\.matrices\.block_\d+/.*\.{what}", c)]
    read = [[x if isinstance(x, list) else empty[0] for x in found[c]] for c in names if c in found]
    return np.mean(np.array(read, float), axis=0) if read else empty


def schedule(config: Config, warmup: float) -> np.ndarray:
    """η_t over its peak at the measured steps."""
    step = np.array(config.measured_steps)
    fall = max(1, round(config.cooldown * config.steps))
    return np.minimum.reduce(
        [np.ones(len(step)), (config.steps - step) / fall, (step + 1) / max(1, config.rise(warmup))]
    )


def departure(table, config: Config, name: str, what: str) -> np.ndarray:
    """How far a measure without warm-up is from following the schedule [seeds]: the largest factor by which measure
    over schedule leaves its (geometric) mean over the measured steps, less one."""
    logs = np.log(over_time(chosen(table, config, name, 0.0), config, what) / schedule(config, 0.0))
    return np.exp(np.abs(logs - logs.mean(axis=1, keepdims=True)).max(axis=1)) - 1


def early(table, config: Config, name: str, what: str) -> np.ndarray:
    """A measure at the first step over its median at constant rate, without warm-up [seeds]."""
    values = over_time(chosen(table, config, name, 0.0), config, what)
    at = np.array(config.measured_steps)
    later = (at >= config.rise(config.reference)) & (at <= (1 - config.cooldown) * config.steps)
    return values[:, 0] / np.median(values[:, later], axis=1)


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """The other seeds, at every arm's best rate of each warm-up."""
    labels = [(c.label, c.cell) for c in cells(config)]
    found: dict[str, list[Lane]] = {}
    for name in config.arms:
        (label,) = [label for label, cell in labels if cell == arm_cell(config, name)]
        for warmup in config.warmups:
            rate = best_rate(table, config, name, warmup)
            more = [arm_lane(config, name, rate, warmup, seed) for seed in config.more_seeds if rate]
            found.setdefault(label, []).extend(more)
    return found


def _interval(values: np.ndarray) -> str:
    interval = analysis.t_interval(values)
    if not np.isfinite(values).all():
        return "–"
    ends = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    return f"{values.mean():.3f}{ends}"


def summary(table, config: Config) -> str:
    """Every arm: the best rate and loss of each warm-up, and what no warm-up costs."""
    heads = "".join(f"{f'{w:.0%}: rate':>12} {'loss':>7}" for w in config.warmups)
    gaps = f"{f'gap to {config.reference:.0%}':<24}{'to the best warm-up':<30}"
    lines = [f"{'optimizer':<24}{heads}  {gaps} early norm / angle / RRC"]
    for name in config.arms:
        line = f"{name:<24}"
        for warmup in config.warmups:
            rate = best_rate(table, config, name, warmup)
            edge = "*" if at_edge(table, config, name, warmup) else " "
            least = rows(table, config, name, rate, warmup, config.seeds)["valid_loss"].mean() if rate else np.nan
            line += f"{rate or np.nan:>11.4g}{edge} {least:>7.3f}"
        best = best_warmup(table, config, name)
        found = _interval(gap(table, config, name, best)) if best else "–"
        line += f"  {_interval(gap(table, config, name, config.reference)):<24}{f'{found} ({best or 0:.0%})':<30} "
        ratios = [early(table, config, name, what).mean() for what in ("norm", "angle", "representation_change")]
        lines.append(line + " / ".join(f"{x:5.2f}" for x in ratios))
    lines += [
        "",
        f"loss: validation, nats per token, mean over {len(config.seeds)} seeds, at the best rate (*: at the edge of "
        f"its grid). gap: what no warm-up loses, {len(config.more_seeds)} other seeds at these rates, 95 % t interval",
        "early: of the hidden matrices without warm-up, first step over the median at constant rate; RRC: relative "
        "representation change",
    ]
    return "\n".join(lines).replace("nan", "  –")
