"""How sure our own measurements make us of a rule: what the committed results of `regimes` say, as packaged data."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

NAME = "evidence.json"


def transfer() -> Mapping[str, Mapping[str, Any]]:
    """What it costs to tune a rule's constant at the smallest shape only, by committed result ("laptop-wikitext2").

    Returns:
      Per result: `tier`, `corpus`, `commit`, `widths`, `vocabs`, `seeds` (how many), and `rules`: by rule ("sp", "mup",
      "lvp", "interpolated") its `constant` (hidden rate times width at the smallest shape), and the excess of its final
      train loss over the best known of a shape as a fraction of it: `tuned_gap` where it was tuned, `mean_gap` and
      `worst_gap` over all other shapes with 95 % t intervals over seeds (`mean_gap_interval`, `worst_gap_interval`);
      None where lanes diverged.
      Empty where nothing has been committed. `python -m sweeps report` writes it.
    """
    file = resources.files("lvp.parametrization") / NAME
    return json.loads(file.read_text()) if file.is_file() else {}
