"""The figure of `feature_learning`."""

import re

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, in_words
from lvp.experiments.feature_learning.analysis import (
    error_of,
    one_step_power,
    power,
    relative_to_theorem,
    rows_of,
    steps_in_words,
)
from lvp.experiments.feature_learning.config import GROUPS, GROWING, PARTS, THEOREM, TRAINED_PARTS, Config, regimes


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Draws each part of the output's change against d: after one step for every regime, and after training."""
    panels = [_one_step_panel(table, regime) for regime in regimes(config)]
    panels += [_trained_panel(table, config, part) for part in TRAINED_PARTS]
    return sheet(
        [panel for panel in panels if panel.series],
        title="Contribution of each matrix to the change of the linear network's output",
        preset=preset,
        corpus=corpus,
        partial=partial,
        words=[
            "$δ_E$: change from the embedding's update, for the tokens that occur. $δ_W$: change from the projection's "
            "update, for one token. Root mean square over logits; bars: standard errors over draws.",
            "Dashed: theorem 1, exact form. After each name: the power of d with its 95 % interval. "
            "A power of 0 in the lower row agrees with theorem 1.",
        ],
    )


def _one_step_panel(table, regime: str) -> Panel:
    rows, series = rows_of(table, THEOREM, regime), []
    for part, name in PARTS.items() if len(rows) > 1 else ():
        x, label = rows["setting.arguments.width"], f"{_typeset(name)}: {in_words(one_step_power(rows, part))}"
        series.append(Series(label, x, rows[part], rows[error_of(part)], predicted=rows[f"{part}_exact"]))
    return Panel(f"Theorem 1, one step, {regime}", "width d", "change of a logit (η = σ = 1)", series)


def _trained_panel(table, config: Config, part: str) -> Panel:
    series = []
    for group in GROUPS:
        widths, values, errors = relative_to_theorem(table, config, group, part, config.steps[-1])
        if len(widths) > 1:
            series.append(Series(f"{group}: {in_words(power(widths, values, errors))}", widths, values, errors))
    title = f"{_typeset(PARTS[part])}: {steps_in_words(config)} of LVP,\none-hot targets, {GROWING}"
    return Panel(title, "width d", "change / theorem 1's one step", series)


def _typeset(name: str) -> str:
    """The name with δ_E and δ_W in math mode, which draws the index as a subscript."""
    return re.sub(r"δ_\w", r"$\g<0>$", name)
