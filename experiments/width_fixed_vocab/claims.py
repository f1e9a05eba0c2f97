"""The claims of `width_fixed_vocab`."""

import numpy as np

from experiments.width_fixed_vocab.analysis import near_optimal, optima
from experiments.width_fixed_vocab.config import Config
from lvp.analysis.claims import Claim, judge


def claims(table, config: Config, context) -> list[Claim]:
    """Does η_E fall with width, more slowly than 1/d; are equal hidden and output settings near-optimal?"""
    _, slope = optima(table, config)
    shared = dict(context) | {"source": "Hayou & Liu 2025, figure 1"}
    used = f"{slope.num_points} of {len(config.widths)} widths resolved"
    gap, interval = near_optimal(table, config)
    return [
        Claim(
            statement="at a fixed vocabulary the best embedding learning rate falls with width, more slowly than 1/d "
            "(exponent between −1 and 0)",
            paper_value="−1 < exponent < 0",
            value=slope.slope,
            interval=slope.interval,
            verdict=judge(slope.slope, slope.interval, claimed=(-1.0, 0.0)),
            note=used,
            **shared,
        ),
        Claim(
            statement="the same init and rate for hidden and output matrices (and the same init for the embedding) is "
            f"near-optimal: within {config.tolerance:.0%} of the best setting tried",
            paper_value=f"≤ {config.tolerance}",
            value=gap,
            interval=interval,
            verdict=judge(gap, interval, claimed=(-np.inf, config.tolerance)),
            note="relative excess of the final train loss, mean over widths with its t interval; "
            + ("one factor changed at a time, at the best η_H" if config.design == "star" else "all changed together"),
            **shared,
        ),
    ]
