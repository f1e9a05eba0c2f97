"""The claims of `representation_change`."""

from collections.abc import Iterator

import numpy as np

from experiments.representation_change import equation_nine
from experiments.representation_change.analysis import EARLY, LATE, SETTLED, exceeds, falls, lanes_by_seed, settled
from experiments.representation_change.config import ARMS, PAPER_BATCH, PAPER_CONTEXT, Config
from lvp.analysis.claims import OUR_RESULT, Claim, Question, Seeds
from lvp.analysis.measurement import Measurement

SOURCE = "Kosson et al. 2024, figure 4"
NEARLY_ALL = 0.9  # of training


def claims(table, config: Config, context) -> list[Claim]:
    """Claims about equation 9, and claims about figure 4 for the trained arms."""
    calculated = [
        question.answer(measurement, context, None) for question, measurement in equation_nine.questions(table)
    ]
    return calculated + [
        question.answer(measurement, context, Seeds(config.seeds), reason=reason)
        for question, measurement, reason in _figure_4(table, config)
    ]


def _figure_4(table, config: Config) -> Iterator[tuple[Question, Measurement, str]]:
    """Questions with their measurements, and why a measurement does not test its question.

    Figure 4 shows LionAR only, so claims about AdamW are our results.
    """
    other_batch = f"the lanes train with batch {config.batch}, the paper with {PAPER_BATCH}"
    for name in config.arms:
        rows, of_paper = lanes_by_seed(table, config, name), ARMS[name].optimizer == "lion_ar"
        source = SOURCE if of_paper else OUR_RESULT
        untested = other_batch if of_paper and config.batch != PAPER_BATCH else ""
        if of_paper:
            question = Question(
                statement=f"the gradient's φ starts high and falls ({name})",
                source=SOURCE,
                paper_value="> 1",
                claimed=(1, np.inf),
                note=f"mean over the first {EARLY:.0%} of the steps over that of the last {1 - LATE:.0%}; φ is the "
                "mean over the neurons of the hidden matrices",
            )
            yield question, Measurement.over_seeds(falls(rows, config)).exp(), untested
            here = ""  # the part for the configured batch, if it is not the paper's
            if config.batch != PAPER_BATCH:
                at_batch = Measurement.over_seeds(exceeds(rows, config, config.batch)).text("z.2f").replace("-", "−")
                here = f"; for B = {config.batch} it is {at_batch}"
            question = Question(
                statement=f"the batch exceeds 1/φ for nearly all of training ({name})",
                source=SOURCE,
                paper_value="nearly 1",
                claimed=(NEARLY_ALL, np.inf),
                note=f"part of training in which B φ > 1 for the paper's B = {PAPER_BATCH}, at least {NEARLY_ALL:g}; "
                f"φ is that of training with batches of {config.batch} sequences of {config.context} tokens{here}",
            )
            part = Measurement.over_seeds(exceeds(rows, config, PAPER_BATCH))
            smaller = ""  # why a part below 0.9 does not contradict the paper
            if config.context < PAPER_CONTEXT and part.value < NEARLY_ALL:
                smaller = f"φ of {config.context} tokens is smaller than that of the paper's {PAPER_CONTEXT}"
            yield question, part, untested or smaller
        question = Question(
            statement=f"gradient and momentum are negatively aligned ({name})",
            source=source,
            paper_value="< 0" if of_paper else None,
            claimed=(-np.inf, 0),
            note=f"mean cosine after the first {SETTLED:.0%} of the steps, all hidden matrices together; the paper "
            "shows one layer",
        )
        yield question, Measurement.over_seeds(settled(rows, config, "alignment")), untested
        question = Question(
            statement=f"momentum cancels about half of the gradient ({name})",
            source=source,
            paper_value=0.5 if of_paper else None,
            claimed=(0.25, 0.75),
            note=f"−⟨β m, (1−β) g⟩/‖(1−β) g‖² after the first {SETTLED:.0%} of the steps, between 0.25 and 0.75",
        )
        yield question, Measurement.over_seeds(settled(rows, config, "cancelled")), untested
