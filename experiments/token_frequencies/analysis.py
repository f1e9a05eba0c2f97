"""Reads the records of `token_frequencies`: fits over rank, powers of m, and the summary."""

from typing import NamedTuple

import numpy as np

from lvp import analysis
from lvp.analysis.power_laws import in_words
from lvp.experiments.token_frequencies.config import Config


def by_vocab(table):
    """The rows sorted by vocabulary."""
    return table.sort_values("run.vocab")


def larger_half(table):
    """The rows of the larger half of the vocabularies."""
    return by_vocab(table).iloc[len(table) // 2 :]


def growth(table, column: str):
    """The power of m that a column follows, with its interval."""
    rows = by_vocab(table)
    return analysis.slope(rows["run.vocab"], (rows[column].to_numpy(), None))


class PowerLawFit(NamedTuple):
    """A power of rank, fitted to frequencies in logarithms, and a rival form."""

    r_squared: float
    factor: float  # largest ratio of fit and frequency, at least 1
    exponents: tuple[float, float]  # of the more frequent and of the rarer half of the ranks
    r_squared_of_exponential: float  # of the frequency as an exponential of rank


def power_law_fit(row) -> PowerLawFit:
    """Fits a row's frequencies at the ranks of the recorded curve, which have equal ratios, of tokens that occur."""
    ranks, frequencies = (np.array(row[name], float) for name in ("shown_ranks", "shown_frequencies"))
    ranks, y = ranks[frequencies > 0], np.log(frequencies[frequencies > 0])
    x, half = np.log(ranks), len(ranks) // 2

    def left(x: np.ndarray) -> np.ndarray:
        return y - np.polyval(np.polyfit(x, y, 1), x)

    return PowerLawFit(
        r_squared=float(1 - left(x).var() / y.var()),
        factor=float(np.exp(np.abs(left(x)).max())),
        exponents=(-float(np.polyfit(x[:half], y[:half], 1)[0]), -float(np.polyfit(x[half:], y[half:], 1)[0])),
        r_squared_of_exponential=float(1 - left(ranks).var() / y.var()),
    )


def is_open(row) -> bool:
    """True if the counts do not determine the exponent; the fit's numbers are then not a result."""
    return row["exponent_low"] is None or np.isnan(row["exponent_low"])


def summary(table, config: Config) -> str:
    """Fit over rank and mean squares of every vocabulary; powers of m."""
    head = ("m", "tokens", "unseen", "ranks fitted", "exponent", "95 % interval", "offset")
    rows = [(*head, "max α²/ᾱ²", "ᾱ² for Σα = 1", "ᾱ² for α₁ = 1")]
    for row in by_vocab(table).to_dict("records"):
        fit = ("–", "open", "–")
        if not is_open(row):
            ends = f"{row['exponent_low']:.2f} … {row['exponent_high']:.2f}"
            fit = (f"{row['exponent']:.2f}", ends, f"{row['offset']:.1f}")
        sizes = (f"{row['run.vocab']}", f"{row['tokens']}", f"{row['unseen']}")
        squares = (f"{row['peak_ratio']:.1f}", f"{row['mean_square']:.2e}", f"{row['mean_square_of_top']:.2e}")
        rows.append((*sizes, f"{row['fitted_from']}–{row['fitted_to']}", *fit, *squares))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in rows]
    lines += ["", "α: frequencies, α₁ the largest, ᾱ² = m⁻¹ Σ α²; fitted: α ∝ (rank + offset)^(−exponent)"]
    for column, name in (("peak_ratio", "max α²/ᾱ²"), ("mean_square_of_top", "ᾱ² for α₁ = 1")):
        lines.append(f"power of m that {name} follows, with its 95 % interval: {in_words(growth(table, column))}")
    return "\n".join(lines)
