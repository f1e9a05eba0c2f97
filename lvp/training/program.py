"""A setting's training as one compiled program, which `lvp.training.loop` runs.

The program initialises a run at step 0, trains it to a given step and evaluates it at the last step. One compilation
serves all runs, chunks and resumptions of a setting.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from lvp.losses import compiling_for
from lvp.parallel import sharding


class PackedProgram:
    """The compiled program of a setting for packs of `runs` runs, or for one run on a mesh of `lvp.parallel.sharding`.

    One run is not batched. On a mesh the state is split by the roles of the parameters.

    A state is a dict of pytrees. It holds `losses` [steps], `gradient_norms` [steps] (before clipping), `diverged`
    (first step with a non-finite loss, else −1) and, with measured steps, `measures` (NaN until measured). In a pack
    every leaf has a leading axis [runs]. The step is not in the state: all runs of a pack share it, and the caller
    holds it.

    Subclasses define the traced functions of one run: `_init`, `_step`, `_measured_step` and `_evaluated`. The setting
    gives `steps`, `measured_steps`, `final_steps` and `example_run()`, for which the program is compiled.
    """

    def __init__(self, setting, runs: int = 1, mesh: Mesh | None = None):
        if mesh is not None and runs != 1:
            raise ValueError(f"runs must be 1 on a mesh, got {runs}")
        self.setting, self.runs, self.mesh = setting, runs, mesh
        self._shapes_of_measures: Any = None

    # --- one run ---------------------------------------------------------------------------------------------

    def _init(self, run, params=None):
        """The state at step 0, with the run's own or the given parameters."""
        raise NotImplementedError

    def _step(self, step, state, run, data):
        raise NotImplementedError

    def _measured_step(self, step, state, run, data):
        raise NotImplementedError

    def _rate(self, run):
        """The learning rate of the hidden matrices: a number or a schedule."""
        return run["learning_rate"]

    def _evaluated(self, state, run, data):
        """The evaluation at the last step, by name in the state: floats, NaN before that step."""
        raise NotImplementedError

    def _initial_state(self, params, opt, key) -> dict:
        """The entries that the states of all programs have, before the first step."""
        return {
            "params": params,
            "opt": opt,
            "key": jax.random.key_data(key),
            "losses": jnp.full((self.setting.steps,), jnp.nan, jnp.float32),
            "gradient_norms": jnp.full((self.setting.steps,), jnp.nan, jnp.float32),
            "diverged": jnp.int32(-1),
            "valid_loss": jnp.float32(jnp.nan),
        }

    def _updated_state(self, step, state, loss, gradient, updates, opt) -> dict:
        """The state after a step with this loss, gradient and updates."""
        return state | {
            "params": optax.apply_updates(state["params"], updates),
            "opt": opt,
            "losses": state["losses"].at[step].set(loss),
            "gradient_norms": state["gradient_norms"].at[step].set(optax.tree.norm(gradient).astype(jnp.float32)),
            "diverged": jnp.where((state["diverged"] < 0) & ~jnp.isfinite(loss), step, state["diverged"]),
        }

    def _empty_measures(self, measure: Callable, *arguments):
        """NaN for all measured steps, in the shapes that `measure` returns."""
        if self._shapes_of_measures is None:  # kept: tracing a measured step is slow, and `_init` is traced twice
            self._shapes_of_measures = jax.eval_shape(measure, *arguments)
        points = len(self.setting.measured_steps)
        return jax.tree.map(lambda x: jnp.full((points, *x.shape), jnp.nan, x.dtype), self._shapes_of_measures)

    def _with_measures(self, step, state, measured):
        """The state with the measures of a step written to their index."""
        index = jnp.searchsorted(jnp.array(self.setting.measured_steps), step)
        return state | {"measures": jax.tree.map(lambda all_, x: all_.at[index].set(x), state["measures"], measured)}

    def _train(self, step, stop, state, run, data):
        """The state at `stop`. Unmeasured steps run in a separate loop, without the cost of measures."""
        if not self.setting.measured_steps:
            return jax.lax.fori_loop(step, stop, lambda i, s: self._step(i, s, run, data), state)
        points = jnp.array([*self.setting.measured_steps, self.setting.steps], jnp.int32)

        def up_to_next(carry):
            step, state = carry
            measured = points[jnp.searchsorted(points, step)]
            plain = jnp.minimum(measured, stop)
            state = jax.lax.fori_loop(step, plain, lambda i, s: self._step(i, s, run, data), state)
            state = jax.lax.cond(
                plain < stop, lambda s: self._measured_step(measured, s, run, data), lambda s: s, state
            )
            return jnp.minimum(plain + 1, stop), state

        return jax.lax.while_loop(lambda c: c[0] < stop, up_to_next, (jnp.int32(step), state))[1]

    def _advance(self, step, stop, state, run, data):
        blank = (step == 0) & (state["diverged"] == 0)  # `_initial_state` sets −1
        state = jax.lax.cond(blank, lambda s: self._init(run), lambda s: s, state)
        state = self._train(step, stop, state, run, data)
        shapes = jax.eval_shape(self._evaluated, state, run, data)
        blank = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
        last = stop == self.setting.steps
        return state | jax.lax.cond(last, lambda s: self._evaluated(s, run, data), lambda s: blank, state)

    # --- a pack of runs --------------------------------------------------------------------------------------

    def _runs_axes(self, data: Any) -> Any:
        """The axis of the runs in each leaf of the data, as `jax.vmap` takes it. None: the runs share the data."""
        return None

    def _advance_pack(self, step, stop, state, runs, data):
        return jax.vmap(self._advance, in_axes=(None, None, 0, 0, self._runs_axes(data)))(step, stop, state, runs, data)

    def arrays(self, runs: Sequence) -> Any:
        """Runs as the program's traced argument: stacked, except for a single run."""
        if len(runs) != self.runs:
            raise ValueError(f"the program takes {self.runs} runs, got {len(runs)}")
        for run in runs:
            self.setting.check(run)
        return self.stack([run.arrays() for run in runs])

    def rates(self, run: Any) -> np.ndarray:
        """The learning rate of the hidden matrices at every step of a run, float32 [steps]."""
        rate, steps = self._rate(run.arrays()), np.arange(self.setting.steps)
        return np.broadcast_to(np.asarray(rate(steps) if callable(rate) else rate, np.float32), steps.shape)

    def run_shapes(self) -> Any:
        """Shapes and dtypes of one run's state, and its shardings on a mesh; computed without a device."""
        return self._run_shapes

    @cached_property
    def _run_shapes(self):
        # Cached: tracing takes as long as a hundred steps of a small model, and every run needs it twice.
        shapes = jax.eval_shape(self._init, self.setting.example_run().arrays())
        if self.mesh is None:
            return shapes
        placement = sharding.shardings(self.mesh, sharding.state_specs(shapes, shapes["params"]))
        return jax.tree.map(lambda x, p: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=p), shapes, placement)

    def stack(self, states: Sequence) -> Any:
        """The pack's state from one host state per run."""
        return states[0] if self.runs == 1 else jax.tree.map(lambda *xs: np.stack(xs), *states)

    def blank_state(self) -> Any:
        """A state of zeros, which step 0 overwrites. It is on the host, or on the devices of the mesh."""
        if self.mesh is not None:
            zeros = lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.run_shapes())  # noqa: E731
            return jax.jit(zeros, out_shardings=self.placement)()
        return self.stack([jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), self.run_shapes())] * self.runs)

    def started(self, run: Any, params: Any) -> Any:
        """The state of one run at step 0 with these parameters. The optimizer's state and the keys are the run's."""
        return jax.jit(self._init, out_shardings=self.placement)(run.arrays(), params)

    @cached_property
    def advance(self) -> Any:
        """advance(step, stop, state, runs, data) → state at `stop`, jitted; `state` is donated."""
        batched = self._advance if self.runs == 1 else self._advance_pack
        if self.mesh is None:
            return jax.jit(batched, donate_argnums=2)
        everywhere = NamedSharding(self.mesh, PartitionSpec())
        placed = (everywhere, everywhere, self.placement, everywhere, None)  # data carry their shardings
        return jax.jit(batched, donate_argnums=2, in_shardings=placed, out_shardings=self.placement)

    @cached_property
    def placement(self) -> Any:
        """The shardings of the state; None without a mesh."""
        return self.mesh and jax.tree.map(lambda x: x.sharding, self.run_shapes())

    def data_placement(self, data: Any) -> Any:
        """The shardings of the data: replicated unless a subclass overrides it; None without a mesh."""
        if self.mesh is None:
            return None
        everywhere = NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(lambda _: everywhere, data)

    def lower(self, data: Any, device: jax.Device | None = None) -> Any:
        """`advance` lowered for data of these shapes (arrays or ShapeDtypeStructs), as `jax.stages.Lowered`.

        Args:
          device: the device to compile for; not with a mesh. It may belong to a topology that this machine lacks. None
            is JAX's default device.
        """
        if device is not None and self.mesh is not None:
            raise ValueError("device must be None with a mesh, which has the devices")
        runs, state = self.arrays([self.setting.example_run()] * self.runs), self.run_shapes()
        if self.runs > 1:
            state = jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.runs, *x.shape), x.dtype), state)
        placed = lambda x, where: jax.ShapeDtypeStruct(np.shape(x), x.dtype, sharding=where)  # noqa: E731
        if self.mesh is not None:
            data = jax.tree.map(placed, data, self.data_placement(data))
        arguments = np.int32(0), np.int32(0), state, runs, data
        if device is not None:
            arguments = jax.tree.map(lambda x: placed(x, SingleDeviceSharding(device)), arguments)
        with compiling_for(device.platform) if device is not None else nullcontext():
            return self.advance.lower(*arguments)

    def compile(self, data: Any, device: jax.Device | None = None) -> Any:
        """Compiles `advance` for data of these shapes and returns JAX's compiled program. Arguments: as in `lower`."""
        self.advance = self.lower(data, device).compile()
        return self.advance


def unstack(state: Any, index: int, runs: int) -> Any:
    """Run `index` of a pack's state, as host arrays."""
    return jax.tree.map(lambda x: np.asarray(x) if runs == 1 else np.asarray(x[index]), state)
