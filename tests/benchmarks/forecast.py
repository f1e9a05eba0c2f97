"""The time of a lane that `run --dry-run --measure` expects, over the time in which the same worker trains it.

    python -m tests.benchmarks.forecast [EXPERIMENT ...]

The lane is the most expensive lane of the experiment's laptop tier. The expected time is measured before and after the
training. The ratio does not depend on other work of the machine, if this work is constant.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import experiments
from sweeps.driver import api
from sweeps.worker.tasks import task_for
from sweeps.worker.worker import Settings, Worker
from tests.benchmarks import finish


def expected_and_trained(name: str) -> tuple[float, float] | None:
    """The expected and the measured seconds of a lane; None for an experiment that trains nothing."""
    experiment = experiments.load(name)
    manifest = api._new_manifest(experiment, "laptop", experiments.configured(experiment, "laptop"), None)
    trained = [i for i, entry in enumerate(manifest.cells) if task_for(entry.cell).trained and entry.lanes]
    if not trained:
        return None
    with tempfile.TemporaryDirectory() as folder:
        manifest = replace(manifest, out=Path(folder))
        manifest.begin()
        worker = Worker(folder, Settings(threads=1, environment=manifest.environment))
        most = max(trained, key=lambda i: manifest.cells[i].cell.flops_per_lane)
        before = worker.lane_seconds(most)
        seconds = worker._advance(worker._manifest(), most, 1)(0, manifest.cells[most].cell.steps)
        return (before + worker.lane_seconds(most)) / 2, seconds


def main(names: list[str]) -> None:
    measured = {}
    for name in names:
        print(f"{name}: training", file=sys.stderr, flush=True)
        if (seconds := expected_and_trained(name)) is not None:
            measured[name] = seconds
            print(f"{name}: expected and trained in {seconds} s", file=sys.stderr, flush=True)
    rows = [(name, f"{trained:.0f} s", f"{expected / trained:.2f}") for name, (expected, trained) in measured.items()]
    raw = {name: {"expected": expected, "trained": trained} for name, (expected, trained) in measured.items()}
    finish("forecast", 1, rows, raw, head=("most expensive lane of", "trained in", "expected / trained"))


if __name__ == "__main__":
    main(sys.argv[1:] or list(experiments.NAMES))
