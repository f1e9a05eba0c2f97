"""The next-token loss compared with tokamax's: memory and FLOPs from the TPU compiler, and errors on CPU.

    python -m tests.benchmarks.tokamax_loss

Needs tokamax and libtpu, but no TPU. Python 3.11 has tokamax 0.0.12; Python 3.12 with jax ≥ 0.11.1 has tokamax 0.0.17.
The result's name contains tokamax's version.

Compilation: value and gradients on one device for a width of 2,048 and a vocabulary of 32,064. The hidden vectors are
bfloat16. The head is a float32 parameter that is multiplied in bfloat16. XLA counts the body of a loop once, so the
number of matrix products is XLA's count times the loop's steps.

Errors: 2,048 tokens, width 256, vocabulary 1,152, compared with the dense loss in float64. The vocabulary is not a
multiple of tokamax's blocks: 512 in the kernel, which runs in Pallas' interpreter with float32 products, and 2,048 in
chunked_xla.
"""

import importlib.metadata
import logging
import math
import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import NamedSharding, PartitionSpec
from tokamax._src.ops.linear_softmax_cross_entropy_loss import pallas_mosaic_tpu_kernel as mosaic
from tokamax._src.ops.linear_softmax_cross_entropy_loss.api import IMPLEMENTATIONS

from lvp.losses import TPU_CHUNK, dense_next_token_loss, next_token_loss
from lvp.parallel.sharding import make_mesh
from lvp.training.plan import devices_of
from tests.benchmarks import finish

WIDTH, VOCAB = 2048, 32064
# TPU kind, topology and tokens per device: the plans in docs/plans, and a smaller case.
CASES = (("v5e", "2x2", 4096), ("v5e", "2x2", 8192), ("v5p", "2x2x1", 16384), ("v6e", "2x2", 16384))
CHUNKS = (TPU_CHUNK, 4096, 2048, 1024)
SMALL = (2048, 256, 1152)
TOKEN_BLOCK, VOCAB_BLOCK = 1024, 2048  # block sizes of chunked_xla


def ours(chunk: int):
    return lambda hidden, head, targets: next_token_loss(hidden, head, targets, chunk=chunk)


def dense(hidden, head, targets):
    return dense_next_token_loss(hidden, head.astype(hidden.dtype), targets)


def theirs(implementation: str):
    op = IMPLEMENTATIONS[implementation]
    for part in (type(op), type(op.vjp)):
        part.supported_on = lambda self, device: True  # tokamax checks this machine, not the target of the compilation
    return lambda hidden, head, targets: op(hidden, targets, head.astype(hidden.dtype), reduction="mean")


def losses() -> dict:
    """Name → (loss, function from the number of tokens to the steps of the loss's loops)."""
    by_name = {f"ours, chunks of {chunk}": (ours(chunk), lambda n, c=chunk: math.ceil(n / c)) for chunk in CHUNKS}
    by_name["dense"] = dense, lambda n: 1
    for name in IMPLEMENTATIONS:
        loops = name == "chunked_xla"
        steps = (lambda n: math.ceil(n / TOKEN_BLOCK) * math.ceil(VOCAB / VOCAB_BLOCK)) if loops else lambda n: 1
        by_name[f"tokamax {name}"] = theirs(name), steps
    return by_name


def compiled(loss, mesh, tokens: int) -> dict[str, float]:
    """Bytes and FLOPs of the compiled value and gradients. The mesh has one device."""
    place = NamedSharding(mesh, PartitionSpec())
    shapes = (((tokens, WIDTH), "bfloat16"), ((WIDTH, VOCAB), "float32"), ((tokens,), "int32"))
    arguments = [jax.ShapeDtypeStruct(*shape, sharding=place) for shape in shapes]
    with jax.set_mesh(mesh):
        program = jax.jit(jax.value_and_grad(loss, (0, 1)), out_shardings=(None, (place, place))).lower(*arguments)
        program = program.compile()
    memory, cost = program.memory_analysis(), program.cost_analysis()
    return {
        "temporary": memory.temp_size_in_bytes,
        "peak": memory.peak_memory_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "flops": cost.get("flops", 0.0),
        "bytes_accessed": cost.get("bytes accessed", 0.0),
    }


def interpreted(mesh):
    """A function that computes the Mosaic kernel's value and gradients on CPU, in Pallas' interpreter."""

    def run(hidden, head, targets):
        blocks = {"b_block_size": 1024, "h_block_size": 256, "v_block_size": 512, "reduction": "mean"}
        head = head.astype(hidden.dtype)
        outside = pltpu.InterpretParams(out_of_bounds_reads="uninitialized")  # the kernel masks them in the last block
        with pltpu.force_tpu_interpret_mode(outside), jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            value, lse = mosaic.linear_softmax_cross_entropy_loss_fwd_pallas_mosaic_tpu(hidden, targets, head, **blocks)
            one = jnp.ones(())
            return value, mosaic.linear_softmax_cross_entropy_loss_bwd_pallas_mosaic_tpu(
                one, lse, hidden, targets, head, **blocks
            )

    return run


def errors(name: str, loss, mesh, dtype: str) -> tuple[float, float]:
    """Relative errors of the value and of the gradients: the larger of both gradients, in the Euclidean norm."""
    tokens, width, vocab = SMALL
    keys = jax.random.split(jax.random.key(0), 3)
    hidden = jax.random.normal(keys[0], (tokens, width)).astype(dtype)
    head = (jax.random.normal(keys[1], (width, vocab)) * width**-0.5).astype(dtype).astype("float32")
    targets = jax.random.randint(keys[2], (tokens,), 0, vocab)
    with jax.enable_x64(True):
        wide = hidden.astype("float64"), head.astype("float64")
        want = jax.value_and_grad(dense_next_token_loss, (0, 1))(*wide, targets)
    run = interpreted(mesh) if name == "tokamax mosaic_tpu" else jax.jit(jax.value_and_grad(loss, (0, 1)))
    got = run(hidden, head, targets)

    def off(x, y):
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        return float(np.linalg.norm(x - y) / np.linalg.norm(y))

    return off(got[0], want[0]), max(off(x, y) for x, y in zip(got[1], want[1], strict=True))


def main() -> None:
    logging.getLogger("absl").setLevel(logging.ERROR)
    places = {
        kind: make_mesh({}.fromkeys(("data", "fsdp", "model"), 1), devices_of(f"{kind}:{shape}")[0][:1])
        for kind, shape, _ in CASES
    }
    raw, rows = {}, []
    for name, (loss, steps) in losses().items():
        costs = {f"{kind}, {tokens:,} tokens": compiled(loss, places[kind], tokens) for kind, _, tokens in CASES}
        raw[name] = costs | {dtype: errors(name, loss, places["v5e"], dtype) for dtype in ("float32", "bfloat16")}
        kind, _, tokens = CASES[1]
        products = costs[f"{kind}, {tokens:,} tokens"]["flops"] * steps(tokens) / (2 * tokens * WIDTH * VOCAB)
        bytes_ = [f"{x['temporary'] / 2**20:.0f} / {x['peak'] / 2**20:.0f}" for x in costs.values()]
        off = ["{:.0e} / {:.0e}".format(*raw[name][dtype]) for dtype in ("float32", "bfloat16")]
        rows.append((name, f"{products:.1f}" if products > 0.5 else "hidden", *bytes_, *off))
        print(*rows[-1], sep="  ", flush=True)
    head = ("loss", "products", *costs, "error, float32", "error, bfloat16")
    versions = {name: importlib.metadata.version(name) for name in ("tokamax", "libtpu")}
    finish(f"tokamax-{versions['tokamax']}", None, rows, raw, versions, head)


if __name__ == "__main__":
    main()
