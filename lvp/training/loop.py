"""The loop that runs a cell's compiled program to its last step, chunk by chunk."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from lvp.parallel import processes
from lvp.training.batches import Feed
from lvp.training.outcome import READ, Outcome, outcome
from lvp.training.program import PackedProgram, unstack


class Preempted(Exception):
    """Training that stopped early on request, at `step` with `state`, for the caller to save."""

    def __init__(self, step: int, state):
        super().__init__(f"stopped at step {step}")
        self.step, self.state = step, state


def run(
    program: PackedProgram,
    lanes: Sequence,
    data: Feed,
    *,
    state: Any = None,
    step: int = 0,
    chunk_seconds: float = 1.0,
    on_chunk: Callable[[int, Any], None] | None = None,
    leaving: Callable[[], bool] = lambda: False,
) -> list[Outcome]:
    """Trains a pack of lanes from `step` to the end of the cell and returns their outcomes, in order.

    Args:
      program: the cell's program.
      lanes: as many lanes as the program takes.
      data: `lvp.training.TrainingData`, `lvp.training.StreamedTokens` or `lvp.training.ImageData`.
      state: the pack's state at `step`, from a checkpoint; None starts at step 0.
      chunk_seconds: approximate time of one dispatch; 0 dispatches step by step. The result does not depend on it.
      on_chunk: called with (step, state) after every chunk; it may read the state and must not keep it.
      leaving: called after every chunk, unless all lanes have diverged. If it returns True on any process of the mesh
        before the last step, Preempted is raised.

    A lane with a non-finite loss stays in its pack and does not affect other lanes. The run ends early when all lanes
    have diverged. The same pack on the same device gives the same bits.

    Raises:
      Preempted: `leaving` has returned True. It holds step and state.
      InputError: a lane that the cell cannot train.
      ValueError: another number of lanes than the program takes.
    """
    steps, chunk = program.cell.steps, 1
    state = jax.device_put(program.blank_state() if state is None else state, program.placement)
    arrays, known = program.arrays(lanes), step
    shared = program.mesh is not None and program.mesh.is_multi_process
    while step < steps:
        if step == known:
            known, here = data.feed(step)
            here = jax.device_put(here, program.data_placement(here))
        stop, started = min(step + chunk, known, steps), time.perf_counter()
        state = program.advance(np.int32(step), np.int32(stop), state, arrays, here)
        diverged = np.asarray(state["diverged"])  # waits for the chunk to end
        per_step = (time.perf_counter() - started) / (stop - step)
        # Grows at most tenfold: the first steps include the start-up.
        chunk = int(min(max(chunk_seconds / per_step, 1), 10 * chunk))
        step = stop
        if on_chunk is not None:
            on_chunk(step, state)
        if np.all(diverged >= 0):
            break
        leave = leaving()
        if shared:  # clocks and signals differ between processes, and all must make the same calls
            of_all = processes.gathered([chunk, leave])
            chunk, leave = int(of_all[0, 0]), bool(of_all[:, 1].any())
        if leave and step < steps:
            raise Preempted(step, state)
    # Only the replicated entries that an outcome reads: a process may hold a part of the parameters.
    state = {name: x for name, x in state.items() if name in READ}
    return [outcome(program.cell.final_steps, unstack(state, i, program.lanes)) for i in range(program.lanes)]
