"""The share of a matrix product's FLOP/s that training reaches, for the forecast (`lvp.sweeps.forecast`).

    python -m tests.benchmarks.training_share [ROUNDS]

The product is that of the forecast, on all cores. Training has one process with one thread on each core, as a sweep
has. It trains settings of `width_vocab` (preset laptop, rows × √d).
"""

import os
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor

from lvp.sweeps.forecast import matrix_product_flops
from tests.benchmarks import RUN, finish, serve, started

MODULE = "tests.benchmarks.training_share"
WIDTHS = ("32", "64", "128")
STEPS, CALLS, ROUNDS = 50, 2, 15
STEPS_OF_RUN = 10**6  # more than the benchmark runs


def training(width: str) -> None:
    import jax
    import numpy as np

    from lvp import experiments
    from lvp.training import Program, TrainingData

    config = experiments.configured("width_vocab", "laptop", {"widths": width, "steps": str(STEPS_OF_RUN)})
    planned = experiments.load("width_vocab").settings(config)[0]
    program, tokens = (
        Program(planned.setting),
        np.random.default_rng(0).integers(0, planned.setting.vocab, 60_000, np.int32),
    )
    data = TrainingData.from_tokens(planned.setting, tokens[:50_000], tokens[50_000:])
    run, feed = program.arrays([planned.runs[0]]), data.feed(0)[1]
    state, step = program.blank_state(), 0

    def train(n):
        nonlocal state, step
        for _ in range(n):
            state = program.advance(np.int32(step), np.int32(step + STEPS), state, run, feed)
            step += STEPS
        jax.block_until_ready(state)

    flops = STEPS * planned.setting.flops_per_run / planned.setting.steps
    serve({RUN: train}, {"flops": flops, "params": planned.setting.num_params})


def main(rounds: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    groups = {width: [started(MODULE, f"{width}@{core}", tuned=True) for core in cores] for width in WIDTHS}
    speeds: dict[str, list[float]] = {name: [] for name in ("product", *WIDTHS)}
    with ThreadPoolExecutor(len(cores)) as pool:
        for _ in range(rounds):
            speeds["product"].append(matrix_product_flops())
            for width, group in groups.items():
                list(pool.map(lambda side: side.call(CALLS), group))
                speeds[width].append(sum(side.facts["flops"] / side.times[RUN][-1] for side in group))
    shares = {}
    for width, group in groups.items():
        ratios = [a / b for a, b in zip(speeds[width], speeds["product"], strict=True)]
        shares[group[0].facts["params"]] = statistics.median(ratios)
        for side in group:
            side.end()
    rows = [(f"training of {params:,} parameters / matrix product", f"{x:.2f}") for params, x in shares.items()]
    finish("training_share", rounds, rows, {"shares": shares, **speeds}, head=("what", "share of the FLOP/s"))


if __name__ == "__main__":
    name, at, core = (sys.argv[1:2] or [""])[0].partition("@")
    if at:
        os.sched_setaffinity(0, {int(core)})  # before JAX counts the cores
        training(name)
    else:
        main(int(name or ROUNDS))
