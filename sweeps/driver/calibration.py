"""The speed of this machine for the forecast: measured by earlier sweeps, or estimated from a matrix product."""

import functools
import json
import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from experiments.common.experiment import Calculation
from lvp.files import cache_dir, write_whole
from lvp.parallel.hardware import processor

FILE = "speeds.json"  # in the cache directory: machine → Speed
ASSUMED_FLOPS = 2.0e13  # model FLOP/s of an accelerator, for small float32 models
# Number of parameters → training's model FLOP/s over the FLOP/s of NumPy's matrix product. Measured by
# tests/benchmarks/training_share.py.
TRAINING_SHARE = {41_120: 0.34, 164_160: 0.50, 656_000: 0.66}
CALCULATION_SHARE = 0.4  # the same ratio for the calculations of linear_network
ASSUMED_START, ASSUMED_COMPILE = 15.0, 6.0  # seconds
NEAR = 3  # largest distance between the FLOPs of a step of two cells with the same speed, in powers of two


@dataclass(frozen=True)
class Speed:
    """The speed of one machine: floating-point rate of its workers, seconds of start and of compilation."""

    flops: Mapping[str, float] = field(default_factory=dict)  # `kind_of(cell)` → model FLOP/s of a worker
    start_seconds: float | None = None  # seconds of a session outside its trials
    compile_seconds: float | None = None  # seconds in which a worker compiles a cell and loads its data

    @property
    def basis(self) -> str:
        """The origin of the speed, in words."""
        return "measured on this machine"

    def flops_of(self, cell: Any) -> float | None:
        """FLOP/s of a worker on a cell, from the measured cell of the same class and the nearest size.

        None without a measured cell within a factor 2^`NEAR` in the FLOPs of a step: small steps reach a small part of
        the FLOP/s of large steps.
        """
        name, _, size = kind_of(cell).partition("/")
        distances = {
            key: abs(int(key.partition("/")[2]) - int(size)) for key in self.flops if key.partition("/")[0] == name
        }
        near = min(distances, key=distances.__getitem__, default=None)
        return None if near is None or distances[near] > NEAR else self.flops[near]


@dataclass(frozen=True)
class CellSpeed(Speed):
    """The speed of one machine on the cells of a sweep, from some steps of each cell. Cells that were not measured have
    the speed of earlier sweeps."""

    by_cell: Sequence[tuple[Any, float]] = ()  # (cell, model FLOP/s of a worker)

    @property
    def basis(self) -> str:
        return "from some steps of each cell"

    def flops_of(self, cell: Any) -> float | None:
        return next((flops for known, flops in self.by_cell if known == cell), None) or super().flops_of(cell)


@functools.cache
def matrix_product_flops() -> float:
    """float32 FLOP/s of NumPy's matrix product on all cores: the best of six products of 1024 × 1024 matrices."""
    matrix, best = np.ones((1024, 1024), np.float32), math.inf
    for _ in range(6):
        began = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - began)
    return 2 * 1024**3 / best


def estimated_flops(cell: Any, product_flops: float) -> float:
    """FLOP/s of a worker on a cell, from the FLOP/s of a matrix product on the worker's cores."""
    if isinstance(cell, Calculation):
        return CALCULATION_SHARE * product_flops
    share = np.interp(math.log(cell.num_params), np.log([*TRAINING_SHARE]), [*TRAINING_SHARE.values()])
    return float(share) * product_flops


def kind_of(cell: Any) -> str:
    """The class of a cell and the power of two nearest to the FLOPs of a step."""
    return f"{type(cell).__name__}/{round(math.log2(max(1, cell.flops_per_lane / cell.steps)))}"


def machine() -> str:
    """The number of cores and the processor's model, without the host's name."""
    return f"{os.cpu_count()} cores, {processor()[0]}"


def read() -> Speed:
    """The measured speed of this machine. Its fields are empty if no sweep has finished on this machine."""
    try:
        return Speed(**json.loads((cache_dir() / FILE).read_text())[machine()])
    except (OSError, ValueError, KeyError, TypeError):
        return Speed()


def measured(
    old: Speed, cells: Sequence[Any], trials: Sequence[Mapping[str, Any]], workers: int, seconds: float
) -> Speed:
    """The speed measured by a session.

    Args:
      old: the earlier speed, kept for the kinds of cells that the session did not train.
      cells: the sweep's cells.
      trials: the session's entries of trials.jsonl.
      workers: the session's number of workers.
      seconds: the session's duration.
    """
    rates: dict[str, list[float]] = {}
    for trial in trials:
        cell = cells[trial["cell"]]
        if trial["training_seconds"] > 0:
            rates.setdefault(kind_of(cell), []).append(cell.flops_per_lane * trial["lanes"] / trial["training_seconds"])
    compiled = [t["seconds"] - t["training_seconds"] for t in trials if t.get("compilations")]
    start = seconds - sum(t["seconds"] for t in trials) / workers
    return Speed(
        flops=dict(old.flops) | {kind: statistics.median(values) for kind, values in rates.items()},
        start_seconds=max(0.0, start),
        compile_seconds=statistics.median(compiled) if compiled else old.compile_seconds,
    )


def keep(speed: Speed) -> None:
    """Writes the speed of this machine into the cache directory."""
    path = cache_dir() / FILE
    try:
        content = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # other errors are raised: they must not delete the other machines' speeds
        content = None
    machines = content if isinstance(content, dict) else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(machines | {machine(): asdict(speed)}, indent=1, sort_keys=True) + "\n")
