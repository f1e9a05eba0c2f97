"""The figure of `rate_transfer`."""

from collections.abc import Mapping

import numpy as np

from experiments.rate_transfer.analysis import Transfer, penalty, read
from experiments.rate_transfer.config import Config
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, in_words


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """The best constant, the sensitivity, the transfer gap and the penalty of every entry over the width."""
    by_entry = read(table, config)
    return sheet(
        [_constants(config, by_entry), _sensitivities(by_entry), _gaps(config, by_entry)],
        title="Transfer of the tuned rate over width",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "Left: hidden rate at the base times d. A rule transfers if its best constant stays at the base's. Legend: "
            "power of d with its 95 % interval. Bars: standard errors.",
            "Middle: excess loss at twice the best constant. Optima with a flag are left out of both panels.",
            "Right: mean over the judging seeds. Solid: loss above the best other entry, each tuned at the width. "
            "Dashed: with the base's best constant.",
        ],
    )


def _constants(config: Config, by_entry: Mapping[str, Transfer]) -> Panel:
    series = []
    for name, each in by_entry.items():
        resolved = {d: x.optimum for d, x in each.widths.items() if x.optimum.resolved}
        rates = np.array([x.rate for x in resolved.values()])
        errors = rates * np.array([x.log_rate_std for x in resolved.values()])
        fitted = each.power.line(list(resolved))[0] if each.power.num_points > 1 else None
        series.append(Series(f"{name}: {in_words(each.power)}", list(resolved), rates, errors, fitted))
    return Panel("Best constant", "width d", "hidden rate at the base × d", series)


def _sensitivities(by_entry: Mapping[str, Transfer]) -> Panel:
    series = []
    for name, each in by_entry.items():
        percent = {d: 100 * x.sensitivity for d, x in each.widths.items() if x.sensitivity > 0}
        label = f"{name}: {in_words(each.sensitivity_power)}"
        series.append(Series(label, list(percent), list(percent.values())))
    return Panel("Sensitivity", "width d", "excess loss at twice the rate (%)", series)


def _gaps(config: Config, by_entry: Mapping[str, Transfer]) -> Panel:
    series = []
    for name, each in by_entry.items():
        own = np.array([penalty(by_entry, name, d).value for d in config.widths])
        moved = np.array([x.gap.mean() for x in each.widths.values()])
        total = (1 + own) * (1 + moved) - 1
        series.append(
            Series(
                name, config.widths, 100 * own, fitted=100 * own, predicted=100 * total, predicted_label="base's rate"
            )
        )
    return Panel("Loss above the best other entry", "width d", "%", series, yscale="linear", levels=[(0.0, "equal")])
