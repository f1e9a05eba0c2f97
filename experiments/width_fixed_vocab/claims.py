"""The claims of `width_fixed_vocab`."""

import numpy as np

from experiments.width_fixed_vocab.analysis import gaps, near_optimal, optima
from experiments.width_fixed_vocab.config import Config
from lvp.analysis.claims import Claim, Question, refusal
from lvp.analysis.measurement import Measurement

SOURCE = "Hayou & Liu 2025, figure 1"


def claims(table, config: Config, context) -> list[Claim]:
    """Whether η_E falls with width but more slowly than 1/d, and whether equal settings are near-optimal."""
    _, fit = optima(table, config, selecting=config.selecting_seeds, judging=config.judging_seeds)
    judges = f"{len(config.judging_seeds)} judging seeds"
    falls = Question(
        statement="at a fixed vocabulary the best embedding learning rate falls with width, more slowly than 1/d "
        "(exponent between −1 and 0)",
        source=SOURCE,
        paper_value="−1 < exponent < 0",
        claimed=(-1.0, 0.0),
        note=f"{fit.num_points} of {len(config.widths)} widths resolved; η_H selected by the other seeds; {judges}",
    )
    by_width = (
        ", ".join(f"{100 * gap:.1f}" for gap in gaps(table, config).mean(axis=1)).replace("nan", "–").replace("-", "−")
    )
    equal = Question(
        statement="the same init and rate for hidden and output matrices is near-optimal: within "
        f"{config.tolerance:.0%} of the best setting tried, on average over the widths",
        source=SOURCE,
        paper_value="optimal, generally",
        claimed=(-np.inf, config.tolerance),
        note=f"relative excess of the final train loss, mean over widths; by width in %: {by_width}; t interval over "
        f"{judges}; "
        + ("one factor changed at a time, at the best η_H" if config.design == "star" else "all changed together"),
    )
    reason = refusal(config.judging_seeds, config.selecting_seeds)
    return [
        falls.answer(Measurement(fit.slope, fit.interval), context, reason=reason),
        equal.answer(near_optimal(table, config), context, reason=reason),
    ]
