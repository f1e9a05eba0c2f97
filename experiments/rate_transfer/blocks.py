"""Blocks of docs that are made from the committed results of `rate_transfer`."""

from collections.abc import Mapping
from typing import Any

from lvp.analysis import markdown
from lvp.analysis.power_laws import in_words
from lvp.experiments.rate_transfer.analysis import read
from lvp.parametrization import published

MAIN = "laptop-wikitext2"
ENTRIES = {"sp": "SP", "mup": "μP"}  # rule in `published.SWEEPS` → our entry


def blocks(results: Mapping[str, Any]) -> dict[str, str]:
    """The block "published-sweeps" of the result `MAIN`; no block without it.

    Args:
      results: see `lvp.experiments.common.experiment.Experiment`.
    """
    return {"published-sweeps": published_sweeps(results[MAIN])} if MAIN in results else {}


def published_sweeps(result: Any) -> str:
    """A table of `lvp.parametrization.published.SWEEPS` beside the powers of the width in a result."""
    by_entry, widths = read(result.table, result.config), result.config.widths
    rows = []
    for sweep in published.SWEEPS:
        entry = ENTRIES[sweep.rule]
        ours = f"d^{in_words(by_entry[entry].power)} (d {widths[0]} to {widths[-1]})"
        rows.append((sweep.source, entry, *(text.replace("-", "−") for text in (f"d^{sweep.slope:.2f}", ours))))
    return markdown.table(("source", "parametrization", "published", "ours"), rows)
