"""The loop that runs a setting's compiled program to its last step, chunk by chunk."""

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import numpy as np

from lvp.parallel import processes
from lvp.training.batches import Feed
from lvp.training.outcome import READ, Outcome, outcome
from lvp.training.program import PackedProgram, unstack


def chunks(
    program: PackedProgram,
    runs: Sequence,
    data: Feed,
    *,
    state: Any = None,
    step: int = 0,
    chunk_seconds: float = 1.0,
) -> Generator[tuple[int, Any], None, list[Outcome]]:
    """Trains a pack of runs from `step` to the end of the setting.

    Yields (step, state) after every chunk of steps, and returns the outcomes of the runs, in order. The caller may read
    a yielded state, and must not keep it beyond the next chunk. A caller that stops iterating can save the state and
    continue from it later. On a mesh of several processes, all of them must iterate equally often.

    A run with a non-finite loss stays in its pack and does not affect other runs. Training ends early when all runs
    have diverged. The same pack on the same device gives the same bits.

    Args:
      program: the setting's program.
      runs: as many runs as the program takes.
      data: of these runs, such as `lvp.training.TrainingData` or `lvp.training.StreamedTokens`.
      state: the pack's state at `step`, from a checkpoint; None starts at step 0.
      chunk_seconds: approximate time of one dispatch; 0 dispatches step by step. The result does not depend on it.

    Raises:
      InputError: the setting cannot train a run.
      ValueError: there are more or fewer runs than the program takes.
    """
    steps, chunk = program.setting.steps, 1
    state = jax.device_put(program.blank_state() if state is None else state, program.placement)
    arrays, known = program.arrays(runs), step
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
        if shared:  # clocks differ between processes, and all must make the same calls
            chunk = int(processes.gathered([chunk])[0, 0])
        step = stop
        yield step, state
        if np.all(diverged >= 0):
            break
    # Only the replicated entries that an outcome reads: a process may hold a part of the parameters.
    state = {name: x for name, x in state.items() if name in READ}
    return [
        outcome(program.setting.final_steps, unstack(state, i, program.runs), program.rates(run))
        for i, run in enumerate(runs)
    ]


def run(
    program: PackedProgram,
    runs: Sequence,
    data: Feed,
    *,
    on_chunk: Callable[[int, Any], None] = lambda step, state: None,
    **options: Any,
) -> list[Outcome]:
    """The outcomes of a pack of runs. The arguments are those of `chunks`.

    Args:
      on_chunk: called with (step, state) after every chunk.
    """
    training = chunks(program, runs, data, **options)
    while True:
        try:
            on_chunk(*next(training))
        except StopIteration as end:
            return end.value
