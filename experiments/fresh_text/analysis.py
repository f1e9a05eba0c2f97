"""Reads the records of `fresh_text`: tuned constants, judged curves, best ratios and their powers, and the summary."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from lvp import analysis
from lvp.analysis import Optimum
from lvp.analysis.measurement import Measurement
from lvp.analysis.slopes import Slope
from lvp.experiments.common.tables import (
    HIDDEN_RATE,
    HORIZON_LOSS,
    losses_by_seed_and_rate,
    select,
    with_fields,
    with_horizon_loss,
    with_optimizer,
)
from lvp.experiments.fresh_text.config import (
    COARSE_STEP,
    GROUPS,
    LEAST_JUDGED,
    Config,
    Group,
    ModelShape,
    Point,
    constant_at,
    entering,
    label,
    ratio_at,
    run,
    setting_of,
)
from lvp.experiments.fresh_text.minimum import Minimum, costs_of_moving, measured, minimum
from lvp.training import Run

LOSS = "valid_bits_per_byte"
PARTS = {"1/4": 0.25, "1/2": 0.5, "3/4": 0.75, "all": 1.0}  # of the text, after which the best ratio is read
WIDE = 1.0  # width of the interval of a power that tells nothing
HORIZON_PART = 0.2  # part of these steps whose train losses are averaged
POWERS = (0.0, 0.5, 1.0)  # of d in the ratio: a constant ratio, Hayou & Liu 2025, Kalra & Barkeshli 2026
MODEL_FIELDS = ("norm", "positions", "embedding_multiplier", "normalize_rows")


class Tuned(NamedTuple):
    """The choice of the selecting seeds."""

    constant: int  # place in the grid of constants
    ratio: int  # place in the grid of ratios, the centre of the judged ratios
    at_edge: bool  # the best place lacks a neighbour, so that a better place may lie beyond
    best_constant: float  # η_hidden · d of the parabola through the constants; nan if its vertex is outside


@dataclass(frozen=True)
class Reading:
    """The results of a group at a shape."""

    config: Config
    group: Group
    shape: ModelShape
    rows: Any  # of the setting

    def losses(
        self, constant: int, ratios: Sequence[int], seeds: Sequence[int], part: float | None = None
    ) -> np.ndarray:
        """Losses [seeds, ratios]. NaN for a missing run, infinite for a diverged run.

        Args:
          part: of the steps: the mean train loss of the last fifth before it, in nats per token. None: the validation
            loss in bits per byte.
        """
        hidden = constant_at(self.group, constant) / self.shape.width
        rows = select(self.rows, {HIDDEN_RATE: hidden})
        runs = [run(self.config, self.group, self.shape, Point(constant, j), 0) for j in ratios]
        rates = [each.learning_rates["embedding"] for each in runs]
        if part is None:
            return losses_by_seed_and_rate(rows, rates, list(seeds), LOSS, partial=True)
        rows = with_horizon_loss(rows, round(part * self.steps), HORIZON_PART)
        return losses_by_seed_and_rate(rows, rates, list(seeds), HORIZON_LOSS, partial=True)

    @cached_property
    def steps(self) -> int:
        """The number of steps of a run; 0 without a run."""
        return max((curve[-1] for curve in self.rows["curve_steps"]), default=0) if len(self.rows) else 0

    @cached_property
    def coarse(self) -> np.ndarray:
        """Mean losses of the selecting seeds by constant and ratio. A missing run is NaN, a diverged one infinite."""
        places = range(-self.config.constant_reach, self.config.constant_reach + 1)
        return np.array(
            [self.losses(i, _ratio_places(self.config), self.config.selecting_seeds).mean(axis=0) for i in places]
        )

    @cached_property
    def tuned(self) -> Tuned | None:
        """The choice of the selecting seeds. None if no place finished with all of them."""
        reach, means = self.config.constant_reach, np.where(np.isnan(self.coarse), np.inf, self.coarse)
        if not np.isfinite(means).any():
            return None
        by_constant = [_vertex(row, COARSE_STEP) for row in means]
        least = np.array([vertex.loss for vertex in by_constant])
        near = [i for i in range(len(least)) if least[i] <= (1 + self.config.margin) * least.min()]
        chosen = min(near, key=lambda i: (abs(i - reach), least[i]))
        centre = round(by_constant[chosen].place) - self.config.ratio_reach
        most = self.config.ratio_reach - LEAST_JUDGED // 2
        best = _vertex(least, 1)
        return Tuned(
            constant=chosen - reach,
            ratio=int(np.clip(centre, -most, most)),
            at_edge=bool(self._missing_neighbours),
            best_constant=constant_at(self.group, best.place - reach) if best.inside else np.nan,
        )

    @cached_property
    def _missing_neighbours(self) -> list[Point]:
        """The untrained neighbours of the best place, those beyond the grids included."""
        means = np.where(np.isnan(self.coarse), np.inf, self.coarse)
        if not np.isfinite(means).any():
            return []
        best = np.unravel_index(int(means.argmin()), means.shape)
        around = product((-1, 0, 1), (-COARSE_STEP, 0, COARSE_STEP))
        places = [(int(best[0]) + i, int(best[1]) + j) for i, j in around]
        inside = [0 <= i < means.shape[0] and 0 <= j < means.shape[1] for i, j in places]
        untrained = [not ok or np.isnan(self.coarse[at]) for at, ok in zip(places, inside, strict=True)]
        return [
            Point(i - self.config.constant_reach, j - self.config.ratio_reach)
            for (i, j), missing in zip(places, untrained, strict=True)
            if missing
        ]

    def next_runs(self) -> list[Run]:
        """The runs to train next: selecting seeds follow the best place, then judging seeds follow the best ratio."""
        more = [at for at in self._missing_neighbours if self._in_grids(at)]
        trained = int((~np.isnan(self.coarse)).sum())
        if more and trained + len(more) <= self.config.most_places:
            return [self._run(at, seed) for at in more for seed in self.config.selecting_seeds]
        if self.tuned is None:
            return []
        ratios, seeds = self._next_ratios(), self.config.judging_seeds
        return [self._run(Point(self.tuned.constant, j), seed) for j in ratios for seed in seeds]

    def _in_grids(self, at: Point) -> bool:
        return abs(at.constant) <= self.config.constant_reach and abs(at.ratio) <= self.config.ratio_reach

    def _run(self, at: Point, seed: int) -> Run:
        return run(self.config, self.group, self.shape, at, seed)

    def _next_ratios(self) -> list[int]:
        assert self.tuned is not None
        half, judged = LEAST_JUDGED // 2, self.judged
        if judged is None:
            return list(range(self.tuned.ratio - half, self.tuned.ratio + half + 1))
        places, losses = judged
        finished = np.isfinite(losses).all(axis=0)
        if len(places) >= self.config.most_ratios or not finished.any():
            return []
        best = int(np.argmin(np.where(finished, losses.mean(axis=0), np.inf)))
        beyond = {0: places[0] - 1, len(places) - 1: places[-1] + 1}.get(best)
        if beyond is None and finished.sum() < LEAST_JUDGED:  # a run diverged: one more ratio on the other side
            beyond = places[0] - 1 if finished[0] else places[-1] + 1
        return [] if beyond is None or abs(beyond) > self.config.ratio_reach else [beyond]

    @cached_property
    def judged(self) -> tuple[list[int], np.ndarray] | None:
        """The ratios at the chosen constant that a judging seed has trained.

        Returns:
          The places of the ratios, and the losses [judging seeds, ratios]; None without such a ratio.
        """
        if self.tuned is None:
            return None
        places = _ratio_places(self.config)
        losses = self.losses(self.tuned.constant, places, self.config.judging_seeds)
        trained = ~np.isnan(losses).all(axis=0)
        return ([places[k] for k in np.flatnonzero(trained)], losses[:, trained]) if trained.any() else None

    @property
    def ratios(self) -> np.ndarray:
        """The judged ratios [R]."""
        return np.array([ratio_at(self.group, j) for j in self.judged[0]] if self.judged else [])

    @property
    def hidden_rate(self) -> float:
        """η_hidden that the selecting seeds chose; NaN without a choice."""
        return constant_at(self.group, self.tuned.constant) / self.shape.width if self.tuned else np.nan

    @cached_property
    def best(self) -> Minimum:
        """The best ratio of the judging seeds, and the cost of twice and half the ratio."""
        if self.judged is None:
            return minimum(np.array([]), np.empty((len(self.config.judging_seeds), 0)))
        return minimum(self.ratios, self.judged[1])

    def best_after(self, part: float) -> Optimum:
        """The best ratio after a part of the text, by the train loss of the judging seeds.

        Every row is read once, so the train loss of a batch is that of new text. At constant rates the first part of a
        run is a shorter run.
        """
        if self.tuned is None or self.judged is None:
            return self.best.optimum
        losses = self.losses(self.tuned.constant, self.judged[0], self.config.judging_seeds, part)
        return minimum(self.ratios, losses).optimum

    @property
    def best_rate(self) -> Optimum:
        """The best embedding rate, at the chosen η_hidden."""
        best = self.best.optimum
        low, high = best.interval
        return replace(
            best, rate=best.rate * self.hidden_rate, interval=(low * self.hidden_rate, high * self.hidden_rate)
        )


def _ratio_places(config: Config) -> list[int]:
    return list(range(-config.ratio_reach, config.ratio_reach + 1))


class _Vertex(NamedTuple):
    """The best place of a line of the grids."""

    place: float  # index
    loss: float
    inside: bool  # of a parabola through the best point and its neighbours; otherwise the best point


def _vertex(losses: np.ndarray, step: int) -> _Vertex:
    """The vertex of the parabola through the least loss and the losses `step` places away."""
    best = int(np.argmin(losses))
    at = float(losses[best])
    if best < step or best + step >= len(losses):
        return _Vertex(best, at, False)
    below, above = float(losses[best - step]), float(losses[best + step])
    bend = below + above - 2 * at
    if not (np.isfinite(bend) and bend > 0):
        return _Vertex(best, at, False)
    return _Vertex(best + step * (below - above) / (2 * bend), at - (below - above) ** 2 / (8 * bend), True)


def read(table, config: Config) -> dict[tuple[str, ModelShape], Reading]:
    """(name of the group, shape) → results."""
    return {
        (name, shape): Reading(config, GROUPS[name], shape, _rows(table, config, GROUPS[name], shape))
        for name, shape in product(config.groups, config.shapes)
    }


def _rows(table, config: Config, group: Group, shape: ModelShape):
    setting = setting_of(config, group, shape)
    rows = select(table, {"setting.model.width": shape.width, "setting.model.vocab": shape.vocab})
    return (
        with_optimizer(with_fields(rows, "setting.model", setting.model, MODEL_FIELDS), setting) if len(rows) else rows
    )


def follow_up(table, config: Config) -> dict[str, list[Run]]:
    """Label of a setting → the runs that depend on the results so far."""
    return {label(config, *setting): each.next_runs() for setting, each in read(table, config).items()}


class Law(NamedTuple):
    """A power law of the best ratios of a group."""

    power: Measurement  # the exponent, of the ratio η_E / η_hidden
    lack_of_fit: float  # p-value of the scatter about the law under the intervals of the optima alone; nan if unknown
    without: dict[ModelShape, float]  # shape → exponent of the other shapes
    resolved: int  # number of shapes in the fit


def power_of_width(readings: Sequence[Reading], entered: bool = False) -> Law:
    """The power of d that the best ratios of a group follow.

    Args:
      readings: one shape per width.
      entered: whether ratios are in units of what enters the first block.
    """

    if len({each.shape.width for each in readings}) < 2:
        return Law(Measurement(np.nan, None), np.nan, {}, len(readings))
    fit = power_of_ratio(readings, entered)
    without = _without(_resolved(readings), lambda x: power_of_ratio(x, entered).slope)
    return Law(fit.measurement, fit.lack_of_fit, without, fit.num_points)


def power_of_ratio(readings: Sequence[Reading], entered: bool = False) -> Slope:
    """The slope of ln(best ratio) over ln d, of one shape per width. Arguments as in `power_of_width`."""
    factors = [entering(each.group, each.shape.width) if entered else 1.0 for each in readings]
    best = [each.best.optimum for each in readings]
    return analysis.slope([each.shape.width for each in readings], _as_pair(best, factors))


def fewest_steps(readings: Sequence[Reading]) -> int:
    """The smallest number of steps of the shapes with a run. At equal bytes a larger vocabulary has fewer steps."""
    return min((each.steps for each in readings if each.steps), default=0)


def power_of_vocab(readings: Sequence[Reading], steps: int | None = None) -> Law:
    """The power of m that the best ratios of a group follow at fixed d. The powers of d and m are fitted together.

    Args:
      steps: the number of steps after which the best ratio is read, by the train loss. None: at the end, by the
        validation loss.
    """
    best = {
        each.shape: each.best.optimum if steps is None or not each.steps else each.best_after(steps / each.steps)
        for each in readings
    }

    def fitted(chosen: Sequence[Reading]) -> analysis.Powers:
        quantities = {"d": [x.shape.width for x in chosen], "m": [x.shape.vocab for x in chosen]}
        if len(set(quantities["d"])) == 1:
            del quantities["d"]
        return analysis.powers(quantities, _as_pair([best[x.shape] for x in chosen], [1.0] * len(chosen)))

    fit = fitted(readings)
    power = fit.power("m") if np.isfinite(fit.intervals["m"]).all() else Measurement(fit.powers["m"], None)
    resolved = [each for each in readings if best[each.shape].resolved]
    without = _without(resolved, lambda x: fitted(x).powers["m"])
    return Law(power, np.nan, without, fit.num_points)


def power_of_rate(readings: Sequence[Reading]) -> Slope:
    """The power of d that the best embedding rates follow, each at its tuned η_hidden, of one shape per width.

    If η_hidden moves no best embedding rate, the rates do not depend on the grid of η_hidden. The ratios do.
    """
    return analysis.slope([each.shape.width for each in readings], [each.best_rate for each in readings])


def _as_pair(best: Sequence[Optimum], factors: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Best ratios times factors, and the stds of their logarithms; NaN for an optimum with a flag."""
    rates = [each.rate * factor if each.resolved else np.nan for each, factor in zip(best, factors, strict=True)]
    return np.array(rates), np.array([each.log_rate_std for each in best])


def _resolved(readings: Sequence[Reading]) -> list[Reading]:
    return [each for each in readings if each.best.optimum.resolved]


def _without(resolved: Sequence[Reading], power: Callable[[Sequence[Reading]], float]) -> dict[ModelShape, float]:
    """ModelShape → power of the other shapes; {} for fewer than four shapes."""
    if len(resolved) < 4:
        return {}
    return {left.shape: power([each for each in resolved if each is not left]) for left in resolved}


def of_group(by_setting: dict[tuple[str, ModelShape], Reading], name: str) -> list[Reading]:
    """The results of a group, in the order of the shapes."""
    return [each for (group, _), each in by_setting.items() if group == name]


def varied(config: Config) -> str:
    """The quantity whose power the sweep measures.

    Returns:
      "d" with one shape per width, "m" if a width has several vocabularies, "" for one shape.
    """
    if len(config.shapes) == 1:
        return ""
    return "d" if len(set(config.widths)) == len(config.widths) else "m"


def sizes(config: Config) -> str:
    """What the shapes have in common: "m = 1024", "m = 8 d", "d = 64", or "". One shape is "d 96, m 1024"."""
    if len(config.shapes) == 1:
        return "d {}, m {}".format(*config.shapes[0])
    if len(set(config.vocabs)) == 1:
        return f"m = {config.vocabs[0]}"
    if len(set(config.widths)) == 1:
        return f"d = {config.widths[0]}"
    factors = {m / d for d, m in config.shapes}
    return f"m = {factors.pop():g} d" if len(factors) == 1 else ""


def law(config: Config, readings: Sequence[Reading], entered: bool = False) -> Law:
    """The power law of the quantity that the sweep varies."""
    return power_of_vocab(readings) if varied(config) == "m" else power_of_width(readings, entered)


def costs_of_powers(readings: Sequence[Reading]) -> dict[float, np.ndarray]:
    """Power of d → `costs_of_moving` of the smallest width's best ratio, moved to the largest width as this power.

    Args:
      readings: one shape per width.
    """
    small, large = (choose(readings, key=lambda each: each.shape.width) for choose in (min, max))
    growth = large.shape.width / small.shape.width
    return {power: costs_of_moving(small.best, large.best, growth**power) for power in POWERS}


def power_in_words(power: Measurement, quantity: str, otherwise: str = "not resolved") -> str:
    """A power with its interval, such as "d^p, p = 0.90 [0.63, 1.16]", or `otherwise` if the interval tells nothing."""
    low, high = power.interval or (-np.inf, np.inf)
    told = high - low <= WIDE or low > 0 or high < 0
    return f"{quantity}^p, p = {power.in_words()}" if told else otherwise


def percent(values: Sequence[float]) -> Measurement:
    """The mean over the shapes of costs in parts of the loss, as percent. Unknown values are left out."""
    return Measurement.over_seeds([100 * x for x in values if np.isfinite(x)])


def summary(table, config: Config) -> str:
    """The tuned constant, the best ratio and its costs at every shape, and the power laws."""
    by_setting, lines = read(table, config), []
    for name in config.groups:
        readings = of_group(by_setting, name)
        lines += [
            GROUPS[name].label,
            f"{'d':>5} {'m':>6} {'η_hidden·d':>10} {'vertex':>7} {'best ratio':>11} {'95 % interval':>20} "
            f"{'entering':>9} {'best η_E':>8} {'bits/byte':>9} {'× 2':>6} {'× 1/2':>6}  flags",
            *map(_line, readings),
            *_law_lines(config, readings),
            *([] if GROUPS[name].scheduled else _part_lines(readings)),
            "",
        ]
    return "\n".join(
        [
            *lines,
            "η_hidden·d: chosen by the selecting seeds (*: a better place may lie beyond the grids)",
            "vertex: η_hidden · d at the vertex of the parabola; entering: best ratio times the factor on the rows",
            "best ratio: η_E / η_hidden of the judging seeds; × 2, × 1/2: cost of twice and half, in % of the loss",
        ]
    )


def _line(each: Reading) -> str:
    tuned, best = each.tuned, each.best.optimum
    if tuned is None:
        return f"{each.shape.width:>5} {each.shape.vocab:>6} no place finished with all selecting seeds"
    constant = constant_at(each.group, tuned.constant)
    numbers = [
        f"{constant:>9.3g}{'*' if tuned.at_edge else ' '}",
        f"{_shown(tuned.best_constant, '.3g'):>7}",
        f"{_shown(best.rate, '.3g'):>11}",
        f"{_interval(best):>20}",
        f"{_shown(best.rate * entering(each.group, each.shape.width), '.3g'):>9}",
        f"{_shown(each.best_rate.rate, '.3g'):>8}",
        f"{_shown(best.loss, '.4f'):>9}",
        *(f"{_shown(100 * cost.value, '.2f'):>6}" for cost in (each.best.twice, each.best.half)),
    ]
    flags = ", ".join(best.flags) or "–"
    return f"{each.shape.width:>5} {each.shape.vocab:>6} {' '.join(numbers)}  {flags}"


def _part_lines(readings: Sequence[Reading]) -> list[str]:
    head = f"{'d':>5} {'m':>6} " + " ".join(f"{part:>9}" for part in PARTS)
    lines = [
        f"{each.shape.width:>5} {each.shape.vocab:>6} "
        + " ".join(f"{_bound(each.best_after(part)):>9}" for part in PARTS.values())
        for each in readings
    ]
    return ["best ratio after a part of the text, by the train loss", head, *lines]


def _bound(best: Optimum) -> str:
    """The optimum, a bound at the edge of the grid, or "–"."""
    if best.resolved:
        return f"{best.rate:.3g}"
    low, high = best.interval
    if high == np.inf or low == 0:
        return f"{'≥' if high == np.inf else '≤'} {best.rate:.3g}"
    return "–"


def _interval(best: Optimum) -> str:
    return "–" if np.isnan(best.interval).any() else f"{best.interval[0]:.3g} … {best.interval[1]:.3g}"


def _shown(value: float, spec: str) -> str:
    return format(value, spec) if np.isfinite(value) else "–"


def _law_lines(config: Config, readings: Sequence[Reading]) -> list[str]:
    quantity = varied(config)
    if not quantity:
        return []
    raw = law(config, readings)
    where = f"power of {quantity}"
    lines = []
    if quantity == "d":
        lines += _rate_lines(readings)
    fit = f"; lack of fit: p = {_shown(raw.lack_of_fit, '.2g')}" * (quantity == "d")  # unknown for m
    lines.append(f"{where}, best ratio: {raw.power.in_words()}{fit}")
    if quantity == "d":
        entered = law(config, readings, entered=True)
        lines.append(f"{where}, best ratio as it enters the first block: {entered.power.in_words()}")
        lines.append(f"{where}, vertex of η_hidden · d (selecting seeds): {_power_of_constant(readings)}")
        lines.append(_moved_line(readings))
    if raw.without:
        lines.append(f"{where}, best ratio: {_listed(raw.without)}")
    if quantity == "m":
        equal = power_of_vocab(readings, fewest_steps(readings))
        lines.append(f"power of m after equal steps, best ratio by the train loss: {equal.power.in_words()}")
        if equal.without:
            lines.append(f"power of m after equal steps: {_listed(equal.without)}")
        lines += _powers_at_widths(readings)
    return lines


def _rate_lines(readings: Sequence[Reading]) -> list[str]:
    fit = power_of_rate(readings)
    lines = [f"power of d, best η_E: {fit.measurement.in_words()}; lack of fit: p = {_shown(fit.lack_of_fit, '.2g')}"]
    without = _without(_resolved(readings), lambda x: power_of_rate(x).slope)
    return [*lines, f"power of d, best η_E: {_listed(without)}"] if without else lines


def _moved_line(readings: Sequence[Reading]) -> str:
    costs = [f"d^{power:g}: {measured(100 * each).in_words()}" for power, each in costs_of_powers(readings).items()]
    smallest, *_, largest = sorted(each.shape.width for each in readings)
    return f"cost of d {smallest}'s best ratio at d {largest}, in % of the loss, if it is scaled by {', '.join(costs)}"


def _listed(without: dict[ModelShape, float]) -> str:
    widths = {shape.width for shape in without}

    def name(shape: ModelShape) -> str:
        if len(widths) == 1:
            return f"m {shape.vocab}"
        return f"d {shape.width}" + f", m {shape.vocab}" * (len(widths) < len(without))

    return ", ".join(f"{power:.2f} without {name(shape)}" for shape, power in without.items()).replace("-", "−")


def _power_of_constant(readings: Sequence[Reading]) -> str:
    vertices = np.array([x.tuned.best_constant if x.tuned else np.nan for x in readings])
    return analysis.slope([x.shape.width for x in readings], (vertices, None)).measurement.in_words()


def _powers_at_widths(readings: Sequence[Reading]) -> list[str]:
    lines = []
    widths = sorted({each.shape.width for each in readings})
    for width in widths if len(widths) > 1 else ():
        own = [each for each in readings if each.shape.width == width]
        fit = analysis.slope([x.shape.vocab for x in own], _as_pair([x.best.optimum for x in own], [1.0] * len(own)))
        lines.append(f"power of m at d {width}: {fit.measurement.in_words()}, {fit.num_points} of {len(own)} shapes")
    return lines
