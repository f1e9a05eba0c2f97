"""The curves of a pack's lanes while they train.

OUT/curves/HASH.json holds `outcome`, the curve and measures so far (`lvp.training.outcome.so_far`), and the lists
`steps` and `times`: the lane reached `steps[i]` at the Unix time `times[i]`. Step 0 is the lane's first start. The
driver reads the file for tracking tools. No result depends on it.

Losses are read at most once per point of the curve (50 points) and per measured step. Writing takes at most a hundredth
of the time.
"""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from lvp.training import unstack
from lvp.training.outcome import curve_edges, so_far
from lvp.training.program import PackedProgram
from sweeps.driver.manifest import Manifest


class Curves:
    """Writes the curves of a pack. A resumed lane keeps the times of the steps that it trained before."""

    def __init__(self, manifest: Manifest, program: PackedProgram, lanes: Sequence[str]):
        cell = program.cell
        self.manifest, self.program, self.lanes = manifest, program, lanes
        self.measured = cell.measured_steps
        # Numbers of steps after which the curve or a measure has a new value.
        self.points = sorted({*map(int, curve_edges(cell.steps)[1:]), *(step + 1 for step in self.measured)})
        start: dict[str, list] = {"steps": [0], "times": [time.time()]}
        earlier = {lane: manifest.read_curve(lane) or start for lane in lanes}
        self.reached = {lane: (list(e["steps"]), list(e["times"])) for lane, e in earlier.items()}
        self.changed: set[str] = set()
        self.written, self.duration = 0.0, 0.0  # when the last call wrote, and for how long

    def add(self, step: int, state) -> None:
        """Writes the curves at `step` if they have a new value.

        Args:
          state: the pack's state at `step`.
        """
        now = time.time()
        for lane, (steps, times) in self.reached.items():
            if bisect_right(self.points, steps[-1]) < bisect_right(self.points, step):
                steps.append(step)
                times.append(now)
                self.changed.add(lane)
        started = time.perf_counter()
        if not self.changed or (step < self.points[-1] and started < self.written + 100 * self.duration):
            return
        state, measured = {k: state[k] for k in ("losses", "measures") if k in state}, bisect_left(self.measured, step)
        for i, lane in enumerate(self.lanes):
            if lane in self.changed:
                steps, times = self.reached[lane]
                outcome = so_far(step, measured, unstack(state, i, self.program.lanes))
                self.manifest.write_curve(lane, {"steps": steps, "times": times, "outcome": outcome})
        self.changed = set()
        self.written = time.perf_counter()
        self.duration = self.written - started
