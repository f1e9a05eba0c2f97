"""One cell's training as one compiled program, and the loop that drives it.

A **cell** fixes everything that must be compiled together; a **lane** is the numbers that are traced: learning rates,
init scales, seed. The program initialises a lane at step 0, trains it to any given step and evaluates it at the last
one, so that a cell costs one compilation however many lanes, chunks and resumptions it has.
"""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lvp import measures, optim, roles
from lvp.data import batches
from lvp.errors import InputError
from lvp.losses import next_token_loss
from lvp.models.decoder import DecoderConfig, decoder
from lvp.outcomes import Outcome, outcome

OPTIMIZERS: Mapping[str, Callable] = {
    "adam": optax.adam,
    "coupled_adam": optim.coupled_adam,
    "lion_a": optim.lion_a,
    "sgd": optax.sgd,
    "sign_sgd": optim.sign_sgd,
}


@dataclass(frozen=True)
class OptimizerConfig:
    """What is static about an optimizer: a key of `OPTIMIZERS` and its keyword arguments."""

    kind: str = "adam"
    options: Mapping[str, Any] = field(default_factory=lambda: {"b1": 0.9, "b2": 0.999, "eps": 1e-8})

    def __post_init__(self):
        if self.kind not in OPTIMIZERS:
            raise InputError(f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.kind!r}")

    @property
    def b2(self) -> float | None:
        """Decay of the second moment: as chosen, else the factory's own; None for an optimizer without one."""
        parameters = inspect.signature(OPTIMIZERS[self.kind]).parameters
        return self.options.get("b2", parameters["b2"].default) if "b2" in parameters else None


@dataclass(frozen=True)
class DataConfig:
    """What text a cell sees. `slice_bytes` and `valid_bytes` None take the whole split."""

    corpus: str
    slice_bytes: int | None = None
    valid_bytes: int | None = None


@dataclass(frozen=True)
class Cell:
    """Everything that is compiled together. A step sees `batch` rows of `model.context` tokens.

    `final_fraction`: the final train loss is the mean over this last part of the steps. `measured_steps`: the steps,
    from 0, whose measures (`lvp.measures.of_step`) go into the outcome; other steps cost nothing.
    """

    model: DecoderConfig
    data: DataConfig
    batch: int
    steps: int
    optimizer: OptimizerConfig = OptimizerConfig()
    final_fraction: float = 0.1
    measured_steps: tuple[int, ...] = ()

    def __post_init__(self):
        for name in ("batch", "steps"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.final_fraction <= 1:
            raise InputError(f"final_fraction must lie in (0, 1], got {self.final_fraction}")
        chosen = self.measured_steps
        if list(chosen) != sorted(set(chosen)) or (chosen and not 0 <= chosen[0] <= chosen[-1] < self.steps):
            raise InputError(f"measured_steps must increase and lie below steps ({self.steps}), got {chosen}")

    @property
    def tokens_per_step(self) -> int:
        return self.batch * self.model.context

    @property
    def vocab(self) -> int:
        return self.model.vocab

    @property
    def num_params(self) -> int:
        return self.model.num_params

    @property
    def tokens_per_lane(self) -> int:
        return self.steps * self.tokens_per_step

    @property
    def flops_per_lane(self) -> float:
        """Model FLOPs of one lane's training (evaluation left out)."""
        return self.tokens_per_lane * self.model.flops_per_token()

    @property
    def final_steps(self) -> int:
        return max(1, round(self.final_fraction * self.steps))


@dataclass(frozen=True)
class Lane:
    """The traced numbers of one run: a learning rate and an init standard deviation by role, and the seed of init and
    data order. Vectors start at one (gains) or zero (biases), whatever `init_std` says of them."""

    learning_rates: Mapping[str, float]
    init_std: Mapping[str, float]
    seed: int

    def __post_init__(self):
        for role, rate in self.learning_rates.items():
            check_positive(f"learning rate of role {role}", rate)
        for role, std in self.init_std.items():
            check_positive(f"init std of role {role}", std, zero=True)
        for name, given in (("learning_rates", self.learning_rates), ("init_std", self.init_std)):
            if set(given) != set(roles.ROLES):
                raise InputError(f"{name} must name the roles {', '.join(roles.ROLES)}; got {', '.join(given)}")

    def arrays(self) -> dict:
        """The lane as the program takes it: float32 scalars and a uint32 seed, on the host."""
        return {
            "learning_rates": {role: np.float32(x) for role, x in self.learning_rates.items()},
            "init_std": {role: np.float32(x) for role, x in self.init_std.items()},
            "seed": np.uint32(self.seed),
        }


def check_positive(what: str, value: Any, *, zero: bool = False) -> float:
    """`value` as a float, or an InputError that names it: not a number, NaN, infinite, negative or (unless allowed)
    zero."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be a number, got {value!r}") from None
    if not np.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise InputError(f"{what} must be finite and {'not negative' if zero else 'above zero'}, got {value!r}")
    return number


def check_lengths(cell: Cell, train: int, valid: int) -> None:
    """InputError where so many tokens of training and validation text are too few for the cell."""
    if train < cell.model.context + 1:
        raise InputError(f"the training slice holds {train} tokens, fewer than one row of {cell.model.context} + 1")
    if valid < 2:
        raise InputError(f"the validation text holds {valid} tokens; it needs at least 2")


class TrainingData(NamedTuple):
    """Tokens on the host or the device. train [n] int32; valid [k, batch, context + 1] int32 windows, in groups of
    `batch`, with the weight of every prediction, valid_weights [k, batch, context]."""

    train: Any
    valid: Any
    valid_weights: Any

    @classmethod
    def of(cls, cell: Cell, train: np.ndarray, valid: np.ndarray) -> "TrainingData":
        """Lays the two token arrays out for `cell`; the last group of validation windows is padded with weight 0."""
        check_lengths(cell, len(train), len(valid))
        context = cell.model.context
        windows, weights = batches.evaluation_windows(valid, context)
        pad = -len(windows) % cell.batch
        windows = np.pad(windows, [(0, pad), (0, 0)]).reshape(-1, cell.batch, context + 1)
        weights = np.pad(weights, [(0, pad), (0, 0)]).reshape(-1, cell.batch, context)
        return cls(np.asarray(train, np.int32), windows.astype(np.int32), weights.astype(np.float32))


class Program:
    """The compiled program of a cell for packs of `lanes` lanes (one lane is not batched at all).

    States are pytrees of arrays: `params`, `opt`, `key` (the lane's data RNG), `losses` [steps], `diverged` (step of
    the first loss that was not finite, else −1), `valid_loss` (NaN until the end); of a cell with measured steps also
    `initial_means` (of its vocabulary matrices) and `measures` (NaN until they are taken). In a pack every leaf has a
    leading axis [lanes]. The step is not in it: all lanes of a pack are at the same one, and the driver holds it.
    """

    def __init__(self, cell: Cell, lanes: int = 1):
        self.cell, self.lanes, self.model = cell, lanes, decoder(cell.model)

    # --- one lane ---------------------------------------------------------------------------------------------

    def _optimizer(self, lane):
        o = self.cell.optimizer
        return optim.by_role(OPTIMIZERS[o.kind], lane["learning_rates"], **o.options)

    def _init(self, lane):
        init_key, data_key = jax.random.split(jax.random.key(lane["seed"]))
        params = self.model.init(init_key, lane["init_std"])
        state = {
            "params": params,
            "opt": self._optimizer(lane).init(params),
            "key": jax.random.key_data(data_key),
            "losses": jnp.full((self.cell.steps,), jnp.nan, jnp.float32),
            "diverged": jnp.int32(-1),
            "valid_loss": jnp.float32(jnp.nan),
        }
        if not self.cell.measured_steps:
            return state
        state |= {"initial_means": measures.initial_means(params)}
        found = jax.eval_shape(self._measures, state, params, self.model.head(params), jnp.ones(self.cell.vocab))
        points = len(self.cell.measured_steps)
        return state | {"measures": jax.tree.map(lambda x: jnp.full((points, *x.shape), jnp.nan, x.dtype), found)}

    def _loss(self, params, windows, weights=None, head=None):
        hidden = self.model.apply(params, windows[:, :-1])
        head = self.model.head(params) if head is None else head
        return next_token_loss(hidden, head.astype(hidden.dtype), windows[:, 1:], weights)

    def _windows(self, step, state, data):
        key = jax.random.wrap_key_data(state["key"])
        return batches.windows(data.train, key, step, self.cell.batch, self.cell.model.context)

    def _step(self, step, state, lane, data):
        loss, grads = jax.value_and_grad(self._loss)(state["params"], self._windows(step, state, data))
        return self._updated(step, state, lane, loss, grads)[0]

    def _updated(self, step, state, lane, loss, grads):
        """The state after a step, and its updates."""
        updates, opt = self._optimizer(lane).update(grads, state["opt"], state["params"])
        diverged = jnp.where((state["diverged"] < 0) & ~jnp.isfinite(loss), step, state["diverged"])
        return state | {
            "params": optax.apply_updates(state["params"], updates),
            "opt": opt,
            "losses": state["losses"].at[step].set(loss),
            "diverged": diverged,
        }, updates

    def _measured_step(self, step, state, lane, data):
        """The same step, with its measures. The head's own gradient is taken apart, for a tied matrix has two."""
        params, windows = state["params"], self._windows(step, state, data)
        head, into_params = jax.vjp(self.model.head, params)
        loss, (grads, head_gradient) = jax.value_and_grad(lambda p, w: self._loss(p, windows, head=w), argnums=(0, 1))(
            params, head
        )
        grads = jax.tree.map(jnp.add, grads, into_params(head_gradient)[0])
        after, updates = self._updated(step, state, lane, loss, grads)
        counts = jnp.bincount(data.train, length=self.cell.vocab)
        found = self._measures(state | {"opt": after["opt"]}, updates, head_gradient, counts / data.train.shape[0])
        index = jnp.searchsorted(jnp.array(self.cell.measured_steps), step)
        return after | {"measures": jax.tree.map(lambda all_, x: all_.at[index].set(x), state["measures"], found)}

    def _measures(self, state, updates, head_gradient, frequencies):
        moments = measures.second_moments(state["opt"], self.cell.optimizer.b2)
        return measures.of_step(state["params"], updates, head_gradient, moments, state["initial_means"], frequencies)

    def _train(self, step, stop, state, lane, data):
        """The state at `stop`. Plain steps run in a loop of their own, so that measures cost nothing there."""
        if not self.cell.measured_steps:
            return jax.lax.fori_loop(step, stop, lambda i, s: self._step(i, s, lane, data), state)
        points = jnp.array([*self.cell.measured_steps, self.cell.steps], jnp.int32)

        def up_to_next(carry):
            step, state = carry
            measured = points[jnp.searchsorted(points, step)]
            plain = jnp.minimum(measured, stop)
            state = jax.lax.fori_loop(step, plain, lambda i, s: self._step(i, s, lane, data), state)
            state = jax.lax.cond(
                plain < stop, lambda s: self._measured_step(measured, s, lane, data), lambda s: s, state
            )
            return jnp.minimum(plain + 1, stop), state

        return jax.lax.while_loop(lambda c: c[0] < stop, up_to_next, (jnp.int32(step), state))[1]

    def _evaluate(self, params, data):
        def body(total, group):
            windows, weights = group
            scored = jnp.sum(weights)
            return total + self._loss(params, windows, weights) * scored, None

        total, _ = jax.lax.scan(body, jnp.float32(0), (data.valid, data.valid_weights))
        return total / jnp.sum(data.valid_weights)

    def _advance(self, step, stop, state, lane, data):
        state = jax.lax.cond(step == 0, lambda s: self._init(lane), lambda s: s, state)
        state = self._train(step, stop, state, lane, data)
        valid = jax.lax.cond(
            stop == self.cell.steps,
            lambda p: self._evaluate(p, data),
            lambda p: jnp.float32(jnp.nan),
            state["params"],
        )
        return state | {"valid_loss": valid}

    # --- a pack of lanes --------------------------------------------------------------------------------------

    def arrays(self, lanes: Sequence[Lane]):
        """Lanes as the program's traced argument: stacked, or for a pack of one as they are."""
        if len(lanes) != self.lanes:
            raise ValueError(f"a program for {self.lanes} lanes was given {len(lanes)}")
        if self.lanes == 1:
            return lanes[0].arrays()
        return jax.tree.map(lambda *xs: np.stack(xs), *[lane.arrays() for lane in lanes])

    def lane_shapes(self):
        """Shapes and dtypes of one lane's state, found without a device."""
        lane = {
            "learning_rates": dict.fromkeys(roles.ROLES, np.float32(1)),
            "init_std": dict.fromkeys(roles.ROLES, np.float32(1)),
            "seed": np.uint32(0),
        }
        return jax.eval_shape(self._init, lane)

    def stack(self, states: Sequence):
        """The pack's state from one host state a lane."""
        return states[0] if self.lanes == 1 else jax.tree.map(lambda *xs: np.stack(xs), *states)

    def blank_state(self):
        """A state of zeros on the host, to be overwritten by the program's step 0."""
        return self.stack([jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), self.lane_shapes())] * self.lanes)

    @cached_property
    def advance(self) -> Callable:
        """advance(step, stop, state, lanes, data) → state at `stop`, jitted; `state` is donated."""
        batched = self._advance if self.lanes == 1 else jax.vmap(self._advance, in_axes=(None, None, 0, 0, None))
        return jax.jit(batched, donate_argnums=2)

    def compile(self, data: TrainingData):
        """Compiles `advance` now, for data of these shapes, and returns JAX's compiled program."""
        lane = Lane(dict.fromkeys(roles.ROLES, 1.0), dict.fromkeys(roles.ROLES, 1.0), 0)
        arguments = (np.int32(0), np.int32(0), self.blank_state(), self.arrays([lane] * self.lanes), data)
        self.advance = self.advance.lower(*arguments).compile()
        return self.advance


def unstack(state, index: int, lanes: int):
    """Lane `index` of a pack's state, as host arrays."""
    return jax.tree.map(lambda x: np.asarray(x) if lanes == 1 else np.asarray(x[index]), state)


def run(
    program: Program,
    lanes: Sequence[Lane],
    data: TrainingData,
    *,
    state=None,
    step: int = 0,
    chunk_seconds: float = 1.0,
    on_chunk: Callable[[int, Any], None] | None = None,
) -> list[Outcome]:
    """Trains a pack of lanes from `step` to the end of the cell and returns their outcomes, in order.

    Args:
      state: the pack's state at `step`, from a checkpoint; None starts anew at step 0.
      chunk_seconds: about how long one dispatch may take; 0 dispatches step by step. How a run is cut into chunks
        changes no bit of the result.
      on_chunk: called with (step, state) after every chunk; it may read the state and must not keep it.

    A lane whose loss is no longer finite stays in its pack, to no effect on its neighbours; when all lanes of the
    pack have diverged the run ends early. Bit-exact on the same device and pack.
    """
    steps, chunk = program.cell.steps, 1
    state = jax.device_put(program.blank_state() if state is None else state)
    arrays = program.arrays(lanes)
    while step < steps:
        stop, started = min(step + chunk, steps), time.perf_counter()
        state = program.advance(np.int32(step), np.int32(stop), state, arrays, data)
        diverged = np.asarray(state["diverged"])  # waits for the chunk
        per_step = (time.perf_counter() - started) / (stop - step)
        # At most tenfold at a time: the first steps carry the start-up.
        chunk = int(min(max(chunk_seconds / per_step, 1), 10 * chunk))
        step = stop
        if on_chunk is not None:
            on_chunk(step, state)
        if np.all(diverged >= 0):
            break
    return [outcome(program.cell.final_steps, unstack(state, i, program.lanes)) for i in range(program.lanes)]
