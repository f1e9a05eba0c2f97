"""The claims of `feature_learning`."""

import math
from collections.abc import Iterator

import numpy as np

from lvp.analysis.claims import OUR_RESULT, Claim, Question
from lvp.analysis.measurement import NORMAL_QUANTILE, Measurement
from lvp.experiments.common.slope_claims import answer_without_each
from lvp.experiments.feature_learning import sign_moments
from lvp.experiments.feature_learning.analysis import error_of, power, relative_to_theorem, rows_of, steps_in_words
from lvp.experiments.feature_learning.config import GROUPS, GROWING, PARTS, THEOREM, TRAINED_PARTS, Config

PAPER_A = "Hayou & Liu 2025"
POWER = 0.05  # largest difference of two equal powers
UNKNOWN = Measurement(math.nan, None)


def claims(table, config: Config, context) -> list[Claim]:
    """The constant of theorem 4 at the largest width of m = 8 d, and the trained groups.

    What holds exactly (theorem 3, the exact forms of theorems 1 and 4) is a test and not a claim.
    """
    answers = [question.answer(measurement, context, None) for question, measurement in _constants(table)]
    for question, measurement, without in _survival(table, config):
        answers.append(answer_without_each(question, measurement, without, context, None, what="width", decimals=3))
    return answers


def _constants(table) -> Iterator[tuple[Question, Measurement]]:
    """Whether the printed form of theorem 4 has the right constant, within 2 %."""
    for column, (group, name) in sign_moments.VARIANCES.items():
        if group == "theorem 4":
            statement, variant = (
                "each coordinate of E_i sign(EᵀM), E_i a row of E, has the variance that theorem 4 prints, within 2%",
                name.partition(", ")[2],
            )
            note = "printed: d + (2/π)(α_i²/ᾱ²) d (d − 1)/m; E (m × d) and M (m × m) are Gaussian; row i of M has "
            note += "variance α_i², with mean ᾱ²"
            rows = rows_of(table, group, GROWING)
            yield _ratio(rows, statement, f"{PAPER_A}, {group}", column, variant=variant, note=note)


def _ratio(
    rows, statement: str, source: str, column: str, *, variant: str = "", note: str = ""
) -> tuple[Question, Measurement]:
    """Whether measured over predicted is 1 within 2 % at the largest width."""
    measurement, width = UNKNOWN, ""
    if len(rows):
        last = rows.iloc[-1]
        predicted = last[f"{column}_paper"]
        half = NORMAL_QUANTILE * last[error_of(column)] / predicted
        measurement = Measurement.plus_minus(last[column] / predicted, half)
        width = f"at d {last['setting.arguments.width']}, "
    question = Question(
        statement=statement,
        source=source,
        paper_value=1.0,
        claimed=(0.98, 1.02),
        variant=variant,
        unit="measured / predicted",
        note="; ".join(filter(None, (f"measured over predicted, within 2 %, {width}{GROWING}", note))),
    )
    return question, measurement


def _survival(table, config: Config) -> Iterator[tuple[Question, Measurement, dict[str, Measurement]]]:
    """Whether the power of d of theorem 1 survives some steps of training, also without each width."""
    for part in TRAINED_PARTS:
        for group in GROUPS:
            points = np.array(relative_to_theorem(table, config, group, part, config.steps[-1]))
            without = {
                f"width {width:g}": _power_of(np.delete(points, at, axis=1)) for at, width in enumerate(points[0])
            }
            question = Question(
                statement=f"after {steps_in_words(config)} the changes since init, δ_E and δ_W, grow with d by the "
                f"power of theorem 1's exact form, within {POWER:g}",
                source=f"{OUR_RESULT}, after {PAPER_A}, {THEOREM}",
                paper_value=None,
                claimed=(-POWER, POWER),
                variant=f"{PARTS[part]}, {group}",
                unit="difference of powers",
                note=f"measured power of d minus that of the exact form, within {POWER}; linear network under LVP at "
                f"{GROWING}, one-hot targets; δ_E = (E_0 − E_t) W_0 and δ_W = E_0 (W_0 − W_t): change of the output "
                "since the init by the embedding E, or by the projection W, alone; sign: of the gradient; square, "
                "cross-entropy: the loss; theorem 1 is about one step under assumption 2; its exact form is in "
                "docs/theory.md",
            )
            yield question, _power_of(points), without


def _power_of(points: np.ndarray) -> Measurement:
    """The power of d of [widths, values, errors]; unknown with fewer than three widths."""
    fit = power(*points) if points.shape[1] > 2 else None
    return Measurement(fit.slope, fit.interval) if fit else UNKNOWN
