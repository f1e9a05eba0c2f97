"""A progress bar per cell, fed by what stands on disk: the same under every executor."""

import io
import sys
import threading
import time

from tqdm import tqdm

from sweeps.manifest import Manifest
from sweeps.plan import duration


class Progress:
    """Shows lanes finished (and the part of those under way) for every cell until the block ends."""

    def __init__(self, manifest: Manifest, quiet: bool):
        self.manifest, self.quiet = manifest, quiet
        self.terminal = sys.stderr.isatty()
        self.interval = 0.5 if self.terminal else 30.0  # seconds
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        if not self.quiet:
            width = max(len(e.label) for e in self.manifest.cells)
            done = self._done()
            self.bars = [
                tqdm(
                    total=len(e.lanes),
                    initial=min(done[i], len(e.lanes)),
                    desc=e.label.ljust(width),
                    position=i,
                    bar_format="{desc} {percentage:3.0f}%|{bar:30}| {n:.1f}/{total} lanes, {elapsed} + {remaining}",
                    # In a log file bars would overwrite each other's lines: `_show` writes whole ones there.
                    file=sys.stderr if self.terminal else io.StringIO(),
                )
                for i, e in enumerate(self.manifest.cells)
            ]
            self.started = time.time()
            self.thread.start()
        return self

    def __exit__(self, *_):
        if not self.quiet:
            self.ended.set()
            self.thread.join()
            self._show()
            for bar in self.bars:
                bar.close()

    def _done(self) -> list[float]:
        finished = self.manifest.finished()
        under_way = {}
        for p in self.manifest.read_progress():
            if time.time() - p["time"] < 300:
                under_way |= dict.fromkeys(p["lanes"], p["step"])
        done = []
        for e in self.manifest.cells:
            part = sum(under_way.get(h, 0) for h in e.lanes if h not in finished) / e.cell.steps
            done.append(sum(h in finished for h in e.lanes) + part)
        return done

    def _show(self):
        for bar, done in zip(self.bars, self._done(), strict=True):
            bar.update(min(done, bar.total) - bar.n)
            bar.refresh()
        if not self.terminal:
            cells = " | ".join(f"{b.desc.strip()}: {b.n:.1f}/{b.total}" for b in self.bars)
            print(f"{cells} | {self._remaining()}", file=sys.stderr, flush=True)

    def _remaining(self) -> str:
        """Time left for all cells, by the FLOPs done since the block began."""
        weights = [e.cell.flops_per_lane for e in self.manifest.cells]
        done = sum(w * (b.n - b.initial) for w, b in zip(weights, self.bars, strict=True))
        left = sum(w * (b.total - b.n) for w, b in zip(weights, self.bars, strict=True))
        return f"{duration((time.time() - self.started) * left / done)} left" if done else "no lane under way yet"

    def _watch(self):
        while not self.ended.wait(self.interval):
            self._show()
