"""Times of packs, steps, optimizers and losses, in alternated rounds, against other implementations.

Most sides start at once, so that their programs compile side by side. When all are ready, or after `READY` of the time
limit, the groups are measured one after the other. The losses need much memory and start when packs and steps have
ended. A row has the median over rounds of the ratio of two sides that ran
one after the other.
"""

import contextlib
import importlib.util
import json
import os
import select
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lvp.parallel.hardware import GIB, accelerator, cores
from tests.benchmarks.accelerator.rows import Rows
from tests.benchmarks.accelerator.sizes import Sizes

ROOT = Path(__file__).parents[3]
READY = 0.55  # part of the time limit in which sides may compile
LEAST = 5.0  # seconds that a group needs
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
        self.ended, self._lock = False, threading.Lock()
        self._starting = threading.Thread(target=self._start, args=(sizes, at_once), daemon=True)
        self._starting.start()

    def _start(self, sizes: Sizes, at_once: threading.Semaphore) -> None:
        words = [sys.executable, "-m", "tests.benchmarks.accelerator.sides", sizes.name.upper(), self.name]
        # Sides share the device's memory.
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with at_once:
            with self._lock:
                if self.ended:
                    return
                self.process = subprocess.Popen(words, **pipes, env=environment, cwd=ROOT)
            if line := self.process.stdout.readline():
                self.facts = json.loads(line)

    def ready(self, seconds: float) -> bool:
        """Whether the programs are compiled within some seconds."""
        self._starting.join(max(0.0, seconds))
        return bool(self.facts)

    @property
    def problem(self) -> str:
        """Why the side is not ready."""
        code = None if self.process is None else self.process.poll()
        return "not compiled in time" if code is None else f"ended with exit code {code}; see the messages"

    def call(self, call: str, count: int, limit: float) -> float:
        """Seconds of a call. Raises RuntimeError if the process has ended or takes longer than the limit."""
        assert self.process is not None  # a side that is ready has started
        answer = ""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{count} {call}\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], limit)[0]:
                raise RuntimeError(f"{self.name} gave no answer in {limit:.0f} s")
            answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name} {self.problem}")
        self.times.setdefault(call, []).append(float(answer))
        return float(answer)

    def end(self) -> None:
        with self._lock:
            self.ended = True
            if self.process is not None:
                self.process.kill()
                self.process.wait()


def measured(rows: Rows, calls: Sequence[tuple[Side, str]], sizes: Sizes) -> None:
    """Times the calls in alternated rounds. The first timing of each decides how many calls a round has."""
    counts = []
    for side, call in calls:
        side.times.pop(call, None)
        counts.append(max(1, round(sizes.timed_seconds / max(side.call(call, 1, max(1.0, rows.left)), 1e-6))))
        side.times.pop(call)
    for _ in range(sizes.rounds):
        for (side, call), count in zip(calls, counts, strict=True):
            side.call(call, count, max(1.0, rows.left))


def ratio(slow: tuple[Side, str], fast: tuple[Side, str]) -> float:
    """How many times as fast the second is: the median of the rounds' ratios."""
    times = zip(slow[0].times[slow[1]], fast[0].times[fast[1]], strict=True)
    return statistics.median(a / b for a, b in times)


def seconds(side: Side, call: str) -> float:
    return statistics.median(side.times[call])


def main(rows: Rows, sizes: Sizes) -> None:
    limit, at_once = rows.left, threading.Semaphore(max(2, cores() // 2))
    first, step = sizes.widths[0], sizes.step_widths[0]
    names = [f"packs {first}", f"step fused {step}", f"step masked {step}", f"torch {first}", f"torch step {step}"]
    names += [f"plain {first}", f"plain step {step}", "optimizers"]
    names += [f"step fused {width}" for width in sizes.step_widths[1:]] + [f"packs {w}" for w in sizes.widths[1:]]
    names += [f"step masked {width}" for width in sizes.step_widths[1:]]  # the last to compile
    if importlib.util.find_spec("torch") is None:
        rows.skip("PyTorch", "not installed")
        names = [name for name in names if not name.startswith("torch")]
    sides = {name: Side(sizes, name, at_once) for name in names}
    try:
        kept_if_ready(rows, sides, READY * limit)
        packs_against_loops(rows, sizes, sides)
        steps(rows, sizes, sides)
        optimizers(rows, sizes, sides)
        for vocab in sizes.loss_vocabs:
            losses(rows, sizes, vocab)
        other_packs(rows, sizes, sides)
    finally:
        for side in sides.values():
            side.end()


def kept_if_ready(rows: Rows, sides: dict[str, Side], seconds: float) -> None:
    """Waits for the sides. Ends those that are not ready, with a row."""
    until = time.monotonic() + seconds
    for name in list(sides):
        if not sides[name].ready(until - time.monotonic()):
            rows.skip(name, sides[name].problem)
            sides.pop(name).end()


def taken(rows: Rows, sides: dict[str, Side], *names: str) -> Iterator[Side]:
    """The sides of these names that are ready, while there is time."""
    for name in names:
        if name in sides and rows.left < LEAST:
            rows.skip(name, "out of time")
        elif name in sides:
            yield sides[name]


def released(sides: dict[str, Side], *names: str) -> None:
    """Ends sides, so that their memory is free."""
    for name in names:
        if name in sides:
            sides.pop(name).end()


def add_rate(rows: Rows, quantity: str, side: Side, call: str, runs: float = 0.0) -> None:
    """Adds model FLOP/s as a share of the peak, or in TFLOP/s for an unknown device.

    Args:
      runs: runs per hour; 0 leaves them out.
    """
    rate = side.facts[call]["flops"] / seconds(side, call)
    raw = side.facts[call] | {"seconds": side.times[call], "flops_per_second": rate}
    if runs:
        rows.add(f"{quantity}: runs per hour", runs, raw=raw)
    device = accelerator(side.facts[call]["device_kind"])
    value, unit = (100 * rate / device.flops, "%") if device else (rate / 1e12, "TFLOP/s")
    rows.add(f"{quantity}: model FLOP/s", value, unit, raw=raw)


def packs_of(rows: Rows, sizes: Sizes, side: Side, width: int) -> None:
    """Rows of all packs of a width, against one run at a time."""
    one = f"pack {sizes.packs[0]}"
    runs = lambda call, count: count * 3600 / (seconds(side, call) * sizes.steps_per_run)  # noqa: E731
    for count in sizes.packs[1:]:
        call, name = f"pack {count}", f"d {width}, pack of {count}"
        if (needed := side.facts[call]["bytes"]) > MOST_MEMORY:
            rows.skip(name, f"needs {needed / GIB:.0f} GiB")
            continue
        with rows.attempt(name):
            measured(rows, [(side, one), (side, call)], sizes)
            gain = count * ratio((side, one), (side, call))
            floor = 5.0 if width == 128 and count == max(sizes.packs) else None
            rows.add(f"{name} / one run at a time: runs per hour", gain, "×", least=floor)
            add_rate(rows, name, side, call, runs(call, count))
    with rows.attempt(f"d {width}, one run"):
        add_rate(rows, f"d {width}, one run", side, one, runs(one, 1))


def packs_against_loops(rows: Rows, sizes: Sizes, sides: dict[str, Side]) -> None:
    width = sizes.widths[0]
    for ours in taken(rows, sides, f"packs {width}"):
        packs_of(rows, sizes, ours, width)
        for kind, what in (("plain", "a plain JAX loop"), ("torch", "PyTorch, compiled")):
            for theirs in taken(rows, sides, f"{kind} {width}"):
                with rows.attempt(f"d {width}, one run / {what}"):
                    pair = [(theirs, "step"), (ours, f"pack {sizes.packs[0]}")]
                    measured(rows, pair, sizes)
                    rows.add(f"d {width}, one run: time of {what} / ours", ratio(*pair), "×", raw=theirs.facts["step"])
    released(sides, *(f"{kind} {width}" for kind in ("packs", "plain", "torch")))


def other_packs(rows: Rows, sizes: Sizes, sides: dict[str, Side]) -> None:
    for width in sizes.widths[1:]:
        for side in taken(rows, sides, f"packs {width}"):
            packs_of(rows, sizes, side, width)
        released(sides, f"packs {width}")


def steps(rows: Rows, sizes: Sizes, sides: dict[str, Side]) -> None:
    for width in sizes.step_widths:
        names = [f"{kind} {width}" for kind in ("step fused", "step masked", "torch step", "plain step")]
        if names[0] not in sides:
            rows.skip(f"steps at d {width}", f"{names[0]} is not ready")
        for ours in taken(rows, sides, names[0]):
            for name in names[1:]:
                for theirs in taken(rows, sides, name):
                    with rows.attempt(f"step at d {width} / {name}"):
                        pair = [(theirs, "step"), (ours, "step")]
                        measured(rows, pair, sizes)
                        least = 0.9 if name.startswith("torch") and width == 1024 else None
                        what = {"step": "masked attention", "torch": "PyTorch, compiled", "plain": "a plain JAX loop"}
                        quantity = f"step at d {width}: time of {what[name.split()[0]]} / ours"
                        raw = {"theirs": theirs.times["step"], "ours": ours.times["step"]}
                        rows.add(quantity, ratio(*pair), "×", least=least, raw=raw)
            with rows.attempt(f"step at d {width}"):
                if not ours.times:
                    measured(rows, [(ours, "step")], sizes)
                add_rate(rows, f"step at d {width}", ours, "step")
        released(sides, *names)


def losses(rows: Rows, sizes: Sizes, vocab: int) -> None:
    name = f"losses {vocab}"
    own = {name: Side(sizes, name, threading.Semaphore())}
    try:
        kept_if_ready(rows, own, rows.left - LEAST)
        for side in taken(rows, own, name):
            losses_of(rows, sizes, side, vocab)
    finally:
        released(own, name)


def losses_of(rows: Rows, sizes: Sizes, side: Side, vocab: int) -> None:
    """Rows of memory and time of all losses of a vocabulary, against the dense loss."""
    dense = side.facts["dense"]["temporary_bytes"]
    for call in side.facts:
        if call == "dense":
            continue
        quantity = f"loss at m {vocab} ({call})"
        with rows.attempt(quantity):
            saved = dense / side.facts[call]["temporary_bytes"]
            floor, slowest = (16.0, 1.0) if call == "ours" and vocab > 100_000 else (None, None)
            rows.add(f"{quantity}: temporary memory of dense / ours", saved, "×", least=floor, raw={"dense": dense})
            measured(rows, [(side, call), (side, "dense")], sizes)
            slower = ratio((side, call), (side, "dense"))
            rows.add(f"{quantity}: time / dense", slower, "×", most=slowest, raw={"seconds": side.times[call]})


def optimizers(rows: Rows, sizes: Sizes, sides: dict[str, Side]) -> None:
    against = {"adamw": "adamw", "lion_a": "lion", "lion_ar": "adamw", "coupled_adam": "adamw"}
    for side in taken(rows, sides, "optimizers"):
        for ours, theirs in against.items():
            with rows.attempt(f"{ours} / optax.{theirs}"):
                pair = [(side, ours), (side, f"optax.{theirs}")]
                measured(rows, pair, sizes)
                raw = side.facts[ours] | {"seconds": side.times[ours]}
                rows.add(f"optimizer step: {ours} / optax.{theirs}", ratio(*pair), "×", raw=raw)
        released(sides, "optimizers")
