"""The block of README that is made from the committed results of `fresh_text`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lvp.analysis.measurement import Measurement
from lvp.experiments.fresh_text.analysis import (
    Reading,
    costs_of_powers,
    law,
    of_group,
    percent,
    power_of_rate,
    read,
    varied,
    vocabulary,
)
from lvp.experiments.fresh_text.config import GROUPS
from lvp.experiments.fresh_text.minimum import measured

WIDE = 1.0  # width of the interval of an exponent that tells nothing
_ROWS = {"sqrt": "rows × √d", "plain": "plain rows"}
_MOVES = {0.0: "stays", 0.5: "grows as √d", 1.0: "grows as d"}  # of the ratio, by its power of d


def blocks(results: Mapping[str, Any]) -> dict[str, str]:
    """The block "advice": the best ratio of the embedding's rate to the hidden rate, for each model.

    Args:
      results: see `lvp.experiments.common.experiment.Experiment`.
    """
    lines = [line for each in results.values() if varied(each.config) == "d" for line in _advice(each)]
    return {"advice": "\n".join(lines)} if lines else {}


def _advice(result: Any) -> Iterator[str]:
    by_setting, config = read(result.table, result.config), result.config
    for name in config.groups:
        readings = [each for each in of_group(by_setting, name) if each.best.optimum.resolved]
        if not readings:
            continue
        ratios = ", ".join(f"{each.best.optimum.rate:.2g}" for each in readings)
        widths = ", ".join(str(each.shape.width) for each in readings)
        costs = (percent([getattr(each.best, side).value for each in readings]).value for side in ("twice", "half"))
        twice, half = (f"{cost:.1f} %" if np.isfinite(cost) else "unknown" for cost in costs)
        model = ", ".join(filter(None, (GROUPS[name].label, vocabulary(config))))
        ratio, rate = law(config, readings).power, power_of_rate(readings).measurement
        yield (
            f"- **{_ROWS[GROUPS[name].token_rows].capitalize()}** ({model}): the best embedding rate is {ratios} times "
            f"the hidden rate at d {widths}. The ratio {_follows(ratio)}. The rate itself {_follows(rate)}. Twice the "
            f"best rate costs {twice} of the loss, and half of it {half}."
            f"{_of_moving(readings)}{_of_steps(readings[-1])}"
        )


def _of_moving(readings: Sequence[Reading]) -> str:
    """A sentence about the cost at the largest width if the smallest width's ratio is kept or moved."""
    costs = {power: measured(100 * cost).value for power, cost in costs_of_powers(readings).items()}
    known = [f"{costs[power]:.1f} % if it {how}" for power, how in _MOVES.items() if np.isfinite(costs[power])]
    first, last = readings[0].shape.width, readings[-1].shape.width
    return f" At d {last}, the best ratio of d {first} costs {', '.join(known)}." if known else ""


def _of_steps(reading: Reading) -> str:
    """A sentence about the fall of the best ratio over the second half of the text."""
    half, end = (reading.best_after(part) for part in (0.5, 1.0))
    if not (half.resolved and end.resolved):
        return ""
    return f" There the best ratio after all of the text is {end.rate / half.rate:.2f} times that after half of it."


def _follows(power: Measurement) -> str:
    low, high = power.interval or (-np.inf, np.inf)
    told = high - low <= WIDE or low > 0 or high < 0
    return f"follows d^p, p = {power.in_words()}" if told else "follows no resolved power of d"
