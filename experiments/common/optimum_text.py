"""Optima and their slope over width as lines of a text table."""

from collections.abc import Sequence

import numpy as np

from lvp.analysis import Optimum, Slope

OPTIMUM_HEADER = f"{'best η_E':>10} {'95 % interval':>20} {'loss':>7}"


def optimum_row(best: Optimum) -> tuple[str, str]:
    """The columns of an optimum under `OPTIMUM_HEADER`, and its flags. A dash stands for an unknown value."""
    low, high = best.interval
    interval = f"≤ {high:.4g}" if low == 0 else f"≥ {low:.4g}" if np.isinf(high) else f"{low:.4g} … {high:.4g}"
    if np.isnan(best.interval).any():
        interval = "– (one seed)" if np.isfinite(best.rate) and not best.degrees_of_freedom else "–"
    rate, loss = (format(x, spec) if np.isfinite(x) else "–" for x, spec in ((best.rate, ".4g"), (best.loss, ".3f")))
    return f"{rate:>10} {interval:>20} {loss:>7}", ", ".join(best.flags) or "–"


def slope_line(slope: Slope, widths: Sequence[int], rate: str = "η_E") -> str:
    """The power law of the optima of a rate in one line."""
    points = f"{slope.num_points} of {len(widths)} widths"
    return f"slope of ln(best {rate}) over ln(width): {slope_text(slope)}, from {points}"


def slope_text(slope: Slope) -> str:
    """A slope with its interval. A dash stands for an unknown slope."""
    if not np.isfinite(slope.slope):
        return "–"
    low, high = slope.interval
    known = np.isfinite(slope.interval).all()
    return f"{slope.slope:.2f}, " + (f"95 % interval {low:.2f} … {high:.2f}" if known else "no interval")
