"""Times of packs, steps, optimizers and losses, in alternated rounds, against other implementations.

Most sides start at once, so that their programs compile side by side. When all are ready, or after `READY` of the time
limit, the groups are measured one after the other. The losses need much memory and start when packs and steps have
ended. A row has the median over rounds of the ratio of two sides that ran
one after the other.
"""

import contextlib
import importlib.util
import statistics
import threading
import time
from collections.abc import Iterator, Sequence

from lvp.parallel.hardware import GIB, accelerator, cores
from tests.benchmarks import RUN, Side
from tests.benchmarks.accelerator.rows import Rows
from tests.benchmarks.accelerator.sizes import Sizes

READY = 0.55  # part of the time limit in which sides may compile
LEAST = 5.0  # seconds that a group needs
MOST_MEMORY = 45 * GIB  # of a pack


class Waiting:
    """A side that starts in a thread, when fewer than `at_once` other sides compile."""

    def __init__(self, sizes: Sizes, name: str, at_once: threading.Semaphore):
        # Sides share the device's memory.
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        self.side = Side("tests.benchmarks.accelerator.sides", sizes.name.upper(), name, environment=environment)

        def start() -> None:
            with at_once:
                self.side.start()

        self._thread = threading.Thread(target=start, daemon=True)
        self._thread.start()

    def ready(self, seconds: float) -> bool:
        """Whether the programs are compiled within some seconds."""
        self._thread.join(max(0.0, seconds))
        return bool(self.side.facts)

    @property
    def problem(self) -> str:
        """Why the side is not ready."""
        code = None if self.side.process is None else self.side.process.poll()
        return "not compiled in time" if code is None else f"ended with exit code {code}; see the messages"


def measured(rows: Rows, calls: Sequence[tuple[Side, str]], sizes: Sizes) -> None:
    """Times the calls in alternated rounds. The first timing of each decides how many calls a round has."""
    counts = []
    for side, call in calls:
        side.times.pop(call, None)
        counts.append(max(1, round(sizes.timed_seconds / max(side.call(1, call, max(1.0, rows.left)), 1e-6))))
        side.times.pop(call)
    for _ in range(sizes.rounds):
        for (side, call), count in zip(calls, counts, strict=True):
            side.call(count, call, max(1.0, rows.left))


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
    with started(rows, sizes, names, at_once, READY * limit) as sides:
        packs_against_loops(rows, sizes, sides)
        steps(rows, sizes, sides)
        optimizers(rows, sizes, sides)
        for vocab in sizes.loss_vocabs:
            with started(rows, sizes, [f"losses {vocab}"], at_once, rows.left - LEAST) as own:
                losses(rows, sizes, own, vocab)
        other_packs(rows, sizes, sides)


@contextlib.contextmanager
def started(
    rows: Rows, sizes: Sizes, names: Sequence[str], at_once: threading.Semaphore, seconds: float
) -> Iterator[dict[str, Side]]:
    """The sides that are ready within some seconds, by name. A side that is not ready gets a row. All end with the
    block."""
    until = time.monotonic() + seconds
    waiting = {name: Waiting(sizes, name, at_once) for name in names}
    try:
        late = [name for name, each in waiting.items() if not each.ready(until - time.monotonic())]
        for name in late:
            rows.skip(name, waiting[name].problem)
            waiting[name].side.end()
        yield {name: each.side for name, each in waiting.items() if name not in late}
    finally:
        for each in waiting.values():
            each.side.end()


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
            gain = count * side.over(side, one, call)
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
                    pair = [(theirs, RUN), (ours, f"pack {sizes.packs[0]}")]
                    measured(rows, pair, sizes)
                    slower = theirs.over(ours, RUN, pair[1][1])
                    rows.add(f"d {width}, one run: time of {what} / ours", slower, "×", raw=theirs.facts[RUN])
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
                        measured(rows, [(theirs, RUN), (ours, RUN)], sizes)
                        least = 0.9 if name.startswith("torch") and width == 1024 else None
                        what = {"step": "masked attention", "torch": "PyTorch, compiled", "plain": "a plain JAX loop"}
                        quantity = f"step at d {width}: time of {what[name.split()[0]]} / ours"
                        raw = {"theirs": theirs.times[RUN], "ours": ours.times[RUN]}
                        rows.add(quantity, theirs.over(ours), "×", least=least, raw=raw)
            with rows.attempt(f"step at d {width}"):
                if not ours.times:
                    measured(rows, [(ours, RUN)], sizes)
                add_rate(rows, f"step at d {width}", ours, RUN)
        released(sides, *names)


def losses(rows: Rows, sizes: Sizes, sides: dict[str, Side], vocab: int) -> None:
    for side in taken(rows, sides, f"losses {vocab}"):
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
                slower = side.over(side, call, "dense")
                rows.add(f"{quantity}: time / dense", slower, "×", most=slowest, raw={"seconds": side.times[call]})


def optimizers(rows: Rows, sizes: Sizes, sides: dict[str, Side]) -> None:
    against = {"adamw": "adamw", "lion_a": "lion", "lion_ar": "adamw", "coupled_adam": "adamw"}
    for side in taken(rows, sides, "optimizers"):
        for ours, theirs in against.items():
            with rows.attempt(f"{ours} / optax.{theirs}"):
                measured(rows, [(side, ours), (side, f"optax.{theirs}")], sizes)
                raw = side.facts[ours] | {"seconds": side.times[ours]}
                slower = side.over(side, ours, f"optax.{theirs}")
                rows.add(f"optimizer step: {ours} / optax.{theirs}", slower, "×", raw=raw)
        released(sides, "optimizers")
