"""Times of packs, steps, optimizers and losses, in alternated rounds, against other implementations.

All sides start at once, so that their programs compile side by side. When all are ready, or after `READY` of the time
limit, the groups are measured one after the other. A row has the median over rounds of the ratio of two sides that ran
one after the other.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lvp.parallel.hardware import ACCELERATORS, GIB, Accelerator, cores
from tests.benchmarks.accelerator.rows import Rows
from tests.benchmarks.accelerator.sizes import Sizes

ROOT = Path(__file__).parents[3]
READY = 0.65  # part of the time limit in which sides may compile
MOST_MEMORY = 45 * GIB  # of a pack


class Side:
    """A process of `sides`. It starts in a thread, when fewer than `at_once` other sides compile.

    Attributes:
      facts: of its calls; empty until it is ready.
      times: call → seconds by round.
    """

    def __init__(self, sizes: Sizes, name: str, at_once: threading.Semaphore):
        self.name, self.facts, self.times = name, {}, {}
        self.process: subprocess.Popen | None = None
        self._starting = threading.Thread(target=self._start, args=(sizes, at_once), daemon=True)
        self._starting.start()

    def _start(self, sizes: Sizes, at_once: threading.Semaphore) -> None:
        words = [sys.executable, "-m", "tests.benchmarks.accelerator.sides", sizes.name.upper(), self.name]
        # Sides share the device's memory.
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        with at_once:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            self.process = subprocess.Popen(words, **pipes, env=environment, cwd=ROOT)
            if line := self.process.stdout.readline():
                self.facts = json.loads(line)

    def ready(self, seconds: float) -> bool:
        """Whether the programs are compiled within some seconds."""
        self._starting.join(max(0.0, seconds))
        return bool(self.facts)

    def call(self, call: str, count: int) -> float:
        """Seconds of a call. Raises RuntimeError if the process has ended."""
        try:
            self.process.stdin.write(f"{count} {call}\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{self.name} ended with exit code {self.process.wait()}; see the messages")
        self.times.setdefault(call, []).append(float(answer))
        return float(answer)

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def measured(calls: Sequence[tuple[Side, str]], sizes: Sizes) -> None:
    """Times the calls in alternated rounds. The first timing of each decides how many calls a round has."""
    counts = []
    for side, call in calls:
        side.times.pop(call, None)
        counts.append(max(1, round(sizes.timed_seconds / max(side.call(call, 1), 1e-6))))
        side.times.pop(call)
    for _ in range(sizes.rounds):
        for (side, call), count in zip(calls, counts, strict=True):
            side.call(call, count)


def ratio(slow: tuple[Side, str], fast: tuple[Side, str]) -> float:
    """How many times as fast the second is: the median of the rounds' ratios."""
    times = zip(slow[0].times[slow[1]], fast[0].times[fast[1]], strict=True)
    return statistics.median(a / b for a, b in times)


def seconds(side: Side, call: str) -> float:
    return statistics.median(side.times[call])


def main(rows: Rows, sizes: Sizes) -> None:
    limit, device = rows.left, known_device()
    first, step = sizes.widths[0], sizes.step_widths[0]
    names = [f"packs {first}", f"plain {first}", f"torch {first}"]
    names += [f"step {kind} {width}" for width in sizes.step_widths for kind in ("masked", "fused")]
    names += [f"plain step {step}", f"torch step {step}", *(f"losses {vocab}" for vocab in sizes.loss_vocabs)]
    names += ["optimizers", *(f"packs {width}" for width in sizes.widths[1:])]
    if importlib.util.find_spec("torch") is None:
        rows.skip("PyTorch", "not installed")
        names = [name for name in names if not name.startswith("torch")]
    at_once = threading.Semaphore(max(2, cores()))
    sides = {name: Side(sizes, name, at_once) for name in names}
    try:
        until = time.monotonic() + READY * limit
        for name in names:
            if not sides[name].ready(until - time.monotonic()):
                sides.pop(name).end()
                rows.skip(name, f"not ready after {READY * limit:.0f} s, or ended; see the messages")
        for measure in (packs_against_loops, steps, losses, optimizers, other_packs):
            measure(rows, sizes, sides, device)
    finally:
        for side in sides.values():
            side.end()


def known_device() -> Accelerator | None:
    """Peak figures of the device that the driver names; None for another device."""
    words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        name = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None
    return next((known for known in ACCELERATORS.values() if name in known.kinds), None)


def taken(sides: dict[str, Side], *names: str) -> Iterator[Side]:
    """The sides of these names that are ready."""
    return (sides[name] for name in names if name in sides)


def released(sides: dict[str, Side], *names: str) -> None:
    """Ends sides, so that their memory is free."""
    for name in names:
        if name in sides:
            sides.pop(name).end()


def add_rate(rows: Rows, quantity: str, side: Side, call: str, device: Accelerator | None, runs: float = 0.0) -> None:
    """Adds model FLOP/s as a share of the peak, or in TFLOP/s for an unknown device.

    Args:
      runs: runs per hour; 0 leaves them out.
    """
    rate = side.facts[call]["flops"] / seconds(side, call)
    raw = side.facts[call] | {"seconds": side.times[call], "flops_per_second": rate}
    if runs:
        rows.add(f"{quantity}: runs per hour", runs, raw=raw)
    value, unit = (100 * rate / device.flops, "%") if device else (rate / 1e12, "TFLOP/s")
    rows.add(f"{quantity}: model FLOP/s", value, unit, raw=raw)


def packs_of(rows: Rows, sizes: Sizes, side: Side, width: int, device: Accelerator | None) -> None:
    """Rows of all packs of a width, against one run at a time."""
    one = f"pack {sizes.packs[0]}"
    runs = lambda call, count: count * 3600 / (seconds(side, call) * sizes.steps_per_run)  # noqa: E731
    for count in sizes.packs[1:]:
        call, name = f"pack {count}", f"d {width}, pack of {count}"
        if (needed := side.facts[call]["bytes"]) > MOST_MEMORY:
            rows.skip(name, f"needs {needed / GIB:.0f} GiB")
            continue
        with rows.attempt(name):
            measured([(side, one), (side, call)], sizes)
            gain = count * ratio((side, one), (side, call))
            floor = 5.0 if width == 128 and count == max(sizes.packs) else None
            rows.add(f"{name} / one run at a time: runs per hour", gain, "×", least=floor)
            add_rate(rows, name, side, call, device, runs(call, count))
    with rows.attempt(f"d {width}, one run"):
        add_rate(rows, f"d {width}, one run", side, one, device, runs(one, 1))


def packs_against_loops(rows: Rows, sizes: Sizes, sides: dict[str, Side], device: Accelerator | None) -> None:
    width = sizes.widths[0]
    for ours in taken(sides, f"packs {width}"):
        packs_of(rows, sizes, ours, width, device)
        for kind, what in (("plain", "a plain JAX loop"), ("torch", "PyTorch, compiled")):
            for theirs in taken(sides, f"{kind} {width}"):
                with rows.attempt(f"d {width}, one run / {what}"):
                    pair = [(theirs, "step"), (ours, f"pack {sizes.packs[0]}")]
                    measured(pair, sizes)
                    rows.add(f"d {width}, one run: time of {what} / ours", ratio(*pair), "×", raw=theirs.facts["step"])
    released(sides, *(f"{kind} {width}" for kind in ("packs", "plain", "torch")))


def other_packs(rows: Rows, sizes: Sizes, sides: dict[str, Side], device: Accelerator | None) -> None:
    for width in sizes.widths[1:]:
        for side in taken(sides, f"packs {width}"):
            if rows.left < 8:
                rows.skip(f"packs at d {width}", "out of time")
            else:
                packs_of(rows, sizes, side, width, device)
        released(sides, f"packs {width}")


def steps(rows: Rows, sizes: Sizes, sides: dict[str, Side], device: Accelerator | None) -> None:
    for width in sizes.step_widths:
        names = [f"{kind} {width}" for kind in ("step fused", "step masked", "torch step", "plain step")]
        for ours in taken(sides, names[0]):
            for name in names[1:]:
                for theirs in taken(sides, name):
                    with rows.attempt(f"step at d {width} / {name}"):
                        pair = [(theirs, "step"), (ours, "step")]
                        measured(pair, sizes)
                        least, aim = (0.9, 1.2) if name.startswith("torch") and width == 1024 else (None, None)
                        what = {"step": "masked attention", "torch": "PyTorch, compiled", "plain": "a plain JAX loop"}
                        quantity = f"step at d {width}: time of {what[name.split()[0]]} / ours"
                        raw = {"theirs": theirs.times["step"], "ours": ours.times["step"]}
                        rows.add(quantity, ratio(*pair), "×", least=least, aim=aim, raw=raw)
            with rows.attempt(f"step at d {width}"):
                if not ours.times:
                    measured([(ours, "step")], sizes)
                add_rate(rows, f"step at d {width}", ours, "step", device)
        released(sides, *names)


def losses(rows: Rows, sizes: Sizes, sides: dict[str, Side], device: Accelerator | None) -> None:
    for vocab in sizes.loss_vocabs:
        for side in taken(sides, f"losses {vocab}"):
            dense = side.facts["dense"]["temporary_bytes"]
            for call in side.facts:
                if call == "dense":
                    continue
                name = f"loss at m {vocab} ({call})"
                with rows.attempt(name):
                    measured([(side, call), (side, "dense")], sizes)
                    floor, slowest = (16.0, 1.0) if call == "ours" and vocab > 100_000 else (None, None)
                    saved = dense / side.facts[call]["temporary_bytes"]
                    rows.add(f"{name}: temporary memory of dense / ours", saved, "×", least=floor, raw={"dense": dense})
                    slower = ratio((side, call), (side, "dense"))
                    raw: dict[str, Any] = {"seconds": side.times[call]}
                    rows.add(f"{name}: time / dense", slower, "×", most=slowest, raw=raw)
        released(sides, f"losses {vocab}")


def optimizers(rows: Rows, sizes: Sizes, sides: dict[str, Side], device: Accelerator | None) -> None:
    against = {"adamw": "adamw", "lion_a": "lion", "lion_ar": "adamw", "coupled_adam": "adamw"}
    for side in taken(sides, "optimizers"):
        for ours, theirs in against.items():
            with rows.attempt(f"{ours} / optax.{theirs}"):
                pair = [(side, ours), (side, f"optax.{theirs}")]
                measured(pair, sizes)
                raw = side.facts[ours] | {"seconds": side.times[ours]}
                rows.add(f"optimizer step: {ours} / optax.{theirs}", ratio(*pair), "×", raw=raw)
        released(sides, "optimizers")
