"""The powers of width and vocabulary that optima over shapes (d, m) follow, one quantity at a time."""

from collections.abc import Sequence
from typing import NamedTuple

from lvp import analysis
from lvp.analysis import Optimum, Slope


class Slice(NamedTuple):
    """Shapes along which one quantity moves."""

    name: str  # what is held: "m = 256", "m = 8 d" or "d = 64"
    moving: str  # "d" or "m"
    values: tuple[int, ...]  # of the moving quantity, increasing
    at: tuple[int, ...]  # indices of the shapes


def slices(shapes: Sequence[tuple[int, int]], vocab_per_width: int | None = None) -> list[Slice]:
    """d at each m, d at m = `vocab_per_width` · d (None: without this slice), and m at each d.

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
