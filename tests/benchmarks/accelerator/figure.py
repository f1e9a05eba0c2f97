"""The front experiment at its preset `gpu`, as a sweep through the normal engine.

The sweep's directory is kept beside the rows, so that `python -m lvp.sweeps resume` continues it. When the time is up,
the records so far are drawn.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.accelerator.rows import Rows
from tests.benchmarks.accelerator.sizes import Sizes

ROOT = Path(__file__).parents[3]
EXPERIMENT = "width_vocab"
DRAWING = 25.0  # seconds that are kept for the figure


def command(sizes: Sizes, corpus: str, out: Path, attention: str) -> list[str]:
    """The command that runs the sweep."""
    words = [sys.executable, "-m", "lvp.sweeps", "run", EXPERIMENT, "--preset", "gpu", "--executor", "local"]
    words += ["--pack", str(sizes.pack), "--corpus", corpus, "--out", str(out), "--checkpoint-seconds", "3600"]
    return [*words, "--set", f"attention={attention}", *sizes.figure]


def prepare(sizes: Sizes, corpus: str) -> None:
    """Trains the tokenizers of the sweep and encodes its text into the cache."""
    from lvp import experiments
    from lvp.files import cache_dir
    from lvp.training import task_for

    values = dict(word.split("=") for word in sizes.figure)
    experiment = experiments.load(EXPERIMENT)
    config = experiments.configured(experiment, "gpu", values | {"corpus": corpus})
    for planned in experiment.settings(config):
        task_for(planned.setting).prepare(cache_dir() / "data")


def main(rows: Rows, sizes: Sizes, corpus: str, attention: str) -> None:
    out = rows.path.parent / "sweep"
    started = time.monotonic()
    with rows.attempt("sweep"):
        code = run_until(command(sizes, corpus, out, attention), rows.left - DRAWING)
        finished = len(list((out / "records").glob("*.jsonl")))
        raw = {"seconds": time.monotonic() - started, "exit_code": code, "attention": attention}
        rows.add("runs of the sweep", finished, least=1, raw=raw)
        if finished:
            records_of(rows, out)
    if code != 0 and finished:  # stopped or failed: the records so far are drawn without a device
        with rows.attempt("figure"):
            words = [sys.executable, "-m", "lvp.sweeps", "figure", str(out)]
            if (code := run_until(words, max(5.0, rows.left), env=os.environ | {"JAX_PLATFORMS": "cpu"})) != 0:
                raise RuntimeError(f"drawing ended with exit code {code}")


def run_until(words: list[str], seconds: float, *, session: bool = False, **options: Any) -> int | None:
    """Runs a command and returns its exit code; None if it was killed after some seconds.

    Args:
      session: whether the command has a session of its own, whose processes are killed at its end.
      options: further arguments of `subprocess.Popen`.
    """
    process = subprocess.Popen(words, cwd=ROOT, start_new_session=session, **options)
    try:
        return process.wait(max(1.0, seconds))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if session else process.kill()  # a sweep's workers end with it
        process.wait()


def records_of(rows: Rows, out: Path) -> None:
    """Adds the runs per hour of each width from the records."""
    from lvp.training import records

    table = records.table(records.read(out / "records"))
    for width, of_width in table.groupby("setting.model.width"):
        (pack,) = set(of_width["pack"])
        hours = of_width["seconds"].sum() / pack / 3600
        tokens = of_width["setting.steps"] * of_width["setting.batch"] * of_width["setting.model.context"]
        raw = {"runs": len(of_width), "pack": int(pack), "tokens": int(tokens.iloc[0]), "training_hours": hours}
        rows.add(f"sweep, d {width}: runs per hour of training", len(of_width) / hours, raw=raw)
