"""The slope that fewer runs or steps would have given, computed from the records of a larger sweep."""

from dataclasses import replace

import numpy as np

from lvp.analysis import markdown
from lvp.analysis.slopes import Slope
from lvp.experiments.width_vocab.analysis import optima
from lvp.experiments.width_vocab.config import READINGS, Config, settings

MAKE_FIGURE: dict = {"widths": (32, 48, 64, 96), "rates": slice(1, None), "seeds": (0, 1), "steps": 1200}
"""The runs of `make figure`, as fields of the laptop preset. A slice selects from the sweep's rates."""

_REPLAYED: tuple[dict, ...] = (
    {},
    {"rates": slice(1, None), "seeds": (0, 1)},
    {"widths": (32, 48, 64, 96), "rates": slice(1, None), "seeds": (0, 1)},
    MAKE_FIGURE,
    MAKE_FIGURE | {"steps": 900},
    MAKE_FIGURE | {"widths": (32, 64, 96), "steps": 1500},
    MAKE_FIGURE | {"rates": slice(1, -1), "steps": 1500},
)


def reduced(config: Config, fields: dict) -> Config:
    """The configuration with some of its runs.

    Args:
      fields: field → value; for `rates`, the slice of the configured rates.
    """
    return replace(config, **(fields | {"rates": config.rates[fields.get("rates", slice(None))]}))


def replay_table(table, config: Config) -> str:
    """A Markdown table: slopes of each reading by the runs used, and their part of the training FLOPs."""
    readings = [READINGS[token_rows] for token_rows in config.token_rows]
    head = ["widths", "rates", "seeds", "steps", *(f"slope, {name}" for name in readings), "relative FLOPs"]
    rows = []
    for fields in _REPLAYED:
        smaller = reduced(config, fields)
        steps = smaller.steps if smaller.steps < config.steps else None
        slopes = [_text(optima(table, smaller, rows, steps)[1]) for rows in config.token_rows]
        numbers = [len(smaller.rates), len(smaller.seeds), smaller.steps]
        row = [", ".join(map(str, smaller.widths)), *numbers, *slopes, f"{_flops(smaller) / _flops(config):.2f}"]
        rows.append([f"**{x}**" if fields is MAKE_FIGURE else x for x in row])
    return markdown.table(head, rows, align="lrrr" + "l" * len(readings) + "r")


def _flops(config: Config) -> float:
    return sum(len(planned.runs) * planned.setting.flops_per_run for planned in settings(config))


def _text(slope: Slope) -> str:
    low, high = slope.interval
    interval = f"[{low:.2f}, {high:.2f}]" if np.isfinite(low) else "without an interval"
    return f"{slope.slope:.2f} {interval}".replace("-", "−") if np.isfinite(slope.slope) else "–"
