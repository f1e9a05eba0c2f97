"""The time of XLA's weight gradient xᵀ y, divided by that of `lvp.products.weight_gradient`.

    python -m tests.benchmarks.products

The shapes are those of the laptop tiers: tokens of a micro-batch, inputs and outputs of the matrix.
"""

import sys

from tests.benchmarks import alternate, finish, serve

MODULE = "tests.benchmarks.products"
SHAPES = (
    (512, 32, 512),
    (2048, 32, 96),
    (2048, 32, 512),
    (8192, 32, 128),
    (8192, 32, 512),
    (512, 128, 1024),
    (4096, 256, 2048),
)
ROUNDS = 15
FLOPS = 10**9  # of the calls in a round


def side(name: str) -> None:
    """Runs one side. Its name is "ours" or "xla", and the three sizes."""
    import jax
    import numpy as np

    from lvp.products import weight_gradient

    kind, *sizes = name.split("-")
    tokens, inputs, outputs = map(int, sizes)
    random = np.random.default_rng(0)
    operands = [jax.device_put(random.normal(size=(tokens, n)).astype("float32")) for n in (inputs, outputs)]
    gradient = {"ours": lambda x, y: weight_gradient(x, y, x.dtype), "xla": lambda x, y: x.T @ y}[kind]
    np.testing.assert_allclose(gradient(*operands), operands[0].T @ operands[1], atol=1e-3 * tokens**0.5)
    compiled = jax.jit(gradient).lower(*operands).compile()

    def run(n):
        for _ in range(n):
            jax.block_until_ready(compiled(*operands))

    serve(run, {})


def main() -> None:
    rows, raw = [], {}
    for tokens, inputs, outputs in SHAPES:
        sizes = f"{tokens}-{inputs}-{outputs}"
        calls = max(1, FLOPS // (2 * tokens * inputs * outputs))
        done = alternate(MODULE, {f"{kind}-{sizes}": (True, calls) for kind in ("ours", "xla")}, ROUNDS)
        raw |= {name: side.times for name, side in done.items()}
        ratio = done[f"xla-{sizes}"].over(done[f"ours-{sizes}"])
        rows.append((f"{tokens} tokens, [{inputs}, {outputs}]: XLA / ours", f"{ratio:.2f}×", "1×", ""))
    finish("products", ROUNDS, rows, raw)


if __name__ == "__main__":
    side(sys.argv[1]) if len(sys.argv) > 1 else main()
