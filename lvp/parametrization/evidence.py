"""Measured transfer of each rule: the committed results of the experiment `regimes`, as packaged data."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

NAME = "evidence.json"


def transfer() -> Mapping[str, Mapping[str, Any]]:
    """The cost of tuning a rule's constant at the smallest shape only, by committed result ("laptop-wikitext2").

    Returns:
      For each result `tier`, `corpus`, `commit`, `widths`, `vocabs`, `seeds` (their number), and `rules`. `rules` maps
      "sp", "mup", "lvp" and "interpolated" to a rule's `constant` (hidden rate times width at the smallest shape) and
      its gaps. A gap is the excess of the final train loss over the best known loss of a shape, relative to that loss:
      `tuned_gap` at the smallest shape, `mean_gap` and `worst_gap` over all other shapes, with 95 % t intervals over
      seeds (`mean_gap_interval`, `worst_gap_interval`). A gap is None if lanes diverged.
      The mapping is empty if no result is committed. `python -m sweeps report` writes the data.
    """
    file = resources.files("lvp.parametrization") / NAME
    return json.loads(file.read_text()) if file.is_file() else {}
