"""The claims of `vocab_effect`."""

from lvp.analysis.claims import OUR_RESULT, Claim, Question, Seeds
from lvp.experiments.common import slope_claims
from lvp.experiments.common.shape_powers import joint_powers
from lvp.experiments.vocab_effect.analysis import optima
from lvp.experiments.vocab_effect.config import Config
from lvp.experiments.width_vocab.config import READINGS

# Table 2 is the limit of m far above d, and states no measured power.
SOURCE = f"{OUR_RESULT}, after Hayou & Liu 2025, table 2"


def claims(table, config: Config, context) -> list[Claim]:
    """The powers of d and m from all shapes together, and the power of d along every slice in which d moves.

    d moves at each fixed m, and at m = 8 d.
    """
    best, reading = optima(table, config), READINGS[config.token_rows[0]]
    fit, seeds = joint_powers(config.shapes, best), Seeds(config.seeds)
    resolved = f"{fit.num_points} of {len(best)} settings resolved, {fit.num_bounds} bounds at the edge of their grid"
    ratio = min(vocab / width for width, vocab in config.shapes)
    resolved += f"; powers of d and m fitted together; m / d is {ratio:g} or more, and table 2 is for m far above d"
    at_steps = f"{reading}, {config.steps} steps for every m"
    answers = [
        slope_claims.answer_jointly(question, quantity, config.shapes, best, context, seeds)
        for quantity, question in (
            ("d", _power_of_width(at_steps, "fitted over d and m", f"{at_steps}; {resolved}")),
            ("m", _power_of_vocab(at_steps, resolved)),
        )
    ]
    for part in config.slices:
        if part.moving == "d":
            question, of_part = _power_of_width(at_steps, part.name, at_steps), [best[i] for i in part.at]
            answers.append(slope_claims.answer(question, part.values, of_part, context, seeds))
    return answers


def _power_of_width(at_steps: str, where: str, note: str) -> Question:
    return Question(
        statement=f"{at_steps}: the best η_E falls as d^(−1/2), not as d^0 or d^(−1)",
        variant=where,
        source=SOURCE,
        paper_value=None,
        claimed=-0.5,
        rivals=(0.0, -1.0),
        unit="power of d",
        note=note,
    )


def _power_of_vocab(at_steps: str, resolved: str) -> Question:
    return Question(
        statement=f"{at_steps}: the best η_E has a power of m within 0.1 of 0",
        source=SOURCE,
        paper_value=None,
        claimed=(-0.1, 0.1),
        unit="power of m",
        note=f"power of m, within 0.1 of 0; {at_steps}; {resolved}",
    )
