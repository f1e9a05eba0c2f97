"""The claims of `regimes`."""

from dataclasses import replace

import numpy as np

from experiments.regimes.analysis import gaps, optima, powers
from experiments.regimes.config import RULES, Config
from lvp.analysis.claims import Claim, Question, refusal
from lvp.analysis.measurement import Measurement
from lvp.analysis.power_laws import with_interval

PAPER_A = "Hayou & Liu 2025"
FEWER_STEPS = (
    "at equal epochs a larger vocabulary has fewer steps, and fewer steps require larger rates; the two effects are "
    "not separated"
)
QUESTIONS_ABOUT_POWERS = {
    "width": Question(
        statement="at fixed vocabulary the best embedding learning rate falls as width^(−1/2), not as width^0 or "
        "width^(−1)",
        source=f"{PAPER_A}, table 2",
        paper_value=-0.5,
        claimed=-0.5,
        rivals=(0.0, -1.0),
    ),
    "vocab": Question(
        statement="at fixed width the best embedding learning rate does not move with the vocabulary (its power is "
        "within 0.1 of 0)",
        source=f"{PAPER_A}, table 2",
        paper_value=0.0,
        claimed=(-0.1, 0.1),
    ),
}


def claims(table, config: Config, context) -> list[Claim]:
    """The powers of width and vocabulary; whether LVP transfers better than the other rules."""
    return [*_powers(table, config, context), *_transfer(table, config, context)]


def _powers(table, config: Config, context) -> list[Claim]:
    """A verdict that the flagged cells would change is unresolved."""
    best, resolved = optima(table, config)
    every = powers(config, best, include_flagged=True)
    answers = []
    for name, question in QUESTIONS_ABOUT_POWERS.items():
        note = (
            f"{resolved.num_points} of {len(best)} cells resolved; with the flagged ones, which must not change the "
            f"verdict, {with_interval(every.powers[name], every.intervals[name])}"
        )
        reason = FEWER_STEPS if name == "vocab" else ""
        claim = replace(question, note=note).answer(resolved.power(name), context, reason=reason)
        if not reason and question.answer(every.power(name), context).verdict != claim.verdict:
            claim = replace(claim, verdict="unresolved")
        answers.append(claim)
    return answers


def _transfer(table, config: Config, context) -> list[Claim]:
    by_rule, answers = gaps(table, config), []
    for rival in ("sp", "mup", "interpolated"):
        question = Question(
            statement=f"tuned at the smallest cell only, LVP loses less than {RULES[rival]} at the others",
            source=f"{PAPER_A}, section 3",
            paper_value="> 0",
            claimed=(0.0, np.inf),
            note="difference of the mean relative gaps to each cell's least loss over all lanes, including the rules'; "
            "t interval over seeds",
        )
        with np.errstate(invalid="ignore"):  # inf − inf if both rules diverged
            differences = (by_rule[rival] - by_rule["lvp"]).mean(axis=0)
            measured = Measurement.over_seeds(differences)
            answers.append(question.answer(measured, context, reason=refusal(config.seeds)))
    return answers
