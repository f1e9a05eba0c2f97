"""The progress of a sweep: the line of a running command."""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from lvp.sweeps.executors import Progress
from lvp.sweeps.forecast import duration
from lvp.sweeps.store import Store
from lvp.sweeps.sweep import Planned
from lvp.training import records

SILENT = 60.0  # seconds without a report after which the line is shown again
STABLE = 1.3  # quotient of two speeds up to which the time left is shown


class News:
    """Receives the progress of packs, in any thread. Shows it in one line, and keeps the failures.

    Args:
      missing: the runs that the packs train; other runs of the settings have records.
      watch: called with the table of finished runs when it has grown, at most once per second; None: not called.

    Attributes:
      failures: run → reason.
      raised: the first exception of `watch`, or of the store.
    """

    def __init__(
        self,
        store: Store,
        plan: Sequence[Planned],
        missing: set[str],
        quiet: bool,
        watch: Callable[[Any], None] | None,
    ):
        self.store, self.missing, self.quiet, self.watch = store, missing, quiet, watch
        self.setting = {planned.label: planned for planned in plan}
        self.total = sum(len(s.runs) * s.setting.flops_per_run for s in plan)
        self.runs = sum(len(s.runs) for s in plan)
        self.finished = self.runs - len(missing)
        self.flops = self.total - sum(self._flops(s.label, [r for r in s.runs if r in missing]) for s in plan)
        self.steps: dict[int, tuple[str, int, int]] = {}  # running pack → label, runs, step
        self.failures: dict[str, str] = {}
        self.raised: Exception | None = None
        self.began = self.heard = time.monotonic()
        self.past = [(self.began, self.flops)]  # (time, FLOPs) of this session, when the line was shown
        self.shown = self.watched = 0.0
        self.grown, self.lock, self.over = self.finished > 0, threading.Lock(), threading.Event()
        threading.Thread(target=self._remind, daemon=True).start()

    def _flops(self, label: str, runs: Sequence[str]) -> float:
        return len(runs) * self.setting[label].setting.flops_per_run

    def report(self, progress: Progress) -> None:
        """Takes a pack's progress. Keeps exceptions of the store and of `watch`: they would end a thread, or Tune."""
        with self.lock:
            try:
                self._take(progress)
            except OSError as error:  # the store cannot be read
                self.raised = self.raised or error
            self.heard = now = time.monotonic()
            if now - self.shown > (0.5 if sys.stderr.isatty() else 30.0):
                self.show()
            if self.watch is not None and self.grown and now - self.watched > 1.0:
                self._call_watch()

    def _remind(self) -> None:
        """Shows the line after each minute without a report, as when workers are lost."""
        while not self.over.wait(SILENT / 10):
            with self.lock:
                if time.monotonic() - max(self.heard, self.shown) > SILENT:
                    self.show()

    def _take(self, progress: Progress) -> None:
        pack, runs = progress.pack, [run for run in progress.pack.runs if run in self.missing]
        self.steps[id(pack)] = pack.label, len(runs), progress.step
        if progress.done:
            del self.steps[id(pack)]
            if progress.error is not None:
                failed = set(runs) - self.store.recorded()
                self.failures |= dict.fromkeys(failed, progress.error)
                self.store.add_failure(failed, progress.error)
                runs = [run for run in runs if run not in failed]
            self.finished += len(runs)
            self.flops += self._flops(pack.label, runs)
            self.grown = self.grown or bool(runs)

    def _call_watch(self) -> None:
        self.watched, self.grown = time.monotonic(), False
        assert self.watch is not None
        try:
            self.watch(records.table(self.store.read_records()))
        except Exception as error:  # it must not end the sweep
            self.raised = self.raised or error

    def show(self) -> None:
        """Prints the line."""
        self.shown = time.monotonic()
        if not self.quiet:
            terminal = sys.stderr.isatty()
            print(f"\r\033[K{self.line()}" if terminal else self.line(), end="" if terminal else "\n", file=sys.stderr)
            sys.stderr.flush()

    def line(self) -> str:
        """Runs with a record, running packs, the time left and failed runs."""
        settings = {label: self.setting[label].setting for label, _, _ in self.steps.values()}
        running = sum(
            n * settings[label].flops_per_run * step / settings[label].steps for label, n, step in self.steps.values()
        )
        done = self.flops + running
        parts = [
            f"{100 * done / self.total if self.total else 100:.0f} % of the FLOPs, {self.finished} of {self.runs} runs"
        ]
        parts += [f"{count} running"] if (count := sum(n for _, n, _ in self.steps.values())) else []
        now = time.monotonic()
        self.past = [*(self.past if len(self.past) < 1000 else self.past[::2]), (now, done)]
        speed = stable_speed(self.past)
        parts += [f"{duration((self.total - done) / speed)} left"] if speed and self.finished < self.runs else []
        parts += [f"{len(self.failures)} failed"] if self.failures else []
        silent = now - self.heard
        parts += [f"no report of a worker for {duration(silent)}"] if silent > SILENT else []
        return ", ".join(parts)

    def end(self) -> None:
        """Shows the last line."""
        self.over.set()
        with self.lock:
            self.show()
            if not self.quiet and sys.stderr.isatty():
                print(file=sys.stderr)


def stable_speed(past: Sequence[tuple[float, float]]) -> float | None:
    """The speed in the second half of the time, in work per second. None while it differs from that of the whole time,
    as it does while workers start and compile.

    Args:
      past: (time, work done until then), in the order of time.
    """
    (began, first), (now, done) = past[0], past[-1]
    middle, then = min(past, key=lambda at: abs(at[0] - (began + now) / 2))
    if middle in (began, now) or done <= then:
        return None
    whole, half = (done - first) / (now - began), (done - then) / (now - middle)
    return half if 1 / STABLE < half / whole < STABLE else None
