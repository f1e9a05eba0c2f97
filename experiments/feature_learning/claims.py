"""The claims of `feature_learning`.

Theorem 1 states orders in m and d, so its claims are about the power of d. Its constants are judged as our results.
"""

import math
from collections.abc import Iterator

from lvp.analysis.claims import OUR_RESULT, Claim, Question
from lvp.analysis.measurement import NORMAL_QUANTILE, Measurement
from lvp.experiments.feature_learning import sign_moments
from lvp.experiments.feature_learning.analysis import error_of, power, relative_to_theorem, rows_of, steps_in_words
from lvp.experiments.feature_learning.config import GROUPS, GROWING, PARTS, THEOREM, TRAINED_PARTS, Config

PAPER_A = "Hayou & Liu 2025"
ASSUMED = "under assumption 2: E W − Z is replaced by iid N(0, 1)"
POWER = 0.05  # largest difference of two equal powers
UNKNOWN = Measurement(math.nan, None)


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of theorems 1, 3 and 4 at the largest width of m = 8 d, and of the trained groups."""
    questions = [*_one_step(table), *_orders(table), *_moments(table), *_survival(table, config)]
    return [question.answer(measurement, context, None) for question, measurement in questions]


def _orders(table) -> Iterator[tuple[Question, Measurement]]:
    """Whether the parts follow theorem 1's power of d."""
    rows = rows_of(table, THEOREM, GROWING)
    for part, change in (
        ("embedding", "one step of the embedding changes the output"),
        ("top", "one step of the projection changes the most frequent token's output"),
    ):
        measurement = UNKNOWN
        if len(rows) > 2:
            value, predicted, error = (rows[name].to_numpy() for name in (part, f"{part}_paper", error_of(part)))
            fit = power(rows["setting.arguments.width"], value / predicted, error / predicted)
            measurement = Measurement(fit.slope, fit.interval)
        question = Question(
            statement=f"{change} with theorem 1's power of d",
            source=f"{PAPER_A}, {THEOREM}",
            paper_value=0.0,
            claimed=(-POWER, POWER),
            note=f"measured power of d minus the theorem's, within {POWER}, {GROWING}; {ASSUMED}",
        )
        yield question, measurement


def _one_step(table) -> Iterator[tuple[Question, Measurement]]:
    projection = "one step of the projection changes"
    for statement, part, form, note in (
        ("one step of the embedding changes the output by theorem 1's δ̄_E", "embedding", "paper", ""),
        (f"{projection} the most frequent token's output by theorem 1's δ̄_W as printed", "top", "paper", ""),
        (
            f"{projection} the most frequent token's output by the exact form of δ̄_W",
            "top",
            "exact",
            ", with κ_i = I_i (`lvp.parametrization.attenuation`) in place of α_i²/Σα²",
        ),
    ):
        yield _ratio(rows_of(table, THEOREM, GROWING), statement, OUR_RESULT, part, form, f"{note}; {ASSUMED}")


def _moments(table) -> Iterator[tuple[Question, Measurement]]:
    for column, (group, name) in sign_moments.VARIANCES.items():
        rows, source = rows_of(table, group, GROWING), f"{PAPER_A}, {group}"
        for form, description in (("paper", "as printed"), ("exact", "in its exact form")):
            if form == "paper" or group == "theorem 4":  # theorem 3 is exact as printed
                statement = f"{name}: the variance of X is the theorem's, {description}"
                yield _ratio(rows, statement, source if form == "paper" else OUR_RESULT, column, form)
        question = Question(
            statement=f"{name}: the covariance of X is diagonal",
            source=source,
            paper_value=0.0,
            claimed=(-0.02, 0.02),
            note=f"off-diagonal over diagonal, within 0.02, {GROWING}",
        )
        yield question, sign_moments.correlation(rows.iloc[-1], column) if len(rows) else UNKNOWN


def _ratio(rows, statement: str, source: str, column: str, form: str, note: str = "") -> tuple[Question, Measurement]:
    """Whether measured over predicted is 1 within 2 % at the largest width."""
    paper_value = None if source == OUR_RESULT else 1.0
    measurement, width = UNKNOWN, ""
    if len(rows):
        last = rows.iloc[-1]
        predicted = last[f"{column}_{form}"]
        half = NORMAL_QUANTILE * last[error_of(column)] / predicted
        measurement = Measurement.plus_minus(last[column] / predicted, half)
        width = f"at d {last['setting.arguments.width']}, "
    question = Question(
        statement=statement,
        source=source,
        paper_value=paper_value,
        claimed=(0.98, 1.02),
        note=f"measured over predicted, within 2 %, {width}{GROWING}{note}",
    )
    return question, measurement


def _survival(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    for part in TRAINED_PARTS:
        for group in GROUPS:
            points = relative_to_theorem(table, config, group, part, config.steps[-1])
            fit = power(*points) if len(points[0]) > 2 else None
            question = Question(
                statement=f"{PARTS[part]} follows theorem 1's power of d after {steps_in_words(config)} with one-hot "
                f"targets, under LVP at {GROWING} ({group})",
                source=f"{OUR_RESULT}, after {PAPER_A}, {THEOREM}",
                paper_value=None,
                claimed=(-POWER, POWER),
                note=f"measured power of d minus that of the exact form, within {POWER}; theorem 1 is about one step "
                "under assumption 2",
            )
            yield question, Measurement(fit.slope, fit.interval) if fit else UNKNOWN
