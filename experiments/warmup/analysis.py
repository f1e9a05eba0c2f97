"""Reads the records of `warmup`: losses by group, rate and warm-up, gaps, sizes of updates, and the summary."""

import re
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import Tuned, difference
from lvp.analysis.tuned import select as select_rate
from lvp.experiments.common.tables import (
    HIDDEN_RATE,
    finished_by_seed,
    lists_by_row,
    losses_by_seed_and_rate,
    select,
    with_optimizer,
)
from lvp.experiments.warmup.config import (
    CURVES_GROUP,
    GROUPS,
    LARGER_RATES,
    STABLE_GROUP,
    Config,
    group_run,
    group_setting,
    rates_of,
    settings,
)
from lvp.training import Run

UNSTABLE = 0.1  # nats per token: excess over the least loss above which a run is unstable


def runs_by_seed(table, config: Config, name: str, rate: float, warmup: float, seeds) -> pd.DataFrame:
    """One row per seed of a group at a rate and a warm-up; NaN in the row of a missing or diverged run."""
    rows = with_optimizer(table, group_setting(config, name))
    return finished_by_seed(rows, _run_columns(config, name, rate, warmup), seeds)


def _run_columns(config: Config, name: str, rate: float, warmup: float) -> dict[str, float]:
    """The values of the table's columns for the runs of a group at a rate and a warm-up."""
    run = group_run(config, name, rate, warmup, config.seeds[0])
    columns = {"run.warmup_steps": run.warmup_steps, "run.init_std.hidden": run.init_std["hidden"]}
    return {HIDDEN_RATE: rate} | columns | {f"run.options.{option}": value for option, value in run.options.items()}


def losses(table, config: Config, name: str, warmup: float) -> np.ndarray:
    """Validation losses [rates, selecting seeds] in nats per token; NaN for a missing run, infinite if it diverged."""
    rates = rates_of(config, name)
    columns = _run_columns(config, name, rates[0], warmup)
    del columns[HIDDEN_RATE]
    rows = select(with_optimizer(table, group_setting(config, name)), columns)
    return losses_by_seed_and_rate(rows, rates, config.seeds, "valid_loss", HIDDEN_RATE).T


def best_rate(table, config: Config, name: str, warmup: float) -> float | None:
    """The rate with the least mean loss over the selecting seeds, among the rates at which all of these seeds finished.

    None if there is no such rate. A group with the rate of another group has it without warm-up only.
    """
    if other := GROUPS[name].rate_of:
        return None if warmup else best_rate(table, config, other, 0.0)
    selected = select_rate(losses(table, config, name, warmup))
    return None if selected is None else rates_of(config, name)[selected.best]


def at_edge(table, config: Config, name: str, warmup: float) -> bool:
    """True if the best rate has no tried rate on one side, so that a better rate may lie there."""
    rates, best = rates_of(config, name), best_rate(table, config, name, warmup)
    return best in (rates[0], rates[-1]) or (best is not None and bool(next_rates(table, config, name, warmup)))


def next_rates(table, config: Config, name: str, warmup: float, stable: bool = False) -> list[float]:
    """The untried rates beside the best rate. If no tried rate finished with all seeds: the next lower rate.

    Args:
      stable: whether to return the untried rate above the stable rate too, or the next lower rate if no rate is stable.
    """
    if GROUPS[name].rate_of:
        return []
    rates = rates_of(config, name)
    tried = ~np.isnan(losses(table, config, name, warmup)).any(axis=1)
    best = best_rate(table, config, name, warmup)
    if best is None:
        below = [rate for rate in rates if rate < rates[int(np.argmax(tried))]]
        return below[-1:] if tried.any() else []
    beside = [(best, -1), (best, 1)]
    if stable:
        largest = stable_rate(table, config, name)
        beside.append((rates[int(np.argmax(tried))], -1) if largest is None else (largest, 1))
    wanted = [rates.index(rate) + side for rate, side in beside]
    return sorted({rates[at] for at in wanted if 0 <= at < len(rates) and not tried[at]})


def tuned_runs(table, config: Config, name: str, warmup: float) -> pd.DataFrame | None:
    """One row per judging seed at the best rate; None if no rate finished."""
    rate = best_rate(table, config, name, warmup)
    return None if rate is None else runs_by_seed(table, config, name, rate, warmup, config.more_seeds)


def tuned_losses(table, config: Config, name: str, warmup: float) -> np.ndarray:
    """Validation losses [judging seeds] at the best rate; NaN for a missing or diverged run."""
    rows = tuned_runs(table, config, name, warmup)
    return np.full(len(config.more_seeds), np.nan) if rows is None else rows["valid_loss"].to_numpy(float)


def tuned(table, config: Config, name: str, warmup: float) -> Tuned:
    """The losses of the judging seeds at the selected rate, and by how much another rate may be better."""
    selected = select_rate(losses(table, config, name, warmup))
    return Tuned(tuned_losses(table, config, name, warmup), 0.0 if selected is None else selected.regret)


def gap(table, config: Config, name: str, warmups: Sequence[float]) -> Measurement:
    """Validation loss without warm-up minus the least with one of these warm-ups, each at its best rate."""
    without = [tuned(table, config, name, 0.0)]
    return difference([without], [[tuned(table, config, name, w) for w in warmups]])


def stable_rate(table, config: Config, name: str) -> float | None:
    """The largest rate at which all selecting seeds are stable without warm-up; None if no rate is stable.

    A run is stable if its loss is finite and at most `stability_limits`.
    """
    by_rate, limits = losses(table, config, name, 0.0), stability_limits(table, config, name)
    stable = np.all(np.isfinite(by_rate) & (by_rate <= limits[:, None]), axis=1)
    return max(np.array(rates_of(config, name))[stable].tolist(), default=None)


def stability_limits(table, config: Config, name: str) -> np.ndarray:
    """The largest loss [rates] of a stable run without warm-up: `UNSTABLE` above a reference.

    From the best rate on, the reference is the least mean loss over the rates. Below the best rate all runs may be
    undertrained, so the reference is the least loss of the selecting seeds at the run's rate.
    """
    by_rate, best = losses(table, config, name, 0.0), best_rate(table, config, name, 0.0)
    if best is None:
        return np.full(len(by_rate), np.nan)
    rates = np.array(rates_of(config, name))
    least = by_rate[rates == best].mean()
    return np.where(rates < best, by_rate.min(axis=1), least) + UNSTABLE


def gap_at_stable_rate(table, config: Config, name: str) -> tuple[np.ndarray, int]:
    """The gap to the reference warm-up at the stable rate.

    Returns:
      The gaps [judging seeds], and the number of judging seeds that are not stable there.
    """
    rate = stable_rate(table, config, name)
    if rate is None:
        return np.full(len(config.more_seeds), np.nan), 0
    without, with_warmup = (
        runs_by_seed(table, config, name, rate, w, config.more_seeds)["valid_loss"].to_numpy(float)
        for w in (0.0, config.reference)
    )
    limit = stability_limits(table, config, name)[rates_of(config, name).index(rate)]
    return without - with_warmup, int((~(without <= limit)).sum())  # NaN: diverged


def gap_above_stable_rate(table, config: Config, name: str) -> tuple[float, int]:
    """The selecting seeds' mean gap to the reference warm-up at the rate above the stable rate.

    Returns:
      The gap, and the number of selecting seeds that are stable there. The gap is NaN if a run is missing, and infinite
      if only runs without warm-up diverged.
    """
    at = rates_of(config, name).index(stable_rate(table, config, name)) + 1
    without, with_warmup = (losses(table, config, name, w)[at] for w in (0.0, config.reference))
    stable = without <= stability_limits(table, config, name)[at]
    with np.errstate(invalid="ignore"):
        return float(np.mean(without - with_warmup)), int(stable.sum())


def over_steps(rows: pd.DataFrame | None, config: Config, measure: str) -> np.ndarray:
    """A measure of the hidden matrices [seeds, measured steps]; NaN for a missing or diverged run.

    Update norm and angle are those of all hidden matrices together. The representation change is the mean over the
    matrices.
    """
    shape = (len(config.measured_steps),)
    if rows is None:
        return np.full((1, *shape), np.nan)
    columns = [f"measures.roles.hidden.{measure}"]
    if measure == "representation_change":
        columns = [c for c in map(str, rows) if re.fullmatch(rf"measures\.matrices\.block_\d+/.*\.{measure}", c)]
    by_column = [lists_by_row(rows, column, shape) for column in columns if column in rows]
    return np.mean(by_column, axis=0) if by_column else np.full((len(rows), *shape), np.nan)


def schedule(config: Config, warmup: float) -> np.ndarray:
    """η_t over its peak at the measured steps."""
    step = np.array(config.measured_steps)
    fall = max(1, round(config.cooldown * config.steps))
    return np.minimum.reduce(
        [np.ones(len(step)), (config.steps - step) / fall, (step + 1) / max(1, config.rise(warmup))]
    )


def early(table, config: Config, name: str, measure: str) -> np.ndarray:
    """A measure at the first step over its median at constant rate, without warm-up [seeds].

    NaN if no step at constant rate is measured.
    """
    return _first_over_later(over_steps(tuned_runs(table, config, name, 0.0), config, measure), config)


def _first_over_later(values: np.ndarray, config: Config) -> np.ndarray:
    """The value at the first step over the median at constant rate [seeds]; the values are [seeds, measured steps]."""
    later = _at_constant_rate(config)
    return values[:, 0] / np.median(values[:, later], axis=1) if later.any() else np.full(len(values), np.nan)


def _at_constant_rate(config: Config) -> np.ndarray:
    """Mask [measured steps]: after the reference warm-up and before the cool-down."""
    at = np.array(config.measured_steps)
    return (at >= config.rise(config.reference)) & (at <= (1 - config.cooldown) * config.steps)


def follow_up(table, config: Config, further: bool = True) -> dict[str, list[Run]]:
    """The runs that depend on results.

    Each warm-up of a group first gets the selecting seeds at the untried rates beside its best rate. If no untried
    rate is left, it gets the judging seeds at the best rate.

    Args:
      further: whether the judging seeds also run at the points of `further_points`.
    """
    planned = settings(config)
    by_label: dict[str, list[Run]] = {}
    for name in config.groups:
        (label,) = [c.label for c in planned if c.setting == group_setting(config, name)]
        points: dict[tuple[float | None, float, int], None] = {}  # (rate, warm-up, seed), each once
        for warmup in config.warmups:
            with_stable = further and name == STABLE_GROUP and warmup == 0
            if more := next_rates(table, config, GROUPS[name].rate_of or name, warmup, with_stable):
                if not GROUPS[name].rate_of:
                    points |= dict.fromkeys(product(more, [warmup], config.seeds))
                continue
            judged = [(best_rate(table, config, name, warmup), warmup)]
            judged += further_points(table, config, name) if further and not warmup else []
            points |= dict.fromkeys((*each, seed) for each in judged for seed in config.more_seeds)
        runs = [group_run(config, name, rate, warmup, seed) for rate, warmup, seed in points if rate]
        by_label.setdefault(label, []).extend(runs)
    return by_label


def further_points(table, config: Config, name: str) -> list[tuple[float | None, float]]:
    """The (rate, warm-up) at which the judging seeds of a group run, in addition to its best rates.

    These are the largest stable rate (figure 2), the reference warm-up at the rate that is best without warm-up
    (figure 1), and multiples of this rate without warm-up (figure 3).
    """
    points, best = [], best_rate(table, config, name, 0.0)
    if name == STABLE_GROUP:
        points += [(stable_rate(table, config, name), w) for w in (0.0, config.reference)]
    if name == CURVES_GROUP:
        points.append((best, config.reference))
    return points + [(factor * best, 0.0) for factor in LARGER_RATES.get(name, ()) if best]


def rise(table, config: Config, name: str, factor: float) -> np.ndarray:
    """The loss at a multiple of the best rate minus the loss at the best rate, without warm-up [judging seeds]."""
    best = best_rate(table, config, name, 0.0)
    if best is None:
        return np.full(len(config.more_seeds), np.nan)
    rows = runs_by_seed(table, config, name, factor * best, 0.0, config.more_seeds)
    return rows["valid_loss"].to_numpy(float) - tuned_losses(table, config, name, 0.0)


def with_reference(table, config: Config, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The judging seeds' runs without warm-up and with the reference warm-up, at the rate that is best without."""
    rate = best_rate(table, config, name, 0.0)
    without, with_warmup = (
        runs_by_seed(table, config, name, rate or 0.0, w, config.more_seeds) for w in (0.0, config.reference)
    )
    return without, with_warmup


def train_losses_at(rows: pd.DataFrame, step: float) -> np.ndarray:
    """The training loss of each run at a step, interpolated in its curve; NaN for a run without a curve."""
    if "curve_losses" not in rows:
        return np.full(len(rows), np.nan)
    curves = zip(rows["curve_steps"], rows["curve_losses"], strict=True)
    return np.array([np.interp(step, *curve) if isinstance(curve[0], list) else np.nan for curve in curves])


def largest_early(table, config: Config, name: str, measure: str) -> np.ndarray:
    """The largest value of a measure before the constant rate's steps, over its median there, without warm-up [seeds].

    The steps at constant rate are those of `early`.
    """
    values = over_steps(tuned_runs(table, config, name, 0.0), config, measure)
    later = _at_constant_rate(config)
    first = np.array(config.measured_steps) < config.rise(config.reference)
    return values[:, first].max(axis=1) / np.median(values[:, later], axis=1) if later.any() else values[:, 0] * np.nan


def summary(table, config: Config) -> str:
    """The best rate and loss of each warm-up, the gaps and the sizes of the first updates, of every group."""
    warmups = [w for w in config.warmups if w]
    heads = "".join(f"{f'{w:.0%}: rate':>12} {'loss':>7}" for w in config.warmups)
    gaps = "".join(f"{f'gap to {w:.0%}':<24}" for w in warmups)
    lines = [f"{'optimizer':<24}{heads}  {gaps}{'gap to the best of them':<24}early norm / angle / RRC"]
    for name in config.groups:
        line = f"{name:<24}{best_rates(table, config, name)}"
        texts = [gap_at_best_rates(table, config, name, w).text(".3f") for w in warmups]
        texts.append(gap(table, config, name, warmups).text(".3f"))
        line += "  " + "".join(f"{text:<24}" for text in texts)
        measures = ("norm", "angle", "representation_change")
        line += " / ".join(f"{early(table, config, name, measure).mean():5.2f}" for measure in measures)
        lines.append(line)
    lines += [
        "",
        f"loss: validation, nats per token, mean over {len(config.seeds)} selecting seeds, at the best rate (*: at the "
        f"edge of its grid). gap: loss without warm-up minus loss with warm-up, {len(config.more_seeds)} judging seeds "
        "at these rates, 95 % t interval; to the best of them: the interval allows for the choice of warm-up and of "
        "rates",
        "early: of the hidden matrices without warm-up, first step over the median at constant rate; RRC: relative "
        "representation change",
    ]
    if "representation" in config.measures:
        lines += representation_changes(table, config)
    return "\n".join(lines).replace("nan", "  –")


def representation_changes(table, config: Config) -> list[str]:
    """Lines: the first update over those at constant rate by group and rate, without warm-up, beside equation 9's.

    Equation 9 predicts the representation change of normalised gradient descent from the angle and φ: angle ·
    √((1 + B φ)/(1 + φ)), in the limit of large C (Kosson et al. 2024).
    """
    lines = []
    for name in config.groups:
        for rate in rates_of(config, name):
            rows = runs_by_seed(table, config, name, rate, 0.0, config.seeds)
            change, angle, snr = (over_steps(rows, config, x) for x in ("representation_change", "angle", "snr"))
            predicted = angle * np.sqrt((1 + config.batch * snr) / (1 + snr))
            ratios = [_first_over_later(x, config).mean() for x in (change, predicted, angle, snr)]
            if rows["status"].notna().any():
                lines.append(f"{name:<24}{rate:>12.4g}" + "".join(f"{ratio:>12.2f}" for ratio in ratios))
    if not lines:
        return []
    head = f"{'first update / later':<24}{'rate':>12}{'RRC':>12}{'equation 9':>12}{'angle':>12}{'φ':>12}"
    words = (
        "means over the selecting seeds without warm-up (–: a seed diverged or has no such measure); later: median at "
    )
    words += (
        "constant rate; RRC: mean over the hidden matrices; angle, φ: of all hidden matrices; equation 9: the change "
    )
    return ["", head, *lines, "", f"{words}that it predicts from angle and φ, at large C and without momentum"]


def best_rates(table, config: Config, name: str) -> str:
    """The best rate of a group and its loss by warm-up, in the columns of `summary`."""
    text = ""
    for warmup in config.warmups:
        rate, least = best_rate(table, config, name, warmup), np.nan
        if rate:
            least = runs_by_seed(table, config, name, rate, warmup, config.seeds)["valid_loss"].mean()
        edge = "*" if at_edge(table, config, name, warmup) else " "
        text += f"{rate or np.nan:>11.4g}{edge} {least:>7.3f}"
    return text


def gap_at_best_rates(table, config: Config, name: str, warmup: float) -> Measurement:
    """Validation loss without warm-up minus that with this warm-up at the selected rates, with a t interval.

    The interval does not allow for the choice of the rates.
    """
    without, with_warmup = (tuned_losses(table, config, name, w) for w in (0.0, warmup))
    return Measurement.over_seeds(without - with_warmup)
