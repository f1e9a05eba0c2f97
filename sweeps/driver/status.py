"""The status of a sweep, read from its directory."""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lvp.files import listed, log_entries
from sweeps.driver import lane_index
from sweeps.driver.forecast import duration
from sweeps.driver.lock import driver
from sweeps.driver.manifest import Manifest, resume_command

SEEN = 300.0  # seconds without progress after which a lane no longer counts as running


@dataclass(frozen=True)
class CellStatus:
    """The lanes of a cell, counted by their state."""

    label: str
    lanes: int
    finished: int  # lanes with a record; diverged lanes are included
    failed: int  # lanes without a record whose trial failed in the last session
    running: list[float]  # for each running lane, the fraction of its steps that is done
    flops: float  # FLOPs of one lane

    @property
    def done(self) -> float:
        """The number of finished lanes plus the fractions of running lanes."""
        return self.finished + sum(self.running)

    @property
    def flops_left(self) -> float:
        return self.flops * (self.lanes - self.done)


@dataclass(frozen=True)
class SweepStatus:
    """The state of a sweep, and the pace of the driver that runs it."""

    cells: list[CellStatus]  # in the experiment's order
    failures: list[dict]  # failed trials that have lanes without a record: cell, lanes and reason
    session_seconds: float  # seconds since the running driver began; 0 without a driver
    session_lanes: int  # lanes finished in this session
    session_flops: float  # FLOPs of the lanes finished in this session, and of the steps of running lanes

    @property
    def fraction(self) -> float:
        """The fraction of the sweep's FLOPs that is done."""
        total = sum(c.flops * c.lanes for c in self.cells)
        return 1 - sum(c.flops_left for c in self.cells) / total if total else 0.0

    @property
    def lanes_per_hour(self) -> float:
        return 3600 * self.session_lanes / self.session_seconds if self.session_seconds else 0.0

    def seconds_for(self, flops: float) -> float | None:
        """The time for `flops` at this session's speed; None if the speed is unknown."""
        known = self.session_flops > 0 and self.session_seconds > 0
        return self.session_seconds * flops / self.session_flops if known else None

    @property
    def seconds_left(self) -> float | None:
        """The time for the lanes without a record; None if the speed is unknown."""
        return self.seconds_for(sum(c.flops_left for c in self.cells))


def status(manifest: Manifest, *, execute: bool = False) -> SweepStatus:
    """The sweep's present status. Finished lanes are counted by the names of their record files.

    Args:
      execute: whether a user's experiment file may be executed (see `lane_index.read`).
    """
    now, began = time.time(), _began(manifest)
    records = {p.stem: p.stat().st_mtime for p in manifest.record_files()}
    step_of: dict[str, int] = {}  # running lane → its last reported step
    for progress in manifest.read_progress():
        if progress["time"] >= max(began, now - SEEN):
            step_of |= dict.fromkeys(progress["lanes"], progress["step"])
    failures = log_entries(manifest.failures_path, {"lanes": [str], "cell": str, "reason": str})
    failed = {lane for failure in failures for lane in failure["lanes"]} - set(records)
    cells, lanes, flops = [], 0, 0.0
    for entry in lane_index.read(manifest, execute=execute):
        running = [step_of[h] / entry.steps for h in entry.lanes if h in step_of and h not in records]
        new = sum(records.get(h, 0.0) >= began for h in entry.lanes)
        finished = sum(h in records for h in entry.lanes)
        cost = entry.flops_per_lane
        cells.append(CellStatus(entry.label, len(entry.lanes), finished, len(failed & set(entry.lanes)), running, cost))
        lanes, flops = lanes + new, flops + cost * (new + sum(running))
    failures = [f for f in failures if failed & set(f["lanes"])]
    seconds = max(0.0, now - began) if driver(manifest.out) else 0.0  # the clock may have been set back
    return SweepStatus(cells, failures, seconds, lanes, flops)


def _began(manifest: Manifest) -> float:
    try:
        return float(json.loads(manifest.session_path.read_text())["time"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return time.time()


def text(manifest: Manifest) -> str:
    """The table that `python -m sweeps status` prints."""
    sweep, cells = status(manifest), lane_index.read(manifest)
    lanes = lane_index.lanes(manifest)
    outcomes = {r["hash"]: r["outcome"]["status"] for r in manifest.read_records(lanes)}
    diverged = {c.label: sum(outcomes.get(h) == "diverged" for h in c.lanes) for c in cells}
    done = sum(c.finished for c in sweep.cells)
    column = max([16, *(len(c.label) for c in sweep.cells)])
    head = f"{manifest.experiment}, tier {manifest.tier}, hash {manifest.hash}: {done} of {len(lanes)} lanes "
    lines = [
        head + "have a record",
        _activity(manifest, sweep),
        f"{'cell':<{column}} {'lanes':>6} {'finished':>9} {'diverged':>9} {'failed':>7} {'left':>9}  running",
    ]
    for c in sweep.cells:
        left = _duration(sweep.seconds_for(c.flops_left)) if c.done < c.lanes else ""
        numbers = f"{c.lanes:>6} {c.finished - diverged[c.label]:>9} {diverged[c.label]:>9} {c.failed:>7} {left:>9}"
        lines.append(f"{c.label:<{column}} {numbers}  {', '.join(f'{part:.0%}' for part in c.running)}".rstrip())
    lines += _failures(sweep.failures)
    damaged = [p.name for p in listed(manifest.out / "records", ".damaged")]
    unread = done - len(outcomes)
    if unread:
        lines.append(f"{unread} records cannot be read: `{resume_command(manifest.out)}` trains their lanes again")
    if damaged:
        lines.append(f"damaged records, renamed: {', '.join(damaged)}")
    return "\n".join(lines)


def _activity(manifest: Manifest, sweep: SweepStatus) -> str:
    if not (holder := driver(manifest.out)):
        return "no driver is running"
    return f"{holder}: {sweep.lanes_per_hour:.0f} lanes per hour, {_duration(sweep.seconds_left)} left"


def _duration(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


def _failures(failures: Iterable[Mapping]) -> list[str]:
    """A line for each cell and reason."""
    lanes: Counter[tuple[str, str]] = Counter()
    for failure in failures:
        lanes[failure["cell"], failure["reason"]] += len(failure["lanes"])
    return [
        f"failed: {number} lane{'s' * (number > 1)} of cell {cell}: {reason}"
        for (cell, reason), number in lanes.items()
    ]
