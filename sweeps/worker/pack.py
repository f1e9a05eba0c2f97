"""Training of one pack of a cell's lanes, from its last checkpoint to its outcomes."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lvp import training
from lvp.parallel import processes
from lvp.training import checkpoints
from lvp.training.outcome import Outcome


@contextlib.contextmanager
def following(folder: Path, shared: bool) -> Iterator[Path]:
    """A path to `folder` that follows its parent where that is moved: TensorStore makes missing directories anew. The
    path itself where the system has none, and for processes that share a state. FileNotFoundError without the parent.
    """
    parent = os.open(folder.parent, os.O_RDONLY)
    place = Path(f"/proc/self/fd/{parent}")
    try:
        yield place / folder.name if place.exists() and not shared else folder
    except OSError as error:
        if error.filename:
            error.filename = str(error.filename).replace(str(place), str(folder.parent))
        raise
    finally:
        os.close(parent)


class Pack:
    """The lanes of one pack. An incomplete pack repeats its last lane, so that the cell needs one program only.

    Attributes:
      seconds: the time of training, without saving and reporting.
      trained_steps: the steps of this session.
    """

    def __init__(self, program, lanes: dict, folders: list[Path], checkpoint_seconds: float):
        self.program, self.hashes, self.folders = program, list(lanes), folders
        self.missing = program.lanes - len(lanes)
        self.lanes = [*lanes.values()] + [*lanes.values()][-1:] * self.missing
        self.checkpoint_seconds = checkpoint_seconds
        self.shared = program.mesh is not None and program.mesh.is_multi_process
        self.first_step, self.seconds, self.saved_step = 0, 0.0, -1
        self.saving_seconds = 0.0  # what the last save took

    def train(self, data, progress: Callable[[int, bool], None], stopping: Callable[[], bool]) -> dict[str, Outcome]:
        """Trains to the end and returns the outcomes by lane.

        Args:
          progress: called with the step, and whether it is being saved, after every chunk.
          stopping: asked after every chunk; where it is true, the pack is saved and Preempted raised.
        """
        self.progress = progress
        step, state = 0, None
        if latest := checkpoints.latest(self.folders, self.program.lane_shapes(), self.hashes):
            step, states = latest
            state = self.program.stack(states + states[-1:] * self.missing)
        self.first_step = step
        started = saved = time.perf_counter()
        aside = 0.0

        def on_chunk(step, state):
            nonlocal saved, aside
            now = time.perf_counter()
            progress(step, False)
            # Large states take minutes to save: at most a tenth of the time goes into saving.
            every = max(self.checkpoint_seconds, 10 * self.saving_seconds)
            due = step < self.program.cell.steps and now - saved >= every
            if self.shared:  # by the clock of process 0: all processes save together
                due = processes.gathered([due])[0, 0]
            if due:
                self._save(step, state)
                saved = time.perf_counter()
            aside += time.perf_counter() - now

        options: dict[str, Any] = {"state": state, "step": step, "on_chunk": on_chunk, "leaving": stopping}
        try:
            outcomes = training.run(self.program, self.lanes, data, **options)
        except training.Preempted as stopped:
            self._save(stopped.step, stopped.state)
            raise
        self.seconds = time.perf_counter() - started - aside
        # A pack ends early when all of its lanes have diverged.
        ends = (self.program.cell.steps if o.diverged_step is None else o.diverged_step + 1 for o in outcomes)
        self.trained_steps = max(ends) - step
        return dict(zip(self.hashes, outcomes, strict=False))

    def _save(self, step: int, state) -> None:
        if step == self.saved_step:
            return
        self.progress(step, True)
        started = time.perf_counter()
        for i, (folder, h) in enumerate(zip(self.folders, self.hashes, strict=True)):
            # A state on a mesh is saved in parts.
            lane = state if self.program.mesh is not None else training.unstack(state, i, self.program.lanes)
            with following(folder, self.shared) as place:
                checkpoints.save(place, step, lane, h)
        self.saved_step, self.saving_seconds = step, time.perf_counter() - started
        self.progress(step, False)
