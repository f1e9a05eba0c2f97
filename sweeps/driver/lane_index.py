"""A sweep's cells and lanes in few words, OUT/lanes.json: written whenever the sweep is taken up, so that whoever asks
how far it is needs neither the experiment's code nor what trains it, which take seconds to import."""

import json
import re
from typing import NamedTuple

from lvp.errors import InputError
from lvp.files import write_whole
from lvp.files.schema import Shape, fits
from lvp.training import records
from sweeps.driver.manifest import Manifest

NAME = "lanes.json"
_SHAPE: Shape = {
    "sweep": str,
    "more": bool,
    "cells": [{"label": str, "steps": int, "flops_per_lane": float, "lanes": [str]}],
    "digest": str,
}


class CellOutline(NamedTuple):
    """A cell by what its lanes are counted by. steps, flops_per_lane: of one of them; lanes: their hashes, in the
    experiment's order."""

    label: str
    steps: int
    flops_per_lane: float
    lanes: list[str]


def write(manifest: Manifest) -> None:
    """Writes OUT/lanes.json, as the manifest's cells are now. `more` says that others may follow from their results."""
    experiment, config = manifest.resolved
    planned = sum(len(c.lanes) for c in experiment.cells(config))
    content = {
        "sweep": manifest.hash,
        "more": experiment.follow_up is not None and manifest.num_lanes <= planned,
        "cells": [cell._asdict() for cell in _derived(manifest)],
    }
    content["digest"] = records.config_hash(content)
    write_whole(manifest.out / NAME, records.dumps(content) + "\n")


def read(manifest: Manifest, *, execute: bool = False) -> list[CellOutline]:
    """What was written down; what the experiment's code says where there is no such file, it cannot be read, or all of
    its lanes have a record and others follow from them. InputError where that would be to execute somebody's file, and
    `execute` does not say that this process does so anyway."""
    try:
        content = json.loads((manifest.out / NAME).read_text())
        if fits(content, _SHAPE) and content.pop("digest") == records.config_hash(content):
            cells = [CellOutline(**cell) for cell in content["cells"]]
            ours = content["sweep"] == manifest.hash and all(map(_usable, cells))
            if ours and ((manifest.source and not execute) or not (content["more"] and _all_stand(manifest, cells))):
                return cells
    except (OSError, ValueError, TypeError, RecursionError):
        pass
    if manifest.source is not None and not execute:
        path, again = manifest.out / NAME, f"python -m sweeps resume {manifest.out}"
        raise InputError(f"{path} does not say what cells the sweep has; `{again}` writes it anew")
    return _derived(manifest)


def lanes(manifest: Manifest) -> list[str]:
    """The hashes of all lanes."""
    return [h for cell in read(manifest) for h in cell.lanes]


def _derived(manifest: Manifest) -> list[CellOutline]:
    return [CellOutline(e.label, e.cell.steps, float(e.cell.flops_per_lane), list(e.lanes)) for e in manifest.cells]


def _usable(cell: CellOutline) -> bool:
    """Whoever wrote it: the label is shown, and the lanes become names of files."""
    return cell.label.isprintable() and cell.steps > 0 and all(re.fullmatch("[0-9a-f]{16}", h) for h in cell.lanes)


def _all_stand(manifest: Manifest, cells: list[CellOutline]) -> bool:
    return all(manifest.record_path(h).exists() for cell in cells for h in cell.lanes)
