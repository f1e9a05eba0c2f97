"""The claims of `width_vocab`: figure 3 of Hayou & Liu 2025."""

from collections.abc import Iterator, Sequence

import numpy as np

from lvp.analysis.claims import ABOVE_ZERO, OUR_RESULT, Claim, Question, Seeds
from lvp.analysis.measurement import Measurement
from lvp.experiments.width_vocab.analysis import (
    exponent_by_steps,
    gap_difference,
    hidden_constant_text,
    leaves_rates,
    optima,
    transfer_gap,
)
from lvp.experiments.width_vocab.config import ADAPTIVE, READINGS, Config

PAPER_A = "Hayou & Liu 2025"
NEAR_OPTIMAL = 0.05  # relative excess of the loss, as in `width_fixed_vocab`; the paper gives no number
POWERS = {"d^0 (SP, μP)": 0.0, "d^(−1/2)": -0.5, "d^(−1)": -1.0}  # rules for the embedding's rate


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of figure 3 for the readings `plain` and `sqrt`. The paper does not normalize rows.

    The paper does not say which reading is its own, so every source names the reading. The paper's rule is −1/2; it
    fits no exponent, so the exponent is our result.
    """
    readings = [token_rows for token_rows in config.token_rows if token_rows != "normalized"]
    return [claim for token_rows in readings for claim in _of_reading(table, config, token_rows, context)]


def _of_reading(table, config: Config, token_rows: str, context) -> list[Claim]:
    """Whether the exponent is −1/2 and not 0 or −1, whether it is below 0, and what the √d rule and its rivals cost."""
    reading, seeds = READINGS[token_rows], Seeds(config.seeds, config.tuning_seeds)
    _, fit = optima(table, config, token_rows)
    exponent = Measurement(fit.slope, fit.interval)
    resolved = f"{fit.num_points} of {len(config.widths)} widths resolved"
    if config.hidden_constants:
        resolved += f"; {hidden_constant_text(table, config, token_rows)}"
    resolved += f"; {exponent_by_steps(table, config, token_rows)}"
    half = Question(
        statement=f"{reading}: after {config.steps} steps the best embedding learning rate falls as width^(−1/2), not "
        "as width^0 or width^(−1)",
        source=f"{OUR_RESULT}, after {PAPER_A}, figure 3",
        paper_value=None,
        claimed=-0.5,
        rivals=(0.0, -1.0),
        note=resolved,
    )
    falls = Question(
        statement=f"{reading}: after {config.steps} steps the best embedding learning rate falls with width (exponent "
        "below 0)",
        source=f"{PAPER_A}, figure 3, read with {reading}",
        paper_value="< 0",
        claimed=(-np.inf, 0.0),
        note=resolved,
    )
    answers = [question.answer(exponent, context, seeds) for question in (half, falls)]
    for question, measurement, powers in _about_rules(table, config, token_rows):
        reason = _not_tested(table, config, token_rows, powers)
        answers.append(question.answer(measurement, context, seeds, reason=reason))
    return answers


def _about_rules(table, config: Config, token_rows: str) -> Iterator[tuple[Question, Measurement, tuple[float, ...]]]:
    """Yields the questions about the cost of the √d rule, with their measurements and the powers of their rules."""
    reading = READINGS[token_rows]
    source, moved = f"{PAPER_A}, section 4.1, read with {reading}", f"{reading}: a rate tuned at the smallest width"
    moved += " and moved by d^(−1/2)"
    excess = "largest relative excess of the train loss over the widths; each seed is judged at the rates that the "
    excess += f"other seeds select; corrected t interval over {len(config.seeds)} seeds"
    by_rule = ", ".join(
        f"{name} {transfer_gap(table, config, token_rows, power).percent().replace('-', '−')}"
        for name, power in POWERS.items()
    )
    near_optimal = Question(
        statement=f"{moved} is near-optimal: its loss is within {NEAR_OPTIMAL:.0%} of the best at every width",
        source=source,
        paper_value="near-optimal",
        claimed=(-np.inf, NEAR_OPTIMAL),
        note=f"{excess}; in % by rule: {by_rule}",
    )
    yield near_optimal, transfer_gap(table, config, token_rows), (-0.5,)
    for rival, name, of_claim, paper_value in (
        (0.0, "a rate that is constant over width (SP, μP)", source, "> 0"),
        (-1.0, "a rate moved by d^(−1)", OUR_RESULT, None),
    ):
        less = Question(
            statement=f"{moved} has less excess loss than {name}",
            source=of_claim,
            paper_value=paper_value,
            claimed=ABOVE_ZERO,
            note=f"difference of the {excess}",
        )
        yield less, gap_difference(table, config, token_rows, -0.5, rival), (-0.5, rival)


def _not_tested(table, config: Config, token_rows: str, powers: Sequence[float]) -> str:
    """Why a claim about the excess loss of these rules is not tested; empty if it is."""
    if config.design == ADAPTIVE and any(leaves_rates(table, config, token_rows, power) for power in powers):
        return "a rule's rate lies outside the rates that the adaptive design trained with all seeds"
    return ""
