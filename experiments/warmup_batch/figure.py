"""The figure of `warmup_batch`."""

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.experiments.warmup_batch.analysis import gap
from lvp.experiments.warmup_batch.config import EQUAL, Config


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """The gap of every group over the batch, at equal tokens and at equal steps."""
    panels = []
    for equal in EQUAL:
        series = []
        for name in config.groups:
            gaps = [gap(table, config, equal, batch, name) for batch in config.batches]
            known = [(b, g.value, g.interval) for b, g in zip(config.batches, gaps, strict=True) if g.interval]
            if known:
                batches, values, intervals = zip(*known, strict=True)
                error = np.abs(np.transpose(intervals) - np.array(values))
                series.append(Series(name, batches, values, error=error, fitted=np.array(values)))
        levels = [(0.0, "warm-up gains nothing")]
        title, ylabel = f"equal {equal}", "gap to the best warm-up (nats per token)"
        panels.append(Panel(title, "batch (sequences)", ylabel, series, yscale="linear", levels=levels))
    return sheet(
        panels,
        columns=2,
        title="Does the need for warm-up grow with the batch?",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=["Bars: the 95 % interval, which allows for the selection of rates."],
    )
