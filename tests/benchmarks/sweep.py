"""Runs per hour of the laptop sweep, divided by those of plain Ray Tune with one trial per learning rate and seed.

    python -m tests.benchmarks.sweep [ROUNDS]

Plain Tune trains `plain.PlainTrainer` with the learning rate as a Python float, with new and with reused actors. It
trains a sample with the same number of runs of each width, because its cost per run does not depend on the number of
runs. Its time is that of `Tuner.fit`, without the start of Ray. The sweep of lvp trains the whole grid. The time of
the sweep includes the start of the process, compilation without a cache, all runs, the table and the figure.
"""

import contextlib
import json
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
SAMPLE = 3  # runs of each setting that plain Tune trains


def sample(steps: int) -> list[tuple]:
    """(setting, learning rates, path of tokens) of the runs that plain Tune trains, the last setting first."""
    from lvp.experiments import configured, width_vocab
    from lvp.files import cache_dir
    from lvp.training import task_for

    trials = []
    for _, setting, runs, _ in width_vocab.config.settings(configured("width_vocab", "laptop", {"steps": steps})):
        tokens = str(task_for(setting).prepare(cache_dir() / "data").tokens_train)
        trials += [(setting, run.learning_rates, tokens) for run in runs[:: len(runs) // SAMPLE][:SAMPLE]]
    return trials[::-1]


def plain_tune(steps: int, reuse: bool) -> dict:
    """Trains the sample under Ray Tune. Returns the number of runs and Tune's seconds. Needs a process of its own."""
    import numpy as np
    import ray
    from ray import tune

    trials = sample(steps)

    def train(trial):
        from tests.benchmarks.plain import PlainTrainer

        setting, rates, tokens = trial
        trainer = PlainTrainer(setting.model, np.load(tokens), setting.batch, rates["embedding"], rates["hidden"])
        return trainer.step(setting.steps)

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
        started = time.perf_counter()
        results = tune.Tuner(
            tune.with_resources(Plain, {"cpu": 1}),
            param_space={"trial": tune.grid_search(trials)},
            tune_config=tune.TuneConfig(reuse_actors=reuse),
            run_config=tune.RunConfig(storage_path=folder, verbose=0),
        ).fit()
        seconds = time.perf_counter() - started
    ray.shutdown()
    if results.errors:
        raise RuntimeError(f"{len(results.errors)} trials failed: {results.errors[0]}")
    return {"runs": len(trials), "seconds": seconds}


def ours(steps: int, cache: str) -> dict:
    """Runs the whole sweep without a compile cache. Returns the number of runs and the seconds of the command."""
    shutil.rmtree(Path(cache, "xla"), ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        started = time.perf_counter()
        _sweep("--preset", "laptop", "--out", out, f"--set=steps={steps}", cache=cache)
        return {"seconds": time.perf_counter() - started, "runs": len(list(out.glob("records/*.jsonl")))}


def _sweep(*words, cache: str) -> None:
    _process([sys.executable, "-m", "lvp.sweeps", "run", "width_vocab", "--quiet", *map(str, words)], cache)


def _process(words: list[str], cache: str) -> str:
    environment = os.environ | {"LVP_CACHE": cache, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stdout


def turn(side: str, steps: int, cache: str) -> dict:
    if side == "ours":
        return ours(steps, cache)
    words = [sys.executable, "-m", "tests.benchmarks.sweep", str(steps), side]
    return json.loads(_process(words, cache).splitlines()[-1])


def main(rounds: int) -> None:
    turns = [("ours", 1500), ("fresh", 1500), ("reused", 1500), ("ours", 100), ("fresh", 100)]
    rates: dict[tuple, list[float]] = {t: [] for t in turns}
    with tempfile.TemporaryDirectory() as cache:
        # Corpus and tokenizers are prepared before the timed runs, for both sides.
        smallest = ("--set=steps=1", "--set=seeds=0", "--set=rates=0.01,0.02,0.03")
        _sweep("--preset", "laptop", "--out", f"{cache}/out", "--threads=1", *smallest, cache=cache)
        for _ in range(rounds):
            for side, steps in turns:
                done = turn(side, steps, cache)
                rates[side, steps].append(3600 * done["runs"] / done["seconds"])
                what = f"  {side}, {steps} steps: {done['runs']} runs in {done['seconds']:.0f} s"
                print(what, file=sys.stderr, flush=True)
    middle = {k: statistics.median(v) for k, v in rates.items()}
    rows = []
    for what, side, steps, bound, aim in (
        ("laptop runs per hour, fresh actors", "fresh", 1500, "2.3×", "3.5×"),
        ("laptop runs per hour, reused actors", "reused", 1500, "1.8×", "2.5×"),
        ("100-step runs per hour, fresh actors", "fresh", 100, "5×", "10×"),
    ):
        a, b = middle["ours", steps], middle[side, steps]
        rows.append((f"{what}: {a:.0f} against {b:.0f}", f"{a / b:.1f}×", bound, aim))
    finish("sweep", rounds, rows, {f"runs per hour: {s}, {n} steps": v for (s, n), v in rates.items()})


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(plain_tune(int(sys.argv[1]), sys.argv[2] == "reused")))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
