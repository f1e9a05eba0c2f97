"""Speed, as ratios of two sides alternated in one run: `make benchmark`. Not part of the tests.

Each benchmark prints its table and writes it to `experiments/results/benchmarks/`, from which `python -m sweeps report`
fills docs/speed.md.
"""

import json
import os
import platform
from pathlib import Path

from lvp import records

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "benchmarks"
HEAD = ("what", "measured", "at least", "aim")


def finish(name: str, rounds: int, rows: list[tuple[str, str, str, str]], raw: dict) -> None:
    """Prints rows of (what, measured, at least, aim) and records them with the raw times (seconds)."""
    first, *others = (max(len(r[i]) for r in [HEAD, *rows]) for i in range(4))
    for row in [HEAD, *rows]:
        print(row[0].ljust(first), *(cell.rjust(w) for cell, w in zip(row[1:], others, strict=True)), sep="  ")
    content = {
        "rows": [list(row) for row in rows],
        "raw": raw,
        "rounds": rounds,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        **records.software(),
    }
    records.write_whole(RESULTS / f"{name}.json", json.dumps(content, indent=1, sort_keys=True) + "\n")
