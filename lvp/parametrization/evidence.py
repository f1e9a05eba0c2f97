"""Measured transfer of each rule: the committed results of the experiment `leaderboard`."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "experiments" / "results" / "evidence.json"


def transfer() -> Mapping[str, Mapping[str, Any]]:
    """The loss of each rule after transfer from the smallest size, by committed result ("laptop-wikitext2").

    Returns:
      For each result `tier` (the preset), `corpus`, `commit`, `seeds` (number of seeds that judge), `measured` (axis of
      `lvp.parametrization.Shape` → smallest and largest measured size), `references_at_edge` (sizes whose reference is
      the first or last of its grid) and `entries`. `entries` maps an entry of the leaderboard, such as "LVP", to its
      `rule` (as in `lvp.parametrization.table`), its `constant` (hidden rate times width at the smallest size),
      `constant_at_edge` (True if this constant is the first or last of its grid), and its gaps. A gap is the validation
      loss divided by the loss of a reference, minus 1. The reference is tuned at the size itself. `base_gap` is the gap
      at the smallest size, and `gaps` has the gap at every other size. `mean_gap` is the mean and `worst_gap` the
      largest gap over these other sizes, with 95 % t intervals over seeds (`mean_gap_interval`, `worst_gap_interval`).
      A gap is None if runs diverged. The mapping is empty if no result is committed. `python -m lvp.sweeps report`
      writes the data to `experiments/results`.
    """
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


def ranked(result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """(name, entry) of a result of `transfer`, the least mean gap first. Entries that diverged are last."""
    gaps = {name: entry["mean_gap"] for name, entry in result["entries"].items()}
    order = sorted(gaps, key=lambda name: math.inf if gaps[name] is None else gaps[name])
    return [(name, result["entries"][name]) for name in order]
