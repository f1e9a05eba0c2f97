"""The share of a training step that is spent waiting for data from disk.

    python -m tests.benchmarks.waiting [ROUNDS]

The model is the laptop setting of `pretrain_1b` (width 128, 4 layers, context 256, batch 16), with order "rows". It
trains as `lvp.training.run` does, on rows in random order from a memory-mapped file of 2^26 tokens. The file has just
been written, so most of it is in the page cache. The waiting time runs from the request for the rows of the next steps
until the rows are on the device. The control does not read ahead.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks import RUN, alternate, finish

MODULE = "tests.benchmarks.waiting"
TOKENS, VALID_TOKENS = 2**26, 60_000
STEPS, ROUNDS = 64, 15
STEPS_OF_RUN = 10**6  # more than the benchmark runs


def _setting():
    from dataclasses import replace

    from lvp.experiments import configured, pretrain_1b
    from lvp.training import DataConfig

    planned = pretrain_1b.config.settings(configured("pretrain_1b", "laptop", {}))[0]
    data = DataConfig("none", order="rows")
    return replace(planned.setting, data=data, steps=STEPS_OF_RUN, measured_steps=()), planned.runs[0]


def _tokens(vocab: int):
    """Random tokens, memory-mapped from a temporary file."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.npy")
        np.save(path, np.random.default_rng(0).integers(0, vocab, TOKENS, np.uint16))
        return np.load(path, mmap_mode="r")


def _trainer(read_ahead: bool):
    """A function run(n) that trains n steps and returns the share of the time that was spent waiting."""
    import jax
    import numpy as np

    from lvp import training
    from lvp.data.tokens import streams
    from lvp.training.language import STREAMED_STEPS

    setting, run = _setting()
    tokens = _tokens(setting.vocab)

    if not read_ahead:
        streams.prefetched = lambda feed: feed
    data_of_steps = training.StreamedTokens(setting, tokens, np.asarray(tokens[:VALID_TOKENS]), [run.seed]).feed
    program = training.Program(setting)
    program.compile(data_of_steps(0)[1])
    arrays, at = program.arrays([run]), {"step": 0, "state": program.blank_state()}

    def wait(n: int) -> float:
        waited, began = 0.0, time.perf_counter()
        for _ in range(max(1, n // STREAMED_STEPS)):
            requested = time.perf_counter()
            stop, data = data_of_steps(at["step"])
            data = jax.block_until_ready(jax.device_put(data, program.data_placement(data)))
            waited += time.perf_counter() - requested
            state = program.advance(np.int32(at["step"]), np.int32(stop), at["state"], arrays, data)
            at.update(step=stop, state=jax.block_until_ready(state))
        return waited / (time.perf_counter() - began)

    return wait


def side(name: str) -> None:
    """Does what `tests.benchmarks.serve` does, but prints the share of waiting instead of the time."""
    wait = _trainer(read_ahead=name == "ahead")
    wait(STEPS)
    print("{}", flush=True)
    for line in sys.stdin:
        wait(1)
        print(wait(int(line.partition(" ")[0])), flush=True)


def main(rounds: int) -> None:
    sides = alternate(MODULE, {"ahead": (True, STEPS), "asked": (True, STEPS)}, rounds)
    shares = {name: statistics.median(side.times[RUN]) for name, side in sides.items()}
    rows = [
        ("share of a step spent waiting for rows from disk", f"{shares['ahead']:.2%}", "< 2%", ""),
        ("the same with nothing read ahead", f"{shares['asked']:.2%}", "", ""),
    ]
    finish("waiting", rounds, rows, {name: side.times[RUN] for name, side in sides.items()})


if __name__ == "__main__":
    if sys.argv[1:] in (["ahead"], ["asked"]):
        side(sys.argv[1])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
