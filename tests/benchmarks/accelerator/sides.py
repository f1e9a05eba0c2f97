"""The processes that `fast` times. A process prints its facts when its programs are compiled, and then answers calls.

    python -m tests.benchmarks.accelerator.sides SIZES SIDE

A side has calls by name. The arrays of a call are made at its first call and stay on the device.
"""

import math
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from tests.benchmarks import RUN, programs, serve
from tests.benchmarks.accelerator import sizes as sizes_module
from tests.benchmarks.accelerator.sizes import Sizes
from tests.benchmarks.programs import Timed


def packs_side(sizes: Sizes, width: int) -> dict[str, Timed]:
    setting = sizes.packed(width)
    with ThreadPoolExecutor(len(sizes.packs)) as pool:
        made = pool.map(partial(programs.training, setting), sizes.packs)
        return {f"pack {count}": each for count, each in zip(sizes.packs, made, strict=True)}


def optimizers_side(sizes: Sizes) -> dict[str, Timed]:
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

    def made(tx) -> Timed:
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


def losses_side(sizes: Sizes, vocab: int) -> dict[str, Timed]:
    of = loss_functions(sizes, vocab)
    shape = sizes.loss_tokens, sizes.loss_width, vocab, sizes.dtype
    with ThreadPoolExecutor(len(of)) as pool:
        return dict(zip(of, pool.map(lambda function: programs.loss(function, *shape), of.values()), strict=True))


def side(sizes: Sizes, name: str) -> dict[str, Timed]:
    """The calls of a side: "packs 128", "plain 128", "torch 128", "step masked 1024", "plain step 1024", …"""
    kind, *words = name.split()
    if kind == "packs":
        return packs_side(sizes, int(words[0]))
    if kind == "optimizers":
        return optimizers_side(sizes)
    if kind == "losses":
        return losses_side(sizes, int(words[0]))
    if kind == "step":
        return {RUN: programs.training(sizes.step(int(words[1]), words[0]))}
    setting = sizes.packed(int(words[-1])) if len(words) == 1 else sizes.step(int(words[-1]), "masked")
    return {RUN: {"plain": programs.plain_loop, "torch": programs.pytorch}[kind](setting)}


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print messages
    made = side(getattr(sizes_module, sys.argv[1]), sys.argv[2])
    serve({name: run for name, (run, _) in made.items()}, {name: facts for name, (_, facts) in made.items()}, answers)
