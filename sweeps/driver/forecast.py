"""The cost of a sweep before it runs, and durations in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.common.experiment import CellLanes

# Model FLOP/s one worker is assumed to reach before it has been measured: a pinned CPU core on small float32 models, an
# accelerator on float32 models of a few hundred columns. Only the forecast depends on them.
ASSUMED_FLOPS = {"cpu": 9.0e10, "accelerator": 2.0e13}


@dataclass(frozen=True)
class Cost:
    """The cost of all lanes of one cell: training tokens and model FLOPs."""

    label: str
    lanes: int
    params: int
    tokens: float
    flops: float


def cost(cells: Sequence[CellLanes]) -> list[Cost]:
    return [
        Cost(
            c.label,
            len(c.lanes),
            c.cell.num_params,
            float(len(c.lanes)) * c.cell.tokens_per_lane,
            len(c.lanes) * c.cell.flops_per_lane,
        )
        for c in cells
    ]


def forecast(cells: Sequence[CellLanes], workers: int, flops_per_second: float, basis: str) -> str:
    """The table that is printed before anything is run."""
    rows = cost(cells)
    total = sum(r.flops for r in rows)
    lines = [f"{'cell':<16} {'lanes':>6} {'params':>9} {'tokens':>9} {'FLOPs':>9}"]
    for r in rows:
        lines.append(f"{r.label:<16} {r.lanes:>6} {_si(r.params):>9} {_si(r.tokens):>9} {_si(r.flops):>9}")
    lanes, tokens = sum(r.lanes for r in rows), sum(r.tokens for r in rows)
    lines.append(f"{'all':<16} {lanes:>6} {'':>9} {_si(tokens):>9} {_si(total):>9}")
    seconds = total / (workers * flops_per_second)
    lines.append(
        f"expected: {duration(seconds)} ({seconds / 3600:.2g} h) on {workers} worker{'s' * (workers > 1)} at "
        f"{_si(flops_per_second)}FLOP/s each ({basis}); starting and compiling come on top"
    )
    return "\n".join(lines)


def _si(x: float) -> str:
    if not x:
        return "–"
    for unit, size in (
        ("Z", 1e21),
        ("E", 1e18),
        ("P", 1e15),
        ("T", 1e12),
        ("G", 1e9),
        ("M", 1e6),
        ("k", 1e3),
    ):
        if x >= size:
            return f"{x / size:.3g} {unit}"
    return f"{x:.3g} "


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
