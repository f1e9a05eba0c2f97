"""What an array is besides its values: sharding, dtype, boxes of metadata, abstractness. Every optimizer and
`initialize` keep it, and the values do not depend on it. Four fake devices need a process of their own
(`python -m tests.lvp.optim.test_arrays`), which contains the assertions."""

import functools
import os
import subprocess
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from lvp import optim
from lvp.errors import InputError
from lvp.optim.neurons import LONG_ROW
from lvp.parametrization.scaling import Shape, scale
from lvp.roles import ROLES

ROOT = Path(__file__).parents[3]
WIDTH, VOCAB = 32, LONG_ROW  # norms of rows this long are summed in another order
MUON = dict.fromkeys(ROLES, optax.adamw) | {"hidden": functools.partial(optax.contrib.muon, consistent_rms=0.2)}
BOTH = functools.partial(optim.coupled_adam, couple=("output", "embedding"))
FACTORIES = {
    "sign_sgd": optim.sign_sgd,
    "adamw": functools.partial(optim.adamw, bias_correction_first=False),
    "lion_a": optim.lion_a,
    "lion_ar": optim.lion_ar,
    "lion_ar, constant change": functools.partial(optim.lion_ar, batch_size=8),
    "rotational_adamw": optim.rotational_adamw,
    "coupled_adam": BOTH,
}
SHAPE = {"width": WIDTH, "vocab": VOCAB}


def optimizers():
    """Returns every optimizer alone, and as a factory of each function that gives one per role."""
    made = {name: factory(learning_rate=0.01) for name, factory in FACTORIES.items()}
    given = {"learning_rate": 0.01, "weight_decay": 0.1}
    made["parametrized coupled_adam"] = optim.parametrized(BOTH, "lvp", **SHAPE, **given)
    made["parametrized muon"] = optim.parametrized(MUON, "lvp", **SHAPE, **given)
    made["by_role lion_ar"] = optim.by_role(optim.lion_ar, dict.fromkeys(ROLES, 0.01), weight_decay=0.1)
    scaling = scale(Shape(width=16, vocab=VOCAB), Shape(**SHAPE), "lvp")
    made["transfer rotational_adamw"] = optim.transfer(optim.rotational_adamw, scaling, **given)
    return made


def tree(make):
    """Returns make(name, shape) at the paths of a small model."""
    return {
        "embedding": {"embedding": make("embedding", (VOCAB, WIDTH))},
        "block_0": {"mlp": {"up": {"kernel": make("up", (WIDTH, WIDTH)), "bias": make("bias", (WIDTH,))}}},
        "head": {"kernel": make("head", (WIDTH, VOCAB))},
    }


ARRAYS = tree(lambda name, shape: np.random.default_rng(len(name)).standard_normal(shape, np.float32))
SPECS = tree(lambda name, shape: P("x", "y")[: len(shape)])


def sharded(kind):
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(kind,) * 2)
    put = lambda x: jax.tree.map(lambda x, spec: jax.device_put(x, NamedSharding(mesh, P(*spec))), x, SPECS)  # noqa: E731
    return put, jax.set_mesh(mesh)


def boxed(make):
    return lambda x: jax.tree.map(lambda x, spec: make(jnp.asarray(x), spec), x, SPECS)


KINDS = {
    "plain": lambda: (lambda x: jax.tree.map(jnp.asarray, x), nullcontext()),
    "auto axes": lambda: sharded(AxisType.Auto),
    "explicit axes": lambda: sharded(AxisType.Explicit),
    "nn.Partitioned": lambda: (boxed(lambda x, spec: nn.Partitioned(x, tuple(spec))), nullcontext()),
    "nnx.Param": lambda: (boxed(lambda x, spec: nnx.Param(x)), nullcontext()),
    "bfloat16": lambda: (lambda x: jax.tree.map(lambda x: jnp.asarray(x, jnp.bfloat16), x), nullcontext()),
}


def step(tx, params, gradients):
    """Returns the state and the updates of the first step."""
    state = tx.init(params)
    extra = {"gradient_snr": 0.1}
    updates, after = jax.jit(optax.with_extra_args_support(tx).update)(gradients, state, params, **extra)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert [(x.shape, x.dtype) for x in jax.tree.leaves(after)] == [(x.shape, x.dtype) for x in jax.tree.leaves(state)]
    return state, updates


def check_state(tx, state, params):
    """The state has the parameters' shardings. Its arrays of another shape are in no box. It can be made abstractly."""
    shardings = {x.shape: x.sharding for x in jax.tree.leaves(params)}
    for x in jax.tree.leaves(state):
        assert x.shape not in shardings or x.ndim < 2 or x.sharding.is_equivalent_to(shardings[x.shape], x.ndim), (
            x.shape
        )
    is_box = lambda node: isinstance(node, nn.Partitioned | nnx.Variable)  # noqa: E731
    for box in filter(is_box, jax.tree.leaves(state, is_leaf=is_box)):
        assert all(x.shape in shardings for x in jax.tree.leaves(box)), box
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), params)
    abstract = jax.eval_shape(tx.init, shapes)
    assert jax.tree.structure(abstract) == jax.tree.structure(state)
    assert [x.shape for x in jax.tree.leaves(abstract)] == [x.shape for x in jax.tree.leaves(state)]


def check(tx, kind, expected):
    """One step of an optimizer, compared with that on plain arrays."""
    make, context = KINDS[kind]()
    with context:
        params, gradients = make(ARRAYS), make(jax.tree.map(np.cos, ARRAYS))
        state, updates = step(tx, params, gradients)
        check_state(tx, state, params)
    assert jax.tree.structure(updates) == jax.tree.structure(params)
    for update, p, wanted in zip(*map(jax.tree.leaves, (updates, params, expected)), strict=True):
        assert update.dtype == p.dtype
        if kind == "explicit axes":
            assert update.sharding.is_equivalent_to(p.sharding, p.ndim)
        update = np.asarray(update, np.float32)
        if kind == "bfloat16":
            assert np.vdot(update, wanted) > 0.99 * np.linalg.norm(update) * np.linalg.norm(wanted)
        else:
            np.testing.assert_allclose(update, wanted, rtol=1e-4, atol=2e-6)


def check_initialize(kind, expected):
    """`initialize` draws the same values, rounded, where the parameters are. Abstract matrices have their sharding."""
    make, context = KINDS[kind]()
    tx = optim.parametrized(optax.adamw, "lvp", **SHAPE, learning_rate=0.01)
    with context:
        params = make(ARRAYS)
        drawn = [optim.initialize(tx, params, KEY), jax.jit(functools.partial(optim.initialize, tx))(params, KEY)]
        if kind in ("auto axes", "explicit axes"):
            shape_of = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)  # noqa: E731
            drawn.append(optim.initialize(tx, jax.tree.map(lambda x: x if x.ndim < 2 else shape_of(x), params), KEY))
    for new in drawn:
        assert jax.tree.structure(new) == jax.tree.structure(params)
        for x, p, wanted in zip(*map(jax.tree.leaves, (new, params, expected)), strict=True):
            assert x.dtype == p.dtype
            # Inside of jit, the compiler chooses the sharding over automatic axes.
            assert x.sharding.is_equivalent_to(p.sharding, p.ndim) or (kind == "auto axes" and new is drawn[1])
            exact, rtol = np.asarray(jnp.asarray(wanted, p.dtype), np.float32), 1e-2 if kind == "bfloat16" else 1e-5
            np.testing.assert_allclose(np.asarray(x, np.float32), exact, rtol=rtol, atol=1e-6)
            assert kind != "bfloat16" or p.ndim < 2 or len(np.unique(exact)) > 500  # control: 128 if drawn in bfloat16


KEY = jax.random.key(0)


def check_parts():
    """Inside of shard_map, the norm of a part is refused. Whole parameters and elementwise optimizers are not."""
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    plain, parts = jax.tree.map(jnp.asarray, ARRAYS), tree(lambda name, shape: P(*["x"][: len(shape) - 1]))

    def run(function, specs):
        jax.eval_shape(jax.shard_map(function, mesh=mesh, in_specs=(specs,), out_specs=specs), plain)

    for name, factory in FACTORIES.items():
        tx = optax.with_extra_args_support(factory(learning_rate=0.01))
        one = lambda p, tx=tx: tx.update(p, tx.init(p), p, gradient_snr=0.1)[0]  # noqa: E731
        run(one, P())
        with (
            nullcontext()
            if name in ("sign_sgd", "adamw", "lion_a")
            else pytest.raises(InputError, match="of shard_map")
        ):
            run(one, parts)
    drawn = functools.partial(optim.initialize, optim.parametrized(optax.adamw, "lvp", **SHAPE, learning_rate=0.01))
    run(lambda p: drawn(p, KEY), P())
    matrix = plain["block_0"]["mlp"]["up"]["kernel"]
    up, split = ({"block_0": {"mlp": {"up": {"kernel": x}}}} for x in (matrix, P(None, "x")))
    with pytest.raises(InputError, match="'block_0/mlp/up/kernel' varies over the axes .'x'. of shard_map"):
        jax.eval_shape(
            jax.shard_map(lambda p: drawn(p, KEY), mesh=mesh, in_specs=(split,), out_specs=split),
            up,
        )


def main() -> int:
    jax.config.update("jax_numpy_rank_promotion", "raise")
    assert jax.device_count() == 4, jax.devices()
    made, failed = optimizers(), 0
    check_parts()
    plain = jax.tree.map(jnp.asarray, ARRAYS)
    expected = {name: step(tx, plain, jax.tree.map(np.cos, ARRAYS))[1] for name, tx in made.items()}
    drawn = optim.initialize(optim.parametrized(optax.adamw, "lvp", **SHAPE, learning_rate=0.01), plain, KEY)
    for kind in KINDS:
        # optax's orthogonalization does not take explicit axes.
        names = [name for name in made if kind != "explicit axes" or "muon" not in name]
        checks = {name: functools.partial(check, made[name], kind, expected[name]) for name in names}
        for name, run in {"initialize": functools.partial(check_initialize, kind, drawn), **checks}.items():
            try:
                run()
            except Exception:  # the report of every optimizer is needed, not only the first
                failed += 1
                print(f"--- {name}, {kind}", traceback.format_exc(limit=-3), file=sys.stderr)
            else:
                print(f"passed: {name}, {kind}")
    return failed


@pytest.mark.slow
def test_optimizers_keep_what_an_array_is():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.lvp.optim.test_arrays"]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("passed") == len(KINDS) * (len(optimizers()) + 1) - 1  # without Muon on explicit axes


if __name__ == "__main__":
    sys.exit(main())
