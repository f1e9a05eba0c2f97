"""The time of XLA's weight gradient xᵀ y, divided by that of `lvp.products.weight_gradient`.

    python -m tests.benchmarks.products

A shape has the tokens of a micro-batch, and the inputs and outputs of the matrix. Workers of a sweep have one thread.
"""

import os
import sys
from itertools import product

from tests.benchmarks import RUN, alternate, finish, serve

MODULE = "tests.benchmarks.products"
SHAPES = (
    (512, 128, 32),
    (2048, 128, 32),
    (2048, 512, 32),
    (8192, 512, 32),
    (4096, 2048, 64),
    (4096, 1024, 256),
)
THREADS = {"one": "one thread", "all": "all threads"}
ROUNDS = 15
FLOPS = 10**9  # of the calls in a round


def side(name: str) -> None:
    """Runs one side. Its name is "ours" or "xla", a key of `THREADS` and the three sizes."""
    kind, threads, *sizes = name.split("-")
    if threads == "one":
        from lvp.sweeps.fingerprint import CPU_FLAGS

        os.environ |= {"NPROC": "1", "PJRT_NPROC": "1", "XLA_FLAGS": CPU_FLAGS}
    import jax
    import numpy as np

    from lvp.products import weight_gradient

    tokens, inputs, outputs = map(int, sizes)
    random = np.random.default_rng(0)
    operands = [jax.device_put(random.normal(size=(tokens, n)).astype("float32")) for n in (inputs, outputs)]
    gradient = {"ours": lambda x, y: weight_gradient(x, y, x.dtype), "xla": lambda x, y: x.T @ y}[kind]
    np.testing.assert_allclose(gradient(*operands), operands[0].T @ operands[1], atol=1e-3 * tokens**0.5)
    compiled = jax.jit(gradient).lower(*operands).compile()

    def run(n):
        for _ in range(n):
            jax.block_until_ready(compiled(*operands))

    serve({RUN: run}, {})


def main() -> None:
    rows, raw = [], {}
    for threads, (tokens, inputs, outputs) in product(THREADS, SHAPES):
        sizes = f"{threads}-{tokens}-{inputs}-{outputs}"
        calls = max(1, FLOPS // (2 * tokens * inputs * outputs))
        done = alternate(MODULE, {f"{kind}-{sizes}": (True, calls) for kind in ("ours", "xla")}, ROUNDS)
        raw |= {name: side.times[RUN] for name, side in done.items()}
        ratio = done[f"xla-{sizes}"].over(done[f"ours-{sizes}"])
        rows.append(
            (f"{THREADS[threads]}, {tokens} tokens, [{inputs}, {outputs}]: XLA / ours", f"{ratio:.2f}×", "1×", "")
        )
    finish("products", ROUNDS, rows, raw)


if __name__ == "__main__":
    side(sys.argv[1]) if len(sys.argv) > 1 else main()
