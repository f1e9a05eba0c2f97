"""Groups that tune one number: the selecting seeds choose its value, and the judging seeds train at it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from lvp.analysis.tuned import Tuned, select
from lvp.experiments.common.decoder_runs import TunedRuns
from lvp.experiments.common.tables import finished_by_seed, run_columns
from lvp.training import Run

LOSS = "valid_bits_per_byte"
RunAt = Callable[[float, int], Run]  # (value, seed) → the run of a group


class TunedGroup(NamedTuple):
    """The losses of a group and the value that the selecting seeds choose."""

    label: str
    losses: np.ndarray  # validation losses [tuned values, selecting seeds] in bits per byte; NaN unless finished
    value: float | None  # with the least mean loss; None if no value finished with all selecting seeds
    at_edge: bool  # the value is the first or last of its grid, so that a better value may lie beyond
    judged: Tuned  # the losses of the judging seeds at the value; NaN without a value


def tuned_group(label: str, rows, config: TunedRuns, values: Sequence[float], run: RunAt) -> TunedGroup:
    """The losses of a group at every value, and at the best value.

    Args:
      rows: of the group's setting. values: of the number that the group tunes.
    """
    losses = np.array([_losses(rows, run(value, config.seeds[0]), config.selecting_seeds) for value in values])
    selected = select(losses)
    if selected is None:
        return TunedGroup(label, losses, None, False, Tuned(np.full(len(config.judging_seeds), np.nan)))
    value = values[selected.best]
    of_judges = _losses(rows, run(value, config.seeds[0]), config.judging_seeds)
    return TunedGroup(label, losses, value, selected.at_edge, Tuned(of_judges, selected.regret))


def _losses(rows, run: Run, seeds: Sequence[int]) -> np.ndarray:
    """Validation losses [seeds] of the runs that differ from `run` in the seed only; NaN for a missing or diverged
    run."""
    columns = run_columns(run)
    rows = rows.filter(["run.seed", "status", LOSS, *columns])  # the full table is slow to copy
    return finished_by_seed(rows, columns, seeds)[LOSS].to_numpy(float)


def judging_runs(best: TunedGroup, config: TunedRuns, run: RunAt) -> list[Run]:
    """The runs of the judging seeds at the chosen value; empty without one."""
    return [] if best.value is None else [run(best.value, seed) for seed in config.judging_seeds]
