"""The claims of `representation_change`."""

import numpy as np

from experiments.representation_change import equation_nine
from experiments.representation_change.analysis import EARLY, LATE, SETTLED, exceeds, falls, readings, settled
from experiments.representation_change.config import ARMS, Config
from lvp import analysis
from lvp.analysis.claims import Claim, judge

PAPER = "Kosson et al. 2024, figure 4"


def claims(table, config: Config, context) -> list[Claim]:
    """Equation 9's, and figure 4's of the arms that were trained."""
    made = equation_nine.claims(table, context)
    for statement, paper_value, logs, values, claimed, note in _figure_4(table, config):
        interval = analysis.t_interval(values)
        value = float(np.mean(values)) if len(values) else None  # a seed that diverged is not left out
        if logs and value is not None:
            value, interval = np.exp(value), interval and tuple(np.exp(interval))
        verdict = judge(value, interval, claimed=claimed)
        parts = dict(statement=statement, source=PAPER, paper_value=paper_value, note=note)
        made.append(Claim(value=value, interval=interval, verdict=verdict, **parts, **dict(context)))
    return made


def _figure_4(table, config: Config):
    """Statement, paper's value, whether ours are logarithms, ours by seed, claimed region, note."""
    batch = f"B = {config.batch} sequences of {config.context} tokens"
    for name in config.arms:
        rows = readings(table, config, name)
        if ARMS[name].optimizer == "lion_ar":
            note = f"mean over the first {EARLY:.0%} of the steps over that of the last {1 - LATE:.0%}, hidden matrices"
            yield (
                f"the gradient's φ starts high and falls ({name})",
                "> 1",
                True,
                falls(rows, config),
                (1, np.inf),
                note,
            )
            note = f"part of training in which B > 1/φ, at least 0.9; {batch}; paper: 480 of 1024"
            statement = f"the batch exceeds 1/φ for nearly all of training ({name})"
            yield statement, "nearly 1", False, exceeds(rows, config), (0.9, np.inf), note
        note = f"mean cosine after the first {SETTLED:.0%} of the steps, hidden matrices as one vector"
        values = settled(rows, config, "alignment")
        yield f"gradient and momentum are negatively aligned ({name})", "< 0", False, values, (-np.inf, 0), note
        note = f"−⟨β m, (1−β) g⟩/‖(1−β) g‖² after the first {SETTLED:.0%} of the steps, within 0.25 and 0.75"
        values = settled(rows, config, "cancelled")
        yield f"momentum cancels about half of the gradient ({name})", 0.5, False, values, (0.25, 0.75), note
