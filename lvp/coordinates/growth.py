"""The coordinate check of a model, given as init and apply: how the sizes of activations grow with width."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lvp.analysis.slopes import Slope, slope
from lvp.coordinates import report
from lvp.coordinates.quantities import QUANTITIES
from lvp.errors import InputError
from lvp.parametrization import check_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARGIN = 0.1
LEAST_WIDTHS = 3


@dataclass(frozen=True)
class Expected:
    """The powers of width that a rule predicts for an activation."""

    low: float  # smallest power
    high: float  # largest power
    why: str  # the reason, which the report prints


@dataclass(frozen=True)
class Growth:
    """The growth of one quantity of one activation with the width.

    Attributes:
      activation: its name.
      quantity: one of QUANTITIES, a mean absolute entry: of the activation at init ("initial"), of the activation after
        the steps ("final"), or of the difference of the two ("change").
      values: [widths, seeds], in the activation's unit.
      fit: `lvp.analysis.Slope` of ln value over ln width; widths with a value that is 0 or not finite are left out.
      expected: the expected powers; None if the rule predicts the power 0.
      margin: powers within ± margin are flat.
    """

    activation: str
    quantity: str
    values: np.ndarray
    fit: Slope
    expected: Expected | None = None
    margin: float = MARGIN

    @property
    def verdict(self) -> str:
        """The verdict on the power of width.

        "flat": the power's interval lies within ± margin. "grows": the interval is above 0 and the power is above the
        margin. "vanishes": the interval is below 0 and the power is below −margin. "zero": all values are 0.
        "diverged": a value is not finite. Otherwise "unresolved".
        """
        if not np.isfinite(self.values).all():
            return "diverged"
        if not self.values.any():
            return "zero"
        (low, high), power = self.fit.interval, self.fit.slope
        if -self.margin <= low and high <= self.margin:
            return "flat"
        if low > 0 and power > self.margin:
            return "grows"
        if high < 0 and power < -self.margin:
            return "vanishes"
        return "unresolved"

    @property
    def as_expected(self) -> bool:
        """True if the power's interval overlaps the expected powers, extended by the margin."""
        expected = self.expected or Expected(0.0, 0.0, "")
        low, high = self.fit.interval
        return bool(low <= expected.high + self.margin and high >= expected.low - self.margin)

    @property
    def alarm(self) -> bool:
        """True if the quantity diverged, or if it grows or vanishes and `expected` does not predict this."""
        moves = self.verdict in ("grows", "vanishes")
        return self.verdict == "diverged" or (moves and (self.expected is None or not self.as_expected))


@dataclass(frozen=True)
class Coordinates:
    """The result of `check`. `coordinates["logits", "change"]` is a `Growth`; `str(coordinates)` is a table."""

    widths: tuple[int, ...]  # ascending
    steps: int  # training steps
    seeds: int  # inits per width
    growths: tuple[Growth, ...]  # in the order of the activations, and of QUANTITIES
    title: str = ""  # of table and figure
    notes: tuple[str, ...] = field(default=())  # lines below the table

    def __getitem__(self, key: tuple[str, str]) -> Growth:
        for growth in self.growths:
            if (growth.activation, growth.quantity) == key:
                return growth
        raise InputError(
            f"no activation and quantity {key!r}; activations are {', '.join(self.activations)}, "
            f"and quantities {', '.join(dict.fromkeys(growth.quantity for growth in self.growths))}"
        )

    @property
    def activations(self) -> tuple[str, ...]:
        """The names of the activations, in order."""
        return tuple(dict.fromkeys(growth.activation for growth in self.growths))

    @property
    def alarms(self) -> tuple[Growth, ...]:
        """The growths with an alarm."""
        return tuple(growth for growth in self.growths if growth.alarm)

    def __str__(self) -> str:
        return report.text(self)

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON types; numbers that are not finite are None."""
        return report.as_dict(self)

    def figure(self) -> "Figure":
        """A matplotlib Figure of sizes over width, log-log, with a row per quantity.

        `lvp.analysis.figure_style.save_as` writes it.
        """
        return report.figure(self)


def check(
    init: Callable[[jax.Array, int], Any],
    apply: Callable[[Any, Any, int], Mapping[str, jax.Array]],
    widths: Sequence[int],
    *,
    loss: Callable[[Mapping[str, jax.Array], Any], jax.Array],
    optimizer: Callable[[int], optax.GradientTransformation],
    batch: Any,
    steps: int = 4,
    seeds: int = 4,
    expected: Mapping[tuple[str, str], Expected] | None = None,
    margin: float = MARGIN,
    title: str = "",
    notes: Sequence[str] = (),
) -> Coordinates:
    """Trains a few steps at several widths and fits a power of width to every activation.

    `init`, `apply` and `loss` are traced. Each width has one compiled program. It trains the seeds one after the other,
    each for `steps` steps on the same batch.

    Args:
      init: (key, width) → params, any pytree, drawn with the parametrization's init stds.
      apply: (params, batch, width) → activations, name → non-empty array of any shape. Names such as "block/mlp" with
        the same part before the first "/" share a column of the figure.
      widths: three or more different widths, in any order.
      loss: (activations, batch) → scalar, which the optimizer minimises.
      optimizer: width → optax transformation, with the parametrization's rates at that width (`lvp.optim.parametrized`
        with a `Table`).
      batch: the argument of apply and loss, any pytree of arrays; or a function width → batch.
      steps: training steps, 1 or more.
      seeds: inits per width, 1 or more. With one seed, the intervals contain the scatter between widths only.
      expected: (activation, quantity) → `Expected`, if the rule predicts a power other than 0.
      margin: powers of width within ± margin count as flat.
      title: of the table and the figure.
      notes: lines below the table.

    Returns:
      `Coordinates`; each `Growth.values` is [widths, seeds].

    Raises:
      InputError: widths, steps, seeds or margin is out of range; `apply` returns no activations, empty activations, or
        different names at different widths; an activation or quantity of `expected` does not exist.
    """
    widths = sorted({check_whole("width", width, 1) for width in widths})
    if len(widths) < LEAST_WIDTHS:
        raise InputError(f"widths must be at least {LEAST_WIDTHS} different numbers, for an interval; got {widths}")
    steps, seeds = check_whole("steps", steps, 1), check_whole("seeds", seeds, 1)
    if not 0 < margin < 1:
        raise InputError(f"margin must lie between 0 and 1, got {margin!r}")
    measured = []
    for width in widths:
        data = batch(width) if callable(batch) else batch
        measured.append(_sizes(init, apply, loss, optimizer(width), data, width, steps, seeds))
        _check_names(width, measured, expected or {})
    growths = []
    for name in measured[0]:
        for index, quantity in enumerate(QUANTITIES):
            values = np.stack([sizes[name][:, index] for sizes in measured])
            wanted = (expected or {}).get((name, quantity))
            growths.append(Growth(name, quantity, values, _fit(widths, values), wanted, margin))
    return Coordinates(tuple(widths), steps, seeds, tuple(growths), title, tuple(notes))


def _check_names(width: int, measured: list[dict], expected: Mapping) -> None:
    if set(measured[-1]) != set(measured[0]):
        other = ", ".join(sorted(map(str, set(measured[-1]) ^ set(measured[0]))))
        raise InputError(
            f"apply must return the same activation names at all widths; width {width} and the smallest width differ "
            f"in {other}"
        )
    for name, quantity in expected:
        if name not in measured[0] or quantity not in QUANTITIES:
            raise InputError(f"expected has {(name, quantity)!r}, which is not measured: remove it")


def _sizes(init, apply, loss, transform, batch, width: int, steps: int, seeds: int) -> dict[str, np.ndarray]:
    """Name → [seeds, quantities]: mean absolute entries at init, after the steps, and of their difference."""

    order: list[str] = []  # the names as `apply` orders them; jax sorts the keys of a returned dict

    def of_loss(params, batch):
        activations = apply(params, batch, width)
        _check_activations(activations)
        order[:] = activations
        return loss(activations, batch), activations

    def run(key, batch):
        params = init(key, width)
        shapes = jax.eval_shape(lambda p, b: of_loss(p, b)[1], params, batch)

        # Iteration i measures the activations after i updates. Iteration 0 therefore measures the init, and the model
        # is compiled once. The update of the last iteration is not used.
        def step(carry, index):
            params, state, first = carry
            gradients, activations = jax.grad(of_loss, has_aux=True)(params, batch)
            first = jax.tree.map(lambda x, old: jnp.where(index == 0, x, old), activations, first)
            sizes = {name: jnp.stack([_size(x), _size(x - first[name])]) for name, x in activations.items()}
            updates, state = transform.update(gradients, state, params)
            return (optax.apply_updates(params, updates), state, first), sizes

        first = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        _, sizes = jax.lax.scan(step, (params, transform.init(params), first), jnp.arange(steps + 1))
        return {name: jnp.stack([x[0, 0], x[-1, 0], x[-1, 1]]) for name, x in sizes.items()}

    # A separate key for every width: with a shared key, a larger array can begin with the entries of a smaller array.
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), width), seeds)
    seed_by_seed = lambda keys, batch: jax.lax.map(lambda key: run(key, batch), keys)  # noqa: E731
    # Compilation dominates the time: LLVM's expensive optimizations do not pay off in a few steps.
    activations = jax.jit(seed_by_seed, compiler_options={"xla_backend_optimization_level": 1})(keys, batch)
    return {name: np.asarray(activations[name], np.float64) for name in order}


def _size(x):
    return jnp.mean(jnp.abs(x.astype(jnp.promote_types(x.dtype, jnp.float32))))


def _check_activations(activations) -> None:
    if not isinstance(activations, Mapping) or not activations:
        raise InputError(f"apply must return a dict of activations, name → array, got {type(activations).__name__}")
    for name, x in activations.items():
        has_numbers = hasattr(x, "shape") and x.size and jnp.issubdtype(x.dtype, jnp.number)
        if not isinstance(name, str) or not has_numbers:
            got = f"shape {x.shape}, dtype {x.dtype}" if hasattr(x, "shape") else type(x).__name__
            raise InputError(f"activation {name!r} must be a non-empty array of numbers, named by a string, got {got}")


def _fit(widths, values: np.ndarray) -> Slope:
    """The slope through the geometric means over seeds, with standard errors from the scatter of the seeds."""
    usable = (np.isfinite(values) & (values > 0)).all(axis=1)
    logs = np.log(np.where(usable[:, None], values, 1.0))
    means = np.where(usable, np.exp(logs.mean(axis=1)), np.nan)
    stds = logs.std(axis=1, ddof=1) / np.sqrt(values.shape[1]) if values.shape[1] > 1 else None
    return slope(widths, (means, stds))
