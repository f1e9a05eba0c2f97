"""The claims of `linear_network`."""

from lvp.analysis.claims import OUR_RESULT, Claim, Question, Seeds, judge
from lvp.analysis.measurement import Measurement
from lvp.experiments.common.shape_powers import joint_powers, slope_along
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
            slope, fit = slope_along(growing, best), joint_powers(config.shapes, best)
            setting = f"linear network, {name_of(rows)}, {steps} steps"
            widths = f"{slope.num_points} of {len(growing.at)} widths resolved"
            shapes = f"{fit.num_points} of {len(config.shapes)} shapes resolved; powers of d and m fitted together"
            growing_power = Measurement(slope.slope, slope.interval)
            for where, argument, other, power, note in (
                (GROWING, GROWTH, ALIGNMENT, growing_power, widths),
                ("with m held", ALIGNMENT, GROWTH, fit.power("d"), shapes),
            ):
                note = f"{note}; {_other_argument(other, rows, power)}"
                question = _width_power(f"{setting}, {where}", rows, argument, note)
                answers.append(question.answer(power, context, seeds))
            answers.append(_vocab_power(setting, shapes).answer(fit.power("m"), context, seeds))
    return answers


def _rivals(power: float) -> tuple[float, ...]:
    return tuple(rule for rule in RULES if rule != power)


def _other_argument(argument: str, rows: str, measured: Measurement) -> str:
    """The verdict on the power of d that the other argument gives, in words."""
    power = POWERS[argument][rows]
    verdict = judge(*measured, claimed=power, rivals=_rivals(power))
    return f"the argument of {argument} gives {power:g}: {verdict}".replace("-", "−")


def _width_power(setting: str, rows: str, argument: str, note: str) -> Question:
    """The question whether the optimum follows the power of d that `argument` gives for these rows."""
    power = POWERS[argument][rows]
    return Question(
        statement=f"{setting}: the best embedding learning rate follows d^({power:g}) (argument of {argument})",
        source="docs/theory.md",
        paper_value=None,
        claimed=power,
        rivals=_rivals(power),
        note=note,
    )


def _vocab_power(setting: str, note: str) -> Question:
    """The question whether the optimum does not depend on m."""
    return Question(
        statement=f"{setting}: the vocabulary does not move the best embedding learning rate (its power is within 0.1 "
        "of 0)",
        source=OUR_RESULT,
        paper_value=None,
        claimed=(-0.1, 0.1),
        note=f"{note}; theorem 1 of {PAPER_A} has no m for m far above d, and speaks of one step",
    )
