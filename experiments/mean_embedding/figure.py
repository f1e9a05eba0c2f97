"""The figure of `mean_embedding`."""

from itertools import product

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, over_seeds
from lvp.analysis.update_vectors import toys
from lvp.experiments.common.tables import mean_of_finite
from lvp.experiments.mean_embedding.analysis import at_last_step, over_steps, tuned_runs
from lvp.experiments.mean_embedding.config import EMBEDDING_PATH, HEAD_PATH, OPTIMIZERS, Config


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """A toy example, drift over training, second moment and update size over frequency, and loss over drift."""
    return sheet(
        [*toys(), _drift(table, config), _moments(table, config), _sizes(table, config), _costs(table, config)],
        title="The mean embedding under different optimizers",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            "Toy: three embeddings, hidden state h, the updates after one token (the true token is e1) and, in grey, "
            "their sum. Dashed: v̂ = A p through the origin.",
            "Means over seeds, each optimizer at its tuned rate. Bars: from the lowest to the highest seed. "
            "Drift below 1e-9 is drawn at 1e-9.",
        ],
    )


FREQUENCY_LABEL = "mean frequency p of a bin's tokens"


def _drift(table, config: Config) -> Panel:
    series, steps = [], np.array(config.measured_steps[1:]) + 1
    for name in OPTIMIZERS:
        if len(rows := tuned_runs(table, config, name, "untied")):
            values = over_steps(rows, HEAD_PATH["untied"], "mean_drift")[:, 1:]
            series.append(over_seeds(name, steps, np.maximum(values, 1e-9).T))
    return Panel("drift of the mean output embedding, untied", "step", "‖μ − μ₀‖ / mean ‖e_i‖", series)


def _by_bin(rows, head: str, measure: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean frequency and mean measure of each bin of tokens at the last step, over seeds; without empty bins."""
    by_seed = [over_steps(rows, HEAD_PATH[head], f"by_frequency.{name}")[:, -1] for name in ("frequency", measure)]
    finished = np.isfinite(by_seed[0]).any(axis=1)
    x, y = (values[finished].mean(axis=0) for values in by_seed)
    return x[(x > 0) & (y > 0)], y[(x > 0) & (y > 0)]


def _moments(table, config: Config) -> Panel:
    series = []
    for head in config.heads:
        if len(rows := tuned_runs(table, config, "Adam", head)):
            x, y = _by_bin(rows, head, "second_moment")
            line = mean_of_finite(at_last_step(rows, HEAD_PATH[head], "slope_through_origin")) * x
            series.append(Series(head, x, y, predicted=line))
    return Panel("Adam: second moment of the head, last step", FREQUENCY_LABEL, "mean v̂", series, named_ticks=False)


def _sizes(table, config: Config) -> Panel:
    by_name = {name: tuned_runs(table, config, name, "untied") for name in OPTIMIZERS}
    series = [Series(name, *_by_bin(rows, "untied", "norm")) for name, rows in by_name.items() if len(rows)]
    title = "size of a token's update in the untied head, last step"
    return Panel(title, FREQUENCY_LABEL, "mean ‖u_i‖", series, named_ticks=False)


def _costs(table, config: Config) -> Panel:
    series = []
    for name, head in product(("Adam", "Coupled Adam", "Adam √d", "Coupled Adam √d"), config.heads):
        if len(rows := tuned_runs(table, config, name, head)):
            bits = rows["valid_bits_per_byte"].to_numpy()
            series.append(Series(f"{name}, {head}", at_last_step(rows, EMBEDDING_PATH[head], "mean_drift"), bits))
    title = "drift against loss at tuned rates, one point per seed"
    return Panel(title, "drift of the mean input embedding", "validation bits/byte", series)
