"""How far a sweep is, read from its directory: what `status` prints and progress bars show."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from lvp.files import log_entries
from sweeps.driver import lane_index
from sweeps.driver.forecast import duration
from sweeps.driver.lock import driver
from sweeps.driver.manifest import Manifest

SEEN = 300.0  # seconds after which a worker that has said nothing is no longer counted


@dataclass(frozen=True)
class CellStanding:
    """Lanes of a cell by what has become of them. finished: with a record, diverged ones among them. running: the part
    of its steps that each lane under way has done. flops: of a lane."""

    label: str
    lanes: int
    finished: int
    failed: int
    running: list[float]
    flops: float

    @property
    def done(self) -> float:
        """Lanes, those under way by their parts."""
        return self.finished + sum(self.running)

    @property
    def flops_left(self) -> float:
        return self.flops * (self.lanes - self.done)


@dataclass(frozen=True)
class Standing:
    """cells: in the experiment's order. failures: why trials did not finish in this session, with their lanes.
    session_seconds: since it began; session_lanes, session_flops: what it has finished since, and has under way."""

    cells: list[CellStanding]
    failures: list[dict]
    session_seconds: float
    session_lanes: int
    session_flops: float

    @property
    def lanes_per_hour(self) -> float:
        return 3600 * self.session_lanes / self.session_seconds if self.session_seconds else 0.0

    def left(self, flops: float) -> str:
        """How long so many FLOPs take at this session's pace."""
        known = self.session_flops > 0 and self.session_seconds > 0
        return duration(self.session_seconds * flops / self.session_flops) if known else "–"


def standing(manifest: Manifest, *, execute: bool = False) -> Standing:
    """Of the sweep now. Reads what was finished by the names of the records alone. execute: see `lane_index.read`."""
    now, began = time.time(), _began(manifest)
    records = {p.stem: p.stat().st_mtime for p in (manifest.out / "records").glob("*.jsonl")}
    under_way: dict[str, int] = {}
    for said in manifest.read_progress():
        if said["time"] >= max(began, now - SEEN):
            under_way |= dict.fromkeys(said["lanes"], said["step"])
    failures = log_entries(manifest.failures_path, {"lanes": [str], "cell": str, "reason": str})
    failed = {lane for failure in failures for lane in failure["lanes"]} - set(records)
    cells, lanes, flops = [], 0, 0.0
    for entry in lane_index.read(manifest, execute=execute):
        running = [under_way[h] / entry.steps for h in entry.lanes if h in under_way and h not in records]
        new = sum(records.get(h, 0.0) >= began for h in entry.lanes)
        finished = sum(h in records for h in entry.lanes)
        cost = entry.flops_per_lane
        cells.append(
            CellStanding(entry.label, len(entry.lanes), finished, len(failed & set(entry.lanes)), running, cost)
        )
        lanes, flops = lanes + new, flops + cost * (new + sum(running))
    failures = [f for f in failures if failed & set(f["lanes"])]
    return Standing(cells, failures, now - began if driver(manifest.out) else 0.0, lanes, flops)


def _began(manifest: Manifest) -> float:
    try:
        return float(json.loads(manifest.session_path.read_text())["time"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return time.time()


def text(manifest: Manifest) -> str:
    """The table that `python -m sweeps status` prints."""
    found, cells = standing(manifest), lane_index.read(manifest)
    lanes = lane_index.lanes(manifest)
    outcomes = {r["hash"]: r["outcome"]["status"] for r in manifest.read_records(lanes)}
    diverged = {c.label: sum(outcomes.get(h) == "diverged" for h in c.lanes) for c in cells}
    done = sum(c.finished for c in found.cells)
    head = f"{manifest.experiment}, tier {manifest.tier}, hash {manifest.hash}: {done} of {len(lanes)} lanes "
    lines = [
        head + "have a record",
        _activity(manifest, found),
        f"{'cell':<16} {'lanes':>6} {'finished':>9} {'diverged':>9} {'failed':>7} {'left':>9}  running",
    ]
    for c in found.cells:
        left = found.left(c.flops_left) if c.done < c.lanes else ""
        numbers = f"{c.lanes:>6} {c.finished:>9} {diverged[c.label]:>9} {c.failed:>7} {left:>9}"
        lines.append(f"{c.label:<16} {numbers}  {', '.join(f'{part:.0%}' for part in c.running)}".rstrip())
    lines += [_failure(f) for f in found.failures]
    damaged = sorted(p.name for p in (manifest.out / "records").glob("*.damaged"))
    unread = done - len(outcomes)
    if unread:
        lines.append(
            f"{unread} records cannot be read: `python -m sweeps resume {manifest.out}` trains their lanes again"
        )
    if damaged:
        lines.append(f"set aside, since they could not be read: {', '.join(damaged)}")
    return "\n".join(lines)


def _activity(manifest: Manifest, found: Standing) -> str:
    if not (who := driver(manifest.out)):
        return "nobody works on it"
    left = found.left(sum(c.flops_left for c in found.cells))
    return f"{who}: {found.lanes_per_hour:.0f} lanes an hour, {left} left"


def _failure(failure: Mapping) -> str:
    return f"failed: {len(failure['lanes'])} lanes of cell {failure['cell']}: {failure['reason']}"
