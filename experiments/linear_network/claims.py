"""The claims of `linear_network`."""

from experiments.common.shape_powers import joint_powers
from experiments.linear_network.analysis import optima
from experiments.linear_network.config import ALIGNMENT, POWERS, Config, name_of
from lvp.analysis.claims import Claim, Question

PAPER_A = "Hayou & Liu 2025"
RULES = (0.0, -0.5, -1.0)  # powers of d that the rules of paper A give


def claims(table, config: Config, context) -> list[Claim]:
    """The power of d under each scaling argument and the power of m, for each way to enter and number of steps.

    The powers are fitted to all shapes together.
    """
    answers = []
    for rows in config.rows:
        for steps in config.steps:
            fit = joint_powers(config.shapes, optima(table, config, rows, steps))
            where = f"linear network, {name_of(rows)}, {steps} steps"
            resolved = f"{fit.num_points} of {len(config.shapes)} shapes resolved; powers of d and m fitted together"
            for argument, powers in POWERS.items():
                answers.append(_width(where, rows, argument, powers[rows], resolved).answer(fit.power("d"), context))
            vocab = Question(
                statement=f"{where}: the vocabulary does not move the best embedding learning rate (its power is "
                "within 0.1 of 0)",
                source=f"{PAPER_A}, theorem 1 for m far above d",
                paper_value=0.0,
                claimed=(-0.1, 0.1),
                note=resolved,
            )
            answers.append(vocab.answer(fit.power("m"), context))
    return answers


def _width(where: str, rows: str, argument: str, power: float, resolved: str) -> Question:
    """The power of d under an argument. The one of alignment for plain rows is also the power of the paper's LVP."""
    is_lvp = rows == "plain" and argument == ALIGNMENT
    return Question(
        statement=f"{where}: the best embedding learning rate follows d^({power:g}) (argument of {argument})",
        source=f"{PAPER_A}, table 2" if is_lvp else "docs/theory.md",
        paper_value=power if is_lvp else None,
        claimed=power,
        rivals=tuple(rule for rule in RULES if rule != power),
        note=resolved,
    )
