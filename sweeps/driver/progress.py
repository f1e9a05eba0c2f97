"""The progress bar of a sweep and the `watch` callback. Both read the sweep's directory only."""

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tqdm import tqdm

from lvp.training import records
from sweeps.driver.background import background
from sweeps.driver.forecast import duration
from sweeps.driver.manifest import Manifest
from sweeps.driver.status import SweepStatus, status


class Progress:
    """Shows the sweep's finished and running lanes in one line until the block ends."""

    def __init__(self, manifest: Manifest, quiet: bool):
        self.manifest, self.quiet = manifest, quiet
        self.terminal = sys.stderr.isatty()
        self.interval = 0.5 if self.terminal else 30.0  # seconds
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        if not self.quiet:
            self.bar = tqdm(
                bar_format="{percentage:3.0f} % of the FLOPs |{bar:30}| {postfix}",
                total=1.0,
                # A log file gets whole lines from `_show` instead of a bar.
                file=sys.stderr if self.terminal else io.StringIO(),
            )
            self._show()
            self.thread.start()
        return self

    def __exit__(self, *_):
        if not self.quiet:
            self.ended.set()
            self.thread.join()
            self._show()
            self.bar.close()

    def _show(self):
        try:
            sweep = status(self.manifest, execute=True)
        except OSError:  # a progress bar must not end the sweep
            return
        words = in_words(sweep)
        self.bar.n = sweep.fraction
        self.bar.set_postfix_str(words)
        if not self.terminal:
            print(f"{100 * sweep.fraction:3.0f} % of the FLOPs, {words}", file=sys.stderr, flush=True)

    def _watch(self):
        while not self.ended.wait(self.interval):
            self._show()


def in_words(sweep: SweepStatus) -> str:
    """Lanes done, lanes running, the time left and failed lanes, in one line."""
    lanes, done = sum(c.lanes for c in sweep.cells), sum(c.finished for c in sweep.cells)
    running, failed = sum(len(c.running) for c in sweep.cells), sum(c.failed for c in sweep.cells)
    parts = [f"{done} of {lanes} lanes"]
    parts += [f"{running} running"] if running else []
    if done < lanes and sweep.seconds_left is not None:
        parts.append(f"{duration(sweep.seconds_left)} left")
    parts += [f"{failed} failed"] if failed else []
    return ", ".join(parts)


@contextlib.contextmanager
def watched(manifest: Manifest, watch: Callable[[Any], None] | None, seconds: float = 1.0) -> Iterator[None]:
    """Calls watch(table) in a thread when further lanes have records, at most once per `seconds` and at the end of the
    block. Training does not wait for it. An exception in `watch` is raised at the end of the block."""
    if watch is None:
        yield
        return
    raised = []

    def look(ended):
        recorded: set[str] = set()
        seen, last = 0, False
        while not last:
            last = ended.wait(seconds)
            before, recorded = recorded, {path.name for path in manifest.record_files()}
            if recorded == before:
                continue
            # The manifest is read again because results may add lanes.
            rows = Manifest.read(manifest.out).read_records()
            if len(rows) > seen:
                seen = len(rows)
                watch(records.table(rows))

    def guarded(ended):
        try:
            look(ended)
        except Exception as error:  # `watch` must not end the sweep
            raised.append(error)

    with background(guarded):
        yield
    if raised:
        raise raised[0]
