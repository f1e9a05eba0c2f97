"""Reads the records of `width_vocab`: optima by width, slopes by horizon, the cost of the √d rule, and the summary."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lvp import analysis
from lvp.analysis import tuned
from lvp.analysis.bracketing import bracketed_optima, next_runs, trained_rates
from lvp.analysis.groups_figure import Group
from lvp.analysis.measurement import Measurement
from lvp.analysis.power_laws import in_words
from lvp.errors import InputError
from lvp.experiments.common.adaptive_comparison import RateCurves
from lvp.experiments.common.optimum_text import OPTIMUM_HEADER, optimum_row, slope_line
from lvp.experiments.common.tables import (
    HIDDEN_RATE,
    HORIZON_LOSS,
    losses_by_seed_and_rate,
    select,
    with_fields,
    with_horizon_loss,
)
from lvp.experiments.width_vocab.config import (
    ADAPTIVE,
    GRID,
    READINGS,
    Config,
    grid_setting,
    runs_at,
    setting_model,
    shapes,
    tuning_config,
)
from lvp.training import Run

LAST = 0.02  # of the steps: the last point of a curve of 50. The paper may mean the last step (section 4.1: t = 1e4)


def losses(
    table, config: Config, token_rows: str, steps: int | None = None, final_fraction: float | None = None
) -> list[np.ndarray]:
    """By width, the losses of `losses_of_setting`."""
    return [losses_of_setting(table, config, token_rows, width, steps, final_fraction) for width in config.widths]


def losses_of_setting(
    table, config: Config, token_rows: str, width: int, steps: int | None = None, final_fraction: float | None = None
) -> np.ndarray:
    """Final train losses [seeds, rates] of a run.

    The final train loss is the mean over the last part of the steps. `table` has one vocabulary per width.

    Args:
      steps: the number of steps; None is the configured number. For fewer steps the loss is read from the curve.
      final_fraction: the last part; None is the configured one. For another part the loss is read from the curve.

    Raises:
      InputError: the runs have fewer steps.
    """
    if steps is not None and steps > config.steps:
        raise InputError(f"steps={steps} is beyond the {config.steps} steps of the runs; read at most {config.steps}")
    kept = _of_setting(table, config, token_rows, width)
    column = "train_loss"
    if steps is not None or final_fraction is not None:
        steps, final_fraction = steps or config.steps, final_fraction or config.final_fraction
        column, kept = HORIZON_LOSS, with_horizon_loss(kept, steps, final_fraction)
    return losses_by_seed_and_rate(kept, config.embedding_rates(token_rows, width), config.seeds, column)


def _of_setting(table, config: Config, token_rows: str, width: int):
    """The rows of a reading and a width, those of the tuning seeds included."""
    model = setting_model(config, token_rows, width)
    return with_fields(table, "setting.model", model, ("width", "embedding_multiplier", "normalize_rows"))


class HiddenConstant(NamedTuple):
    """η_hidden · d of a reading."""

    value: float
    at_edge: bool = False  # the first or last of the tried values, so that a better value may lie beyond


def hidden_constant(table, config: Config, token_rows: str) -> HiddenConstant | None:
    """η_hidden · d of a reading: the value with the least final train loss at the smallest width, at the best η_E.

    The loss is the mean over the tuning seeds. None if no setting finished with all of them. Without values to try, it
    is the configured constant.
    """
    if not config.hidden_constants:
        return HiddenConstant(config.rate_times_width)
    width = config.widths[0]
    rates = tuning_config(config).embedding_rates(token_rows, width)
    rows = _of_setting(table, config, token_rows, width)
    by_setting = [  # [values · rates, seeds]
        losses
        for value in config.hidden_constants
        for losses in losses_by_seed_and_rate(select(rows, {HIDDEN_RATE: value / width}), rates, config.tuning_seeds).T
    ]
    selected = tuned.select(np.array(by_setting))
    if selected is None:
        return None
    best = selected.best // len(rates)
    return HiddenConstant(config.hidden_constants[best], best in (0, len(config.hidden_constants) - 1))


def hidden_constant_text(table, config: Config, token_rows: str) -> str:
    """The tuned η_hidden · d of a reading, for the summary and the claims."""
    tried = f"{', '.join(f'{value:g}' for value in config.hidden_constants)} at width {config.widths[0]}"
    best = hidden_constant(table, config, token_rows)
    if best is None:
        return f"η_hidden · d: no value of {tried} finished with all tuning seeds"
    return f"η_hidden · d: {best.value:g}, tuned over {tried}" + ", at the edge of these values" * best.at_edge


def follow_up(table, config: Config) -> dict[str, list[Run]]:
    """Label of a setting → runs that depend on results: at the tuned η_hidden, and of the adaptive design."""
    if config.design == GRID and not config.hidden_constants:
        return {}
    runs = {}
    for token_rows, width in shapes(config):
        constant = hidden_constant(table, config, token_rows)
        if constant is None:
            continue
        planned = grid_setting(config, token_rows, width, constant.value)
        trained = losses_of_setting(table, config, token_rows, width)
        if config.design == GRID:
            untrained = [(int(seed), int(rate)) for seed, rate in np.argwhere(np.isnan(trained))]
        else:
            untrained = next_runs(config.embedding_rates(token_rows, width), trained)
        runs[planned.label] = runs_at(config, planned, untrained)
    return runs


def optima(table, config: Config, token_rows: str, steps: int | None = None, final_fraction: float | None = None):
    """The optimum at every width, and the slope of their power law. Arguments: `losses_of_setting`."""
    rates = [config.embedding_rates(token_rows, width) for width in config.widths]
    by_width = _optima_of(config)(rates, losses(table, config, token_rows, steps, final_fraction))
    return by_width, analysis.slope(config.widths, by_width)


def _optima_of(config: Config) -> Callable[..., list[analysis.Optimum]]:
    """The estimator of the optima for the runs of the design."""
    return analysis.optima if config.design == GRID else bracketed_optima


def rate_curves(table, config: Config) -> list[RateCurves]:
    """The final train losses over η_E, by reading."""
    return [
        RateCurves(
            READINGS[token_rows],
            config.widths,
            [config.embedding_rates(token_rows, width) for width in config.widths],
            losses(table, config, token_rows),
        )
        for token_rows in config.token_rows
    ]


def slopes_by_horizon(table, config: Config, token_rows: str) -> dict[int, analysis.Slope]:
    """Steps → the slope of a reading after these steps."""
    return {steps: optima(table, config, token_rows, steps)[1] for steps in config.horizons}


def exponent_by_steps(by_horizon: Mapping[int, analysis.Slope]) -> str:
    """The exponents of the best rate in width after fewer steps than all, in words."""
    *earlier, _ = by_horizon.items()
    by_steps = [f"{in_words(fit)} after {steps}" for steps, fit in earlier if np.isfinite(fit.slope)]
    return f"exponent {', '.join(by_steps)} steps".replace("-", "−") if by_steps else "no exponent after fewer steps"


def groups(table, config: Config) -> list[Group]:
    """Losses, optima and slopes of each reading, for the figure and the summary."""
    readings = []
    for token_rows in config.token_rows:
        by_width, fit = optima(table, config, token_rows)
        by_horizon = slopes_by_horizon(table, config, token_rows)
        rates = [config.embedding_rates(token_rows, width) for width in config.widths]
        runs = losses(table, config, token_rows)
        if config.design == ADAPTIVE:
            rates, runs = zip(*map(trained_rates, rates, runs), strict=True)
        readings.append(Group(READINGS[token_rows], rates, runs, by_width, fit, by_horizon))
    return readings


def summary(table, config: Config) -> str:
    """Optima, slope, and exponent by steps of each reading."""
    within = f"within {config.tolerance:.0%}"
    lines = []
    for token_rows, group in zip(config.token_rows, groups(table, config), strict=True):
        lines += [group.name, f"{'width':>6} {'vocab':>6} {OPTIMUM_HEADER} {within:>11}  flags"]
        for width, rates, runs, best in zip(config.widths, group.rates, group.losses, group.optima, strict=True):
            mean = analysis.optimum(rates, runs, method="geometric_mean", tolerance=config.tolerance)
            numbers, flags = optimum_row(best)
            cut = "*" if "edge" in mean.flags else " "
            lines.append(f"{width:>6} {config.vocab_per_width * width:>6} {numbers} {mean.rate:>10.4g}{cut}  {flags}")
        lines.append(slope_line(group.slope, config.widths))
        if config.hidden_constants:
            lines.append(f"  {hidden_constant_text(table, config, token_rows)}")
        _, last = optima(table, config, token_rows, final_fraction=LAST)
        if np.isfinite(last.slope):
            in_last = in_words(last).replace("-", "−")
            lines.append(f"  exponent {in_last} by the loss of the last {LAST:.0%} of the steps")
        lines += [f"  {exponent_by_steps(group.slope_by_horizon)}", ""]
    lines.append(
        f"{within}: geometric mean of the rates whose loss is {within} of the best (*: the grid does not contain all)"
    )
    return "\n".join(lines)


def transfer_gap(table, config: Config, token_rows: str, power: float = -0.5) -> Measurement:
    """The largest relative excess of the train loss if the embedding's rate moves as width^power.

    The best rate of the smallest width is moved to the other widths. The excess is relative to the loss at the best
    rate of a width, and the largest of all widths but the smallest is reported. Each seed is judged at the rates that
    the other seeds select. The interval is that of `_over_judged`. The adaptive design trains few rates, so losses are
    then read from one parabola.

    Unknown if the optimum of the smallest width is not resolved, or if the rule leaves the rates that were trained with
    all seeds or meets a diverged run.
    """
    return _over_judged(_worst_excess(table, config, token_rows, power))


def gap_difference(table, config: Config, token_rows: str, power: float, rival: float) -> Measurement:
    """The gap of width^rival minus the gap of width^power; unknown if either gap is unknown."""
    gap, of_rival = (_worst_excess(table, config, token_rows, x) for x in (power, rival))
    return _over_judged(of_rival - gap)


def _over_judged(values: np.ndarray) -> Measurement:
    """The mean over seeds, each judged at rates that the n − 1 others select, with a 95 % interval.

    Selecting seeds are shared, so the values are dependent. The variance of their mean is taken as (1/n + 1/(n − 1)) s²
    (Nadeau & Bengio 2003, corrected resampled t-test).
    """
    measured, count = Measurement.over_seeds(values), len(values)
    if measured.interval is None:
        return measured
    half = measured.interval[1] - measured.value
    return Measurement.plus_minus(measured.value, half * np.sqrt(1 + count / (count - 1)))


class _Moved(NamedTuple):
    """A width with the rate that a rule moves to it."""

    rate: float
    rates: np.ndarray  # [R], of the runs
    losses: np.ndarray  # [seeds, R]

    @property
    def inside(self) -> bool:
        """Whether the rate lies within the runs' rates."""
        return bool(self.rates.size) and self.rates[0] <= self.rate <= self.rates[-1]


def _moved(
    config: Config, token_rows: str, by_width: Sequence[np.ndarray], power: float, selecting: Sequence[int]
) -> list[_Moved]:
    """The rate of the smallest width that some seeds select, times (relative width)^power, for every other width.

    Args:
      by_width: the losses [seeds, R] of every width.
      selecting: indices of seeds.
    """
    (selected,) = _optima_of(config)(
        [config.embedding_rates(token_rows, config.widths[0])], [by_width[0][list(selecting)]]
    )
    moved = []
    for width, runs in zip(config.widths[1:], by_width[1:], strict=True):
        rates = np.array(config.embedding_rates(token_rows, width))
        if config.design == ADAPTIVE:  # which trains some rates with the first seed only
            trained = ~np.isnan(runs).any(axis=0)
            rates, runs = rates[trained], runs[:, trained]
        moved.append(_Moved(selected.rate * (width / config.widths[0]) ** power, rates, runs))
    return moved


def _smallest_is_resolved(table, config: Config, token_rows: str) -> bool:
    """Whether the optimum of the smallest width is resolved with all seeds."""
    return optima(table, config, token_rows)[0][0].resolved


def leaves_rates(table, config: Config, token_rows: str, power: float) -> bool:
    """Whether the rule width^power leaves the trained rates, for some of the seeds that select in `transfer_gap`."""
    if len(config.seeds) < 2 or not _smallest_is_resolved(table, config, token_rows):
        return False
    seeds, by_width = range(len(config.seeds)), losses(table, config, token_rows)
    selecting = [[i for i in seeds if i != seed] for seed in seeds]
    return not all(x.inside for some in selecting for x in _moved(config, token_rows, by_width, power, some))


def _worst_excess(table, config: Config, token_rows: str, power: float) -> np.ndarray:
    """The gap that `transfer_gap` describes, for each seed [seeds]; NaN if it is unknown."""
    excess = _excess_on_grid if config.design == GRID else _excess_of_parabola
    by_seed = np.full(len(config.seeds), np.nan)
    if len(config.seeds) < 2 or not _smallest_is_resolved(table, config, token_rows):
        return by_seed
    by_width = losses(table, config, token_rows)
    for seed in range(len(config.seeds)):
        others = [i for i in range(len(config.seeds)) if i != seed]
        moved = _moved(config, token_rows, by_width, power, others)
        if moved and all(each.inside for each in moved):
            by_seed[seed] = np.max(
                [excess(x.rate, x.rates, x.losses[seed], x.losses[others].mean(axis=0)) for x in moved]
            )
    return by_seed


def _excess_on_grid(rate: float, rates: np.ndarray, losses: np.ndarray, others: np.ndarray) -> float:
    """The relative excess of the loss at `rate` over the loss at the best rate.

    The loss at `rate` is that of the parabola in ln rate through the three nearest rates: a straight line would be
    above a convex curve. NaN if one of these losses is not finite.

    Args:
      losses: of the judged seed [R].
      others: mean losses of the other seeds [R], which select the best rate.
    """
    if len(rates) < 3 or not np.isfinite(others).any():
        return np.nan
    at_best = losses[int(np.argmin(np.where(np.isfinite(others), others, np.inf)))]
    distance = np.log(rates / rate)
    near = np.argsort(np.abs(distance))[:3]
    if not np.isfinite([at_best, *losses[near]]).all():
        return np.nan
    return np.polyfit(distance[near], losses[near], 2)[-1] / at_best - 1


def _excess_of_parabola(rate: float, rates: np.ndarray, losses: np.ndarray, others: np.ndarray) -> float:
    """The excess of `_excess_on_grid`, with losses and best rate of parabolas in ln rate.

    The rates of a bracket are too far apart for linear interpolation. NaN for fewer than three rates, for a loss that
    is not finite, or for a parabola of the other seeds without a minimum.
    """
    if len(rates) < 3 or not np.isfinite([losses, others]).all():
        return np.nan
    of_seed, of_others = (np.poly1d(np.polyfit(np.log(rates), values, 2)) for values in (losses, others))
    if of_others[2] <= 0:
        return np.nan
    return of_seed(np.log(rate)) / of_seed(-of_others[1] / (2 * of_others[2])) - 1
