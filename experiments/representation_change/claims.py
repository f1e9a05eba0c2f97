"""The claims of `representation_change`."""

from collections.abc import Iterator

import numpy as np

from experiments.representation_change import equation_nine
from experiments.representation_change.analysis import EARLY, LATE, SETTLED, exceeds, falls, lanes_by_seed, settled
from experiments.representation_change.config import ARMS, Config
from lvp.analysis.claims import Claim, Question
from lvp.analysis.measurement import Measurement

SOURCE = "Kosson et al. 2024, figure 4"


def claims(table, config: Config, context) -> list[Claim]:
    """Claims about equation 9, and those of figure 4 for the trained arms."""
    questions = [*equation_nine.questions(table), *_figure_4(table, config)]
    return [question.answer(measurement, context) for question, measurement in questions]


def _figure_4(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    batch = f"B = {config.batch} sequences of {config.context} tokens"
    for name in config.arms:
        rows = lanes_by_seed(table, config, name)
        if ARMS[name].optimizer == "lion_ar":
            question = Question(
                statement=f"the gradient's φ starts high and falls ({name})",
                source=SOURCE,
                paper_value="> 1",
                claimed=(1, np.inf),
                note=f"mean over the first {EARLY:.0%} of the steps over that of the last {1 - LATE:.0%}, hidden "
                "matrices",
            )
            yield question, Measurement.over_seeds(falls(rows, config)).exp()
            question = Question(
                statement=f"the batch exceeds 1/φ for nearly all of training ({name})",
                source=SOURCE,
                paper_value="nearly 1",
                claimed=(0.9, np.inf),
                note=f"part of training in which B > 1/φ, at least 0.9; {batch}; paper: 480 of 1024",
            )
            yield question, Measurement.over_seeds(exceeds(rows, config))
        question = Question(
            statement=f"gradient and momentum are negatively aligned ({name})",
            source=SOURCE,
            paper_value="< 0",
            claimed=(-np.inf, 0),
            note=f"mean cosine after the first {SETTLED:.0%} of the steps, hidden matrices as one vector",
        )
        yield question, Measurement.over_seeds(settled(rows, config, "alignment"))
        question = Question(
            statement=f"momentum cancels about half of the gradient ({name})",
            source=SOURCE,
            paper_value=0.5,
            claimed=(0.25, 0.75),
            note=f"−⟨β m, (1−β) g⟩/‖(1−β) g‖² after the first {SETTLED:.0%} of the steps, within 0.25 and 0.75",
        )
        yield question, Measurement.over_seeds(settled(rows, config, "cancelled"))
