"""Optima and their slope over width as lines of a text table."""

from collections.abc import Sequence

from lvp.analysis import Optimum, Slope

OPTIMUM_HEADER = f"{'best η_E':>10} {'95 % interval':>20} {'loss':>7}"


def optimum_row(best: Optimum) -> tuple[str, str]:
    """The columns of an optimum under `OPTIMUM_HEADER`, and its flags."""
    interval = f"{best.interval[0]:.4g} … {best.interval[1]:.4g}"
    return f"{best.rate:>10.4g} {interval:>20} {best.loss:>7.3f}", ", ".join(best.flags) or "–"


def slope_line(slope: Slope, widths: Sequence[int]) -> str:
    """The power law of the optima in one line."""
    low, high = slope.interval
    return (
        f"slope of ln(best η_E) over ln(width): {slope.slope:.2f}, 95 % interval {low:.2f} … {high:.2f}, from "
        f"{slope.num_points} of {len(widths)} widths"
    )
