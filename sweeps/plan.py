"""What a sweep will do: its cost beforehand, and its lanes cut into trials."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeps.manifest import Manifest

if TYPE_CHECKING:  # takes seconds, and whoever asks how far a sweep is trains nothing
    from experiments.experiment import CellLanes

# Model FLOP/s one worker is assumed to reach before it has been measured: a pinned CPU core on small float32 models, an
# accelerator on float32 models of a few hundred columns. Only the forecast depends on them.
ASSUMED_FLOPS = {"cpu": 9.0e10, "accelerator": 2.0e13}
# The cost of a trial is about this part of what a worker has to do in all: small enough for workers to end together,
# large enough for a scheduler's tenth of a second not to count.
TRIALS_PER_WORKER = 16


@dataclass(frozen=True)
class Cost:
    """Of one cell, all its lanes: tokens trained on, model FLOPs of training."""

    label: str
    lanes: int
    params: int
    tokens: float
    flops: float


def cost(cells: "Sequence[CellLanes]") -> list[Cost]:
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


def forecast(cells: "Sequence[CellLanes]", workers: int, flops_per_second: float, basis: str) -> str:
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


def trials(manifest: Manifest, packs: Mapping[str, int], workers: int, finished: Collection[str]) -> list[dict]:
    """The unfinished lanes as trials for `Worker.run_trial`.

    A pack is never repacked: lanes that were packed together stay together, finished or not. The dearest cells come
    first, in groups of as many cells as there are workers, taking turns, so that workers seldom compile the same
    program at the same time and the cheapest trials are left for the end.
    """
    total = sum(len(e.lanes) * e.cell.flops_per_lane for e in manifest.cells)
    aim = total / (workers * TRIALS_PER_WORKER)
    queues = []
    for index, entry in enumerate(manifest.cells):
        pack, hashes = packs[entry.label], list(entry.lanes)
        groups = [hashes[i : i + pack] for i in range(0, len(hashes), pack)]
        groups = [g for g in groups if not all(h in finished for h in g)]
        per_trial = max(1, int(aim / (entry.cell.flops_per_lane * pack)))
        queues.append(
            [
                {"cell": index, "pack": pack, "lanes": sum(groups[i : i + per_trial], [])}
                for i in range(0, len(groups), per_trial)
            ]
        )
    order = sorted(range(len(queues)), key=lambda i: -manifest.cells[i].cell.flops_per_lane)
    ordered = []
    for start in range(0, len(order), workers):
        some = [list(queues[i]) for i in order[start : start + workers]]
        while any(some):
            ordered += [q.pop(0) for q in some if q]
    return [trial | {"id": f"{i:04d}"} for i, trial in enumerate(ordered)]
