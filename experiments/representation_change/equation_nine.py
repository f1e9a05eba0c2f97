"""Equation 9 of Kosson et al. 2024 and its Monte Carlo simulation: the calculated runs of `representation_change`.

The simulated quantity is E[Δy²]/E[y²] at η = ‖w‖ = 1. Equation 9 replaces a mean of ratios by a ratio of means
(`lvp.theory.representation_change`). The error of this form is visible for few inputs C.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lvp.analysis.power_laws import Panel, Series

TOLERANCE = 0.03
LIMIT_AT = (1e-4, 1 / 480, 0.01)  # φ at which the limit of large C is compared
DRAWS = 20, 50_000  # least and largest number of batches
FLOPS_PER_NUMBER = 1e4  # a random number takes as long as this many floating-point operations of training
ERROR = "simulated/equation 9 − 1"


def num_draws(arguments: Mapping[str, Any], batch: int) -> int:
    """The number of batches for which `numbers` random numbers suffice, within the limits `DRAWS`."""
    least, most = DRAWS
    return max(least, min(arguments["numbers"] // (batch * arguments["fan_in"]), most))


def calculate(arguments: Mapping[str, Any], run: Mapping[str, Any], dataset=None) -> dict[str, Any]:
    """The outcome of a run: lists over φ of the simulated change, its standard error, and each form of equation 9."""
    import jax

    from lvp.theory import representation_change as theory

    snrs, batch, fan_in = arguments["snrs"], run["batch"], arguments["fan_in"]
    draws = num_draws(arguments, batch)
    key = jax.random.key(arguments["seed"])
    simulated = theory.simulated_representation_change(key, snrs, batch, fan_in, draws=draws)
    forms = {
        form: theory.squared_representation_change(snrs, batch, fan_in, form=form).tolist() for form in theory.FORMS
    }
    errors = simulated.standard_error.tolist()
    return {"draws": draws, "simulated": simulated.mean.tolist(), "error": errors} | forms


# --- reading the records ----------------------------------------------------------------------------------------------


def rows_of(table):
    """The calculated rows, sorted by their sizes `fan_in` and `batch`, with lists as arrays."""
    if "simulated" not in table:
        return table[:0].reindex(columns=["fan_in", "batch"])
    rows = table[table["simulated"].notna()]
    rows = rows.assign(fan_in=rows["setting.arguments.fan_in"].astype(int), batch=rows["run.batch"].astype(int))
    for column in ("simulated", "error", "paper", "exact", "limit"):
        rows[column] = rows[column].map(np.asarray)
    rows["snrs"] = rows["setting.arguments.snrs"].map(np.asarray)
    return rows.sort_values(["fan_in", "batch"])


def deviation(row) -> tuple[float, float, float]:
    """(simulated/equation 9 − 1, its standard error, exact form/equation 9 − 1) at one φ of a row.

    The φ is that of the largest deviation of the exact form, so that the choice does not depend on noise.
    """
    at = int(np.argmax(np.abs(row["exact"] / row["paper"] - 1)))
    value, error, exact = (row[column][at] / row["paper"][at] for column in ("simulated", "error", "exact"))
    return float(value - 1), float(error), float(exact - 1)


def limits(table) -> list[tuple[float, float, float, float, int, int]]:
    """(φ, simulated change, its standard error, equation 9, C, B) at each of `LIMIT_AT`, for the largest C and B.

    The simulated change, its standard error and equation 9 are divided by the limit of large C.
    """
    rows = rows_of(table)
    if not len(rows):
        return []
    rows = rows[rows["fan_in"] == rows["fan_in"].max()]
    row = rows.loc[rows["batch"].idxmax()]
    ratios = [row[column] / row["limit"] for column in ("simulated", "error", "paper")]
    at = [i for phi in LIMIT_AT for i in np.flatnonzero(np.isclose(row["snrs"], phi, rtol=1e-3))[:1]]
    return [(float(row["snrs"][i]), *(float(x[i]) for x in ratios), row["fan_in"], row["batch"]) for i in at]


def lines(table) -> list[str]:
    """The error of equation 9 by C and B, and the change over the limit of large C, as lines of text."""
    rows = rows_of(table)
    if not len(rows):
        return []
    batches = sorted(set(rows["batch"]))
    texts = [f"{ERROR}, in %, at the φ where it is largest (in brackets: of the form that is exact for Gaussian noise)"]
    texts.append(f"{'C':>6} " + " ".join(f"{f'B {batch}':>16}" for batch in batches))
    for fan_in, rows_of_size in rows.groupby("fan_in"):
        by_batch = {row["batch"]: deviation(row) for _, row in rows_of_size.iterrows()}
        columns = [
            f"{100 * by_batch[b][0]:.2f} ({100 * by_batch[b][2] + 0.0:.2f})" if b in by_batch else "–" for b in batches
        ]
        texts.append(f"{fan_in:>6} " + " ".join(f"{column:>16}" for column in columns))
    for phi, value, error, paper, fan_in, batch in limits(table):
        texts.append(
            f"C {fan_in}, B {batch}, φ {phi:.2g}: change / limit for large C: simulated {value:.3f} ± {error:.3f}, "
            f"equation 9 {paper:.3f}"
        )
    return texts


def panels(table) -> list[Panel]:
    """The change over φ at the most and the fewest inputs, and the error of equation 9 over C."""
    rows = rows_of(table)
    if not len(rows):
        return []
    sizes = dict.fromkeys((rows["fan_in"].max(), rows["fan_in"].min()))
    return [*(_curves(rows[rows["fan_in"] == size], size) for size in sizes), _deviations(rows)]


def _curves(rows, fan_in: int) -> Panel:
    series = []
    for i, (_, row) in enumerate(rows.iterrows()):
        unit = row["batch"] / fan_in
        curves = {
            "fitted": unit * row["paper"],
            "fitted_label": None if i else "equation 9, each B",
            "predicted": unit * row["limit"],
            "predicted_label": None if i else "limit of equation 9 for large C, each B",
        }
        points = (row["snrs"], unit * row["simulated"], unit * row["error"])
        series.append(Series(f"B {row['batch']}, simulated", *points, **curves))
    title = f"change of a neuron's outputs, {fan_in} inputs"
    return Panel(title, "signal-to-noise ratio φ per sequence", "RRC² / (η² C / (B ‖w‖²))", series, named_ticks=False)


def _deviations(rows) -> Panel:
    series: list[Series] = []
    for batch, rows_of_batch in rows.groupby("batch"):
        value, error, exact = 100 * np.array([deviation(row) for _, row in rows_of_batch.iterrows()]).T
        named = None if series else "exact form (Gaussian noise)"
        curves = {"error": error, "predicted": exact, "predicted_label": named}
        series.append(Series(f"B {batch}, simulated", rows_of_batch["fan_in"].to_numpy(), value, **curves))
    title = "error of equation 9, at the φ where it is largest"
    levels = [(-100 * TOLERANCE, f"−{TOLERANCE:.0%}")]
    return Panel(title, "inputs C", f"{ERROR}, %", series, yscale="linear", levels=levels)
