"""The figure of `representation_change`."""

from typing import Any

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.experiments.representation_change import equation_nine
from lvp.experiments.representation_change.analysis import NEURON_SNR, SETTLED, over_steps, runs_by_seed
from lvp.experiments.representation_change.config import Config


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Draws equation 9 beside its simulation, and φ, alignment and cancelled gradient over training."""
    per_batch, half = [(1 / config.batch, f"1/B, B = {config.batch}")], [(0.5, "half (figure 4)")]
    late = f"gradient cancelled by momentum, from {SETTLED:.0%} of the steps on"
    snr, cosine = "signal-to-noise ratio of the gradient", "alignment of gradient and momentum"
    panels = [
        *equation_nine.panels(table),
        _panel(table, config, NEURON_SNR, snr, "φ per sequence", per_batch, log_axes=True),
        # The first step has no momentum.
        _panel(table, config, "alignment", cosine, "cosine", [(0.0, "no alignment")], start=1 / config.steps),
        _panel(table, config, "cancelled", late, "part of the gradient", half, start=SETTLED),
    ]
    return sheet(
        [panel for panel in panels if panel.series],
        title="Representation change by updates of a given size, and the gradient's signal over training",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            "Markers: Monte Carlo with standard errors, mostly smaller than the marker. RRC² = E[Δy²]/E[y²] under "
            "normalised gradient descent (equation 7).",
            "Over training: φ is the median over the neurons of the hidden matrices; the other panels concatenate the "
            "gradients of all hidden matrices. Lines: means over seeds; bands: from the lowest to the highest seed. "
            "Estimates of φ below zero are not drawn.",
        ],
    )


def _panel(
    table, config: Config, measure: str, title: str, ylabel: str, levels, *, log_axes: bool = False, start: float = 0.0
) -> Panel:
    """A measure of every group over the steps.

    Args:
      levels: (value, label) of each horizontal line.
      log_axes: whether both axes are logarithmic; values of 0 and below are then left out.
      start: fraction of the steps before the first step that is drawn.
    """
    steps = np.array(config.measured_steps)
    shown, series = steps >= start * config.steps, []
    for name in config.groups:
        values = over_steps(runs_by_seed(table, config, name), config, measure)[:, shown]
        values = values[np.isfinite(values).any(axis=1)]
        if len(values):
            mean, *band = values.mean(axis=0), values.min(axis=0), values.max(axis=0)
            if log_axes:
                mean, *band = (np.where(curve > 0, curve, np.nan) for curve in (mean, *band))
            series.append(Series(name, steps[shown] + 1, mean, line=True, band=(band[0], band[1])))
    scales: dict[str, Any] = {} if log_axes else {"xscale": "linear", "yscale": "linear"}
    return Panel(title, "step", ylabel, series, levels=levels, **scales)
