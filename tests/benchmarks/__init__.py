"""Benchmarks: ratios of the times of two implementations that alternate in one run. `make benchmark` runs them.

A benchmark prints its table and writes it to `experiments/results/benchmarks/`; `python -m lvp.sweeps report` fills
docs/speed.md from there. It also appends the table to `history.jsonl` in that directory, with date, commit and machine.
`make test` runs only a check of the PyTorch implementation.
"""

import contextlib
import json
import os
import select
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from lvp.files import write_whole
from lvp.parallel.hardware import processor
from lvp.training import records

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results" / "benchmarks"
RUN = "run"  # the call of a side that has one
Call = Callable[[int], None]  # run(n) makes n calls and waits for their end
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
        print(row[0].ljust(first), *(setting.rjust(w) for setting, w in zip(row[1:], others, strict=True)), sep="  ")
    software = records.software()
    content = {
        "head": list(head),
        "rows": [list(row) for row in rows],
        "raw": raw,
        "rounds": rounds,
        "machine": f"{os.cpu_count()} cores, {processor()[0]}",
        **software,
        "versions": software["versions"] | (versions or {}),
    }
    write_whole(RESULTS / f"{name}.json", json.dumps(content, indent=1, sort_keys=True) + "\n")
    date = time.strftime("%Y-%m-%d", time.gmtime())
    entry = {"name": name, "date": date} | {key: content[key] for key in content if key != "raw"}
    with open(RESULTS / "history.jsonl", "a") as file:
        file.write(json.dumps(entry, sort_keys=True) + "\n")


def serve(calls: Mapping[str, Call], facts: Mapping[str, Any], answers: IO[str] = sys.stdout) -> None:
    """The process of a side: prints `facts`, then answers each line "COUNT CALL" with the seconds of one call.

    Args:
      facts: JSON that the parent process reads.
      answers: where to print.
    """
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        count, _, name = line.strip().partition(" ")
        calls[name](1)  # not timed: it may compile, and the kernel may have reclaimed the idle process's huge pages
        started = time.perf_counter()
        calls[name](int(count))
        print((time.perf_counter() - started) / int(count), file=answers, flush=True)


class Side:
    """A process `python -m MODULE WORDS` that runs `serve`. It is idle while other sides run.

    Attributes:
      facts: what the process has printed first; empty before `start` returns, or if the process has ended.
      times: call → seconds of one call, by round.
    """

    def __init__(self, module: str, *words: str, environment: Mapping[str, str], quiet: bool = False):
        self.words, self.environment = [sys.executable, "-m", module, *words], {**os.environ, **environment}
        self.messages = subprocess.DEVNULL if quiet else None
        self.facts: dict[str, Any] = {}
        self.times: dict[str, list[float]] = {}
        self.process: subprocess.Popen | None = None
        self._ended, self._lock = False, threading.Lock()

    def start(self) -> None:
        """Starts the process, unless `end` was called, and waits for its facts."""
        with self._lock:
            if self._ended:
                return
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.messages, "text": True}
            self.process = subprocess.Popen(self.words, **pipes, env=self.environment, cwd=ROOT)
        if line := self.process.stdout.readline():
            self.facts = json.loads(line)

    def call(self, count: int, call: str = RUN, limit: float | None = None) -> float:
        """Seconds of one of `count` calls.

        Raises RuntimeError if the process has ended, or gives no answer within `limit` seconds.
        """
        answer, process = "", self.process
        assert process is not None  # started
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{count} {call}\n")
            process.stdin.flush()
            if limit is not None and not select.select([process.stdout], [], [], limit)[0]:
                raise RuntimeError(f"{' '.join(self.words[2:])} gave no answer in {limit:.0f} s")
            answer = process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{' '.join(self.words[2:])} ended with exit code {process.wait()}")
        self.times.setdefault(call, []).append(float(answer))
        return float(answer)

    def over(self, other: "Side", call: str = RUN, others: str = RUN) -> float:
        """This side's time divided by the other's: the median of the ratios of all rounds. Both sides of a round run
        one after the other, so the machine's speed is about the same."""
        return statistics.median(a / b for a, b in zip(self.times[call], other.times[others], strict=True))

    def end(self) -> None:
        with self._lock:
            self._ended = True
            if self.process is not None:
                self.process.kill()
                self.process.wait()


def started(module: str, name: str, tuned: bool) -> Side:
    """A side on the CPU that is ready. `tuned`: whether it has the environment variables of the sweeps' workers."""
    from lvp.sweeps.work import VARIABLES

    variables = VARIABLES if tuned else {}
    side = Side(module, name, environment={"JAX_PLATFORMS": "cpu"} | variables, quiet=True)
    side.start()
    return side


def alternate(module: str, calls: dict[str, tuple[bool, int]], rounds: int) -> dict[str, Side]:
    """Runs all sides once per round, prints each time, ends the processes and returns the sides.

    Args:
      calls: name of a side → (tuned, number of calls per round).
    """
    sides = {}
    for name, (tuned, _) in calls.items():
        print(f"{name}: compiling", file=sys.stderr, flush=True)
        sides[name] = started(module, name, tuned)
    for i in range(rounds):
        for name, (_, n) in calls.items():
            print(f"round {i + 1}/{rounds}  {name}: {sides[name].call(n):.4g} s", file=sys.stderr, flush=True)
    for s in sides.values():
        s.end()
    return sides
