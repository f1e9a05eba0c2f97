"""The claims of `linear_network`."""

from lvp.analysis.claims import OUR_RESULT, Claim, Question, Seeds
from lvp.experiments.common import slope_claims
from lvp.experiments.common.shape_powers import joint_powers
from lvp.experiments.linear_network.analysis import optima
from lvp.experiments.linear_network.config import ALIGNMENT, GROWING, GROWTH, POWERS, Config, name_of

PAPER_A = "Hayou & Liu 2025"
RULES = (0.0, -0.5, -1.0)  # powers of d: SP and μP, LVP, and the power of the hidden rate


def claims(table, config: Config, context) -> list[Claim]:
    """Three claims for each form of the rows and number of steps.

    They are about the power of d at m = 8 d, and about the powers of d and of m in a fit to all shapes.
    """
    answers: list[Claim] = []
    seeds = Seeds(config.seeds)
    for rows in config.rows:
        for steps in config.steps:
            best = optima(table, config, rows, steps)
            (growing,) = (part for part in config.slices if part.name == GROWING)
            of_growing, fit = [best[i] for i in growing.at], joint_powers(config.shapes, best)
            setting = f"{name_of(rows)}, {steps} steps"
            question = _width_power(setting, GROWING, rows, GROWTH, _other_argument(ALIGNMENT, rows))
            answers.append(slope_claims.answer(question, growing.values, of_growing, context, seeds))
            shapes = f"{fit.num_points} of {len(config.shapes)} shapes resolved; powers of d and m fitted together"
            question = _width_power(setting, "m held", rows, ALIGNMENT, f"{_other_argument(GROWTH, rows)}; {shapes}")
            for quantity, asked in (("d", question), ("m", _vocab_power(setting, shapes))):
                answers.append(slope_claims.answer_jointly(asked, quantity, config.shapes, best, context, seeds))
    return answers


def _rivals(power: float) -> tuple[float, ...]:
    return tuple(rule for rule in RULES if rule != power)


def _other_argument(argument: str, rows: str) -> str:
    """The power of d that the other argument gives, in words."""
    return f"the argument of {argument} gives {in_words(POWERS[argument][rows])}"


def in_words(power: float) -> str:
    """A power of d, such as "d^(−1/2)"."""
    return {0.0: "d^0", -0.5: "d^(−1/2)", -1.0: "d^(−1)"}[power]


def _width_power(setting: str, where: str, rows: str, argument: str, note: str) -> Question:
    """The question whether the optimum follows the power of d that `argument` gives for these rows."""
    power = POWERS[argument][rows]
    return Question(
        statement=f"linear network under Adam: the best η_E has the power of d of our {GROWTH} argument ({GROWING}) or "
        f"{ALIGNMENT} argument (m held)",
        source=f"{OUR_RESULT}, after docs/theory.md",
        paper_value=None,
        variant=f"{where}, {setting}, {in_words(power)}",
        claimed=power,
        rivals=_rivals(power),
        unit="power of d",
        note=f"{GROWTH}: rows grow to RMS 1, or turn if they are divided by their RMS; {ALIGNMENT}: rows move along "
        "the projection's initial columns (docs/theory.md); which of the two is judged where was fixed after a sweep "
        f"with other seeds; here {argument}; {note}",
    )


def _vocab_power(setting: str, note: str) -> Question:
    """The question whether the optimum does not depend on m."""
    return Question(
        statement="linear network under Adam: at fixed d the best η_E does not depend on m: power within 0.1 of 0",
        source=f"{OUR_RESULT}, after docs/theory.md",
        variant=setting,
        paper_value=None,
        claimed=(-0.1, 0.1),
        unit="power of m",
        note=f"power of m, within 0.1 of 0; {note}; theorem 1 of {PAPER_A} has no m for m far above d, and speaks of "
        "one step",
    )
