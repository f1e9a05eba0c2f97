"""The figure of `muon`."""

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.measurement import Measurement
from lvp.analysis.power_laws import Panel, Series, over_seeds
from lvp.experiments.muon.analysis import tuned
from lvp.experiments.muon.config import NANOCHAT, Config, Group


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Loss over the hidden rate by ratio under Adam and under Muon, and the tuned loss over the ratio."""
    return sheet(
        [_curves(table, config, "Adam"), _curves(table, config, "Muon"), _tuned(table, config)],
        title="The ratio of the embedding's rate to the hidden rate, under Adam and under Muon",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            f"d {config.width}, m {config.vocab}. Left: means over the seeds that tune. Bars: from the lowest to the "
            "highest seed.",
            "Right: means over the other seeds, each group at its tuned rate. Bars: half the 95 % interval.",
        ],
    )


def _curves(table, config: Config, optimizer: str) -> Panel:
    series, rates = [], np.array(config.rates_times_width)
    for power in config.powers:
        values = tuned(table, config, Group(optimizer, power)).losses
        finished = np.isfinite(values).all(axis=1)
        if finished.any():
            series.append(over_seeds(f"d^{power:g}", rates[finished], values[finished]))
    title = f"hidden matrices: {optimizer}"
    return Panel(title, "hidden rate times d", "validation bits/byte", series, legend="ratio", ordered=True)


def _tuned(table, config: Config) -> Panel:
    series = []
    for optimizer in ("Adam", "Muon"):
        by_power = [
            (power, Measurement.over_seeds(tuned(table, config, Group(optimizer, power)).judged.losses))
            for power in config.powers
        ]
        known = [(power, *loss) for power, loss in by_power if loss.interval is not None]
        if known:
            x, y, intervals = zip(*known, strict=True)
            half = [(high - low) / 2 for low, high in intervals]
            series.append(Series(optimizer, np.array(x), np.array(y), error=np.array(half)))
    of_nanochat = float(np.mean(tuned(table, config, NANOCHAT).judged.losses))
    levels = [(of_nanochat, "Muon, nanochat's constants")] if np.isfinite(of_nanochat) else []
    title = "tuned loss over the ratio"
    xlabel = "p, for embedding rate = d^p × hidden rate"
    return Panel(title, xlabel, "validation bits/byte", series, xscale="linear", yscale="linear", levels=levels)
