"""Compares the times of a training step and of the loss with the times of other implementations.

    python -m tests.benchmarks.step [--rounds N]

Each side has its own process. The processes run one after the other in each round. lvp's sides and the PyTorch side
have the environment variables of the sweeps' workers. The PyTorch row needs PyTorch: pip install -e '.[bench]'.
"""

import argparse
import os
import sys

from tests.benchmarks import alternate, finish, serve

MODULE = "tests.benchmarks.step"
SHAPE = {"vocab": 2048, "width": 256, "layers": 2, "context": 256}
BATCH, STEPS, ROUNDS = 16, 8, 15
MICRO_BATCHES = 4
STEPS_OF_LANE = 10**6  # more than a benchmark runs
RATES = (4e-3, 1e-3)  # learning rates of the embedding and of the other parameters
LOSS = (4096, 256, 32768)  # tokens, width, vocabulary


def _trainer(tokens, measured_steps=(), micro_batches=1):
    import jax
    import numpy as np

    from lvp import roles, training
    from lvp.models.configs import DecoderConfig

    more = {"measured_steps": measured_steps, "micro_batches": micro_batches}
    cell = training.Cell(DecoderConfig(**SHAPE), training.DataConfig("none"), BATCH, STEPS_OF_LANE, **more)
    data = jax.tree.map(jax.device_put, training.TrainingData.from_tokens(cell, tokens, tokens[:600]))
    rates = dict.fromkeys(roles.ROLES, RATES[1]) | {"embedding": RATES[0]}
    lane = training.Lane(rates, dict.fromkeys(roles.ROLES, 1 / 16), 0)
    program = training.Program(cell)
    program.compile(data)
    at = {"step": 0, "state": program.blank_state()}

    def run(n):
        stop = at["step"] + n
        state = program.advance(np.int32(at["step"]), np.int32(stop), at["state"], program.arrays([lane]), data)
        at.update(step=stop, state=jax.block_until_ready(state))

    flops = cell.tokens_per_step * cell.model.flops_per_token()
    return run, {"flops": flops}


def ours(tokens):
    return _trainer(tokens)


def measured(tokens):
    """All steps record measures."""
    return _trainer(tokens, tuple(range(1000)))


def unmeasured(tokens):
    """Steps without measures, in a cell that has measures at another step."""
    return _trainer(tokens, (STEPS_OF_LANE - 1,))


def accumulated(tokens):
    """The same tokens in `MICRO_BATCHES` micro-batches."""
    return _trainer(tokens, micro_batches=MICRO_BATCHES)


def accumulated_measured(tokens):
    """`accumulated`, and all steps record measures, including the signal-to-noise ratio."""
    return _trainer(tokens, tuple(range(1000)), MICRO_BATCHES)


def plain(tokens):
    from lvp.models.configs import DecoderConfig
    from tests.benchmarks.plain import PlainTrainer

    return PlainTrainer(DecoderConfig(**SHAPE), tokens, BATCH, *RATES).step, {}


def pytorch(tokens):
    import torch

    from lvp.models.configs import DecoderConfig
    from tests.benchmarks.torch_step import TorchTrainer, tune

    # The same number of threads as XLA.
    tune(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return TorchTrainer(DecoderConfig(**SHAPE), tokens, BATCH, RATES).step, {"torch": torch.__version__}


def gemm(tokens):
    """A float32 matrix product of size 2048³, for the machine's FLOP/s."""
    import jax
    import jax.numpy as jnp

    a = jnp.ones((2048, 2048))
    product = jax.jit(lambda a: a @ a)

    def run(n):
        for _ in range(n):
            jax.block_until_ready(product(a))

    return run, {"flops": 2 * 2048**3}


def _loss(function):
    import jax

    tokens, width, vocab = LOSS
    keys = jax.random.split(jax.random.key(0), 3)
    arguments = (
        jax.random.normal(keys[0], (tokens, width)),
        jax.random.normal(keys[1], (width, vocab)) / 16,
        jax.random.randint(keys[2], (tokens,), 0, vocab),
    )
    compiled = jax.jit(jax.value_and_grad(function, (0, 1))).lower(*arguments).compile()

    def run(n):
        for _ in range(n):
            jax.block_until_ready(compiled(*arguments))

    return run, {"temporary_bytes": compiled.memory_analysis().temp_size_in_bytes}


def chunked_loss(tokens):
    from lvp.losses import next_token_loss

    return _loss(lambda h, w, t: next_token_loss(h, w, t))


def dense_loss(tokens):
    from lvp.losses import dense_next_token_loss

    return _loss(dense_next_token_loss)


TRAINERS = (ours, measured, unmeasured, accumulated, accumulated_measured, plain, pytorch)
SIDES = {f.__name__: f for f in (*TRAINERS, gemm, chunked_loss, dense_loss)}


def side(name: str) -> None:
    import numpy as np

    serve(*SIDES[name](np.random.default_rng(0).integers(0, 2048, 20_000).astype(np.int32)))


def check_sides_agree() -> None:
    """Raises AssertionError unless both decoders have the same loss at the same parameters."""
    import jax.numpy as jnp
    import numpy as np

    from lvp.losses import next_token_loss
    from lvp.models.configs import DecoderConfig
    from lvp.models.decoder import decoder
    from tests.benchmarks.plain import PlainTrainer

    config = DecoderConfig(vocab=300, width=64, context=32)
    tokens = np.random.default_rng(0).integers(0, 300, 500).astype(np.int32)
    trainer, model = PlainTrainer(config, tokens, 2, 1e-3, 1e-3), decoder(config)
    windows = jnp.asarray(tokens[: 2 * 33].reshape(2, 33))
    ours = next_token_loss(model.apply(trainer.params, windows[:, :-1]), model.head(trainer.params), windows[:, 1:])
    np.testing.assert_allclose(ours, trainer.loss_of(trainer.params, windows), rtol=1e-5)


def main(rounds: int) -> None:
    check_sides_agree()
    sides = {"ours": (True, STEPS), "plain": (False, STEPS), "gemm": (True, 10)}
    sides |= {side: (True, STEPS) for side in ("measured", "unmeasured", "accumulated", "accumulated_measured")}
    try:
        from tests.benchmarks import torch_step
    except ImportError as error:
        print(f"no row against PyTorch ({error}): pip install -e '.[bench]'")
    else:
        torch_step.check_sides_agree(RATES)
        sides = {"pytorch": (True, STEPS)} | sides  # next to "ours", so that both run at the same speed of the machine
    steps = alternate(MODULE, sides, rounds)
    losses = alternate(MODULE, {"chunked_loss": (True, 1), "dense_loss": (True, 1)}, rounds)
    used = steps["ours"].facts["flops"] / steps["gemm"].facts["flops"] * steps["gemm"].over(steps["ours"])
    faster = steps["plain"].over(steps["ours"])
    measured_ratio, unmeasured_ratio, accumulated_ratio = (
        steps[name].over(steps["ours"]) for name in ("measured", "unmeasured", "accumulated")
    )
    accumulated_measured_ratio = steps["accumulated_measured"].over(steps["accumulated"])
    slower = losses["chunked_loss"].over(losses["dense_loss"])
    memory = losses["dense_loss"].facts["temporary_bytes"] / losses["chunked_loss"].facts["temporary_bytes"]
    rows = [
        ("training step: plain loop's time / ours", f"{faster:.2f}×", "1.7×", "2.2×"),
        ("model FLOPs of that step / GEMM rate", f"{used:.0%}", "55%", "70%"),
        ("a measured step / a plain one", f"{measured_ratio:.2f}×", "≤ 2×", ""),
        ("an unmeasured step of a measured cell / a plain one", f"{unmeasured_ratio:.2f}×", "", ""),
        (f"a step in {MICRO_BATCHES} micro-batches / one of equal tokens", f"{accumulated_ratio:.2f}×", "≤ 1.05×", ""),
        ("a measured step in micro-batches / a plain one", f"{accumulated_measured_ratio:.2f}×", "≤ 2×", ""),
        ("loss: dense / chunked temporary bytes", f"{memory:.1f}×", "12×", "16×"),
        ("loss: chunked / dense time", f"{slower:.2f}×", "≤ 1.1×", "≤ 1×"),
    ]
    versions = {}
    if "pytorch" in steps:
        ratio, versions = steps["pytorch"].over(steps["ours"]), steps["pytorch"].facts
        rows.insert(1, ("training step: PyTorch CPU loop's time / ours", f"{ratio:.2f}×", "0.95×", "1.2×"))
    raw = {name: s.times for name, s in (steps | losses).items()}
    raw |= {f"{name}_flops": steps[name].facts["flops"] for name in ("ours", "gemm")}
    finish("step", rounds, rows, raw, versions)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SIDES:
        side(sys.argv[1])
    else:
        arguments = argparse.ArgumentParser(prog="python -m tests.benchmarks.step")
        arguments.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"default: {ROUNDS}")
        main(arguments.parse_args().rounds)
