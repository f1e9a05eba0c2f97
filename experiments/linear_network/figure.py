"""The figure of `linear_network`."""

import numpy as np

from experiments.common.shape_powers import Slice, slope_along
from experiments.linear_network.analysis import losses, optima
from experiments.linear_network.config import GROWING, PREDICTED, VOCAB_PER_WIDTH, Config, name_of
from lvp.analysis import Optimum
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, in_words


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """For each way to enter, the optimum over width after each number of steps. Then, after the last step, the optimum
    over vocabulary, and the loss over the rate.
    """
    last = config.steps[-1]
    panels, over_vocab = [], []
    for rows in config.rows:
        for steps in config.steps:
            best, title = optima(table, config, rows, steps), f"{name_of(rows)}, {steps} steps"
            panels.append(_optima_panel(config, best, "d", title, PREDICTED[rows]))
        over_vocab.append(_optima_panel(config, best, "m", title))
    return sheet(
        [*panels, *over_vocab, _loss_panel(table, config, last)],
        title="The linear network's optimal embedding learning rate, infinite batch",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "Legends: the power of d or m with its 95 % interval. Bars: standard errors of resolved optima; "
            "optima with a flag are left out.",
            f"Dashed: the power of d that the scaling argument gives, through the optima at {GROWING}.",
        ],
    )


def _optima_panel(
    config: Config, best: list[Optimum], moving: str, title: str, predicted: float | None = None
) -> Panel:
    series = []
    for part in config.slices:
        if part.moving != moving:
            continue
        made = _series(part, best, predicted if part.name == GROWING else None)
        series += [made] if made else []
    quantity = {"d": "width d", "m": "vocabulary m"}[moving]
    return Panel(title, quantity, "optimal η_E", series, f"power of {moving}", named_ticks=len(config.widths) < 7)


def _series(part: Slice, best: list[Optimum], predicted: float | None) -> Series | None:
    """The resolved optima of a slice with their fit; None without a resolved optimum."""
    resolved = [(value, best[i]) for value, i in zip(part.values, part.at, strict=True) if best[i].resolved]
    if not resolved:
        return None
    x = np.array([value for value, _ in resolved], float)
    rates = np.array([optimum.rate for _, optimum in resolved])
    errors = rates * np.array([optimum.log_rate_std for _, optimum in resolved])
    fit = slope_along(part, best)
    line = fit.line(x)[0] if np.isfinite(fit.slope) else None
    dashed = None
    if predicted is not None:
        dashed = np.exp(np.mean(np.log(rates))) * (x / np.exp(np.mean(np.log(x)))) ** predicted
    return Series(
        f"{part.name}: {in_words(fit)}",
        x,
        rates,
        errors,
        fitted=line,
        predicted=dashed,
        predicted_label=None if predicted is None else f"prediction: {predicted:g}",
    )


def _loss_panel(table, config: Config, steps: int) -> Panel:
    """Loss over rate at the smallest and the largest shape of m = 8 d, for each way to enter."""
    shapes = [shape for shape in config.shapes if shape[1] == VOCAB_PER_WIDTH * shape[0]]
    series = []
    for rows in config.rows:
        by_shape = dict(zip(config.shapes, losses(table, config, rows, steps), strict=True))
        for d, m in dict.fromkeys([shapes[0], shapes[-1]]) if shapes else ():
            means = by_shape[d, m].mean(axis=0)
            series.append(
                Series(f"{name_of(rows)}, d {d}", config.rates, np.where(np.isfinite(means), means, np.nan), line=True)
            )
    low = min((np.nanmin(s.y) for s in series if np.isfinite(s.y).any()), default=1.0)
    return Panel(
        f"{GROWING}, {steps} steps",
        "embedding learning rate η_E",
        "loss (nats)",
        series,
        named_ticks=False,
        yscale="linear",
        ylim=(low - 0.2, low + 3.0),
    )
