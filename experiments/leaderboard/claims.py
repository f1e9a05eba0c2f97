"""The claims of `leaderboard`."""

from collections.abc import Mapping

import numpy as np

from experiments.leaderboard.analysis import gaps, over_sizes, tuned_reference
from experiments.leaderboard.config import BASE, RECOMMENDED, Config, Entry
from lvp.analysis.claims import ABOVE_ZERO, Claim, Question, refusal
from lvp.analysis.measurement import Measurement

SOURCE = "our result"


def claims(table, config: Config, context, *, entries: Mapping[str, Entry]) -> list[Claim]:
    """Whether the recommended entry stays near the references, and whether its mean gap is below that of the others."""
    by_entry = gaps(table, config, entries)
    if RECOMMENDED not in by_entry:
        return []
    reason = refusal(config.judging_seeds, config.selecting_seeds)
    tuned = {name: tuned_reference(table, config, size) for name, size in config.sizes.items() if name != BASE}
    flagged = ", ".join(name for name, best in tuned.items() if best is not None and best.at_edge)
    seeds = f"t interval over {len(config.judging_seeds)} judging seeds"
    if flagged:
        seeds += f"; the references of these sizes lie at the edge of their grid: {flagged}"
    near = Question(
        statement=f"tuned at the base only, {RECOMMENDED} loses at most {config.tolerance:.0%} at every held-out size",
        source=SOURCE,
        paper_value=None,
        claimed=(-np.inf, config.tolerance),
        note=f"largest relative gap to the references over {len(tuned)} sizes; {seeds}",
    )
    answers = [near.answer(over_sizes(by_entry[RECOMMENDED])["worst"], context, reason=reason)]
    of_recommended = np.array([by_entry[RECOMMENDED][size] for size in tuned])
    for name in by_entry:
        if name == RECOMMENDED:
            continue
        question = Question(
            statement=f"tuned at the base only, {RECOMMENDED} loses less than {name} at the held-out sizes",
            source=SOURCE,
            paper_value=None,
            claimed=ABOVE_ZERO,
            note=f"difference of the mean relative gaps to the references; {seeds}",
        )
        with np.errstate(invalid="ignore"):
            differences = (np.array([by_entry[name][size] for size in tuned]) - of_recommended).mean(axis=0)
        answers.append(question.answer(Measurement.over_seeds(differences), context, reason=reason))
    return answers
