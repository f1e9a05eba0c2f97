"""Compares the times of a training step and of the loss with the times of other implementations.

    python -m tests.benchmarks.step [--rounds N]

Each side has its own process. The processes run one after the other in each round. lvp's sides and the PyTorch side
have the environment variables of the sweeps' workers. The PyTorch row needs PyTorch: pip install 'lvp[bench]'.
"""

import argparse
import os
import sys

from tests.benchmarks import RUN, alternate, finish, programs, serve

MODULE = "tests.benchmarks.step"
SHAPE = {"vocab": 2048, "width": 256, "layers": 2, "context": 256}
BATCH, STEPS, ROUNDS = 16, 8, 15
MICRO_BATCHES = 4
LOSS = (4096, 256, 32768)  # tokens, width, vocabulary


def _setting(measured_steps=(), micro_batches=1):
    from lvp.models.configs import DecoderConfig
    from lvp.training import DataConfig, Setting

    more = {"measured_steps": measured_steps, "micro_batches": micro_batches}
    return Setting(DecoderConfig(**SHAPE), DataConfig("none"), BATCH, programs.STEPS, **more)


def ours():
    return programs.training(_setting())


def measured():
    """All steps record measures."""
    return programs.training(_setting(tuple(range(1000))))


def unmeasured():
    """Steps without measures, in a setting that has measures at another step."""
    return programs.training(_setting((programs.STEPS - 1,)))


def accumulated():
    """The same tokens in `MICRO_BATCHES` micro-batches."""
    return programs.training(_setting(micro_batches=MICRO_BATCHES))


def accumulated_measured():
    """`accumulated`, and all steps record measures, including the signal-to-noise ratio."""
    return programs.training(_setting(tuple(range(1000)), MICRO_BATCHES))


def plain():
    return programs.plain_loop(_setting())


def pytorch():
    # The same number of threads as XLA.
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return programs.pytorch(_setting(), threads)


def gemm():
    """A float32 matrix product of size 2048³, for the machine's FLOP/s."""
    import jax
    import jax.numpy as jnp

    a = jnp.ones((2048, 2048))
    product = jax.jit(lambda a: a @ a)

    def run(n):
        for _ in range(n):
            jax.block_until_ready(product(a))

    return run, {"flops": 2 * 2048**3}


def chunked_loss():
    from lvp.losses import next_token_loss

    return programs.loss(next_token_loss, *LOSS)


def dense_loss():
    from lvp.losses import dense_next_token_loss

    return programs.loss(dense_next_token_loss, *LOSS)


TRAINERS = (ours, measured, unmeasured, accumulated, accumulated_measured, plain, pytorch)
SIDES = {f.__name__: f for f in (*TRAINERS, gemm, chunked_loss, dense_loss)}


def side(name: str) -> None:
    run, facts = SIDES[name]()
    serve({RUN: run}, facts)


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
        print(f"no row against PyTorch ({error}): pip install 'lvp[bench]'")
    else:
        torch_step.check_sides_agree(programs.RATES)
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
        ("an unmeasured step of a measured setting / a plain one", f"{unmeasured_ratio:.2f}×", "", ""),
        (f"a step in {MICRO_BATCHES} micro-batches / one of equal tokens", f"{accumulated_ratio:.2f}×", "≤ 1.05×", ""),
        ("a measured step in micro-batches / a plain one", f"{accumulated_measured_ratio:.2f}×", "≤ 2×", ""),
        ("loss: dense / chunked temporary bytes", f"{memory:.1f}×", "12×", "16×"),
        ("loss: chunked / dense time", f"{slower:.2f}×", "≤ 1.1×", "≤ 1×"),
    ]
    versions = {}
    if "pytorch" in steps:
        ratio, versions = steps["pytorch"].over(steps["ours"]), {"torch": steps["pytorch"].facts["torch"]}
        rows.insert(1, ("training step: PyTorch CPU loop's time / ours", f"{ratio:.2f}×", "0.95×", "1.2×"))
    raw = {name: s.times[RUN] for name, s in (steps | losses).items()}
    raw |= {f"{name}_flops": steps[name].facts["flops"] for name in ("ours", "gemm")}
    finish("step", rounds, rows, raw, versions)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SIDES:
        side(sys.argv[1])
    else:
        arguments = argparse.ArgumentParser(prog="python -m tests.benchmarks.step")
        arguments.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"default: {ROUNDS}")
        main(arguments.parse_args().rounds)
