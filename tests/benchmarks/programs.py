"""Programs that benchmarks time: each function returns a call and its facts. They need the device of their process."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.benchmarks import Call

RATES = (4e-3, 1e-3)  # learning rates of the embedding and of the other parameters
STEPS = 10**6  # of a setting that is only timed: more than a benchmark runs
TOKENS = 200_000  # of the random text

Timed = tuple[Call, dict[str, Any]]


def random_tokens(vocab: int) -> np.ndarray:
    """`TOKENS` tokens."""
    return np.random.default_rng(0).integers(0, vocab, TOKENS).astype(np.int32)


def data_of(setting):
    """Data of random tokens, on the device."""
    import jax

    from lvp.training import TrainingData

    tokens = random_tokens(setting.vocab)
    return jax.device_put(TrainingData.from_tokens(setting, tokens, tokens[: 2 * setting.model.context]))


def runs(setting, count: int) -> list:
    """Runs with the rates and stds of LVP and different seeds; η_hidden = 0.2/d (Hayou & Liu 2025, C.2)."""
    from lvp.parametrization import table
    from lvp.training import Run

    lvp = table("lvp", width=setting.model.width, vocab=setting.vocab)
    return [Run.under(lvp, 0.2 / setting.model.width, seed) for seed in range(count)]


def training(setting, count: int = 1) -> Timed:
    """Steps of a pack. Facts: model FLOPs of a step of all runs, bytes by the compiler, seconds of compilation."""
    import jax

    from lvp.training import Program
    from lvp.training.plan import memory_of

    data, program, began = data_of(setting), Program(setting, count), time.perf_counter()
    needed = sum(memory_of(program.compile(data)).values())
    facts = {
        "flops": count * setting.tokens_per_step * setting.model.flops_per_token(),
        "bytes": needed,
        "compile_seconds": time.perf_counter() - began,
        "device_kind": jax.devices()[0].device_kind,
    }
    at: dict[str, Any] = {}

    def run(n: int) -> None:
        if not at:
            at.update(step=0, state=program.blank_state(), runs=program.arrays(runs(setting, count)))
        stop = at["step"] + n
        state = program.advance(np.int32(at["step"]), np.int32(stop), at["state"], at["runs"], data)
        at.update(step=stop, state=jax.block_until_ready(state))

    return run, facts


def plain_loop(setting) -> Timed:
    """Steps of a plain JAX loop."""
    from tests.benchmarks.plain import PlainTrainer

    began = time.perf_counter()
    step = PlainTrainer(setting.model, random_tokens(setting.vocab), setting.batch, *RATES).step
    step(1)
    return step, {"compile_seconds": time.perf_counter() - began}


def pytorch(setting, threads: int | None = None) -> Timed:
    """Steps of the PyTorch loop, compiled on a GPU.

    Args:
      threads: of PyTorch on a CPU; None is its default.
    """
    import torch

    from tests.benchmarks.torch_step import TorchTrainer, tune

    if threads is not None:
        tune(threads)
    began, device = time.perf_counter(), "cuda" if torch.cuda.is_available() else "cpu"
    kind = torch.bfloat16 if setting.model.dtype == "bfloat16" else torch.float32
    trained = TorchTrainer(setting.model, random_tokens(setting.vocab), setting.batch, RATES, device=device, dtype=kind)
    if device == "cuda":
        trained.loss_of = torch.compile(trained.loss_of)
    trained.step(2)
    return trained.step, {"torch": torch.__version__, "compile_seconds": time.perf_counter() - began}


def loss_shapes(tokens: int, width: int, vocab: int, dtype: str) -> Sequence[tuple[tuple[int, ...], str]]:
    """Shape and dtype of hidden, head and targets."""
    return ((tokens, width), dtype), ((width, vocab), "float32"), ((tokens,), "int32")


def loss(function: Callable, tokens: int, width: int, vocab: int, dtype: str = "float32") -> Timed:
    """Value and gradients of a vocabulary loss. Facts: temporary bytes by the compiler."""
    import jax

    shapes = [jax.ShapeDtypeStruct(*shape) for shape in loss_shapes(tokens, width, vocab, dtype)]
    compiled = jax.jit(jax.value_and_grad(function, (0, 1))).lower(*shapes).compile()
    at: list[Any] = []

    def run(n: int) -> None:
        if not at:
            keys = jax.random.split(jax.random.key(0), 3)
            at.append(jax.random.normal(keys[0], shapes[0].shape, dtype))
            at.append(jax.random.normal(keys[1], shapes[1].shape) * width**-0.5)
            at.append(jax.random.randint(keys[2], shapes[2].shape, 0, vocab))
        for _ in range(n):
            jax.block_until_ready(compiled(*at))

    return run, {"temporary_bytes": compiled.memory_analysis().temp_size_in_bytes}
