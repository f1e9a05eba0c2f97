"""Equation 9 of Kosson et al. 2024 beside its Monte Carlo, as the calculated lanes of `representation_change`.

What they come to is E[Δy²]/E[y²] at η = ‖w‖ = 1. Equation 9 takes a mean of ratios for a ratio of means
(`lvp.theory.representation_change`), which shows where inputs C are few.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from lvp.analysis.claims import Claim, judge
from lvp.analysis.power_laws import Panel, Series

WIDE = 64  # inputs from which on equation 9 is claimed to hold
TOLERANCE = 0.03
LIMIT_AT = (1e-4, 1 / 480, 0.01)  # φ
DRAWS = 20, 50_000  # of batches, at least and at most
FLOPS_PER_NUMBER = 1e4  # a random number costs what so many floating-point operations of training do
SOURCE = "Kosson et al. 2024, equation 9"
ERROR = "simulated/equation 9 − 1"


def num_draws(arguments: Mapping[str, Any], batch: int) -> int:
    """As many batches as `numbers` random numbers make."""
    least, most = DRAWS
    return max(least, min(arguments["numbers"] // (batch * arguments["fan_in"]), most))


def calculate(arguments: Mapping[str, Any], lane: Mapping[str, Any]) -> dict[str, Any]:
    """Lists over φ: simulated change with its standard error, and what each form says."""
    import jax

    from lvp.theory import representation_change as theory

    snrs, batch, fan_in = arguments["snrs"], lane["batch"], arguments["fan_in"]
    draws = num_draws(arguments, batch)
    found = theory.simulated_representation_change(jax.random.key(arguments["seed"]), snrs, batch, fan_in, draws=draws)
    forms = {
        form: theory.squared_representation_change(snrs, batch, fan_in, form=form).tolist() for form in theory.FORMS
    }
    return {"draws": draws, "simulated": found.mean.tolist(), "error": found.standard_error.tolist()} | forms


# --- what the records say ---------------------------------------------------------------------------------------------


def rows_of(table):
    """The calculated rows with their sizes as `fan_in` and `batch` and their lists as arrays, by size."""
    if "simulated" not in table:
        return table[:0].reindex(columns=["fan_in", "batch"])
    rows = table[table["simulated"].notna()]
    rows = rows.assign(fan_in=rows["cell.arguments.fan_in"].astype(int), batch=rows["lane.batch"].astype(int))
    for column in ("simulated", "error", "paper", "exact", "limit"):
        rows[column] = rows[column].map(np.asarray)
    rows["snrs"] = rows["cell.arguments.snrs"].map(np.asarray)
    return rows.sort_values(["fan_in", "batch"])


def deviation(row) -> tuple[float, float, float]:
    """simulated/equation 9 − 1 with its standard error, and what the exact form says of it: all at that φ where the
    exact form has it largest, so that noise does not choose."""
    at = int(np.argmax(np.abs(row["exact"] / row["paper"] - 1)))
    value, error, exact = (row[column][at] / row["paper"][at] for column in ("simulated", "error", "exact"))
    return float(value - 1), float(error), float(exact - 1)


def largest_deviation(rows) -> tuple[float | None, tuple[float, float] | None]:
    """The largest |simulated/equation 9 − 1| over all rows and φ, and an interval of 95 % for all of them at once, so
    for the largest too."""
    if not len(rows):
        return None, None
    size = np.concatenate([np.abs(row["simulated"] / row["paper"] - 1) for _, row in rows.iterrows()])
    error = np.concatenate([row["error"] / row["paper"] for _, row in rows.iterrows()])
    quantile = ndtri(1 - 0.025 / size.size)
    low, high = np.max(size - quantile * error), np.max(size + quantile * error)
    return float(size.max()), (max(0.0, float(low)), float(high))


def limits(table) -> list[tuple[float, float, float, float, int, int]]:
    """Of the largest size: φ, the simulated change over the limit of large C with its standard error, equation 9 over
    it, C and B."""
    rows = rows_of(table)
    if not len(rows):
        return []
    rows = rows[rows["fan_in"] == rows["fan_in"].max()]
    row = rows.loc[rows["batch"].idxmax()]
    ratios = [row[column] / row["limit"] for column in ("simulated", "error", "paper")]
    at = [i for phi in LIMIT_AT for i in np.flatnonzero(np.isclose(row["snrs"], phi, rtol=1e-3))[:1]]
    return [(float(row["snrs"][i]), *(float(x[i]) for x in ratios), row["fan_in"], row["batch"]) for i in at]


def lines(table) -> list[str]:
    """How far off equation 9 is by C and B, and the limit of large C."""
    rows = rows_of(table)
    if not len(rows):
        return []
    batches = sorted(set(rows["batch"]))
    found = [f"{ERROR}, in %, at the φ where it is largest (in brackets: of the form that is exact for Gaussian noise)"]
    found.append(f"{'C':>6} " + " ".join(f"{f'B {batch}':>16}" for batch in batches))
    for fan_in, some in rows.groupby("fan_in"):
        by_batch = {row["batch"]: deviation(row) for _, row in some.iterrows()}
        texts = [
            f"{100 * by_batch[b][0]:.2f} ({100 * by_batch[b][2] + 0.0:.2f})" if b in by_batch else "–" for b in batches
        ]
        found.append(f"{fan_in:>6} " + " ".join(f"{text:>16}" for text in texts))
    for phi, value, error, paper, fan_in, batch in limits(table):
        found.append(
            f"C {fan_in}, B {batch}, φ {phi:.2g}: over the limit of large C the simulated change is {value:.3f} ± "
            f"{error:.3f}, equation 9 {paper:.3f}"
        )
    return found


def panels(table) -> list[Panel]:
    """The change over φ at the most and the fewest inputs, and how far off equation 9 is over C."""
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
            "predicted_label": None if i else "its limit of large C, each B",
        }
        points = (row["snrs"], unit * row["simulated"], unit * row["error"])
        series.append(Series(f"B {row['batch']}, simulated", *points, **curves))
    title = f"change of a neuron's outputs, {fan_in} inputs"
    return Panel(title, "signal-to-noise ratio φ per sequence", "RRC² / (η² C / (B ‖w‖²))", series, named_ticks=False)


def _deviations(rows) -> Panel:
    series: list[Series] = []
    for batch, some in rows.groupby("batch"):
        value, error, exact = 100 * np.array([deviation(row) for _, row in some.iterrows()]).T
        named = None if series else "exact form (Gaussian noise)"
        found = {"error": error, "predicted": exact, "predicted_label": named}
        series.append(Series(f"B {batch}, simulated", some["fan_in"].to_numpy(), value, **found))
    title = "error of equation 9, at the φ where it is largest"
    levels = [(-100 * TOLERANCE, f"−{TOLERANCE:.0%}")]
    return Panel(title, "inputs C", f"{ERROR}, %", series, yscale="linear", levels=levels)


def claims(table, context) -> list[Claim]:
    """Does equation 9 hold where inputs are many, and where they are few; and its limit at the largest size?"""
    rows, made = rows_of(table), []
    every = "largest of all φ and B; interval for all of them at once"
    wide, narrow = rows[rows["fan_in"] >= WIDE], rows[rows["fan_in"] == rows["fan_in"].min()]
    for statement, some, region in (
        (f"equation 9 holds within {TOLERANCE:.0%} from {WIDE} inputs on", wide, (-np.inf, TOLERANCE)),
        (f"below {WIDE} inputs it is off by more", narrow[narrow["fan_in"] < WIDE], (TOLERANCE, np.inf)),
    ):
        value, interval = largest_deviation(some)
        sizes = sorted(set(some["fan_in"]))
        note = f"|{ERROR}| at C {_listed(sizes)}; {every}" if sizes else "not run"
        made.append((statement, 0.0, value, interval, region, note))
    for phi, value, error, paper, fan_in, batch in limits(table):
        statement = f"at C {fan_in} and B {batch} the change is that of the limit of large C (φ = {phi:.2g})"
        interval = (value - 1.96 * error, value + 1.96 * error)
        note = (
            f"simulated change over the limit, within 5%; figure 4, panel 1, draws the limit; equation 9: {paper:.2f}"
        )
        made.append((statement, 1.0, value, interval, (0.95, 1.05), note))
    return [
        Claim(
            statement=statement,
            source=SOURCE,
            paper_value=paper_value,
            value=value,
            interval=interval,
            verdict=judge(value, interval, claimed=region),
            note=note,
            **dict(context),
        )
        for statement, paper_value, value, interval, region, note in made
    ]


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))
