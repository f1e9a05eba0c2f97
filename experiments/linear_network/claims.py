"""The claims of `linear_network`."""

from experiments.common.shape_powers import joint_powers
from experiments.linear_network.analysis import optima
from experiments.linear_network.config import PREDICTED, Config, name_of
from lvp.analysis.claims import Claim, Question

PAPER_A = "Hayou & Liu 2025"
RULES = (0.0, -0.5, -1.0)  # powers of d: a constant rate, the √d rule with η_W = 0.2/d, η_E in proportion to η_W


def claims(table, config: Config, context) -> list[Claim]:
    """The powers of d and m from all shapes together, for each way to enter and number of steps."""
    answers = []
    for rows in config.rows:
        for steps in config.steps:
            fit = joint_powers(config.shapes, optima(table, config, rows, steps))
            where = f"linear network, {name_of(rows)}, {steps} steps"
            resolved = f"{fit.num_points} of {len(config.shapes)} shapes resolved; powers of d and m fitted together"
            width = Question(
                statement=f"{where}: the best embedding learning rate follows d^({PREDICTED[rows]:g})",
                source=f"{PAPER_A}, equation 2",
                paper_value=None,
                claimed=PREDICTED[rows],
                rivals=tuple(power for power in RULES if power != PREDICTED[rows]),
                note=f"a scaling argument of docs/theory.md, not the paper's; {resolved}",
            )
            vocab = Question(
                statement=f"{where}: the vocabulary does not move the best embedding learning rate (its power is "
                "within 0.1 of 0)",
                source=f"{PAPER_A}, theorem 1 for m far above d",
                paper_value=0.0,
                claimed=(-0.1, 0.1),
                note=resolved,
            )
            answers.append(width.answer(fit.power("d"), context))
            answers.append(vocab.answer(fit.power("m"), context))
    return answers
