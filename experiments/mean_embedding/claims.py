"""The claims of `mean_embedding`."""

from collections.abc import Iterator

import numpy as np

from experiments.mean_embedding.analysis import at_last_step, moment_fit, tuned_lanes
from experiments.mean_embedding.config import EMBEDDING_PATH, HEAD_PATH, HEADS, Config
from lvp.analysis.claims import Claim, Question
from lvp.analysis.measurement import Measurement

DRIFT = "drift of the mean row over the mean norm of a row, at the end; t interval over seeds"
OWN_RATE = "each arm at its own tuned rate"
PAPER_B = "Stollenwerk & Stollenwerk 2025"
BOTH_PAPERS = f"{PAPER_B}; Hayou & Liu 2025"


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of paper B, and the claims that connect it with paper A."""
    questions = [*_paper_b(table, config), *_both_papers(table, config)]
    return [question.answer(measurement, context) for question, measurement in questions]


def _paper_b(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    for name in ("SGD", "momentum SGD", "Coupled Adam"):
        if name in config.arms and "untied" in config.heads:
            question = Question(
                statement=f"{name} leaves the mean of an untied LM head where it was, to rounding",
                source=PAPER_B,
                paper_value=0.0,
                claimed=(-np.inf, 1e-5),
                note=f"{DRIFT}; rounding is taken as 1e-5",
            )
            rows = tuned_lanes(table, config, name, "untied")
            yield question, Measurement.over_seeds(at_last_step(rows, HEAD_PATH["untied"], "mean_drift"))
    for head in config.heads if "Adam" in config.arms else ():
        question = Question(
            statement=f"Adam moves the mean of the {head} head",
            source=PAPER_B,
            paper_value="> 0",
            claimed=(0.01, np.inf),
            note=f"{DRIFT}; at least 0.01",
        )
        rows = tuned_lanes(table, config, "Adam", head)
        yield question, Measurement.over_seeds(at_last_step(rows, HEAD_PATH[head], "mean_drift"))
    for head in config.heads if "Adam" in config.arms else ():
        r_squared, scale = moment_fit(table, config, head)
        question = Question(
            statement=f"Adam's second moment is linear in token frequency ({head} head)",
            source=PAPER_B,
            paper_value="R² = 0.85(7)",
            claimed=(0.78, 1.0),
            note="R², at least 0.78: mean over the measured steps, t interval over seeds",
        )
        yield question, Measurement.over_seeds(r_squared)
        question = Question(
            statement=f"its slope A is E[h²] over the tokens of a step, in order of magnitude ({head} head)",
            source=PAPER_B,
            paper_value="A ≈ 10⁻⁴ in its set-up",
            claimed=(-1.0, 1.0),
            note="log₁₀ of A times tokens per step; E[h²] is about 1 behind the last norm",
        )
        yield question, Measurement.over_seeds(np.log10(scale))


def _both_papers(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    names = ("Adam", "Adam √d", "Coupled Adam √d")
    for head in config.heads if set(names) <= set(config.arms) else ():
        matrix = "tied matrix" if HEADS[head] else "input embedding"
        plain, scaled, coupled = (tuned_lanes(table, config, name, head) for name in names)
        drifts = [at_last_step(rows, EMBEDDING_PATH[head], "mean_drift") for rows in (plain, scaled, coupled)]
        question = Question(
            statement=f"an embedding rate √d times the others' worsens Adam's drift of the {matrix}",
            source=BOTH_PAPERS,
            paper_value="–",
            claimed=(0.0, np.inf),
            note=f"difference in {DRIFT}; {OWN_RATE}",
        )
        yield question, _difference(drifts[1], drifts[0])
        question = Question(
            statement=f"Coupled Adam with that embedding rate drifts less in the {matrix} than Adam without it",
            source=BOTH_PAPERS,
            paper_value="–",
            claimed=(0.0, np.inf),
            note=f"difference in {DRIFT}; {OWN_RATE}",
        )
        yield question, _difference(drifts[0], drifts[2])
        bits = [
            rows["valid_bits_per_byte"].to_numpy(float) if len(rows) else np.array([]) for rows in (coupled, scaled)
        ]
        question = Question(
            statement=f"with that embedding rate Coupled Adam loses nothing against Adam ({head} head)",
            source=BOTH_PAPERS,
            paper_value="≤ 0",
            claimed=(-np.inf, 0.01),
            note=f"difference in validation bits per byte, within 0.01; t interval over seeds; {OWN_RATE}",
        )
        yield question, _difference(*bits)


def _difference(first: np.ndarray, second: np.ndarray) -> Measurement:
    """The mean difference seed by seed; unknown if an arm has no lane or a seed is missing."""
    return Measurement.over_seeds(first - second if len(first) and len(second) else [])
