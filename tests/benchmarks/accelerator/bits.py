"""Whether repeated runs, repeated packs and resumed runs have equal losses, bit by bit, with deterministic kernels.

The process runs with `FLAG`. Without it the gradient of the look-up adds in any order on a GPU.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from lvp import training
from tests.benchmarks.accelerator.right import curves, resumed_curves, training_setting
from tests.benchmarks.accelerator.rows import Rows
from tests.benchmarks.accelerator.sizes import Sizes
from tests.benchmarks.programs import data_of, runs

FLAG = "--xla_gpu_deterministic_ops=true"


def main(rows: Rows, sizes: Sizes) -> None:
    setting = training_setting()
    data, eight = data_of(setting), runs(setting, 8)
    single, packed = training.Program(setting), training.Program(setting, 8)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda program: program.compile(data), (single, packed)))
    name = "losses that differ in a "
    with rows.attempt("repeated run"):
        first = curves(single, eight[:1], data)
        rows.add(f"{name}repeated run", differing(curves(single, eight[:1], data), first), most=0)
    with rows.attempt("repeated pack"):
        of_pack = curves(packed, eight, data)
        rows.add(f"{name}repeated pack of 8", differing(curves(packed, eight, data), of_pack), most=0)
    with rows.attempt("resumed run"):
        again = resumed_curves(single, eight[:1], data)
        rows.add(f"{name}run resumed from a checkpoint", differing(again, first), most=0)


def differing(x: np.ndarray, y: np.ndarray) -> int:
    """The number of entries that differ."""
    return int(np.sum(x != y))
