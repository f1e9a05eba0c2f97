"""Files for tracking tools: one file per finished lane, OUT/TOOL/CELL/HASH/NAME.

A lane's file is computed from the lane's record, so its content does not depend on when it is written. It is written
atomically, and an existing file is kept.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.common.experiment import Calculation
from lvp.cli.parser import need
from lvp.errors import InputError, unknown
from lvp.files import write_whole
from lvp.training import records
from sweeps.driver.manifest import Entry, Manifest

LARGEST = (2 - 2**-23) * 2.0**127  # largest finite float32


class Tracker(NamedTuple):
    """A tracking tool."""

    package: str  # the package that must be installed
    file: str  # name of a lane's file
    content: Callable[[Entry, Mapping, float], bytes]  # (cell's entry, record, time of the record) → a file's content
    shown_by: str  # the command that shows a directory of files


def _event_file(entry: Entry, record: Mapping, ended: float) -> bytes:
    from sweeps.reporting import event_files  # needs tensorboardX, which `tracker_named` checks

    return event_files.content(
        scalars(entry, record["outcome"]),
        hparams(record["config"]),
        succeeded=record["outcome"]["status"] == "finished",
        began=ended - record["provenance"]["seconds"],
        ended=ended,
    )


TRACKERS: Mapping[str, Tracker] = {
    "tensorboard": Tracker("tensorboardX", "events.out.tfevents.lane", _event_file, "tensorboard --logdir"),
}


def tracker_named(name: str) -> Tracker:
    """The tracker of this name. Raises InputError if the name is unknown or the tracker's package is missing."""
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)
    need(f"--track {name}", TRACKERS[name].package, extra="lab")
    return TRACKERS[name]


def track(manifest: Manifest, name: str, lanes: Collection[str] | None = None) -> Path:
    """Writes the missing files of a tracker and returns their directory. Skips records that cannot be read.

    Args:
      name: a key of `TRACKERS`.
      lanes: hashes of lanes; None is all lanes with a record.

    Raises:
      InputError: the tracker is unknown, its package is missing, or a record does not fit its cell.
      OSError: the disk is full. The error gives path and size.
    """
    tracker, folder = tracker_named(name), manifest.out / name
    wanted = manifest.finished() if lanes is None else manifest.finished() & set(lanes)
    for entry in manifest.cells:
        cell = folder / _word(entry.label)
        files = {lane: cell / lane / tracker.file for lane in entry.lanes if lane in wanted}
        for record in manifest.read_records(lane for lane, file in files.items() if not file.exists()):
            path = manifest.record_path(record["hash"])
            try:
                content = tracker.content(entry, record, path.stat().st_mtime)
            except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
                raise InputError(f"{path}: the record does not fit cell {entry.label}: {error}") from None
            manifest.make_directory(files[record["hash"]].parent)
            write_whole(files[record["hash"]], content)
    return folder


def _word(label: str) -> str:
    """A cell's label as a part of a path."""
    return re.sub(r"[^\w.=+-]+", "-", label)


def hparams(config: Mapping) -> dict[str, float | bool | str]:
    """The values of a configuration by dotted name, as in `lvp.training.records.table`, without None. Lists are
    text."""
    flat = records.flatten(config)
    return {k: records.dumps(v) if isinstance(v, list) else v for k, v in flat.items() if v is not None}


def scalars(entry: Entry, outcome: Mapping) -> dict[int, dict[str, float]]:
    """The numbers of an outcome: number of steps done → tag → value.

    Tags are `curve/train_loss`, `measures/NAME` at the measured steps and, after the last step, `final/NAME` and
    `final/diverged` (1 or 0). A measure that is a list has a tag with an index for each entry. Values that are not
    finite are left out.
    """
    by_step: dict[int, dict[str, float]] = defaultdict(dict)
    last = 0
    if not isinstance(entry.cell, Calculation):
        last = outcome["steps"]
        for step, loss in zip(outcome["curve_steps"], outcome["curve_losses"], strict=True):
            by_step[step] |= _numbers("curve/train_loss", loss)
        for name, values in records.flatten(outcome.get("measures") or {}).items():
            for step, value in zip(entry.cell.measured_steps, values, strict=True):
                by_step[step + 1] |= _numbers(f"measures/{name}", value)
    for name, value in outcome.items():
        if not isinstance(value, list | Mapping):
            by_step[last] |= _numbers(f"final/{name}", value)
    by_step[last]["final/diverged"] = float(outcome["status"] == "diverged")
    return by_step


def _numbers(tag: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yields the finite numbers in a value, each with its tag."""
    if isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _numbers(f"{tag}.{i}", inner)
    elif isinstance(value, int | float) and abs(value) <= LARGEST:
        yield tag, float(value)
