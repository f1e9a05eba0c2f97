"""Reads an experiment's table of runs: rows by the values of columns, rows by seed, losses by seed and rate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from lvp.analysis import tuned
from lvp.errors import InputError
from lvp.training import Run, Setting
from lvp.training.records import flatten

EMBEDDING_RATE = "run.learning_rates.embedding"
HIDDEN_RATE = "run.learning_rates.hidden"
# The decoders of these sweeps have no trained positions, and vectors start at fixed values.
MATRICES = ("embedding", "hidden", "output")
RUN_COLUMNS = [*(f"run.learning_rates.{r}" for r in MATRICES), *(f"run.init_std.{r}" for r in MATRICES)]


def select(table, columns: Mapping[str, Any]):
    """The rows of a table whose columns hold the given values; no row if the table lacks one of the columns."""
    return table[_matches(table, columns)]


def _matches(table, columns: Mapping[str, Any]) -> np.ndarray:
    """Mask [rows]: True for the rows that have the given values in the given columns."""
    chosen = np.full(len(table), set(columns) <= set(table.columns))
    for column, value in columns.items() if chosen.any() else ():
        chosen &= _equal(table[column].to_numpy(), value)
    return chosen


def _equal(recorded: np.ndarray, value: Any) -> np.ndarray:
    """Mask [rows]: the column holds the value. Floats are equal up to rounding (0.2 / 48 and 0.2 · (1 / 48) differ)."""
    if isinstance(value, float) and recorded.dtype.kind == "f":
        return np.abs(recorded - value) <= 1e-9 * abs(value)  # np.isclose takes ten times as long
    if isinstance(value, str | int | None):
        return np.asarray(recorded == value, bool)
    return np.array([_same(each, value) for each in recorded.tolist()], bool)


def _same(recorded: Any, value: Any) -> bool:
    if isinstance(value, float) and isinstance(recorded, float):
        return math.isclose(recorded, value, rel_tol=1e-9)
    return bool(recorded == value)


def with_optimizer(table, setting: Setting):
    """The rows of a table whose settings have the optimizer of `setting`, with the same options.

    An option that some settings lack is NaN in their rows.
    """
    prefix = "setting.optimizer.options."
    options = {f"{prefix}{name}": value for name, value in flatten(setting.optimizer.options).items()}
    chosen = _matches(table, {"setting.optimizer.kind": setting.optimizer.kind} | options)
    for column in table.columns:
        if column.startswith(prefix) and column not in options:
            chosen &= table[column].isna().to_numpy()
    return table[chosen]


def with_fields(table, prefix: str, configured: Any, names: Sequence[str]):
    """The rows of a table that have the values of the dataclass `configured` in the fields `names`.

    Records leave out some fields at their defaults. A missing value therefore means the default.

    Args:
      prefix: of the columns, such as "setting.model" or "run".
    """
    chosen = np.ones(len(table), bool)
    for field in (field for field in fields(configured) if field.name in names):
        column, wanted = f"{prefix}.{field.name}", getattr(configured, field.name)
        by_default = _same(field.default, wanted)
        if column in table:
            recorded = table[column].to_numpy()
            chosen &= np.where(recorded != recorded, by_default, _equal(recorded, wanted))
        else:
            chosen &= by_default
    return table[chosen]


HORIZON_LOSS = "horizon_loss"  # the column of `with_horizon_loss`


def with_horizon_loss(rows, steps: int, final_fraction: float):
    """The rows with the column `HORIZON_LOSS`: the final train loss of the first `steps` steps, from the curve.

    It is the mean of the curve's points in the last `final_fraction` of these steps: NaN without a point, infinite for
    a run that diverged there. At constant rates the first part of a run is a shorter run.
    """
    curves = zip(rows["curve_steps"], rows["curve_losses"], strict=True) if len(rows) else ()
    return rows.assign(**{HORIZON_LOSS: [_loss_at(steps, final_fraction, *curve) for curve in curves]})


def _loss_at(steps: int, final_fraction: float, curve_steps, curve_losses) -> float:
    first = steps * (1 - final_fraction)
    parts = [loss for at, loss in zip(curve_steps, curve_losses, strict=True) if first < at <= steps]
    if not parts:
        return np.nan
    return np.inf if None in parts else float(np.mean(parts))


def finished_by_seed(table, columns: Mapping[str, Any], seeds: Sequence[int]):
    """One row per seed, of the finished runs whose columns hold the given values; NaN in the row of any other seed."""
    found = select(table, {**columns, "status": "finished"})
    return found.set_index(found["run.seed"].to_numpy()).reindex(list(seeds))


def lists_by_row(rows, column: str, shape: tuple[int, ...]) -> np.ndarray:
    """A column of lists as an array [rows, *shape]; NaN in a row without a list."""
    empty = np.full(shape, np.nan)
    lists = rows[column] if column in rows else [None] * len(rows)
    return np.array([x if isinstance(x, list) else empty for x in lists], float).reshape(len(rows), *shape)


def mean_of_finite(values: np.ndarray) -> float:
    """The mean over the finite values, which leaves out diverged seeds; NaN if no value is finite."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else np.nan


def losses_by_seed_and_rate(
    rows,
    rates: Sequence[float],
    seeds: Sequence[int],
    loss: str = "train_loss",
    rate: str = EMBEDDING_RATE,
    *,
    partial: bool = False,
) -> np.ndarray:
    """Losses [seeds, rates] over a learning rate: NaN for a missing run, infinite for a diverged one.

    Args:
      rows: rows of one setting that differ in seed and rate only.
      loss: the column of losses; the default is the final train loss in nats per token.
      rate: the column of rates; the default is the embedding's.
      partial: whether the rows may have other rates only, as in an unfinished sweep that adds rates.

    Raises:
      InputError: there are rows, none has one of the rates, and `partial` is False.
    """
    if not partial and len(rows) and not (found := {*rows[rate]}) & {*rates}:
        tried, recorded = (", ".join(f"{x:.4g}" for x in sorted(values)) for values in (rates, found))
        raise InputError(f"no run has one of the rates {tried} in the column {rate}; the runs have {recorded}")
    losses = np.full((len(seeds), len(rates)), np.nan)
    columns = (rows[name].tolist() for name in (rate, "run.seed", "status", loss))
    for at, seed, status, value in zip(*columns, strict=True) if len(rows) else ():
        if at in rates and seed in seeds:
            losses[seeds.index(seed), rates.index(at)] = value if status == "finished" else np.inf
    return losses


def run_columns(run: Run) -> dict[str, float]:
    """The rates and init stds of a run by column of the table; the seed is left out."""
    numbers = (run.learning_rates, run.init_std)
    return dict(zip(RUN_COLUMNS, (by_role[role] for by_role in numbers for role in MATRICES), strict=True))


class BestSetting(NamedTuple):
    """The setting of `best_setting`."""

    columns: Mapping[str, float]  # RUN_COLUMNS of its runs; empty if no setting finished with all seeds
    losses: np.ndarray  # [seeds]; NaN if no setting finished with all seeds
    regret: float = 0.0  # the amount by which another setting may be better


def best_setting(
    rows, seeds: Sequence[int], loss: str = "train_loss", *, selecting: Sequence[int] | None = None
) -> BestSetting:
    """The setting with the least mean loss over the selecting seeds, among those that finished with all seeds.

    Args:
      rows: rows of one setting. A setting is a combination of rates and init stds.
      selecting: the seeds that choose the setting; None is `seeds`.
    """
    selecting = seeds if selecting is None else selecting
    # If every run diverged, the column holds only None and has no numeric type.
    losses = rows.assign(loss=rows[loss].astype(float).where(rows["status"] == "finished", np.inf))
    by_setting = losses.pivot_table(index=RUN_COLUMNS, columns="run.seed", values="loss")
    by_setting = by_setting.reindex(columns=list(dict.fromkeys([*selecting, *seeds])))
    finished = by_setting[np.isfinite(by_setting).all(axis=1)]
    selected = tuned.select(finished[list(selecting)].to_numpy())
    if selected is None:
        return BestSetting({}, np.full(len(seeds), np.nan))
    columns = dict(zip(RUN_COLUMNS, finished.index[selected.best], strict=True))
    return BestSetting(columns, finished[list(seeds)].to_numpy()[selected.best], selected.regret)
