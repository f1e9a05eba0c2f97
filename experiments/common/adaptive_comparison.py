"""The adaptive design against the grid: optima and slopes, replayed on the records of grids and from trained sweeps."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from lvp import analysis
from lvp.analysis import Optimum, markdown
from lvp.analysis.bracketing import LEAST_RATES, bracketed_optima, next_runs
from lvp.analysis.measurement import Measurement


class RateCurves(NamedTuple):
    """The losses over the embedding's rate at several widths, of runs that otherwise differ in seed only."""

    name: str  # distinguishes the curves of an experiment
    widths: Sequence[int]  # [W]
    rates: Sequence[Sequence[float]]  # W lists [R]
    losses: Sequence[np.ndarray]  # W arrays [seeds, R]; nan missing, inf diverged


def adaptive_losses(rates: Sequence[float], losses: np.ndarray) -> np.ndarray:
    """The losses [seeds, R] of the runs that the adaptive design trains; nan for the other runs of the grid."""
    kept = np.full(np.shape(losses), np.nan)
    while runs := next_runs(rates, kept):
        for run in runs:
            kept[run] = losses[run]
    return kept


def _comparisons(
    results: Sequence[tuple[str, RateCurves]],
) -> Iterator[tuple[str, RateCurves, Sequence[np.ndarray]]]:
    """(result, curves of the grid, losses of the adaptive design's runs).

    A grid's runs are replayed. A result without all runs is compared with the grid whose name it extends by a suffix.
    """
    grids = [(name, curves) for name, curves in results if _is_grid(curves)]
    for result, curves in results:
        if _is_grid(curves):
            kept = [adaptive_losses(*curve) for curve in zip(curves.rates, curves.losses, strict=True)]
            yield result, curves, kept
            continue
        for name, grid in grids:
            if result.startswith(f"{name}-") and curves[:3] == grid[:3]:
                yield result, grid, curves.losses


def _is_grid(curves: RateCurves) -> bool:
    """True if all runs are trained, at enough rates for the adaptive design."""
    return all(not np.isnan(runs).any() and runs.shape[1] >= LEAST_RATES for runs in curves.losses)


def adaptive_table(results: Iterable[tuple[str, RateCurves]]) -> str:
    """Two Markdown tables: slopes, then optima, each from the grid and from the runs of the adaptive design.

    Args:
      results: name of a committed result, and its curves. A result of the adaptive design needs the result of a grid,
        whose name it extends by a suffix. Other incomplete curves are left out, and curves with too few rates.
    """
    slopes: list[list[str]] = []
    optima: list[tuple] = []
    total, used = 0, 0
    for result, curves, kept in _comparisons(list(results)):
        grid, adaptive = analysis.optima(curves.rates, curves.losses), bracketed_optima(curves.rates, kept)
        counts = [int((~np.isnan(runs)).sum()) for runs in kept]
        whole, part = sum(runs.size for runs in curves.losses), sum(counts)
        total, used = total + whole, used + part
        ratios = [
            _log_width(b) / _log_width(a) for a, b in zip(grid, adaptive, strict=True) if a.resolved and b.resolved
        ]
        row = [
            *(result, curves.name, f"{whole}", f"{part} ({part / whole:.0%})"),
            *(_slope_text(curves.widths, by_width) for by_width in (grid, adaptive)),
            f"{np.median(ratios):.2f}" if ratios else "–",
        ]
        slopes.append(row)
        for width, count, a, b in zip(curves.widths, counts, grid, adaptive, strict=True):
            optima.append((result, curves.name, width, count, _optimum_text(a), _optimum_text(b)))
    slopes.append(["all", "–", f"{total}", f"{used} ({used / max(total, 1):.0%})", "–", "–", "–"])
    head = ["result", "curves", "runs, grid", "runs, adaptive", "slope, grid", "slope, adaptive"]
    of_slopes = markdown.table([*head, "interval width, adaptive / grid"], slopes, align="llrrllr")
    head = ["result", "curves", "width", "runs", "best rate, grid", "best rate, adaptive"]
    return of_slopes + "\n\n" + markdown.table(head, optima, align="llrrll")


def _slope_text(widths: Sequence[int], optima: Sequence[Optimum]) -> str:
    fit = analysis.slope(widths, optima)
    widths_used = f"{fit.num_points} width{'s' * (fit.num_points != 1)}"
    return f"{fit.measurement.text('.2f')}, {widths_used}".replace("-", "−")


def _optimum_text(best: Optimum) -> str:
    flags = f" ({', '.join(best.flags)})" if best.flags else ""
    return Measurement(best.rate, best.interval).text(".3g") + flags


def _log_width(best: Optimum) -> float:
    """The width of an optimum's interval in ln rate."""
    return float(np.log(best.interval[1] / best.interval[0]))
