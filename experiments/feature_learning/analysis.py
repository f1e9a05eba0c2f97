"""Reads the records of `feature_learning`.

A part is the contribution of one matrix to the change of the output (`PARTS`). A regime relates the vocabulary to d
(`regimes`).
"""

import numpy as np

from lvp import analysis
from lvp.analysis.power_laws import in_words
from lvp.experiments.feature_learning import sign_moments
from lvp.experiments.feature_learning.config import (
    GROUPS,
    GROWING,
    PARTS,
    THEOREM,
    TRAINED_PARTS,
    Config,
    lvp_table,
    regimes,
    smallest,
)
from lvp.parametrization import Table


def rows_of(table, group: str, regime: str):
    """The rows of a group in a regime, sorted by width."""
    chosen = (table["run.arm"] == group) & (table["setting.arguments.regime"] == regime)
    return table[chosen].sort_values("setting.arguments.width")


def error_of(column: str) -> str:
    """The name of the column with the standard errors of `column`."""
    part, after, step = column.partition("_step")
    return f"{part}_error{after}{step}"


def power(widths, values, errors):
    """The fitted power of d of values [W] with standard errors [W], and its interval."""
    return analysis.slope(widths, (values, errors / values))


def relative_to_theorem(table, config: Config, group: str, part: str, step: int):
    """Widths, values and standard errors [W] of a part after `step` steps, relative to theorem 1.

    Values and errors are divided by theorem 1's exact form for one step with LVP's rates and init stds. If the
    theorem's power of d also holds after these steps, the values do not depend on d.
    """
    width, column, form = "setting.arguments.width", f"{part}_step{step}", f"{part}_exact"
    # The table of an unfinished sweep may lack the columns.
    measured = rows_of(table, group, GROWING).reindex(columns=[width, column, error_of(column)])
    rows = measured.merge(rows_of(table, THEOREM, GROWING).reindex(columns=[width, form]), on=width)
    rate_times_std = [_rate_times_std(lvp_table(d), part) for d in rows[width]]
    one_step = config.rate * np.array(rate_times_std) * rows[form]
    return tuple(
        np.asarray(x, float) for x in (rows[width], rows[column] / one_step, rows[error_of(column)] / one_step)
    )


def _rate_times_std(lvp: Table, part: str) -> float:
    """The factor of a part in theorem 1, at a hidden rate of 1/d: η_E σ_W for the embedding, else η_W σ_E."""
    rate, std = ("embedding", "output") if part == "embedding" else ("output", "embedding")
    return lvp[rate].lr_multiplier / lvp.width * lvp[std].init_std


def one_step_power(rows, part: str):
    """The fitted power of d of a measured part after one step, and its interval."""
    return power(rows["setting.arguments.width"], rows[part].to_numpy(), rows[error_of(part)].to_numpy())


def fitted_power(rows, column: str) -> float:
    """The power of d of a column that holds a closed form, by least squares over all widths."""
    logs = np.log(rows["setting.arguments.width"].to_numpy(float))
    return float(np.polyfit(logs, np.log(rows[column].to_numpy()), 1)[0])


def summary(table, config: Config) -> str:
    """The parts after one step, the moments of theorems 3 and 4, and the powers of d of the trained groups."""
    moments = sign_moments.lines({group: rows_of(table, group, GROWING) for group in sign_moments.GROUPS})
    blocks = _one_step_lines(table, config), moments, _trained_lines(table, config)
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _one_step_lines(table, config: Config) -> list[str]:
    lines = [
        f"{'regime':<12} {'part':<26} {'measured/exact':>15} {'measured/paper':>15} {'power of d':>22} {'exact':>6}"
    ]
    for regime, pairs in regimes(config).items():
        rows = rows_of(table, THEOREM, regime)
        if not pairs:
            lines.append(f"{regime:<12} left out: fewer than two widths have {smallest(config)} ≤ m ≤ {config.largest}")
        if len(rows) < 2:
            continue
        last = rows.iloc[-1]
        for part, name in PARTS.items():
            ratios = [f"{last[part] / last[f'{part}_{form}']:.3f}" for form in ("exact", "paper")]
            measured, exact = in_words(one_step_power(rows, part)), fitted_power(rows, f"{part}_exact")
            lines.append(f"{regime:<12} {name:<26} {ratios[0]:>15} {ratios[1]:>15} {measured:>22} {exact:>6.2f}")
    return lines


def _trained_lines(table, config: Config) -> list[str]:
    ends = sorted({config.steps[0], config.steps[-1]})
    columns = {(part, t): f"{PARTS[part].split(',')[0]} after {t}" for part in TRAINED_PARTS for t in ends}
    lines = [
        f"trained groups ({GROWING}, LVP, one-hot targets): power of d of the change divided by theorem 1's exact form",
        f"{'group':<22}" + "".join(f"{name:>24}" for name in columns.values()),
    ]
    for group in GROUPS:
        by_column = [relative_to_theorem(table, config, group, part, t) for part, t in columns]
        if len(by_column[0][0]) > 1:
            lines.append(f"{group:<22}" + "".join(f"{in_words(power(*points)):>24}" for points in by_column))
    return lines if len(lines) > 2 else []


def steps_in_words(config: Config) -> str:
    """The number of steps of the trained groups, as text."""
    return f"{config.steps[-1]} step{'s' * (config.steps[-1] > 1)}"
