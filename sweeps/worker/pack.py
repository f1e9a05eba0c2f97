"""Training of a pack of lanes, from its last checkpoint to its outcomes."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lvp import training
from lvp.parallel import processes
from lvp.training import checkpoints
from lvp.training.outcome import Outcome
from sweeps.driver.background import background
from sweeps.driver.working_copy import WorkingCopy

REPORT_INTERVAL = 5.0  # seconds between two reports of a save
LONGEST_SAVE = 1800.0  # seconds after which a save counts as hanging


@contextlib.contextmanager
def path_after_moves(folder: Path, shared: bool) -> Iterator[Path]:
    """A path to `folder` that stays valid if the parent directory is moved during the block.

    With an ordinary path, TensorStore would make the missing directories again. The path is `folder` itself if the
    system has no /proc, or if `shared`: all processes must use the same path. Raises FileNotFoundError if the parent is
    missing.
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
    """The lanes of one pack. An incomplete pack repeats its last lane, so that a cell needs only one program.

    Attributes:
      seconds: the time spent in training, without checkpoints and progress reports.
      first_step: the step from which training began.
      trained_steps: the number of steps trained in this session.
    """

    def __init__(
        self,
        program,
        lanes: dict,
        folders: list[Path],
        checkpoint_seconds: float,
        copy: WorkingCopy | None = None,
    ):
        self.program, self.hashes, self.folders = program, list(lanes), folders
        self.num_repeated = program.lanes - len(lanes)
        self.lanes = [*lanes.values()] + [*lanes.values()][-1:] * self.num_repeated
        self.checkpoint_seconds, self.copy = checkpoint_seconds, copy
        self.shared = program.mesh is not None and program.mesh.is_multi_process
        self.first_step, self.seconds, self.saved_step = 0, 0.0, -1
        self.saving_seconds = 0.0  # duration of the last save

    def train(
        self,
        data,
        progress: Callable[[int, bool], None],
        stopping: Callable[[], bool],
        curves: Callable[[int, Any], None] | None = None,
    ) -> dict[str, Outcome]:
        """Trains to the end and returns the outcomes by lane.

        Args:
          data: the data of the pack's lanes.
          progress: called after every chunk of steps, and before and after a save, with the step and whether a save is
            running.
          stopping: called after every chunk. If it returns True, the pack is saved and Preempted is raised.
          curves: called after every chunk with the step and the pack's state.
        """
        self.progress = progress
        step, state = 0, None
        if self.copy:
            for folder in self.folders:
                self.copy.fetch_checkpoints(folder)
        if latest := checkpoints.latest(self.folders, self.program.lane_shapes(), self.hashes):
            step, states = latest
            state = self.program.stack(states + states[-1:] * self.num_repeated)
        self.first_step = step
        started = saved = time.perf_counter()
        seconds_outside_training = 0.0

        def on_chunk(step, state):
            nonlocal saved, seconds_outside_training
            now = time.perf_counter()
            progress(step, False)
            if curves is not None:
                curves(step, state)
            # Saving a large state takes minutes. The interval limits saving to about a tenth of the time.
            every = max(self.checkpoint_seconds, 10 * self.saving_seconds)
            due = step < self.program.cell.steps and now - saved >= every
            if self.shared:  # all processes must save together, so process 0 decides
                due = processes.gathered([due])[0, 0]
            if due:
                self._save(step, state)
                saved = time.perf_counter()
            seconds_outside_training += time.perf_counter() - now

        options: dict[str, Any] = {"state": state, "step": step, "on_chunk": on_chunk, "leaving": stopping}
        try:
            outcomes = training.run(self.program, self.lanes, data, **options)
        except training.Preempted as stopped:
            self._save(stopped.step, stopped.state)
            raise
        self.seconds = time.perf_counter() - started - seconds_outside_training
        # Training ends early when all lanes of the pack have diverged.
        ends = (self.program.cell.steps if o.diverged_step is None else o.diverged_step + 1 for o in outcomes)
        self.trained_steps = max(ends) - step
        return dict(zip(self.hashes, outcomes, strict=False))

    def _save(self, step: int, state) -> None:
        if step == self.saved_step:
            return
        self.progress(step, True)
        started = time.perf_counter()
        with background(lambda ended: self._repeat_report(step, ended)):
            for i, (folder, h) in enumerate(zip(self.folders, self.hashes, strict=True)):
                # A state on a mesh is saved in parts.
                lane = state if self.program.mesh is not None else training.unstack(state, i, self.program.lanes)
                with path_after_moves(folder, self.shared) as place:
                    checkpoints.save(place, step, lane, h)
                if self.copy:
                    self.copy.save_checkpoints(folder)
        self.saved_step, self.saving_seconds = step, time.perf_counter() - started
        self.progress(step, False)

    def _repeat_report(self, step: int, ended: threading.Event) -> None:
        """Reports the save every `REPORT_INTERVAL` seconds, so that an interrupted driver waits for its end."""
        for _ in range(round(LONGEST_SAVE / REPORT_INTERVAL)):
            if ended.wait(REPORT_INTERVAL):
                return
            self.progress(step, True)
