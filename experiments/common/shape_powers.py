"""Powers of width d and vocabulary m that optima follow: one quantity at a time, and both together."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lvp import analysis
from lvp.analysis import Optimum, Powers, Slope
from lvp.analysis.power_laws import Panel, Series, in_words, with_interval
from lvp.experiments.common.optimum_text import OPTIMUM_HEADER, optimum_row

QUANTITIES = {"d": "width d", "m": "vocabulary m"}
WIDEST = 2.0  # interval of a power whose line is drawn
LINES = (
    "Legends: the power of d or m with its 95 % interval. Bars: standard errors of resolved optima; optima with a flag "
    f"are left out. A line is drawn if the interval is at most {WIDEST:g} wide."
)  # below a figure of `optima_panel`


class Slice(NamedTuple):
    """Shapes along which one quantity moves, with the other fixed or proportional to it."""

    name: str  # the condition that the shapes share: "m = 256", "m = 8 d" or "d = 64"
    moving: str  # "d" or "m"
    values: tuple[int, ...]  # of the moving quantity, increasing
    at: tuple[int, ...]  # indices of the shapes


def slices(shapes: Sequence[tuple[int, int]], vocab_per_width: int | None = None) -> list[Slice]:
    """The slices: d moves at each m and along m = `vocab_per_width` · d (None: without this slice); m moves at each d.

    Slices of fewer than three shapes have no interval and are left out.
    """
    groups = [(f"m = {m}", "d", [x for x in shapes if x[1] == m]) for m in sorted({m for _, m in shapes})]
    if vocab_per_width is not None:
        growing = [(d, m) for d, m in shapes if m == vocab_per_width * d]
        groups.append((f"m = {vocab_per_width} d", "d", growing))
    groups += [(f"d = {d}", "m", [x for x in shapes if x[0] == d]) for d in sorted({d for d, _ in shapes})]
    made = []
    for name, moving, chosen in groups:
        chosen = sorted(chosen)
        if len(chosen) > 2:
            values = tuple(shape["dm".index(moving)] for shape in chosen)
            made.append(Slice(name, moving, values, tuple(shapes.index(shape) for shape in chosen)))
    return made


def slope_along(part: Slice, optima: Sequence[Optimum]) -> Slope:
    """The power of the moving quantity that the optima of a slice follow; flagged optima are left out."""
    return analysis.slope(part.values, [optima[i] for i in part.at])


def joint_powers(shapes: Sequence[tuple[int, int]], optima: Sequence[Optimum]) -> Powers:
    """The powers of d and m that the optima of all shapes follow together; those at the edge of a grid are bounds."""
    widths, vocabs = zip(*shapes, strict=True)
    return analysis.powers({"d": widths, "m": vocabs}, optima, censored=True)


def optima_lines(shapes: Sequence[tuple[int, int]], optima: Sequence[Optimum]) -> list[str]:
    """A text table with the optimum of every shape."""
    lines = [f"{'width':>6} {'vocab':>6} {OPTIMUM_HEADER}  flags"]
    for (d, m), best in zip(shapes, optima, strict=True):
        numbers, flags = optimum_row(best)
        lines.append(f"{d:>6} {m:>6} {numbers}  {flags}")
    return lines


def power_lines(
    shapes: Sequence[tuple[int, int]], parts: Sequence[Slice], by_name: Mapping[str, Sequence[Optimum]]
) -> list[str]:
    """A text table with the power of each slice, and the powers of all shapes together; a column per set of optima."""
    lines = [f"{'varied':<7}{'fixed':<10}" + "".join(f"{name:>24}" for name in by_name)]
    for part in parts:
        texts = [in_words(slope_along(part, best)) for best in by_name.values()]
        lines.append(f"{part.moving:<7}{part.name:<10}" + "".join(f"{text:>24}" for text in texts))
    fits = [joint_powers(shapes, best) for best in by_name.values()]
    for name in ("d", "m"):
        texts = [with_interval(fit.powers[name], fit.intervals[name]) for fit in fits]
        lines.append(f"{name:<7}{'–':<10}" + "".join(f"{text:>24}" for text in texts))
    return lines


def optima_panel(
    parts: Sequence[Slice],
    optima: Sequence[Optimum],
    moving: str,
    title: str,
    predicted: Mapping[str, float] | None = None,
) -> Panel:
    """The panel of optima over d or m: a series per slice along which this quantity moves, with fitted powers.

    Args:
      moving: "d" or "m".
      predicted: name of a slice → power of a dashed line through its optima.
    """
    series = [_series(part, optima, (predicted or {}).get(part.name)) for part in parts if part.moving == moving]
    many = len({value for part in parts if part.moving == moving for value in part.values}) > 6
    present = [each for each in series if each is not None]
    return Panel(title, QUANTITIES[moving], "optimal η_E", present, f"power of {moving}", named_ticks=not many)


def _series(part: Slice, optima: Sequence[Optimum], predicted: float | None) -> Series | None:
    """The resolved optima of a slice with their fit; None without a resolved optimum."""
    resolved = [(value, optima[i]) for value, i in zip(part.values, part.at, strict=True) if optima[i].resolved]
    if not resolved:
        return None
    x = np.array([value for value, _ in resolved], float)
    rates = np.array([best.rate for _, best in resolved])
    errors = rates * np.array([best.log_rate_std for _, best in resolved])
    fit, dashed = slope_along(part, optima), None
    if predicted is not None:
        dashed = np.exp(np.mean(np.log(rates))) * (x / np.exp(np.mean(np.log(x)))) ** predicted
    return Series(
        f"{part.name}: {in_words(fit)}",
        x,
        rates,
        errors,
        fitted=fit.line(x)[0] if np.ptp(fit.interval) <= WIDEST else None,  # False without an interval
        predicted=dashed,
        predicted_label=None if predicted is None else f"prediction: {predicted:g}",
    )
