"""Lanes per hour of a laptop sweep against the obvious way: a Ray trial per rate and seed. Prints a table of ratios.

    python -m tests.benchmarks.sweep [ROUNDS]

The obvious way is `plain.PlainTrainer` in a Tune function, the rate a Python float, with fresh and with reused actors.
Both sides train the same lanes, a few of the laptop tier's, from a cold process, in turn and with the corpus prepared;
ours compiles anew on every turn, though a whole sweep has fifteen times as many lanes to spread that over. It is told
to use one thread a worker, which a whole sweep measures first. Ten minutes a round.
"""

import contextlib
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks import finish

ROOT = Path(__file__).parents[2]
WIDTHS, RATES = "32,64,128", "0.008,0.016,0.032"  # nine lanes
STEPS = (1500, 100)  # of the laptop tier, and short ones


def obvious(steps: int, reuse: bool) -> None:
    """The lanes, one seed, in a Ray of its own: run in a process."""
    import numpy as np
    import ray
    from ray import tune

    from experiments import configured, width_vocab
    from sweeps.api import _dataset

    config = configured("width_vocab", "laptop", {"widths": WIDTHS, "rates": RATES, "seeds": "0", "steps": steps})
    trials = []
    for label, cell, lanes in width_vocab.cells(config):
        dataset = _dataset(cell)
        for lane in lanes:
            trials.append((label, cell, lane.learning_rates, str(dataset.tokens_train)))

    def train(trial):
        from tests.benchmarks.plain import PlainTrainer

        _, cell, rates, tokens = trial
        trainer = PlainTrainer(cell.model, np.load(tokens), cell.batch, rates["embedding"], rates["hidden"])
        return trainer.step(cell.steps)

    class Plain(tune.Trainable):
        def setup(self, config):
            self.trial = config["trial"]

        def reset_config(self, config):
            self.trial = config["trial"]
            return True

        def step(self):
            return {"loss": train(self.trial), "done": True}

        def save_checkpoint(self, folder):
            return None

    environment = {"env_vars": {"PYTHONPATH": str(ROOT)}}
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, runtime_env=environment)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        results = tune.Tuner(
            tune.with_resources(Plain, {"cpu": 1}),
            param_space={"trial": tune.grid_search(trials)},
            tune_config=tune.TuneConfig(reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
    ray.shutdown()
    if results.errors:
        raise RuntimeError(f"{len(results.errors)} trials failed: {results.errors[0]}")


def ours(steps: int, cache: str) -> None:
    """The same lanes as a sweep of ours, with nothing compiled yet."""
    shutil.rmtree(Path(cache, "xla"), ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", "width_vocab", "--tier", "laptop", "--quiet", "--threads", "1", "--out", f"{folder}/out"]
        settings = [f"--set=widths={WIDTHS}", f"--set=rates={RATES}", "--set=seeds=0", f"--set=steps={steps}"]
        _process([sys.executable, "-m", "sweeps", *words, *settings], {"LVP_CACHE": cache})


def _process(words: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(words, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


def main(rounds: int) -> None:
    times: dict[tuple, list[float]] = {}
    with tempfile.TemporaryDirectory() as cache:
        prepare = ["run", "width_vocab", "--quiet", "--threads=1", f"--out={cache}/out"]
        least = ["--set=steps=1", "--set=seeds=0", f"--set=widths={WIDTHS}", f"--set=rates={RATES}"]
        _process([sys.executable, "-m", "sweeps", *prepare, *least], {"LVP_CACHE": cache})
        for _ in range(rounds):
            for steps in STEPS:
                for side in ("ours", "fresh", "reused"):
                    if side == "reused" and steps != max(STEPS):
                        continue
                    started = time.perf_counter()
                    if side == "ours":
                        ours(steps, cache)
                    else:
                        words = [sys.executable, "-m", "tests.benchmarks.sweep", str(steps), side]
                        _process(words, {"LVP_CACHE": cache, "JAX_PLATFORMS": "cpu"})
                    times.setdefault((side, steps), []).append(time.perf_counter() - started)
                    print(f"  {side}, {steps} steps: {times[side, steps][-1]:.0f} s", file=sys.stderr, flush=True)
    middle = {k: statistics.median(v) for k, v in times.items()}
    rows = []
    for what, side, steps, least, aim in (
        ("laptop lanes per hour, fresh actors", "fresh", 1500, "2.3×", "3.5×"),
        ("laptop lanes per hour, reused actors", "reused", 1500, "1.8×", "2.5×"),
        ("100-step lanes per hour, fresh actors", "fresh", 100, "5×", "10×"),
    ):
        lanes = len(WIDTHS.split(",")) * len(RATES.split(","))
        a, b = middle["ours", steps], middle[side, steps]
        rows.append((f"{what}: {lanes * 3600 / a:.0f} against {lanes * 3600 / b:.0f}", f"{b / a:.1f}×", least, aim))
    finish("sweep", rounds, rows, {f"{side}, {steps} steps": v for (side, steps), v in times.items()})


if __name__ == "__main__":
    if len(sys.argv) == 3:
        obvious(int(sys.argv[1]), sys.argv[2] == "reused")
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
