"""The figure of `width_fixed_vocab`."""

import numpy as np

from lvp import analysis
from lvp.analysis.figure_style import sheet
from lvp.analysis.heat_maps import Dots, Heat
from lvp.analysis.power_laws import Panel, Series, in_words
from lvp.experiments.width_fixed_vocab.analysis import best_hidden, least_loss, losses_over_rates, optima, ray_gaps
from lvp.experiments.width_fixed_vocab.config import COMMON, Config


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Loss over η_E × η_H by width, optimum over width, and the cost of unequal points."""
    return sheet(
        [*(_losses(table, config, d) for d in config.widths), _optima(table, config), _unequal(table, config)],
        title=f"Embedding and hidden learning rates at a fixed vocabulary, m = {config.vocab}",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            "Colour and number: final train loss divided by the width's least loss with equal points, mean over "
            "seeds; ×: diverged.",
            "Optimum: at each width's best η_H, with a 95 % interval; dashed: width^(−1/2). Unequal points: least "
            "loss over η_E, in % above the least loss with equal points.",
        ],
        size=(5.2, 3.9),
    )


def _losses(table, config: Config, width: int) -> Heat:
    rows = [losses_over_rates(table, config, width, hidden, COMMON).mean(axis=0) for hidden in config.hidden_rates]
    best = losses_over_rates(table, config, width, best_hidden(table, config, width), COMMON)
    values = np.array(rows) / least_loss(best)
    texts = [["×" if np.isinf(x) else "" if np.isnan(x) else f"{x:.2f}" for x in row] for row in values]
    return Heat(
        f"d {width}",
        rows=[f"{hidden:g}" for hidden in config.hidden_rates],
        columns=[f"{rate:.2g}" for rate in config.rates],
        values=np.where(np.isfinite(values), values, np.nan),
        ylabel="hidden rate η_H · d",
        xlabel="embedding rate η_E",
        scale="loss",
        texts=texts,
    )


def _optima(table, config: Config) -> Panel:
    by_width, fit = optima(table, config)
    series = []
    for label, wanted in (("optimum", True), ("flagged, not fitted", False)):
        chosen = [
            (d, optimum)
            for d, optimum in zip(config.widths, by_width, strict=True)
            if optimum.resolved == wanted and optimum.rate > 0
        ]
        if not chosen:
            continue
        x, best = zip(*chosen, strict=True)
        y = np.array([optimum.rate for optimum in best])
        ends = np.abs(np.transpose([optimum.interval for optimum in best]) - y)
        if not wanted:
            series.append(Series(label, x, y))
            continue
        root = np.exp(np.mean(np.log(y * np.sqrt(x)))) / np.sqrt(x)
        line = fit.line(x)[0] if fit.num_points > 1 else None
        series.append(Series(f"{label}: {in_words(fit)}", x, y, ends, fitted=line, predicted=root))
    return Panel("optimal η_E over width", "width d", "best embedding rate η_E", series, "power of d")


def _unequal(table, config: Config) -> Dots:
    by_setting = ray_gaps(table, config)
    costs = [100 * np.array(gaps) for gaps in by_setting.values()]
    means = [float(gaps.mean()) for gaps in costs]
    intervals = [analysis.t_interval(gaps) for gaps in costs]
    labels = [name.replace(" = ", "\n= ").replace(", ", ",\n") for name in by_setting]
    return Dots(
        "unequal points", labels, [("mean over widths", means, intervals)], "excess loss (%)", costs, "one width"
    )
