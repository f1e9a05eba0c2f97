"""What the records of `feature_learning` say, and its table."""

import numpy as np

from experiments.feature_learning import sign_moments
from experiments.feature_learning.config import ARMS, GROWING, LVP_POWER, PARTS, THEOREM, Config, regimes, smallest
from lvp import analysis
from lvp.analysis.power_laws import in_words


def rows_of(table, arm: str, regime: str):
    """The rows of one line of the figure, by width."""
    chosen = (table["lane.arm"] == arm) & (table["cell.arguments.regime"] == regime)
    return table[chosen].sort_values("cell.arguments.width")


def error_of(column: str) -> str:
    """The column of standard errors beside a column of values."""
    part, after, step = column.partition("_step")
    return f"{part}_error{after}{step}"


def power(widths, values, errors):
    """The power of d that values [W] with standard errors [W] follow."""
    return analysis.slope(widths, (values, errors / values))


def in_theorems_steps(table, config: Config, arm: str, part: str, step: int):
    """Widths [W], and a part after so many steps relative to theorem 1's one step (the exact form under LVP), with its
    standard errors: flat where the theorem's power of d survives."""
    width, column, form = "cell.arguments.width", f"{part}_step{step}", f"{part}_exact"
    # What has not run yet has no columns either.
    measured = rows_of(table, arm, GROWING).reindex(columns=[width, column, error_of(column)])
    rows = measured.merge(rows_of(table, THEOREM, GROWING).reindex(columns=[width, form]), on=width)
    unit = config.rate * rows[width] ** LVP_POWER[part] * rows[form]
    return tuple(np.asarray(x, float) for x in (rows[width], rows[column] / unit, rows[error_of(column)] / unit))


def one_step_power(rows, part: str):
    """That of a part after theorem 1's one step."""
    return power(rows["cell.arguments.width"], rows[part].to_numpy(), rows[error_of(part)].to_numpy())


def local_power(rows, column: str) -> float:
    """That of a closed form, by least squares."""
    logs = np.log(rows["cell.arguments.width"].to_numpy(float))
    return float(np.polyfit(logs, np.log(rows[column].to_numpy()), 1)[0])


def summary(table, config: Config) -> str:
    """Measured against exact and printed forms at the largest width; powers of d beside the forms'."""
    moments = sign_moments.lines({arm: rows_of(table, arm, GROWING) for arm in sign_moments.ARMS})
    blocks = _one_step_lines(table, config), moments, _beyond_lines(table, config)
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _one_step_lines(table, config: Config) -> list[str]:
    lines = [
        f"{'regime':<12} {'part':<26} {'measured/exact':>15} {'measured/paper':>15} {'power of d':>22} {'exact':>6}"
    ]
    for regime, pairs in regimes(config).items():
        rows = rows_of(table, THEOREM, regime)
        if not pairs:
            lines.append(f"{regime:<12} left out: not two widths with {smallest(config)} ≤ m ≤ {config.largest}")
        if len(rows) < 2:
            continue
        last = rows.iloc[-1]
        for part, name in PARTS.items():
            ratios = [f"{last[part] / last[f'{part}_{form}']:.3f}" for form in ("exact", "paper")]
            measured, exact = in_words(one_step_power(rows, part)), local_power(rows, f"{part}_exact")
            lines.append(f"{regime:<12} {name:<26} {ratios[0]:>15} {ratios[1]:>15} {measured:>22} {exact:>6.2f}")
    return lines


def _beyond_lines(table, config: Config) -> list[str]:
    ends = sorted({config.steps[0], config.steps[-1]})
    columns = {(part, t): f"{PARTS[part].split(',')[0]} after {t}" for part in LVP_POWER for t in ends}
    lines = [
        f"beyond theorem 1 ({GROWING}, LVP, true targets), relative to its exact form's one step: power of d",
        f"{'arm':<22}" + "".join(f"{name:>24}" for name in columns.values()),
    ]
    for arm in ARMS:
        found = [in_theorems_steps(table, config, arm, part, t) for part, t in columns]
        if len(found[0][0]) > 1:
            lines.append(f"{arm:<22}" + "".join(f"{in_words(power(*points)):>24}" for points in found))
    return lines if len(lines) > 2 else []


def steps_in_words(config: Config) -> str:
    return f"{config.steps[-1]} step{'s' * (config.steps[-1] > 1)}"
