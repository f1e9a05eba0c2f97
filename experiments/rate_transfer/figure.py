"""The figure of `rate_transfer`."""

from collections.abc import Mapping

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, in_words
from lvp.experiments.rate_transfer.analysis import Transfer, penalty, read
from lvp.experiments.rate_transfer.config import Config


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """The best constant, the sensitivity, the transfer gap and the penalty of every entry over the width."""
    by_entry = read(table, config)
    return sheet(
        [_constants(by_entry), _sensitivities(by_entry), _penalties(config, by_entry), _gaps(config, by_entry)],
        title="Transfer of the tuned rate over width",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            "Top left: d times the hidden rate, both at the base. A rule transfers if it does not depend on the width.",
            "Legends: power of d with its 95 % interval. Bars: standard errors. Optima with a flag are left out.",
            "Bottom left: loss above the best other entry. Bottom right: loss at the base's best constant,",
            "above the loss at the width's own best constant. Means over the judging seeds.",
        ],
        columns=2,
    )


def _constants(by_entry: Mapping[str, Transfer]) -> Panel:
    series = []
    for name, each in by_entry.items():
        resolved = {d: x.optimum for d, x in each.widths.items() if x.optimum.resolved}
        rates = np.array([x.rate for x in resolved.values()])
        errors = rates * np.array([x.log_rate_std for x in resolved.values()])
        fitted = each.power.line(list(resolved))[0] if each.power.num_points > 1 else None
        series.append(Series(f"{name}: {in_words(each.power)}", list(resolved), rates, errors, fitted))
    return Panel("Best constant", "width d", "d × hidden rate at the base", series)


def _sensitivities(by_entry: Mapping[str, Transfer]) -> Panel:
    series = []
    for name, each in by_entry.items():
        percent = {d: 100 * x.sensitivity for d, x in each.widths.items() if x.sensitivity > 0}
        label = f"{name}: {in_words(each.sensitivity_power)}"
        series.append(Series(label, list(percent), list(percent.values())))
    return Panel("Sensitivity", "width d", "excess loss at twice the rate (%)", series)


def _joined(config: Config, title: str, by_entry: Mapping[str, np.ndarray], zero: str) -> Panel:
    """A panel of percentages [widths] by entry, with joined points."""
    series = [Series(name, config.widths, 100 * values, fitted=100 * values) for name, values in by_entry.items()]
    return Panel(title, "width d", "%", series, yscale="linear", levels=[(0.0, zero)])


def _penalties(config: Config, by_entry: Mapping[str, Transfer]) -> Panel:
    values = {name: np.array([penalty(by_entry, name, d).value for d in config.widths]) for name in by_entry}
    return _joined(config, "Penalty: each entry tuned at the width", values, "equal to the best other entry")


def _gaps(config: Config, by_entry: Mapping[str, Transfer]) -> Panel:
    values = {name: np.array([x.gap.mean() for x in each.widths.values()]) for name, each in by_entry.items()}
    return _joined(config, "Transfer gap: constant of the base", values, "equal to the own best constant")
