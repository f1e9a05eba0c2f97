"""The processes that `fast` times. A process prints its facts when its programs are compiled, and then answers calls.

    python -m tests.benchmarks.accelerator.sides SIZES SIDE

A side has calls by name. The arrays of a call are made at its first call and stay on the device.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from tests.benchmarks.accelerator import sizes as sizes_module
from tests.benchmarks.accelerator.sizes import STEPS, Sizes, data_of, lanes, random_tokens

RATES = (4e-3, 1e-3)  # learning rates of the embedding and of the other parameters

Call = Callable[[int], None]  # run(n) makes n calls and waits for their end
Made = tuple[Call, dict[str, Any]]  # a call and its facts


def trainer(cell, count: int = 1) -> Made:
    """Steps of a pack. Facts: model FLOPs of a step of all lanes, bytes by the compiler, seconds of compilation."""
    import jax

    from lvp import training
    from lvp.plan.compilation import memory_of

    data, program, started = data_of(cell), training.Program(cell, count), time.perf_counter()
    needed = sum(memory_of(program.compile(data)).values())
    facts = {
        "flops": count * cell.tokens_per_step * cell.model.flops_per_token(),
        "bytes": needed,
        "compile_seconds": time.perf_counter() - started,
        "device_kind": jax.devices()[0].device_kind,
    }
    at: dict[str, Any] = {}

    def run(n: int) -> None:
        if not at:
            at.update(step=0, state=program.blank_state(), lanes=program.arrays(lanes(cell, count)))
        stop = at["step"] + n
        state = program.advance(np.int32(at["step"]), np.int32(stop), at["state"], at["lanes"], data)
        at.update(step=stop % STEPS, state=jax.block_until_ready(state))

    return run, facts


def plain(cell) -> Made:
    """Steps of a plain JAX loop."""
    from tests.benchmarks.plain import PlainTrainer

    started = time.perf_counter()
    step = PlainTrainer(cell.model, random_tokens(cell.vocab), cell.batch, *RATES).step
    step(1)
    return step, {"compile_seconds": time.perf_counter() - started}


def pytorch(cell) -> Made:
    """Steps of the PyTorch loop, compiled on a GPU."""
    import torch

    from tests.benchmarks.torch_step import TorchTrainer

    started, device = time.perf_counter(), "cuda" if torch.cuda.is_available() else "cpu"
    kind = torch.bfloat16 if cell.model.dtype == "bfloat16" else torch.float32
    trained = TorchTrainer(cell.model, random_tokens(cell.vocab), cell.batch, RATES, device=device, dtype=kind)
    if device == "cuda":
        trained.loss_of = torch.compile(trained.loss_of)
    trained.step(2)
    return trained.step, {"torch": torch.__version__, "compile_seconds": time.perf_counter() - started}


def packs_side(sizes: Sizes, width: int) -> dict[str, Made]:
    cell = sizes.packed(width)
    with ThreadPoolExecutor(len(sizes.packs)) as pool:
        made = pool.map(partial(trainer, cell), sizes.packs)
        return {f"pack {count}": each for count, each in zip(sizes.packs, made, strict=True)}


def optimizers_side(sizes: Sizes) -> dict[str, Made]:
    """Update and apply of an optimizer alone, of donated parameters."""
    import jax
    import jax.numpy as jnp
    import optax

    from lvp import optim
    from lvp.models.configs import DecoderConfig
    from lvp.models.decoder import decoder

    decay = 0.1
    of = {
        "optax.adamw": optax.adamw(1e-3, weight_decay=decay),
        "optax.lion": optax.lion(1e-3, weight_decay=decay),
        "adamw": optim.adamw(1e-3, weight_decay=decay),
        "lion_a": optim.lion_a(1e-3, weight_decay=decay),
        "lion_ar": optim.lion_ar(1e-3, weight_decay=decay),
        "coupled_adam": optim.coupled_adam(1e-3, weight_decay=decay),
    }
    shapes = jax.eval_shape(decoder(DecoderConfig(**sizes.optimizer_shape)).init, jax.random.key(0))

    def made(tx) -> Made:
        def update(params, state, gradients):
            updates, state = tx.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        state_shapes = jax.eval_shape(tx.init, shapes)
        advance = jax.jit(update, donate_argnums=(0, 1)).lower(shapes, state_shapes, shapes).compile()
        begin = jax.jit(lambda: jax.tree.map(lambda s: jnp.full(s.shape, 0.03, s.dtype), shapes))
        at: dict[str, Any] = {}

        def run(n: int) -> None:
            if not at:
                at.update(params=begin(), gradients=begin())
                at["state"] = jax.jit(tx.init)(at["params"])
            for _ in range(n):
                at["params"], at["state"] = advance(at["params"], at["state"], at["gradients"])
            jax.block_until_ready(at)

        return run, {"parameters": sum(math.prod(s.shape) for s in jax.tree.leaves(shapes))}

    with ThreadPoolExecutor(len(of)) as pool:
        return dict(zip(of, pool.map(made, of.values()), strict=True))


def loss_functions(sizes: Sizes, vocab: int) -> Mapping[str, Callable]:
    """Name → loss, of the vocabulary: the dense loss, ours at the default chunk, and ours at other chunks."""
    from lvp.losses import dense_next_token_loss, next_token_loss

    of = {"dense": lambda h, w, t: dense_next_token_loss(h, w.astype(h.dtype), t), "ours": next_token_loss}
    chunks = sizes.chunks if vocab == sizes.loss_vocabs[0] else ()
    return of | {f"ours, chunks of {chunk}": partial(next_token_loss, chunk=chunk) for chunk in chunks}


def loss_shapes(sizes: Sizes, vocab: int) -> list[tuple[tuple[int, ...], str]]:
    tokens, width = sizes.loss_tokens, sizes.loss_width
    return [((tokens, width), sizes.dtype), ((width, vocab), "float32"), ((tokens,), "int32")]


def losses_side(sizes: Sizes, vocab: int) -> dict[str, Made]:
    """Value and gradients of the vocabulary losses. Facts: temporary bytes by the compiler."""
    import jax
    import jax.numpy as jnp

    shapes = [jax.ShapeDtypeStruct(*shape) for shape in loss_shapes(sizes, vocab)]

    def made(loss) -> Made:
        compiled = jax.jit(jax.value_and_grad(loss, (0, 1))).lower(*shapes).compile()
        at: list[Any] = []

        def run(n: int) -> None:
            if not at:
                keys = jax.random.split(jax.random.key(0), 3)
                at.append(jax.random.normal(keys[0], shapes[0].shape, jnp.dtype(sizes.dtype)))
                at.append(jax.random.normal(keys[1], shapes[1].shape) * sizes.loss_width**-0.5)
                at.append(jax.random.randint(keys[2], shapes[2].shape, 0, vocab))
            for _ in range(n):
                jax.block_until_ready(compiled(*at))

        return run, {"temporary_bytes": compiled.memory_analysis().temp_size_in_bytes}

    functions = loss_functions(sizes, vocab)
    with ThreadPoolExecutor(len(functions)) as pool:
        return dict(zip(functions, pool.map(made, functions.values()), strict=True))


def side(sizes: Sizes, name: str) -> dict[str, Made]:
    """The calls of a side: "packs 128", "plain 128", "torch 128", "step masked 1024", "plain step 1024", …"""
    kind, *words = name.split()
    if kind == "packs":
        return packs_side(sizes, int(words[0]))
    if kind == "optimizers":
        return optimizers_side(sizes)
    if kind == "losses":
        return losses_side(sizes, int(words[0]))
    if kind == "step":
        return {"step": trainer(sizes.step(int(words[1]), words[0]))}
    cell = sizes.packed(int(words[-1])) if len(words) == 1 else sizes.step(int(words[-1]), "masked")
    return {"step": {"plain": plain, "torch": pytorch}[kind](cell)}


def serve(sizes: Sizes, name: str) -> None:
    """Prints the facts of a side by call, then answers lines: the seconds of one of COUNT calls to "COUNT CALL"."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print messages
    calls = side(sizes, name)
    print(json.dumps({call: facts for call, (_, facts) in calls.items()}), file=answers, flush=True)
    for line in sys.stdin:
        count, _, call = line.strip().partition(" ")
        run = calls[call][0]
        run(1)  # not timed
        started = time.perf_counter()
        run(int(count))
        print((time.perf_counter() - started) / int(count), file=answers, flush=True)


if __name__ == "__main__":
    serve(getattr(sizes_module, sys.argv[1]), sys.argv[2])
