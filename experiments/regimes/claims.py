"""The claims of `regimes`."""

import numpy as np

from experiments.regimes.analysis import gaps, optima, powers
from experiments.regimes.config import RULES, Config
from lvp import analysis
from lvp.analysis.claims import Claim, judge
from lvp.analysis.power_laws import with_interval


def claims(table, config: Config, context) -> list[Claim]:
    """The powers of width and vocabulary; does LVP transfer better than SP and μP?"""
    best, fit = optima(table, config)
    every = powers(config, best, include_flagged=True)
    shared, found, made = dict(context), gaps(table, config), []
    for name, statement, paper_value, claimed, rivals in (
        (
            "width",
            "at fixed vocabulary the best embedding learning rate falls as width^(−1/2), not as width^0 or width^(−1)",
            -0.5,
            -0.5,
            (0.0, -1.0),
        ),
        (
            "vocab",
            "at fixed width the best embedding learning rate does not move with the vocabulary (its power is within "
            "0.1 of 0)",
            0.0,
            (-0.1, 0.1),
            (),
        ),
    ):
        verdicts = [judge(*f.power(name), claimed=claimed, rivals=rivals) for f in (fit, every)]
        made.append(
            Claim(
                statement=statement,
                source="Hayou & Liu 2025, table 2",
                paper_value=paper_value,
                value=fit.powers[name],
                interval=fit.intervals[name],
                verdict=verdicts[0] if verdicts[0] == verdicts[1] else "unresolved",
                note=f"{fit.num_points} of {len(best)} cells resolved; with the flagged ones, which must not change "
                f"the verdict, {with_interval(*every.power(name))}",
                **shared,
            )
        )
    for rival in ("sp", "mup", "interpolated"):
        with np.errstate(invalid="ignore"):  # where both diverged, there is no difference
            by_seed = (found[rival] - found["lvp"]).mean(axis=0)
            value, interval = float(by_seed.mean()), analysis.t_interval(by_seed)
        made.append(
            Claim(
                statement=f"tuned at the smallest cell only, LVP loses less than {RULES[rival]} at the others",
                source="Hayou & Liu 2025, section 3",
                paper_value="> 0",
                value=value,
                interval=interval,
                verdict=judge(value, interval, claimed=(0.0, np.inf)),
                note="difference of the mean relative gaps to each cell's best known loss, the rules' own levels "
                "included; t interval over seeds",
                **shared,
            )
        )
    return made
