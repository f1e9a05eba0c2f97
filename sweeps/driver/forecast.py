"""The cost of a sweep before it runs, and the text of durations."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.common.experiment import Calculation, CellLanes
from sweeps.driver.calibration import (
    ASSUMED_COMPILE,
    ASSUMED_FLOPS,
    ASSUMED_START,
    Speed,
    estimated_flops,
    matrix_product_flops,
)


@dataclass(frozen=True)
class Cost:
    """The cost of all lanes of one cell."""

    label: str
    lanes: int
    params: int  # of the cell's model
    tokens: float  # training tokens of all lanes
    flops: float  # model FLOPs of all lanes


def cost(cells: Sequence[CellLanes]) -> list[Cost]:
    """The cost of each cell."""
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


def forecast(cells: Sequence[CellLanes], workers: int, speed: Speed, kind: str, devices: int = 1) -> str:
    """The table of costs that is printed before the sweep runs.

    Args:
      workers: the number of workers.
      speed: the speed of this machine. Missing values are estimated or assumed, and the text says so.
      kind: "cpu" or "accelerator". A CPU's FLOP/s are estimated from a matrix product. An accelerator's are assumed.
      devices: the number of devices in each worker's mesh.
    """
    rows = cost(cells)
    lines = [f"{'cell':<16} {'lanes':>6} {'params':>9} {'tokens':>9} {'FLOPs':>9}"]
    for r in rows:
        lines.append(f"{r.label:<16} {r.lanes:>6} {_si(r.params):>9} {_si(r.tokens):>9} {_si(r.flops):>9}")
    lanes, tokens, flops = sum(r.lanes for r in rows), sum(r.tokens for r in rows), sum(r.flops for r in rows)
    lines.append(f"{'all':<16} {lanes:>6} {'':>9} {_si(tokens):>9} {_si(flops):>9}")
    unmeasured = devices * ASSUMED_FLOPS
    if all(speed.flops_of(c.cell) for c in cells):
        basis = "measured on this machine"
    elif kind == "cpu":
        unmeasured = matrix_product_flops() / workers
        basis = f"estimated from a matrix product with {_si(unmeasured)}FLOP/s per worker"
    else:
        basis = f"{_si(unmeasured)}FLOP/s per worker assumed, not measured"
    estimate = estimated_flops if kind == "cpu" else lambda cell, flops: flops
    rates = [speed.flops_of(c.cell) or estimate(c.cell, unmeasured) for c in cells]
    training = sum(r.flops / rate for r, rate in zip(rows, rates, strict=True)) / workers
    trained = sum(not isinstance(c.cell, Calculation) for c in cells)
    start = ASSUMED_START if speed.start_seconds is None else speed.start_seconds
    start += trained * (ASSUMED_COMPILE if speed.compile_seconds is None else speed.compile_seconds)
    on_workers = f"{workers} worker{'s' * (workers > 1)}"
    parts = f"{duration(start)} for start and compilation, {duration(training)} of training ({basis})"
    return "\n".join([*lines, f"expected: {duration(start + training)} on {on_workers}: {parts}"])


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
    """The seconds as text in seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
