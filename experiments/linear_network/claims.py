"""The claims of `linear_network`."""

from experiments.common.shape_powers import joint_powers, slope_along
from experiments.linear_network.analysis import optima
from experiments.linear_network.config import GROWING, PREDICTED, Config, name_of
from lvp.analysis.claims import Claim, Question
from lvp.analysis.measurement import Measurement

PAPER_A = "Hayou & Liu 2025"
RULES = (0.0, -0.5, -1.0)  # powers of d: a constant rate, the √d rule with η_W = 0.2/d, η_E in proportion to η_W
UNKNOWN = Measurement(float("nan"), None)


def claims(table, config: Config, context) -> list[Claim]:
    """The power of d at m = 8 d, and the power of m, for each way to enter and number of steps."""
    answers = []
    for rows in config.rows:
        for steps in config.steps:
            best = optima(table, config, rows, steps)
            growing = [part for part in config.slices if part.name == GROWING]
            width = Question(
                statement=f"linear network, {name_of(rows)}, {steps} steps, {GROWING}: the best embedding learning "
                f"rate follows d^({PREDICTED[rows]:g})",
                source=f"{PAPER_A}, equation 2",
                paper_value=None,
                claimed=PREDICTED[rows],
                rivals=tuple(power for power in RULES if power != PREDICTED[rows]),
                note="a scaling argument of docs/theory.md, not the paper's",
            )
            vocab = Question(
                statement=f"linear network, {name_of(rows)}, {steps} steps: the vocabulary does not move the best "
                "embedding learning rate",
                source=f"{PAPER_A}, theorem 1",
                paper_value=0.0,
                claimed=(-0.1, 0.1),
                note="power of m within 0.1; fitted together with the power of d over all shapes",
            )
            fit = slope_along(growing[0], best) if growing else None
            answers.append(width.answer(Measurement(fit.slope, fit.interval) if fit else UNKNOWN, context))
            answers.append(vocab.answer(joint_powers(config.shapes, best).power("m"), context))
    return answers
