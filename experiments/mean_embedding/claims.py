"""The claims of `mean_embedding`."""

import numpy as np

from experiments.mean_embedding.analysis import last, moment_fit, readings
from experiments.mean_embedding.config import EMBEDDING, HEAD, HEADS, Config
from lvp.analysis.claims import Claim, of_values

DRIFT = "drift of the mean row over the mean norm of a row, at the end; t interval over seeds"
OWN = "each arm at its own tuned rate"
PAPER_B = "Stollenwerk & Stollenwerk 2025"
BOTH = f"{PAPER_B}; Hayou & Liu 2025"


def claims(table, config: Config, context) -> list[Claim]:
    """Paper B's, and the two that join it to paper A."""
    made = []
    for row in [*_paper_b(table, config), *_joined(table, config)]:
        statement, source, paper_value, values, claimed, note = row
        parts = dict(statement=statement, source=source, paper_value=paper_value, note=note)
        made.append(of_values(values, claimed=claimed, **parts, **dict(context)))
    return made


def _paper_b(table, config: Config):
    """Statement, source, paper's value, ours by seed, claimed region, note."""
    for name in [n for n in ("SGD", "momentum SGD", "Coupled Adam") if n in config.arms and "untied" in config.heads]:
        values = last(readings(table, config, name, "untied"), HEAD["untied"], "mean_drift")
        statement = f"{name} leaves the mean of an untied LM head where it was, to rounding"
        yield statement, PAPER_B, 0.0, values, (-np.inf, 1e-5), f"{DRIFT}; rounding is taken as 1e-5"
    for head in config.heads if "Adam" in config.arms else ():
        values = last(readings(table, config, "Adam", head), HEAD[head], "mean_drift")
        statement = f"Adam moves the mean of the {head} head"
        yield statement, PAPER_B, "> 0", values, (0.01, np.inf), f"{DRIFT}; at least 0.01"
    for head in config.heads if "Adam" in config.arms else ():
        r_squared, scale = moment_fit(table, config, head)
        statement = f"Adam's second moment is linear in token frequency ({head} head)"
        note = "R², at least 0.78: mean over the measured steps, t interval over seeds"
        yield statement, PAPER_B, "R² = 0.85(7)", r_squared, (0.78, 1.0), note
        statement = f"its slope A is E[h²] over the tokens of a step, in order of magnitude ({head} head)"
        note = "log₁₀ of A times tokens per step; E[h²] is about 1 behind the last norm"
        yield statement, PAPER_B, "A ≈ 10⁻⁴ in its set-up", np.log10(scale), (-1.0, 1.0), note


def _joined(table, config: Config):
    """The same of the question that joins both papers."""
    for head in config.heads if {"Adam", "Adam √d", "Coupled Adam √d"} <= set(config.arms) else ():
        which = "tied matrix" if HEADS[head] else "input embedding"
        arms = [readings(table, config, name, head) for name in ("Adam", "Adam √d", "Coupled Adam √d")]
        plain, scaled, mended = (last(rows, EMBEDDING[head], "mean_drift") for rows in arms)
        statement = f"an embedding rate √d times the others' worsens Adam's drift of the {which}"
        yield statement, BOTH, "–", _paired(scaled, plain), (0.0, np.inf), f"difference in {DRIFT}; {OWN}"
        statement = f"Coupled Adam with that embedding rate drifts less in the {which} than Adam without it"
        yield statement, BOTH, "–", _paired(plain, mended), (0.0, np.inf), f"difference in {DRIFT}; {OWN}"
        bits = [rows["valid_bits_per_byte"].to_numpy(float) for rows in arms[1:] if len(rows)]
        statement = f"with that embedding rate Coupled Adam loses nothing against Adam ({head} head)"
        note = f"difference in validation bits per byte, within 0.01; t interval over seeds; {OWN}"
        yield statement, BOTH, "≤ 0", _paired(*bits[::-1]) if len(bits) == 2 else [], (-np.inf, 0.01), note


def _paired(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Differences seed by seed; NaN where a seed is missing on either side, empty where an arm is."""
    return first - second if len(first) and len(second) else np.array([])
