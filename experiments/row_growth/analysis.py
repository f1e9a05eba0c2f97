"""Reads the records of `row_growth`: optima by variant and horizon, constants of the laws, exponents, the summary."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from lvp import analysis
from lvp.analysis.measurement import Measurement
from lvp.experiments.common.optimum_text import OPTIMUM_HEADER, optimum_row
from lvp.experiments.common.tables import (
    EMBEDDING_RATE,
    HORIZON_LOSS,
    finished_by_seed,
    lists_by_row,
    losses_by_seed_and_rate,
    mean_of_finite,
    select,
    with_fields,
    with_horizon_loss,
    with_optimizer,
)
from lvp.experiments.row_growth.config import (
    OPTIMIZERS,
    Config,
    Variant,
    base,
    embedding_rates,
    measured_steps,
    model,
    prefixes,
    run,
    seeds,
    setting,
    variants,
)
from lvp.experiments.row_growth.laws import LAWS, QUANTITIES, Spread, spread

MODEL_FIELDS = ("width", "embedding_multiplier", "positions", "position_amplitude")


@dataclass(frozen=True)
class Point:
    """The optimum of a variant's runs, read at a number of steps."""

    variant: Variant
    steps: int  # T; the variant's own, or that of a prefix
    optimum: analysis.Optimum
    rows: float  # RMS of the rows as they enter, before the last of these steps, at the rate nearest to the optimum
    added: float  # RMS of the positions at that step; 0 for rotary positions, NaN if unknown

    @property
    def quantities(self) -> dict[str, float]:
        """Name → value of every quantity of `QUANTITIES`."""
        s = self.variant
        initial = s.row_factor * s.std * s.width**-0.5
        values = (s.width, self.steps, s.row_factor, self.added, s.std, initial, math.hypot(self.added, initial))
        return dict(zip(QUANTITIES, map(float, values), strict=True))

    @property
    def constant(self) -> Measurement:
        """η_E s √T / RMS(positions), with the interval of the optimum; unknown if the model adds no positions."""
        if not self.added > 0:
            return Measurement(math.nan, None)
        unit = self.variant.row_factor * math.sqrt(self.steps) / self.added
        low, high = (end * unit for end in self.optimum.interval)
        return Measurement(self.optimum.rate * unit, (low, high) if math.isfinite(low) else None)


def records_of(table, config: Config, variant: Variant):
    """The rows of a variant."""
    own = setting(config, variant)
    std = run(config, variant, 1.0, config.seeds[0]).init_std["embedding"]
    rows = with_fields(with_optimizer(table, own), "setting.model", model(config, variant), MODEL_FIELDS)
    return select(rows, {"setting.steps": variant.steps, "run.init_std.embedding": std})


def losses(rows, config: Config, variant: Variant, steps: int) -> np.ndarray:
    """Final train losses [seeds, rates] of the rows of a variant, read at `steps` steps."""
    column = "train_loss"
    if steps != variant.steps:
        column, rows = HORIZON_LOSS, with_horizon_loss(rows, steps, config.final_fraction)
    return losses_by_seed_and_rate(rows, embedding_rates(config, variant), seeds(config, variant), column)


def later_losses(rows, config: Config, variant: Variant, steps: int) -> np.ndarray:
    """Validation losses [seeds, rates] of the second half of each window, after `steps` steps."""
    measured = measured_steps(config, variant)
    at_steps = lists_by_row(rows, "measures.later_positions.loss", (len(measured),))[:, measured.index(steps - 1)]
    rows = rows.assign(later_loss=at_steps)
    return losses_by_seed_and_rate(rows, embedding_rates(config, variant), seeds(config, variant), "later_loss")


def points(table, config: Config, losses_of: Callable[..., np.ndarray] = losses) -> list[Point]:
    """The optimum of every variant at its own steps. Different variants have different runs.

    Args:
      losses_of: `losses` or `later_losses`.
    """
    return _points(table, config, [(variant, variant.steps) for variant in variants(config)], losses_of)


def prefix_points(table, config: Config, variant: Variant) -> list[Point]:
    """The optima of a variant at every prefix. They come from the same runs, so that their errors are correlated."""
    return _points(table, config, [(variant, steps) for steps in prefixes(config, variant)])


def _points(table, config: Config, read: Sequence[tuple[Variant, int]], losses_of=losses) -> list[Point]:
    rows = {variant: records_of(table, config, variant) for variant in dict(read)}
    rates = [embedding_rates(config, variant) for variant, _ in read]
    best = analysis.optima(rates, [losses_of(rows[variant], config, variant, steps) for variant, steps in read])
    made = []
    for (variant, steps), optimum in zip(read, best, strict=True):
        at = measured_steps(config, variant).index(steps - 1)
        size, added = inputs_over_steps(rows[variant], config, variant, optimum.rate)[:, at]
        made.append(Point(variant, steps, optimum, float(size), float(added)))
    return made


def inputs_over_steps(rows, config: Config, variant: Variant, rate: float) -> np.ndarray:
    """RMS [2, measured steps] of the rows and of the positions, before each step, at the rate nearest to `rate`.

    It is the mean over seeds. `rows` are the records of a variant. NaN if no run of this rate finished.
    """
    rates = embedding_rates(config, variant)
    chosen = rates[int(np.argmin(np.abs(np.log(rates) - math.log(rate))))] if rate > 0 else rates[0]
    by_seed = finished_by_seed(rows, {EMBEDDING_RATE: chosen}, seeds(config, variant))
    shape = (len(measured_steps(config, variant)),)
    sizes = [lists_by_row(by_seed, f"measures.inputs.{part}", shape) for part in ("rows", "added")]
    return np.array([[mean_of_finite(at_step) for at_step in size.T] for size in sizes])


def regular(config: Config, made: Sequence[Point]) -> list[Point]:
    """The points that differ from the base in numbers only: sinusoidal positions and the base's optimizer."""
    start = base(config)
    return [p for p in made if (p.variant.positions, p.variant.optimizer) == (start.positions, start.optimizer)]


def fitted_points(config: Config, made: Sequence[Point]) -> list[Point]:
    """The regular points whose optimum is resolved and whose model adds positions."""
    return [p for p in regular(config, made) if p.optimum.resolved and p.added > 0]


def exponents(config: Config, made: Sequence[Point]) -> dict[str, Measurement]:
    """Factor → power of the best rate, fitted to the resolved optima of the regular points together.

    The factors are the first five of `QUANTITIES`. A factor that does not vary among these points is unknown.
    """
    factors = list(QUANTITIES)[:5]
    used = fitted_points(config, made)
    values = {name: [p.quantities[name] for p in used] for name in factors}
    varied = {name: column for name, column in values.items() if len(set(np.round(np.log(column), 6))) > 1}
    fitted = {name: Measurement(math.nan, None) for name in factors}
    if varied:
        fit = analysis.powers(varied, [p.optimum for p in used])
        for name in varied:
            power = fit.power(name)
            fitted[name] = power if np.isfinite(power.interval or math.nan).all() else Measurement(power.value, None)
    return fitted


def prefix_exponent(table, config: Config) -> Measurement:
    """The power of the horizon within the runs of a variant: the mean over variants, with its t interval.

    A variant whose optima are not all resolved is left out. Settings have different runs.
    """
    slopes = []
    for variant in variants(config):
        read = prefix_points(table, config, variant) if len(prefixes(config, variant)) > 1 else []
        if read and all(p.optimum.resolved for p in read):
            logs = np.log([(p.steps, p.optimum.rate) for p in read])
            slopes.append(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]))
    return Measurement.over_seeds(slopes)


def spreads(made: Sequence[Point]) -> dict[str, Spread]:
    """Law → its constant and its spread, over the resolved points whose model adds positions."""
    used = [p for p in made if p.optimum.resolved and p.added > 0]
    quantities = {name: np.array([p.quantities[name] for p in used]) for name in QUANTITIES}
    return {name: spread([p.optimum for p in used], powers, quantities) for name, powers in LAWS.items()}


def optimizer_ratio(config: Config, made: Sequence[Point], optimizer: str) -> Measurement:
    """The constant of an optimizer over that of the base variant, with an interval from the errors of both optima."""
    start = base(config)
    by_optimizer = {p.variant.optimizer: p for p in made if _alike(p.variant, start)}
    pair = [by_optimizer.get(name) for name in (optimizer, start.optimizer)]
    if any(p is None or not p.optimum.resolved or not p.constant.value > 0 for p in pair):
        return Measurement(math.nan, None)
    (over, std, freedom), (under, other_std, _) = (
        (math.log(p.constant.value), p.optimum.log_rate_std, p.optimum.degrees_of_freedom) for p in pair if p
    )
    half = float(stdtrit(freedom, 0.975)) * math.hypot(std, other_std) if math.isfinite(freedom) else math.nan
    ratio = Measurement.plus_minus(over - under, half)
    return ratio.exp() if math.isfinite(half) else Measurement(math.exp(over - under), None)


def _alike(variant: Variant, other: Variant) -> bool:
    """True if two variants differ in the optimizer at most."""
    return variant.__dict__ | {"optimizer": ""} == other.__dict__ | {"optimizer": ""}


def summary(table, config: Config) -> str:
    """Optima and constants of every variant, exponents of the factors, and the laws by their spread."""
    made = points(table, config)
    longest = max(len(p.variant.label) for p in made)
    lines = [f"{'variant':<{longest}} {OPTIMUM_HEADER} {'rows':>7} {'added':>7} {'η_E s √T / added':>20}  flags"]
    for p in made:
        numbers, flags = optimum_row(p.optimum)
        sizes = " ".join(f"{x:>7.3g}" if np.isfinite(x) else f"{'–':>7}" for x in (p.rows, p.added))
        lines.append(f"{p.variant.label:<{longest}} {numbers} {sizes} {p.constant.text('.2f'):>20}  {flags}")
    lines += ["", "power of the best η_E, fitted to all factors together; the law's power"]
    for name, power in exponents(config, made).items():
        lines.append(f"{name:<34} {power.text('.2f'):<22} {LAWS[LAW].get(name, 0.0):>5g}")
    within = prefix_exponent(table, config).text(".2f")
    lines.append(f"{'steps, within the runs of a variant':<34} {within}")
    for name in config.optimizers[1:]:
        ratio = optimizer_ratio(config, made, name).text(".2f")
        lines.append(f"constant of {OPTIMIZERS[name]} over {OPTIMIZERS[config.optimizers[0]]}'s: {ratio}")
    by_law = spreads(made)
    lines += ["", "laws, by the spread that holds 95 % of the variants' constants, without the noise of the optima"]
    for name in sorted(by_law, key=lambda law: (math.isnan(by_law[law].width.value), by_law[law].width.value)):
        law = by_law[name]
        known = f"±{law.width.percent()} %, constant {law.constant.text('.2g')}"
        lines.append(f"{name:<46} {known if np.isfinite(law.width.value) else '–'}")
    later = points(table, config, later_losses)
    law, steps = spreads(later)[LAW], exponents(config, later)["steps"]
    lines += [
        "",
        "validation loss of the second half of each window:",
        f"{LAW}: ±{law.width.percent()} %, constant {law.constant.text('.2g')}; power of steps {steps.text('.2f')}; "
        f"{law.num_points} variants resolved",
        "",
        "rows, added: RMS of the entries before the last step, at the rate nearest to the optimum. Flagged optima are "
        "in no fit.",
    ]
    return "\n".join(lines)


LAW = next(iter(LAWS))  # the law under test


def best_rival(by_law: Mapping[str, Spread]) -> str | None:
    """The other law with the smallest spread; None if no spread is known."""
    known = {name: law.width.value for name, law in by_law.items() if name != LAW and math.isfinite(law.width.value)}
    return min(known, key=known.__getitem__) if known else None
