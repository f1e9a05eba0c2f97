"""The decoder's training and loss on meshes of two and eight fake CPU devices. The number of devices is fixed when jax
starts, so this file runs itself in a separate process (`python -m tests.lvp.training.test_meshes CHECK…`), which
contains the assertions."""

import dataclasses
import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from lvp import losses, mesh_axes, roles, training
from lvp.files import checkpoints
from lvp.models.attention import splash_attention
from lvp.models.configs import DecoderConfig
from lvp.parallel import sharding
from lvp.products import product
from lvp.training import DataConfig, OptimizerConfig, Program, Run, Setting, TrainingData, plan
from tests import QUICK_COMPILATION

ROOT = Path(__file__).parents[3]
FACTORISATIONS = [(d, f, 8 // d // f) for d in (1, 2, 4, 8) for f in (1, 2, 4, 8) if 8 % (d * f) == 0]
PAIR = (1, 1, 2)  # the mesh of two devices that splits the vocabulary
# All sizes are distinct, so that shapes in a compiled program can be identified.
VOCAB, WIDTH, ROWS, CONTEXT, STEPS = 72, 48, 16, 20, 20
MODEL = DecoderConfig(
    **{"vocab": VOCAB, "width": WIDTH, "layers": 2, "context": CONTEXT, "heads": 16, "kv_heads": 8, "head_dim": 4},
    **{"window": 8, "positions": "rotary", "mlp": "swiglu", "attention_block": 10, "scan": True, "remat": "block"},
)
ADAMW = OptimizerConfig("adamw", {"weight_decay": 0.1})
SETTING = Setting(MODEL, DataConfig("none"), ROWS, STEPS, ADAMW, cooldown=0.3, micro_batches=2)
RUN = Run(dict.fromkeys(roles.ROLES, 0.01), dict.fromkeys(roles.ROLES, 0.2), 0, warmup_steps=4)
TOLERANCE = 1e-5  # nats; the curves agree within 2e-6


def mesh_of(sizes):
    return sharding.make_mesh(dict(zip(mesh_axes.AXES, sizes, strict=True)))


@functools.cache
def data():
    """Returns tokens in which most tokens determine the next token."""
    rng = np.random.default_rng(0)
    tokens = np.zeros(4000, np.int32)
    for i in range(1, len(tokens)):
        tokens[i] = (5 * tokens[i - 1] + 1) % VOCAB if rng.random() < 0.8 else rng.integers(VOCAB)
    return TrainingData.from_tokens(SETTING, tokens[:3500], tokens[3500:])


def train(program, run=RUN, **options):
    (outcome,) = training.run(program, [run], data(), **options)
    return np.append(outcome.curve_losses, [outcome.valid_loss])


@functools.cache
def alone():
    return train(Program(SETTING))


# --- checks that run in a separate process ------------------------------------------------------------------------


def check_training(sizes):
    """The mesh gives the loss curve of one device; another seed does not (negative control)."""
    program = Program(SETTING, mesh=mesh_of(sizes))
    text = program.compile(data()).as_text()
    state = program.placement["params"]
    assert state["head"]["kernel"].shard_shape((WIDTH, VOCAB)) == (WIDTH // sizes[1], VOCAB // sizes[2])
    curve = train(program)
    off = np.abs(curve - alone()).max()
    assert alone()[0] - alone()[-1] > 0.3, alone()
    assert off < TOLERANCE, (sizes, off)
    check_program(text, sizes)
    print(f"training {sizes}: off by {off:.1e} of {alone()[0]:.2f} → {alone()[-1]:.2f} nats")


def check_program(text, sizes):
    """The compiled program contains no logits of all rows, and no logits of a device's rows over a split vocabulary. A
    vocabulary matrix is gathered only over fsdp."""
    data_, fsdp, model = sizes
    shapes = {tuple(map(int, dims.split(","))) for dims in re.findall(r"f32\[([\d,]+)\]", text)}
    tokens = SETTING.micro_batch_size * CONTEXT
    own = tokens // (data_ * fsdp)
    assert (own, VOCAB // model) in shapes  # negative control: the search finds the logits that a device does hold
    for rows in {tokens, own} if model > 1 else {tokens} if own < tokens else set():
        assert not {(rows, VOCAB), (VOCAB, rows)} & shapes, (sizes, rows)
    gathered = set(re.findall(r"f32\[([\d,]+)\][^=]*? all-gather(?:-start)?\(", text))
    whole = {f"{WIDTH},{VOCAB}", f"{VOCAB},{WIDTH}"}
    assert model == 1 or not gathered & whole, (sizes, gathered)
    assert fsdp > 1 or not any(str(VOCAB // model) in g.split(",") for g in gathered), (sizes, gathered)


def check_another_seed():
    other = Run(RUN.learning_rates, RUN.init_std, 1, warmup_steps=4)
    assert np.abs(train(Program(SETTING), other) - alone()).max() > 100 * TOLERANCE


def check_loss(sizes):
    """Value and gradients of the loss equal the dense loss, with z-loss and weights."""
    mesh, rng = mesh_of(sizes), np.random.default_rng(0)
    hidden, head = (rng.normal(size=s).astype(np.float32) for s in ((64, WIDTH), (WIDTH, VOCAB)))
    targets, weights = rng.integers(0, VOCAB, 64), rng.random(64).astype(np.float32)

    def dense(hidden, head, weights):
        logits = hidden @ head
        lse = jax.nn.logsumexp(logits, axis=-1)
        of_target = jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
        return jnp.sum((lse - of_target + 0.01 * lse**2) * weights) / jnp.sum(weights)

    def ours(hidden, head, weights):
        return losses.next_token_loss(hidden, head, targets, weights, chunk=3, z_loss=0.01, mesh=mesh)

    expected = jax.jit(jax.value_and_grad(dense, (0, 1, 2)))(hidden, head, weights)
    sharded = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(hidden, head, weights)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-6), sharded, expected)
    np.testing.assert_allclose(jax.jit(ours)(hidden, head, weights), expected[0], rtol=1e-6)  # without gradients
    on_one_device = jax.value_and_grad(lambda *a: losses.next_token_loss(*a[:2], targets, a[2], z_loss=0.01), (0, 1, 2))
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-6),
        on_one_device(hidden, head, weights),
        expected,
    )


def check_another_mesh():
    """A checkpoint of one mesh is resumed on another mesh and on one device."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)

        def keep(step, state):
            if step == STEPS // 2:
                checkpoints.save_step(folder, step, state, "a")

        train(Program(SETTING, mesh=mesh_of((2, 2, 2))), on_chunk=keep, chunk_seconds=0)
        for sizes in ((1, 8, 1), None):
            program = Program(SETTING, mesh=mesh_of(sizes) if sizes else None)
            step, state, _ = checkpoints.latest(folder, program.run_shapes(), "a")
            assert step == STEPS // 2
            off = np.abs(train(program, state=state, step=step) - alone()).max()
            assert off < TOLERANCE, (sizes, off)


def check_targets():
    """A token outside the vocabulary makes the loss NaN, as on one device."""
    hidden, head = np.ones((8, WIDTH), np.float32), np.ones((WIDTH, VOCAB), np.float32)
    targets = np.arange(8) + VOCAB - 7  # the last target is outside
    for mesh in (None, mesh_of((2, 2, 2))):
        assert np.isnan(losses.next_token_loss(hidden, head, targets, mesh=mesh)), mesh
        assert np.isfinite(losses.next_token_loss(hidden, head, targets - 1, mesh=mesh)), mesh


def check_rows():
    """Rows are read on demand, by the devices that need them."""
    setting = dataclasses.replace(SETTING, data=DataConfig("none", order="rows"))
    curves = []
    for mesh in (None, mesh_of((2, 2, 2))):
        feed = training.StreamedTokens(
            setting, np.asarray(data().train.tokens), np.asarray(data().valid).ravel()[:500], [0], mesh
        )
        (outcome,) = training.run(Program(setting, mesh=mesh), [RUN], feed)
        curves.append(np.append(outcome.curve_losses, [outcome.valid_loss]))
    assert np.abs(curves[0] - curves[1]).max() < TOLERANCE, curves
    assert np.abs(curves[0] - alone()).max() > 100 * TOLERANCE  # control: random windows are other rows


def check_plan():
    """The plan of the compiled program: bytes held by every device, by hand."""
    mesh_plan = plan.plan(
        dataclasses.replace(SETTING, data=DataConfig("none", order="rows")), "host:8", "fsdp=4,model=2"
    )
    gains = (2 * MODEL.layers + 1) * WIDTH  # held by every device; everything else is split into eight
    held = 4 * ((MODEL.num_params - gains) // 8 + gains)
    assert mesh_plan.memory["parameters"] == held
    assert 0 <= mesh_plan.memory["optimizer"] - 2 * held < 200  # AdamW's moments, and counters
    assert mesh_plan.memory["activations and temporaries"] > 0


def check_products():
    """`lvp.products.product` gathers no more on a mesh than a plain product; with a transposed kernel it would."""
    mesh = mesh_of((1, 8, 1))

    def gathers(multiply, kernel_spec):
        def loss(kernels, x):
            for kernel in kernels:
                x = jnp.tanh(multiply(x, kernel))
            return jnp.sum(x**2)

        own, rows = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in (kernel_spec, (mesh_axes.FSDP, None)))
        kernels = [jax.ShapeDtypeStruct(shape, jnp.float32, sharding=own) for shape in ((48, 96), (96, 48), (48, 96))]
        x = jax.ShapeDtypeStruct((64, 48), jnp.float32, sharding=rows)
        compiled = jax.jit(jax.grad(loss), out_shardings=[own] * 3).lower(kernels, x).compile()
        return len(re.findall(r" all-gather(?:-start)?\(", compiled.as_text()))

    transposed = jax.custom_vjp(jnp.matmul)
    transposed.defvjp(lambda x, k: (x @ k, (x, k)), lambda saved, y: (y @ saved[1].T, saved[0].T @ y))
    for kernel_spec in ((mesh_axes.FSDP, None), (None, mesh_axes.FSDP)):
        plain, ours, control = (gathers(f, kernel_spec) for f in (jnp.matmul, product, transposed))
        assert 0 < ours <= plain < control, (kernel_spec, plain, ours, control)


def check_kernel():
    """The TPU's attention kernel, interpreted, on parts of rows and heads. In the control, the keys of the heads are
    exchanged."""
    q, k, v = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 128, 4, 16)).astype(np.float32))
    kernel = functools.partial(splash_attention, interpret=True)
    place = sharding.Placement(mesh_of((1, 4, 2)))
    split = jax.jit(place.per_device(kernel, mesh_axes.TOKENS, None, mesh_axes.MODEL))
    np.testing.assert_allclose(split(q, k, v), kernel(q, k, v), atol=2e-6)
    assert not np.allclose(split(q, k[:, :, ::-1], v), kernel(q, k, v), atol=0.1)


CHECKS = {
    **{f"training-{'-'.join(map(str, s))}": functools.partial(check_training, s) for s in (PAIR, *FACTORISATIONS)},
    **{f"loss-{'-'.join(map(str, s))}": functools.partial(check_loss, s) for s in (PAIR, *FACTORISATIONS)},
    "another seed": check_another_seed,
    "another mesh": check_another_mesh,
    "rows": check_rows,
    "targets": check_targets,
    "plan": check_plan,
    "products": check_products,
    "kernel": check_kernel,
}


def run(names, devices):
    # The partitioner is tested, not the code of the processor.
    flags = f"{os.environ.get('XLA_FLAGS', '')} {QUICK_COMPILATION} --xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.lvp.training.test_meshes", *names]
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800)
    print(process.stdout)
    assert process.returncode == 0, process.stderr[-5000:]
    assert process.stdout.split("\n").count("passed") == len(names)


def names_of(sizes):
    return [f"{kind}-{'-'.join(map(str, s))}" for s in sizes for kind in ("training", "loss")]


@pytest.mark.slow
def test_products_gather_no_more_than_plain_ones():
    run(["products", "kernel"], devices=8)


@pytest.mark.slow
def test_a_mesh_of_two_devices_equals_one_device():
    run([*names_of([PAIR]), "another seed"], devices=2)


@pytest.mark.slow
def test_every_mesh_of_eight_devices_equals_one_device():
    run([*names_of(FACTORISATIONS), "targets", "another mesh", "rows", "plan"], devices=8)


def main(names) -> None:
    jax.config.update("jax_numpy_rank_promotion", "raise")
    for name in names:
        CHECKS[name]()
        print("passed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
