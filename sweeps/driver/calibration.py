"""Speed of this machine, measured by the sweeps that ran on it and kept in the cache directory for the forecast."""

import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lvp.files import cache_dir, write_whole
from lvp.parallel.hardware import processor

FILE = "speed.json"  # in the cache directory: machine → Speed
# Model FLOP/s of a worker before it is measured: a pinned CPU core on small float32 models, an accelerator on float32
# models of a few hundred columns.
ASSUMED_FLOPS = {"cpu": 9.0e10, "accelerator": 2.0e13}
ASSUMED_START, ASSUMED_COMPILE = 15.0, 6.0  # seconds


@dataclass(frozen=True)
class Speed:
    """The speed of one machine: floating-point rate of its workers, seconds of start and of compilation."""

    flops: Mapping[str, float] = field(default_factory=dict)  # `kind_of` a cell → model FLOP/s of a worker
    start_seconds: float | None = None  # of a session outside its trials: workers' start, measurement of threads
    compile_seconds: float | None = None  # of a cell in one worker: compilation and data

    def flops_of(self, cell: Any) -> float | None:
        """FLOP/s of a worker on a cell: of the measured cell nearest in size and of the same class, or None."""
        name, _, size = kind_of(cell).partition("/")
        known = {key: value for key, value in self.flops.items() if key.partition("/")[0] == name}
        near = min(known, key=lambda key: abs(int(key.partition("/")[2]) - int(size)), default=None)
        return None if near is None else known[near]


def kind_of(cell: Any) -> str:
    """The class of a cell and the power of two nearest to its number of parameters."""
    return f"{type(cell).__name__}/{round(math.log2(max(1, cell.num_params)))}"


def machine() -> str:
    """The processor's model and the number of cores. It names no host."""
    return f"{os.cpu_count()} cores, {processor()[0]}"


def read() -> Speed:
    """The measured speed of this machine; without values if no sweep has finished on it."""
    try:
        return Speed(**json.loads((cache_dir() / FILE).read_text())[machine()])
    except (OSError, ValueError, KeyError, TypeError):
        return Speed()


def measured(
    old: Speed, cells: Sequence[Any], trials: Sequence[Mapping[str, Any]], workers: int, seconds: float
) -> Speed:
    """The speed after a session.

    Args:
      old: kept for the kinds of cells that the session did not train.
      cells: of the sweep.
      trials: the session's entries of trials.jsonl.
      workers, seconds: of the session.
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
        machines = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):  # an error of the machine must not drop the other machines
        machines = {}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(machines | {machine(): asdict(speed)}, indent=1, sort_keys=True) + "\n")
