"""Sharded parameters on a mesh of eight fake CPU devices. The number of devices is fixed when jax starts, so this file
runs itself in a separate process (`python -m tests.lvp.optim.test_meshes OPTIMIZER…`), which contains the
assertions."""

import functools
import os
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lvp import optim
from lvp.parametrization import table

ROOT = Path(__file__).parents[3]
VOCAB, WIDTH, BATCH, STEPS = 32, 16, 64, 20
RATE, DECAY = 0.02, 0.1
LVP = table("lvp", width=WIDTH, vocab=VOCAB)

SMOOTH = {
    "adamw": functools.partial(optim.adamw, weight_decay=DECAY),
    "adamw_uncorrected": functools.partial(optim.adamw, weight_decay=DECAY, bias_correction_first=False),
    "rotational_adamw": functools.partial(optim.rotational_adamw, weight_decay=DECAY),
    "coupled_adam": functools.partial(optim.coupled_adam, weight_decay=DECAY),
    "coupled_adam_both": functools.partial(
        optim.parametrized,
        functools.partial(optim.coupled_adam, couple=("output", "embedding")),
        LVP,
        weight_decay=DECAY,
    ),
}
SIGNED = {
    "sign_sgd": optim.sign_sgd,
    "lion_a": functools.partial(optim.lion_a, weight_decay=DECAY, nesterov=True),
    "lion_ar": functools.partial(optim.lion_ar, weight_decay=DECAY),
    "parametrized_lion_ar": functools.partial(optim.parametrized, optim.lion_ar, LVP, weight_decay=DECAY),
}
# The vocabulary is split over one axis of the mesh and the width over the other.
SPECS = {
    "embedding": {"embedding": PartitionSpec("vocab", "width")},
    "block_0": {"mlp": {"up": {"kernel": PartitionSpec("vocab", "width"), "bias": PartitionSpec("width")}}},
    "head": {"kernel": PartitionSpec("width", "vocab")},
}
NEURONS = {"embedding": {"embedding": 1}, "block_0": {"mlp": {"up": {"kernel": 0}}}, "head": {"kernel": 0}}


def parameters() -> dict:
    keys = jax.random.split(jax.random.key(0), 3)
    normal = lambda key, *shape: np.asarray(jax.random.normal(key, shape) / np.sqrt(shape[0]))  # noqa: E731
    return {
        "embedding": {"embedding": normal(keys[0], VOCAB, WIDTH) * np.float32(np.sqrt(VOCAB))},
        "block_0": {"mlp": {"up": {"kernel": normal(keys[1], WIDTH, WIDTH), "bias": np.full(WIDTH, 0.1, np.float32)}}},
        "head": {"kernel": normal(keys[2], WIDTH, VOCAB)},
    }


def loss(params, tokens, targets):
    up = params["block_0"]["mlp"]["up"]
    x = jnp.tanh(params["embedding"]["embedding"][tokens] @ up["kernel"] + up["bias"][None])
    return optax.softmax_cross_entropy_with_integer_labels(x @ params["head"]["kernel"], targets).mean()


def batches() -> tuple[np.ndarray, np.ndarray]:
    """Returns random tokens, each with a distinct token as its target: a softmax regression that can be learned."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCAB, (STEPS, BATCH))
    return tokens, rng.permutation(VOCAB)[tokens]


def stepper(tx):
    """Returns a step of training that donates its inputs. It also returns the update and the gradient."""

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, tokens, targets):
        value, gradients = jax.value_and_grad(loss)(params, tokens, targets)
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value, updates, gradients

    return step


def train(tx, step, params):
    """Returns the final parameters, the losses, and the updates of every step."""
    params = jax.tree.map(jnp.copy, params)  # the first parameters are donated
    state = tx.init(params)
    losses, moved = [], []
    for tokens, targets in zip(*batches(), strict=True):
        params, state, value, updates, _ = step(params, state, tokens, targets)
        losses.append(float(value))
        moved.append(jax.device_get(updates))
    losses.append(float(loss(jax.device_get(params), tokens, targets)))
    return jax.device_get(params), np.asarray(losses), moved


def states(state, name: str) -> list:
    """Returns the arrays of every tree called `name` in a state, with their paths in the parameters."""
    leaves = []
    for _, tree in optax.tree.get_all_with_path(state, name):
        leaves += [
            (jax.tree_util.keystr(keys, simple=True, separator="/"), leaf)
            for keys, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
        ]
    return leaves


def by_path(tree) -> dict:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(keys, simple=True, separator="/"): leaf for keys, leaf in leaves}


def shardings(tree, mesh) -> list:
    """Returns shapes and shardings. Counters made eagerly have no device; beside sharded arrays they are replicated."""
    everywhere = NamedSharding(mesh, PartitionSpec())
    return [(leaf.shape, leaf.sharding if leaf.committed else everywhere) for leaf in jax.tree.leaves(tree)]


def assert_same_shardings(after, before):
    for (shape, new), (old_shape, old) in zip(after, before, strict=True):
        assert shape == old_shape and new.is_equivalent_to(old, len(shape)), (shape, new, old)


def moments_lying_like_parameters(state, params) -> int:
    """Returns the number of leaves in the state with their parameter's shape. All of them must be sharded like the
    parameter."""
    where, count = by_path(params), 0
    for path, leaf in (*states(state, "mu"), *states(state, "nu")):
        if leaf.shape == where[path].shape:
            assert leaf.sharding.is_equivalent_to(where[path].sharding, leaf.ndim), (path, leaf.sharding)
            assert leaf.addressable_shards[0].data.size < leaf.size
            count += 1
    return count


def check_shardings(name, tx, step, params):
    """Calls `init` eagerly on sharded parameters, as optax's users do; the step does not specify its output shardings.
    Also calls `init` under jit with the output shardings that `optax.tree.map_params` derives."""
    mesh, state = params["head"]["kernel"].sharding.mesh, tx.init(params)
    moments = MOMENTS.get(name, 4)
    assert moments_lying_like_parameters(state, params) == moments
    everywhere = NamedSharding(mesh, PartitionSpec())
    masked = lambda node: isinstance(node, optax.MaskedNode)  # noqa: E731
    where = lambda leaf, p: leaf if masked(leaf) else p.sharding if leaf.shape == p.shape else everywhere  # noqa: E731
    abstract = jax.eval_shape(tx.init, params)
    out = optax.tree.map_params(tx, where, abstract, params, transform_non_params=lambda _: everywhere, is_leaf=masked)
    told = jax.jit(tx.init, out_shardings=out)(params)
    assert moments_lying_like_parameters(told, params) == moments
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), told, state)
    held = jax.tree.map(jnp.copy, params)
    before = shardings(held, mesh), shardings(state, mesh)
    after, next_state, *_ = step(held, state, *(x[0] for x in batches()))
    assert_same_shardings(shardings(after, mesh), before[0])
    assert_same_shardings(shardings(next_state, mesh), before[1])
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(held))  # donated: its memory was reused


def check_numbers(name, tx, step, params):
    """Norms are those of whole neurons, and coupled moments those of the whole vocabulary, although both are
    sharded."""
    host, state = by_path(jax.device_get(params)), tx.init(params)
    for path, norms in states(state, "norms"):
        axis = by_path(NEURONS)[path]
        expected = np.linalg.norm(host[path].astype(np.float64), axis=axis, keepdims=True)
        np.testing.assert_allclose(norms, expected, rtol=1e-6, err_msg=name)
    tokens, targets = (x[0] for x in batches())
    after, state, _, _, gradients = step(jax.tree.map(jnp.copy, params), state, tokens, targets)
    after, gradients = by_path(jax.device_get(after)), by_path(jax.device_get(gradients))
    if "lion_ar" in name or "rotational" in name:
        for path, axis in by_path(NEURONS).items():
            lengths = [np.linalg.norm(x[path].astype(np.float64), axis=axis) for x in (host, after)]
            np.testing.assert_allclose(*lengths, rtol=3e-7, err_msg=name)
    if name.startswith("coupled"):
        coupled = {"head/kernel": 1} | ({"embedding/embedding": 0} if name.endswith("both") else {})
        moments = dict(states(state, "nu"))
        for path, axis in coupled.items():
            squares = np.mean(np.square(gradients[path].astype(np.float64)), axis=axis)
            np.testing.assert_allclose(moments[path], 0.05 * squares, rtol=2e-6, err_msg=name)


def check_training(name, tx, step, params):
    """Compares twenty steps on the mesh with twenty on one device. For smooth updates, parameters agree to 1e-5 of the
    leaf's largest entry. A sign with an argument near zero may differ, which moves its coordinate by a whole step. For
    signed updates, the loss therefore agrees to 1e-3 of its decrease, and signs differ in at most 1 of 1000 coordinates
    and steps."""
    unsharded = jax.tree.map(lambda leaf: jax.device_put(leaf, jax.devices()[0]), parameters())
    (on_the_mesh, losses, moves), (on_one_device, their_losses, their_moves) = (
        train(tx, step, params),
        train(tx, step, unsharded),
    )
    fall = their_losses[0] - their_losses[-1]
    assert fall > 0.2, (name, their_losses)
    off = max(
        float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
        for a, b in zip(jax.tree.leaves(on_the_mesh), jax.tree.leaves(on_one_device), strict=True)
    )
    flat = lambda moves: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(moves)])  # noqa: E731
    differ = float(np.mean(np.sign(flat(moves)) != np.sign(flat(their_moves))))
    loss_off = float(np.max(np.abs(losses - their_losses)) / fall)
    print(f"{name}: loss {their_losses[0]:.3f} → {their_losses[-1]:.3f}, off by {loss_off:.1e} of its fall; "
          f"parameters off by {off:.1e}, signs by {differ:.1e}")  # fmt: skip
    if name in SMOOTH:
        assert off < 1e-5, (name, off)
    assert loss_off < 1e-3 and differ < 1e-3, (name, loss_off, differ)


# Number of leaves of the state with a parameter's shape, for four parameters; by default those of one moment.
MOMENTS = {"sign_sgd": 0, **dict.fromkeys(("adamw", "adamw_uncorrected", "rotational_adamw"), 8)}
MOMENTS |= {"coupled_adam": 7, "coupled_adam_both": 6}


def main(names: list[str]) -> int:
    jax.config.update("jax_numpy_rank_promotion", "raise")
    warnings.filterwarnings("error", message=".*donated.*")
    assert jax.device_count() == 8, jax.devices()
    mesh = jax.make_mesh((2, 4), ("vocab", "width"), axis_types=(AxisType.Auto,) * 2)
    params = jax.tree.map(lambda leaf, spec: jax.device_put(leaf, NamedSharding(mesh, spec)), parameters(), SPECS)
    assert params["head"]["kernel"].addressable_shards[0].data.shape == (WIDTH // 4, VOCAB // 2)
    failed = 0
    for name in names:
        tx = (SMOOTH | SIGNED)[name](learning_rate=RATE)
        step = stepper(tx)
        for check in (check_shardings, check_numbers, check_training):
            try:
                check(name, tx, step, params)
            except Exception:  # the report of every optimizer is needed, not only the first
                failed += 1
                print(f"--- {name}", traceback.format_exc(), file=sys.stderr)
    return failed


@pytest.mark.slow
@pytest.mark.parametrize("names", [["rotational_adamw"], [*SMOOTH, *SIGNED]])
def test_optimizers_on_eight_devices(names):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.lvp.optim.test_meshes", *names]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    print(run.stdout)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("of its fall") == len(names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
