"""Progress bars, one per cell, and the `watch` callback. Both read the sweep's directory, under every executor."""

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tqdm import tqdm

from lvp.training import records
from sweeps.driver.manifest import Manifest
from sweeps.driver.status import CellStatus, SweepStatus, status


class Progress:
    """Shows finished and running lanes of every cell until the block ends."""

    def __init__(self, manifest: Manifest, quiet: bool):
        self.manifest, self.quiet = manifest, quiet
        self.terminal = sys.stderr.isatty()
        self.interval = 0.5 if self.terminal else 30.0  # seconds
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        if not self.quiet:
            width = max(len(e.label) for e in self.manifest.cells)
            self.bars = [
                tqdm(
                    total=c.lanes,
                    initial=min(c.done, c.lanes),
                    desc=c.label.ljust(width),
                    position=i,
                    bar_format="{desc} {percentage:3.0f}%|{bar:30}| {n:.1f}/{total} lanes, {elapsed}{postfix}",
                    # In a log file bars would overwrite each other's lines: `_show` writes whole ones there.
                    file=sys.stderr if self.terminal else io.StringIO(),
                )
                for i, c in enumerate(status(self.manifest, execute=True).cells)
            ]
            self.thread.start()
        return self

    def __exit__(self, *_):
        if not self.quiet:
            self.ended.set()
            self.thread.join()
            self._show()
            for bar in self.bars:
                bar.close()

    def _show(self):
        try:
            sweep = status(self.manifest, execute=True)
        except OSError:  # the sweep does not depend on its progress bars
            return
        for bar, cell in zip(self.bars, sweep.cells, strict=True):
            bar.update(min(cell.done, cell.lanes) - bar.n)
            bar.set_postfix_str(", ".join(_postfix(cell, sweep)))
        if not self.terminal:
            cells = " | ".join(f"{c.label}: {c.done:.1f}/{c.lanes}" for c in sweep.cells)
            failed = sum(c.failed for c in sweep.cells)
            more = f", {failed} failed" if failed else ""
            left = sweep.left(sum(c.flops_left for c in sweep.cells))
            pace = f"{sweep.lanes_per_hour:.0f} lanes an hour, {left} left"
            print(f"{cells} | {pace}{more}", file=sys.stderr, flush=True)

    def _watch(self):
        while not self.ended.wait(self.interval):
            self._show()


def _postfix(cell: CellStatus, sweep: SweepStatus) -> list[str]:
    """The words after a cell's bar."""
    left = [f"{sweep.left(cell.flops_left)} left"] if cell.done < cell.lanes else []
    return left + ([f"{cell.failed} failed"] if cell.failed else [])


@contextlib.contextmanager
def watched(manifest: Manifest, watch: Callable[[Any], None] | None, seconds: float = 1.0) -> Iterator[None]:
    """Calls watch(table) in a thread whenever further lanes have a record, at most once in `seconds` and once more at
    the end of the block. Training does not wait for it."""
    if watch is None:
        yield
        return
    ended, raised = threading.Event(), []

    def look():
        stood: set[str] = set()
        seen, last = 0, False
        while not last:
            last = ended.wait(seconds)
            before, stood = stood, {path.name for path in manifest.record_files()}
            if stood == before:
                continue
            # A new manifest: lanes may follow from the results that now have records.
            rows = Manifest.read(manifest.out).read_records()
            if len(rows) > seen:
                seen = len(rows)
                watch(records.table(rows))

    def guarded():
        try:
            look()
        except Exception as error:  # `watch` must not end the sweep
            raised.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if raised:
        raise raised[0]
