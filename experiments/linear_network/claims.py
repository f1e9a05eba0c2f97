"""The claims of `linear_network`."""

from experiments.common.shape_powers import joint_powers, slope_along
from experiments.linear_network.analysis import optima
from experiments.linear_network.config import ALIGNMENT, GROWING, GROWTH, POWERS, Config, name_of
from lvp.analysis.claims import Claim, Question
from lvp.analysis.measurement import Measurement

PAPER_A = "Hayou & Liu 2025"
RULES = (0.0, -0.5, -1.0)  # powers of d that the rules of paper A give


def claims(table, config: Config, context) -> list[Claim]:
    """The power of d at m = 8 d, and the powers of d and m from all shapes, by way to enter and number of steps."""
    answers = []
    for rows in config.rows:
        for steps in config.steps:
            best = optima(table, config, rows, steps)
            (growing,) = (part for part in config.slices if part.name == GROWING)
            slope, fit = slope_along(growing, best), joint_powers(config.shapes, best)
            where = f"linear network, {name_of(rows)}, {steps} steps"
            widths = f"{slope.num_points} of {len(growing.at)} widths resolved"
            shapes = f"{fit.num_points} of {len(config.shapes)} shapes resolved; powers of d and m fitted together"
            along = Measurement(slope.slope, slope.interval)
            answers.append(_width(f"{where}, {GROWING}", rows, GROWTH, widths).answer(along, context))
            answers.append(_width(f"{where}, with m held", rows, ALIGNMENT, shapes).answer(fit.power("d"), context))
            answers.append(_vocab(where, shapes).answer(fit.power("m"), context))
    return answers


def _width(where: str, rows: str, argument: str, note: str) -> Question:
    power = POWERS[argument][rows]
    return Question(
        statement=f"{where}: the best embedding learning rate follows d^({power:g}) (argument of {argument})",
        source="docs/theory.md",
        paper_value=None,
        claimed=power,
        rivals=tuple(rule for rule in RULES if rule != power),
        note=note,
    )


def _vocab(where: str, note: str) -> Question:
    return Question(
        statement=f"{where}: the vocabulary does not move the best embedding learning rate (its power is within 0.1 of "
        "0)",
        source=f"{PAPER_A}, theorem 1 for m far above d",
        paper_value=0.0,
        claimed=(-0.1, 0.1),
        note=note,
    )
