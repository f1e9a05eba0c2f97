"""The best embedding rate, its powers and tolerance by how rows enter the model: a table of docs/embedding_rate.md."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lvp.analysis import Optimum, markdown
from lvp.analysis.measurement import Measurement
from lvp.experiments.width_vocab.analysis import optima
from lvp.experiments.width_vocab.config import READINGS, Config


def token_rows_table(results: Sequence[tuple[pd.DataFrame, Config]]) -> str:
    """A Markdown table with a row per reading and result.

    Its columns are the powers of width and of steps, the best rate of the largest width, and the excess loss at twice
    or half the best rate.

    Args:
      results: table and configuration of committed results.
    """
    head = ["token rows", "corpus, widths, design", "power of width", "power of steps"]
    head += ["best η_E of the largest width", "loss at 2× or ½×"]
    lines = []
    readings = [rows for rows in READINGS if any(rows in config.token_rows for _, config in results)]
    for token_rows in readings:
        for table, config in results:
            if token_rows in config.token_rows:
                by_width, fit = optima(table, config, token_rows)
                powers = Measurement(fit.slope, fit.interval), power_of_steps(table, config, token_rows)
                of_width, of_steps = (power.text(".2f").replace("-", "−") for power in powers)
                flagged = ", not resolved" * (not by_width[-1].resolved)
                best = f"{by_width[-1].rate:.2g} (d {config.widths[-1]}, {config.steps} steps{flagged})"
                setting = f"{config.corpus}, {config.widths[0]}–{config.widths[-1]}, {config.design}"
                lines.append((READINGS[token_rows], setting, of_width, of_steps, best, _excess(by_width)))
    return markdown.table(head, lines)


def power_of_steps(table, config: Config, token_rows: str) -> Measurement:
    """The slope of ln(best rate) over ln(steps): the mean over the widths, with a t interval over the widths.

    The optimum of a width is read at each horizon. Unresolved optima are left out. A width counts if at least three of
    its optima are resolved.
    """
    by_horizon = [optima(table, config, token_rows, steps)[0] for steps in config.horizons]
    powers = []
    for of_width in zip(*by_horizon, strict=True):
        points = [(np.log(s), np.log(o.rate)) for s, o in zip(config.horizons, of_width, strict=True) if o.resolved]
        if len(points) >= 3:
            log_steps, log_rates = np.array(points).T
            powers.append(float(np.polyfit(log_steps, log_rates, 1)[0]))
    return Measurement.over_seeds(powers)


def _excess(by_width: Sequence[Optimum]) -> str:
    """The range over widths of the excess loss at twice or half the best rate, from the quadratic fits."""
    excess = [100 * o.curvature * np.log(2) ** 2 / o.loss for o in by_width if o.resolved]
    if not excess:
        return "–"
    return " to ".join(dict.fromkeys(f"{x:.1f}" for x in (min(excess), max(excess)))) + " % more"
