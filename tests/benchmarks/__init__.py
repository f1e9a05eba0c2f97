"""Benchmarks: ratios of the times of two implementations that alternate in one run. `make benchmark` runs them.

A benchmark prints its table and writes it to `experiments/results/benchmarks/`; `python -m sweeps report` fills
docs/speed.md from there. It also appends the table to `history.jsonl` in that directory, with date, commit and machine.
`make test` runs only a check of the PyTorch implementation.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lvp.files import write_whole
from lvp.training import records
from sweeps.driver import calibration

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results" / "benchmarks"
HEAD = ("quantity", "measured", "bound (≥ without a sign)", "aim")


def finish(
    name: str,
    rounds: int | None,
    rows: list[tuple[str, ...]],
    raw: dict,
    versions: dict[str, str] | None = None,
    head: tuple[str, ...] = HEAD,
) -> None:
    """Prints rows under `head`, writes them with their raw data, and appends them to the history.

    Args:
      rounds: number of rounds; None if no times were measured.
      raw: the measured values, in seconds if they are times.
      versions: versions of packages that `records.software` does not list.
    """
    first, *others = (max(len(r[i]) for r in [head, *rows]) for i in range(len(head)))
    for row in [head, *rows]:
        print(row[0].ljust(first), *(cell.rjust(w) for cell, w in zip(row[1:], others, strict=True)), sep="  ")
    software = records.software()
    content = {
        "head": list(head),
        "rows": [list(row) for row in rows],
        "raw": raw,
        "rounds": rounds,
        "machine": calibration.machine(),
        **software,
        "versions": software["versions"] | (versions or {}),
    }
    write_whole(RESULTS / f"{name}.json", json.dumps(content, indent=1, sort_keys=True) + "\n")
    date = time.strftime("%Y-%m-%d", time.gmtime())
    entry = {"name": name, "date": date} | {key: content[key] for key in content if key != "raw"}
    with open(RESULTS / "history.jsonl", "a") as file:
        file.write(json.dumps(entry, sort_keys=True) + "\n")


def serve(run: Callable[[int], None], facts: dict) -> None:
    """The process of one side: prints `facts`, then reads numbers of calls and prints the seconds per call.

    Args:
      run: run(n) makes n calls and waits for their end.
      facts: JSON that the parent process reads.
    """
    run(2)
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        run(1)  # not timed: the kernel may have reclaimed the idle process's huge pages
        started = time.perf_counter()
        run(int(line))
        print((time.perf_counter() - started) / int(line), flush=True)


class Side:
    """A process `python -m MODULE NAME` that runs `serve`. It is idle while other sides run.

    Args:
      tuned: whether the process has the environment variables of the sweeps' workers.
    """

    def __init__(self, module: str, name: str, tuned: bool):
        from sweeps.worker.worker import Settings

        environment = os.environ | {"JAX_PLATFORMS": "cpu"} | (Settings().variables() if tuned else {})
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        self.facts, self.times = json.loads(self.process.stdout.readline()), []

    def call(self, n: int) -> None:
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        self.times.append(float(self.process.stdout.readline()))

    def over(self, other: "Side") -> float:
        """This side's time divided by the other's: the median of the ratios of all rounds. Both sides of a round run
        one after the other, so the machine's speed is about the same."""
        return statistics.median(a / b for a, b in zip(self.times, other.times, strict=True))


def alternate(module: str, calls: dict[str, tuple[bool, int]], rounds: int) -> dict[str, Side]:
    """Runs all sides once per round, prints each time, ends the processes and returns the sides.

    Args:
      calls: name of a side → (tuned, number of calls per round).
    """
    sides = {}
    for name, (tuned, _) in calls.items():
        print(f"{name}: compiling", file=sys.stderr, flush=True)
        sides[name] = Side(module, name, tuned)
    for i in range(rounds):
        for name, (_, n) in calls.items():
            sides[name].call(n)
            print(f"round {i + 1}/{rounds}  {name}: {sides[name].times[-1]:.4g} s", file=sys.stderr, flush=True)
    for s in sides.values():
        s.process.kill()
    return sides
