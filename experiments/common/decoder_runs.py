"""What every experiment that trains the decoder settles, and how its table is read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.common.checks import check_seeds
from lvp.analysis import Optimum, Slope
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig
from lvp.training import Cell, DataConfig, Lane, OptimizerConfig, check_positive
from lvp.training.records import flatten

EMBEDDING = "lane.learning_rates.embedding"
# A lane without its seed, by the columns of the table. Positions have no parameters here, and gains start at one.
MATRICES = ("embedding", "hidden", "output")
LANE = [*(f"lane.learning_rates.{r}" for r in MATRICES), *(f"lane.init_std.{r}" for r in MATRICES)]


def geometric(low: float, high: float, count: int) -> tuple[float, ...]:
    """`count` rates from low to high at equal ratios, to 4 digits (they are names as much as numbers)."""
    return tuple(float(f"{x:.4g}") for x in np.geomspace(low, high, count))


@dataclass(frozen=True)
class DecoderRuns:
    """Defaults are those of Hayou & Liu 2025 (paper A), whose sections are named; the rest is ours, and says why."""

    corpus: str = "wikitext2"  # C.1, C.2
    slice_bytes: int | None = None  # the whole corpus: about 186 epochs at m 2048, 288 at 32768
    valid_bytes: int | None = None
    seeds: tuple[int, ...] = (0, 1, 2)  # C.2: 3 seeds
    layers: int = 2  # C.1
    head_dim: int | None = None  # C.1: 64; None is 64 where it divides the width, else the largest fit below
    mlp_factor: int = 4  # not stated ("up/GeLU/down"): the usual expansion
    context: int = 256  # C.1
    batch: int = 256  # C.1
    norm: str = "layer"  # not stated: pre-norm LayerNorm as in the paper's 1B model (Table 3)
    position_amplitude: float = 1.0  # not stated: the encoding of Vaswani et al. as it is, though it drowns σ_E
    b1: float = 0.9  # Adam's constants are not stated: optax's and PyTorch's defaults
    b2: float = 0.999
    eps: float = 1e-8
    dtype: str = "float32"  # not stated; compute dtype, parameters are float32
    final_fraction: float = 0.1  # not stated which train loss: the mean over this last part of the steps

    def __post_init__(self):
        check_seeds(self, "seeds")
        check_positive("eps", self.eps)
        for name in ("position_amplitude", "b1", "b2"):
            check_positive(name, getattr(self, name), zero=True)
        if max(self.b1, self.b2) >= 1:
            raise InputError(f"b1 and b2 must be below 1, got {self.b1} and {self.b2}")

    @property
    def adam(self) -> OptimizerConfig:
        return OptimizerConfig("adam", {"b1": self.b1, "b2": self.b2, "eps": self.eps})

    def cell(
        self,
        width: int,
        vocab: int,
        steps: int,
        optimizer: OptimizerConfig | None = None,
        measured_steps: tuple[int, ...] = (),
        training: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        **model: Any,
    ) -> Cell:
        """The cell of one shape; Adam unless another optimizer is given. `training`: more of `Cell`; `data`: of
        `DataConfig`; `model`: of `DecoderConfig`."""
        names = ("layers", "context", "head_dim", "mlp_factor", "norm", "dtype", "position_amplitude")
        return Cell(
            model=DecoderConfig(vocab=vocab, width=width, **({k: getattr(self, k) for k in names} | model)),
            data=DataConfig(self.corpus, self.slice_bytes, self.valid_bytes, **(data or {})),
            batch=self.batch,
            steps=steps,
            optimizer=optimizer or self.adam,
            final_fraction=self.final_fraction,
            measured_steps=measured_steps,
            **(training or {}),
        )


def where(table, values: Mapping[str, Any]):
    """The rows of a table whose columns hold these values; none where it lacks a column."""
    held = np.full(len(table), set(values) <= set(table.columns))
    for column, value in values.items() if held.any() else ():
        held &= np.array([_equal(x, value) for x in table[column]])
    return table[held]


def _equal(recorded: Any, value: Any) -> bool:
    """Whether a recorded value is this one; numbers up to rounding (0.2 / 48 and 0.2 · (1 / 48) differ)."""
    if isinstance(value, float) and isinstance(recorded, float):
        return math.isclose(recorded, value, rel_tol=1e-9)
    return bool(recorded == value)


def of_optimizer(table, cell: Cell):
    """The rows of a table whose cells have this optimizer, static options and all: an option that a cell does not give
    is NaN in the table of cells some of which do."""
    options = {f"cell.optimizer.options.{k}": v for k, v in flatten(cell.optimizer.options).items()}
    found = where(table, {"cell.optimizer.kind": cell.optimizer.kind} | options)
    others = [c for c in table.columns if c.startswith("cell.optimizer.options.") and c not in options]
    return found[found[others].isna().all(axis=1)]


def grid(rows, rates: Sequence[float], seeds: Sequence[int], loss: str = "train_loss") -> np.ndarray:
    """A column of losses [seeds, rates] over the embedding rate, by default the final train loss in nats per token: NaN
    where a lane is missing, infinite where it diverged."""
    found = np.full((len(seeds), len(rates)), np.nan)
    for row in rows.to_dict("records"):
        if row[EMBEDDING] in rates and row["lane.seed"] in seeds:
            at = seeds.index(row["lane.seed"]), rates.index(row[EMBEDDING])
            found[at] = row[loss] if row["status"] == "finished" else np.inf
    return found


def setting_of(lane: Lane) -> dict[str, float]:
    """A lane without its seed, by the columns of the table."""
    numbers = (lane.learning_rates, lane.init_std)
    return dict(zip(LANE, (given[role] for given in numbers for role in MATRICES), strict=True))


def best_known(rows, seeds: Sequence[int], loss: str = "train_loss") -> np.ndarray:
    """Of the rows of a cell, the losses [seeds] of the setting with the least mean over seeds, of those that finished
    with every seed; NaN without one."""
    # Where every lane diverged the column holds None alone and is no column of numbers.
    losses = rows.assign(loss=rows[loss].astype(float).where(rows["status"] == "finished", np.inf))
    by_seed = losses.pivot_table(index=LANE, columns="lane.seed", values="loss").reindex(columns=list(seeds)).to_numpy()
    by_seed = by_seed[np.isfinite(by_seed).all(axis=1)]
    return by_seed[by_seed.mean(axis=1).argmin()] if len(by_seed) else np.full(len(seeds), np.nan)


OPTIMUM_HEAD = f"{'best η_E':>10} {'95 % interval':>20} {'loss':>7}"


def optimum_row(best: Optimum) -> tuple[str, str]:
    """An optimum as tables have it under OPTIMUM_HEAD, and its flags."""
    interval = f"{best.interval[0]:.4g} … {best.interval[1]:.4g}"
    return f"{best.rate:>10.4g} {interval:>20} {best.loss:>7.3f}", ", ".join(best.flags) or "–"


def slope_line(slope: Slope, widths: Sequence[int]) -> str:
    """The power law of the optima in words."""
    low, high = slope.interval
    return (
        f"slope of ln(best η_E) over ln(width): {slope.slope:.2f}, 95 % interval {low:.2f} … {high:.2f}, from "
        f"{slope.num_points} of {len(widths)} widths"
    )
