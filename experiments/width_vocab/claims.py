"""The claims of `width_vocab`: figure 3 of Hayou & Liu 2025."""

import numpy as np

from experiments.width_vocab.analysis import optima, transfer_gap
from experiments.width_vocab.config import READINGS, Config
from lvp.analysis.claims import Claim, Question
from lvp.analysis.measurement import Measurement

SOURCE = "Hayou & Liu 2025, figure 3"


def claims(table, config: Config, context) -> list[Claim]:
    """Whether the exponent is −1/2 and not 0 or −1, whether it is below 0, and whether the √d rule is near-optimal.

    The claims concern the first reading of `config.token_rows`.
    """
    token_rows = config.token_rows[0]
    reading = READINGS[token_rows]
    _, fit = optima(table, config, token_rows)
    exponent = Measurement(fit.slope, fit.interval)
    resolved = f"{fit.num_points} of {len(config.widths)} widths resolved"
    half = Question(
        statement=f"{reading}: the best embedding learning rate falls as width^(−1/2), not as width^0 or width^(−1)",
        source=SOURCE,
        paper_value=-0.5,
        claimed=-0.5,
        rivals=(0.0, -1.0),
        note=resolved,
    )
    falls = Question(
        statement=f"{reading}: the best embedding learning rate falls with width (exponent below 0)",
        source=SOURCE,
        paper_value="< 0",
        claimed=(-np.inf, 0.0),
        note=resolved,
    )
    near_optimal = Question(
        statement=f"{reading}: a rate tuned at the smallest width and moved by d^(−1/2) is near-optimal: its train "
        f"loss is within {config.tolerance:.0%} of the best at every width",
        source=SOURCE,
        paper_value=f"≤ {config.tolerance}",
        claimed=(-np.inf, config.tolerance),
        note="largest relative excess over the widths; t interval over seeds",
    )
    return [
        half.answer(exponent, context),
        falls.answer(exponent, context),
        near_optimal.answer(transfer_gap(table, config, token_rows), context),
    ]
