"""The claims of Hayou & Liu 2025, figure 3."""

import numpy as np

from experiments.width_vocab.analysis import optima, transfer_gap
from experiments.width_vocab.config import READINGS, Config
from lvp.analysis.claims import Claim, judge


def claims(table, config: Config, context) -> list[Claim]:
    """Is the exponent −1/2 and not 0 or −1; does it differ from 0; is the √d-rule near-optimal. Judged for the first
    reading of `config.rows`."""
    rows = config.rows[0]
    _, slope = optima(table, config, rows)
    reading = READINGS[rows]
    used = f"{slope.num_points} of {len(config.widths)} widths resolved"
    gap, gap_range = transfer_gap(table, config, rows)
    shared = dict(context) | {"source": "Hayou & Liu 2025, figure 3"}
    return [
        Claim(
            statement=f"{reading}: the best embedding learning rate falls as width^(−1/2), not as width^0 or "
            "width^(−1)",
            paper_value=-0.5,
            value=slope.slope,
            interval=slope.interval,
            verdict=judge(slope.slope, slope.interval, claimed=-0.5, rivals=(0.0, -1.0)),
            note=used,
            **shared,
        ),
        Claim(
            statement=f"{reading}: the best embedding learning rate falls with width (exponent below 0)",
            paper_value="< 0",
            value=slope.slope,
            interval=slope.interval,
            verdict=judge(slope.slope, slope.interval, claimed=(-np.inf, 0.0), rivals=()),
            note=used,
            **shared,
        ),
        Claim(
            statement=f"{reading}: a rate tuned at the smallest width and moved by d^(−1/2) is near-optimal: its train "
            f"loss is within {config.tolerance:.0%} of the best at every width",
            paper_value=f"≤ {config.tolerance}",
            value=gap,
            interval=gap_range,
            verdict=judge(gap, gap_range, claimed=(-np.inf, config.tolerance), rivals=()),
            note="largest relative excess over the widths; t interval over seeds",
            **shared,
        ),
    ]
