"""The lane index OUT/lanes.json: a sweep's cells and the hashes of their lanes.

`run` and `resume` write the index. `status` reads the index. It therefore does not execute a user's experiment file.
"""

import json
import re
from typing import NamedTuple

from lvp.errors import InputError
from lvp.files import ABSENT, write_whole
from lvp.files.schema import Shape, fits
from lvp.training import records
from sweeps.driver.manifest import Manifest, resume_command

NAME = "lanes.json"
_SHAPE: Shape = {
    "sweep": str,
    "more": bool,
    "cells": [{"label": str, "steps": int, "flops_per_lane": float, "lanes": [str]}],
    "digest": str,
}


class IndexedCell(NamedTuple):
    """A cell of the lane index."""

    label: str
    steps: int  # of one lane
    flops_per_lane: float
    lanes: list[str]  # hashes, in the experiment's order


def write(manifest: Manifest) -> None:
    """Writes OUT/lanes.json from the manifest's cells. Its key `more` tells whether results may still add lanes."""
    content = {
        "sweep": manifest.hash,
        "more": _may_grow(manifest),
        "cells": [cell._asdict() for cell in _derived(manifest)],
    }
    content["digest"] = records.config_hash(content)
    write_whole(manifest.out / NAME, records.dumps(content) + "\n")


def _may_grow(manifest: Manifest) -> bool:
    """Whether the results of the manifest's lanes may add lanes."""
    experiment, config = manifest.resolved
    if manifest.num_lanes >= experiment.most_lanes(config):
        return False
    if experiment.limit is None:
        return manifest.num_lanes <= sum(len(c.lanes) for c in experiment.cells(config))
    return len(manifest.read_records()) < manifest.num_lanes  # with all records, `follow_up` has added no lane


def read(manifest: Manifest, *, execute: bool = False) -> list[IndexedCell]:
    """The sweep's cells, from the lane index. The experiment's code gives the cells if the index is missing, damaged or
    lacks the lanes that the sweep's results have added.

    Args:
      execute: whether a user's experiment file may be executed. If not, added lanes may be missing.

    Raises:
      InputError: the index of a user's experiment is missing or damaged, and `execute` is False.
    """
    try:
        content = json.loads((manifest.out / NAME).read_text())
        if fits(content, _SHAPE) and content.pop("digest") == records.config_hash(content):
            cells = [IndexedCell(**cell) for cell in content["cells"]]
            ours = content["sweep"] == manifest.hash and all(map(_usable, cells))
            if ours and ((manifest.source and not execute) or not (content["more"] and _all_recorded(manifest, cells))):
                return cells
    except (*ABSENT, ValueError, TypeError, RecursionError):
        pass
    if manifest.source is not None and not execute:
        path, again = f"{manifest.location}/{NAME}", resume_command(manifest.out)
        raise InputError(f"{path} is missing or damaged; `{again}` writes it again")
    return _derived(manifest)


def lanes(manifest: Manifest) -> list[str]:
    """The hashes of all lanes."""
    return [h for cell in read(manifest) for h in cell.lanes]


def _derived(manifest: Manifest) -> list[IndexedCell]:
    return [IndexedCell(e.label, e.cell.steps, float(e.cell.flops_per_lane), list(e.lanes)) for e in manifest.cells]


def _usable(cell: IndexedCell) -> bool:
    """Whether the label is printable, the steps are positive and the lanes are hashes."""
    return cell.label.isprintable() and cell.steps > 0 and all(re.fullmatch("[0-9a-f]{16}", h) for h in cell.lanes)


def _all_recorded(manifest: Manifest, cells: list[IndexedCell]) -> bool:
    return all(manifest.record_path(h).exists() for cell in cells for h in cell.lanes)
