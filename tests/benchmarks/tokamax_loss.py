"""The next-token loss against tokamax's: what TPU compilers say of both, with no TPU, and how exact both are on CPU.

    python -m tests.benchmarks.tokamax_loss

Takes tokamax and libtpu. Python 3.11 gets tokamax 0.0.12, 3.12 with jax ≥ 0.11.1 gets 0.0.17; the result stands under
the version found. Ten minutes.

Compiled: value and gradients of a device's tokens × 2,048 × 32,064, hidden in bfloat16, the head a float32 parameter
that is multiplied in bfloat16, on one device. XLA counts what a loop's body does once; products are that times the
loop's steps. Run: 2,048 tokens × 256 × 1,152, a vocabulary that is no multiple of tokamax's blocks (512 of the kernel
in Pallas' interpreter, where products are float32's; 2,048 of chunked_xla), against the dense loss in float64.
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

from lvp.losses import ACCELERATOR_CHUNK, dense_next_token_loss, next_token_loss
from lvp.parallel.sharding import make_mesh
from lvp.plan import devices_of
from tests.benchmarks import finish

WIDTH, VOCAB = 2048, 32064
# Of docs/plans, and a smaller one: a topology and a device's tokens.
CASES = (("v5e", "2x2", 4096), ("v5e", "2x2", 8192), ("v5p", "2x2x1", 16384), ("v6e", "2x2", 16384))
CHUNKS = (ACCELERATOR_CHUNK, 4096, 2048, 1024)
SMALL = (2048, 256, 1152)
TOKEN_BLOCK, VOCAB_BLOCK = 1024, 2048  # of chunked_xla


def ours(chunk: int):
    return lambda hidden, head, targets: next_token_loss(hidden, head, targets, chunk=chunk)


def dense(hidden, head, targets):
    return dense_next_token_loss(hidden, head.astype(hidden.dtype), targets)


def theirs(implementation: str):
    op = IMPLEMENTATIONS[implementation]
    for part in (type(op), type(op.vjp)):
        part.supported_on = lambda self, device: True  # it looks at this machine, and the program is for another one
    return lambda hidden, head, targets: op(hidden, targets, head.astype(hidden.dtype), reduction="mean")


def losses() -> dict:
    """By name: the loss, and the steps of its loops over so many tokens."""
    found = {f"ours, chunks of {chunk}": (ours(chunk), lambda n, c=chunk: math.ceil(n / c)) for chunk in CHUNKS}
    found["dense"] = dense, lambda n: 1
    for name in IMPLEMENTATIONS:
        loops = name == "chunked_xla"
        steps = (lambda n: math.ceil(n / TOKEN_BLOCK) * math.ceil(VOCAB / VOCAB_BLOCK)) if loops else lambda n: 1
        found[f"tokamax {name}"] = theirs(name), steps
    return found


def compiled(loss, mesh, tokens: int) -> dict[str, float]:
    """Bytes and FLOPs of value and gradients on the mesh's one device."""
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
    """The Mosaic kernel's value and gradients, on CPU."""

    def run(hidden, head, targets):
        blocks = {"b_block_size": 1024, "h_block_size": 256, "v_block_size": 512, "reduction": "mean"}
        head = head.astype(hidden.dtype)
        outside = pltpu.InterpretParams(out_of_bounds_reads="uninitialized")  # the last block's, which it masks
        with pltpu.force_tpu_interpret_mode(outside), jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            value, lse = mosaic.linear_softmax_cross_entropy_loss_fwd_pallas_mosaic_tpu(hidden, targets, head, **blocks)
            one = jnp.ones(())
            return value, mosaic.linear_softmax_cross_entropy_loss_bwd_pallas_mosaic_tpu(
                one, lse, hidden, targets, head, **blocks
            )

    return run


def errors(name: str, loss, mesh, dtype: str) -> tuple[float, float]:
    """Relative errors of the value and of the worse gradient, by its norm."""
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
        found = {f"{kind}, {tokens:,} tokens": compiled(loss, places[kind], tokens) for kind, _, tokens in CASES}
        raw[name] = found | {dtype: errors(name, loss, places["v5e"], dtype) for dtype in ("float32", "bfloat16")}
        kind, _, tokens = CASES[1]
        products = found[f"{kind}, {tokens:,} tokens"]["flops"] * steps(tokens) / (2 * tokens * WIDTH * VOCAB)
        bytes_ = [f"{x['temporary'] / 2**20:.0f} / {x['peak'] / 2**20:.0f}" for x in found.values()]
        off = ["{:.0e} / {:.0e}".format(*raw[name][dtype]) for dtype in ("float32", "bfloat16")]
        rows.append((name, f"{products:.1f}" if products > 0.5 else "hidden", *bytes_, *off))
        print(*rows[-1], sep="  ", flush=True)
    head = ("loss", "products", *found, "error, float32", "error, bfloat16")
    versions = {name: importlib.metadata.version(name) for name in ("tokamax", "libtpu")}
    finish(f"tokamax-{versions['tokamax']}", None, rows, raw, versions, head)


if __name__ == "__main__":
    main()
