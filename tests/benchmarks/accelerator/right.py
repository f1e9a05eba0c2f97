"""Compares results of the device with the same computation in float32 or float64 on the CPU of its machine, the host.

An error is the Euclidean norm of the difference divided by the norm of the host's result. "Exact products" are float32
products without TF32 (`jax.default_matmul_precision("highest")`).
"""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lvp import training
from lvp.files import checkpoints
from lvp.losses import compiling_for, dense_next_token_loss, next_token_loss
from lvp.models.attention import causal_attention, fused_attention
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder
from lvp.parametrization import table
from lvp.products import product
from lvp.training import DataConfig, OptimizerConfig, Setting
from tests.benchmarks.accelerator.rows import Rows
from tests.benchmarks.accelerator.sizes import Sizes
from tests.benchmarks.programs import data_of, runs

FORMS: dict[str, dict[str, Any]] = {
    "LayerNorm, sinusoidal": {},
    "RMSNorm, rotary, SwiGLU, 2 of 4 heads, window": {
        **{"norm": "rms", "positions": "rotary", "mlp": "swiglu", "heads": 4, "kv_heads": 2, "head_dim": 32},
        "window": 40,
    },
}
# Kind of `lvp.training.OPTIMIZERS` → options.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    **{kind: {"weight_decay": 0.1} for kind in ("adamw", "coupled_adam", "lion_a", "lion_ar", "rotational_adamw")},
    "sign_sgd": {},
    "muon": {"consistent_rms": 0.2},
}
STEPS = 20


def on_host(function: Callable, *arguments: Any) -> Any:
    """The function's result on the CPU, as NumPy arrays."""
    with jax.default_device(jax.devices("cpu")[0]), compiling_for("cpu"):
        return jax.tree.map(np.asarray, jax.jit(function)(*arguments))


def exactly(function: Callable, *arguments: Any) -> Any:
    """The function's result on the device with exact products."""
    with jax.default_matmul_precision("highest"):
        return jax.jit(function)(*arguments)


def error(got: Any, want: Any) -> float:
    """The relative error of a pytree of arrays, in the Euclidean norm."""
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
    wide = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in pairs]
    return float((sum(np.sum((x - y) ** 2) for x, y in wide) / sum(np.sum(y**2) for _, y in wide)) ** 0.5)


def models(rows: Rows, sizes: Sizes, name: str) -> None:
    """Forward pass, loss and gradient of the decoder of a form."""
    layers, context = (1, 48) if sizes.name == "small" else (2, 128)
    shape = {"vocab": 512, "width": 128, "layers": layers, "context": context}
    tokens = np.random.default_rng(0).integers(0, 512, (4, context + 1)).astype(np.int32)
    form = FORMS[name]
    config = DecoderConfig(**shape, **form)
    params = on_host(decoder(config).init, jax.random.key(0))

    def loss_of(config, params):
        model = decoder(config)
        hidden = model.apply(params, tokens[:, :-1])
        return next_token_loss(hidden, model.head(params), tokens[:, 1:])

    exact = partial(jax.value_and_grad(loss_of, argnums=1), config)
    want = on_host(exact, params)
    bfloat16 = DecoderConfig(**shape, **form, dtype="bfloat16")
    fused = DecoderConfig(**shape, **form, dtype="bfloat16", attention="fused")
    for kind, run, limits in (
        ("exact products", lambda: exactly(exact, params), (1e-6, 1e-5)),
        ("float32", lambda: jax.jit(exact)(params), (1e-4, 5e-3)),
        ("bfloat16", lambda: jax.jit(jax.value_and_grad(partial(loss_of, bfloat16)))(params), (5e-3, 5e-2)),
        ("bfloat16, fused", lambda: jax.jit(jax.value_and_grad(partial(loss_of, fused)))(params), (5e-3, 5e-2)),
    ):
        with rows.attempt(f"decoder ({name}), {kind}"):
            loss, gradient = run()
            rows.add(f"decoder ({name}), {kind}: loss", error(loss, want[0]), most=limits[0])
            rows.add(f"decoder ({name}), {kind}: gradient", error(gradient, want[1]), most=limits[1])


def attention(rows: Rows, sizes: Sizes) -> None:
    """Output and gradients of the fused kernel, from bfloat16 inputs, against the masked form in float32."""
    for name, heads, groups, window in (("causal", 4, 4, None), ("2 of 4 heads, window 100", 4, 2, 100)):
        rng = np.random.default_rng(1)
        length = 128 if sizes.name == "small" else 512
        q, k, v, w = (rng.normal(size=(2, length, h, 64)).astype(jnp.bfloat16) for h in (heads, groups, groups, heads))

        def gradients(mix, q, k, v):
            weigh = lambda *x: jnp.sum(mix(*x, 128, window) * w.astype(x[0].dtype), dtype=jnp.float32)  # noqa: E731, B023
            return mix(q, k, v, 128, window), jax.grad(weigh, (0, 1, 2))(q, k, v)  # noqa: B023

        want = on_host(partial(gradients, causal_attention), *(x.astype(np.float32) for x in (q, k, v)))
        with rows.attempt(f"fused attention ({name})"):
            got = jax.jit(partial(gradients, fused_attention))(q, k, v)
            rows.add(f"fused attention ({name}): output", error(got[0], want[0]), most=1e-2)
            rows.add(f"fused attention ({name}): gradients", error(got[1], want[1]), most=2e-2)


def losses(rows: Rows, sizes: Sizes) -> None:
    """The vocabulary loss by chunks and the products' own gradient, against float64."""
    rng, tokens, width, vocab = np.random.default_rng(2), 500, 96, 1000
    hidden, head = rng.normal(size=(tokens, width)), rng.normal(size=(width, vocab)) * width**-0.5
    targets = rng.integers(0, vocab, tokens).astype(np.int32)
    chunked = jax.value_and_grad(lambda h, w: next_token_loss(h, w, targets, chunk=128), (0, 1))
    dense = jax.value_and_grad(lambda h, w: dense_next_token_loss(h, w, targets), (0, 1))
    multiply = jax.value_and_grad(lambda x, w: jnp.sum(jnp.sin(product(x, w))), (0, 1))
    plain = jax.value_and_grad(lambda x, w: jnp.sum(jnp.sin(x @ w)), (0, 1))
    narrow = [x.astype(np.float32) for x in (hidden, head)]
    rounded = [x.astype(jnp.bfloat16) for x in narrow]
    with jax.enable_x64(True):
        want = on_host(dense, *(x.astype(np.float64) for x in narrow))
        want_rounded = on_host(dense, *(x.astype(np.float64) for x in rounded))
        want_product = on_host(plain, *(x.astype(np.float64) for x in narrow))
    with rows.attempt("vocabulary loss"):
        rows.add("vocabulary loss and gradients, exact products", error(exactly(chunked, *narrow), want), most=1e-5)
        rows.add("vocabulary loss and gradients, bfloat16", error(jax.jit(chunked)(*rounded), want_rounded), most=1e-2)
    with rows.attempt("products"):
        rows.add("products' own gradient, exact products", error(exactly(multiply, *narrow), want_product), most=1e-5)


def optimizers(rows: Rows, sizes: Sizes) -> None:
    """Every optimizer of `lvp.optim` and Muon over `STEPS` steps of equal gradients.

    The error is relative to the movement of the parameters.
    """
    rng = np.random.default_rng(3)
    shapes = {"embedding": {"embedding": (256, 64)}, "head": {"kernel": (64, 256)}}
    shapes |= {"block_0": {"mlp": {"up": {"kernel": (64, 128)}}, "norm_mlp": {"scale": (64,)}}}
    is_shape = lambda x: isinstance(x, tuple)  # noqa: E731
    start = jax.tree.map(lambda s: (rng.normal(size=s) / 8).astype(np.float32), shapes, is_leaf=is_shape)
    gradients = jax.tree.map(lambda s: rng.normal(size=(STEPS, *s)).astype(np.float32), shapes, is_leaf=is_shape)
    for kind, options in OPTIMIZERS.items():
        tx = OptimizerConfig(kind, options).transformation(table("lvp", width=64, vocab=256), 0.01, {})

        def train(params, gradients, tx=tx):
            def step(carry, gradient):
                updates, state = tx.update(gradient, carry[1], carry[0])
                return (optax.apply_updates(carry[0], updates), state), None

            return jax.lax.scan(step, (params, tx.init(params)), gradients)[0][0]

        with rows.attempt(f"{kind}, {STEPS} steps"):
            got, want = exactly(train, start, gradients), on_host(train, start, gradients)
            moved = lambda params: jax.tree.map(lambda x, y: np.asarray(x) - y, params, start)  # noqa: E731
            rows.add(f"{kind}, {STEPS} steps, exact products", error(moved(got), moved(want)), most=1e-3)


def training_setting() -> Setting:
    return Setting(DecoderConfig(256, 64, layers=1, context=32), DataConfig("none"), 4, STEPS)


def curves(program: Any, own: list, data: Any, **resumed: Any) -> np.ndarray:
    """Losses of a pack, [runs, steps]."""
    return np.array([outcome.curve_losses for outcome in training.run(program, own, data, **resumed)])


def resumed_curves(program: Any, own: list, data: Any) -> np.ndarray:
    """The losses of one run that is stopped half-way, saved as a checkpoint, loaded and continued."""
    step, state = next(x for x in training.chunks(program, own, data, chunk_seconds=0) if x[0] > STEPS // 2)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints.save_step(Path(folder), step, training.unstack(state, 0, 1), "half")
        latest = checkpoints.latest(Path(folder), program.run_shapes(), "half")
    if latest is None:
        raise AssertionError("the checkpoint cannot be loaded") from None
    step, state, _ = latest
    return curves(program, own, data, step=step, state=state)


def packs(rows: Rows, sizes: Sizes) -> None:
    """A pack of 8 against single runs, and a resumed run against an uninterrupted run."""
    setting = training_setting()
    data, eight = data_of(setting), runs(setting, 8)
    with jax.default_matmul_precision("highest"):
        with rows.attempt("pack of 8"):
            packed, single = training.Program(setting, 8), training.Program(setting)
            alone = np.concatenate([curves(single, [run], data) for run in eight])
            off = error(curves(packed, eight, data), alone)
            rows.add("losses of a pack of 8 against single runs, exact products", off, most=1e-4)
        with rows.attempt("resumed run"):
            again = resumed_curves(single, eight[:1], data)
            rows.add("losses of a resumed run against an uninterrupted run", error(again, alone[:1]), most=1e-4)


def look_up(rows: Rows, sizes: Sizes) -> None:
    """The gradient of the embedding's look-up (scatter-add): right, and its time against the memory that it moves."""
    tokens, width, vocab = sizes.loss_tokens, sizes.loss_width, min(sizes.loss_vocabs)
    rng = np.random.default_rng(5)
    ids = rng.zipf(1.3, tokens).clip(1, vocab).astype(np.int32) - 1
    upstream = rng.normal(size=(tokens, width)).astype(np.float32)
    want = np.zeros((vocab, width))
    np.add.at(want, ids, upstream)
    given, at, zeros = jax.device_put(upstream), jax.device_put(ids), jnp.zeros((vocab, width))
    gradient = jax.jit(lambda given, at: jax.vjp(lambda matrix: matrix[at], zeros)[1](given)[0])
    copy = jax.jit(lambda given, at: (given + 1, jnp.zeros((vocab, width))))
    rows.add("gradient of the embedding's look-up", error(gradient(given, at), want), most=1e-6)
    seconds = [median_seconds(function, given, at) for function in (gradient, copy)]
    name = "gradient of the embedding's look-up: time / time of one copy of the same bytes"
    rows.add(name, seconds[0] / seconds[1], "×", most=4.0, raw={"seconds": seconds})


def median_seconds(function: Callable, *arguments: Any, rounds: int = 5, calls: int = 20) -> float:
    """The time of a call after a first one: the median over rounds."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        jax.block_until_ready([function(*arguments) for _ in range(calls)])
        times.append((time.perf_counter() - started) / calls)
    return float(np.median(times))


def main(rows: Rows, sizes: Sizes) -> None:
    checks: list[Callable] = [attention, *(partial(models, name=name) for name in FORMS), losses, optimizers, packs]

    def checked(check: Callable) -> None:
        with rows.attempt(getattr(check, "func", check).__name__):
            check(rows, sizes)

    with ThreadPoolExecutor(len(checks)) as pool:  # compilation takes most of the time
        list(pool.map(checked, checks))
    checked(look_up)  # it is timed
