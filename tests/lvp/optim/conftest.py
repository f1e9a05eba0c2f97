"""A small parameter tree with every role, and gradients for it."""

import jax
import jax.numpy as jnp
import optax
import pytest

# The width of the tests' tables. All matrices share it: JAX compiles an operation once per shape, which is the cost of
# these tests.
SIDE = 64


def tree(*, key: int) -> dict:
    """Returns normal entries at the paths of our decoder with one block and learned positions."""
    matrix, vector = (SIDE, SIDE), (SIDE,)
    shapes = {
        "embedding": {"embedding": matrix},
        "position": {"embedding": matrix},
        "block_0": {
            "attention": {"query": {"kernel": matrix}, "out": {"kernel": matrix}},
            "mlp": {"up": {"kernel": matrix, "bias": vector}},
            "norm_mlp": {"scale": vector},
        },
        "head": {"kernel": matrix},
    }
    is_shape = lambda node: isinstance(node, tuple)  # noqa: E731
    leaves, treedef = jax.tree.flatten(shapes, is_leaf=is_shape)
    keys = jax.random.split(jax.random.key(key), len(leaves))
    return treedef.unflatten([jax.random.normal(k, s) for k, s in zip(keys, leaves, strict=True)])


@pytest.fixture
def params() -> dict:
    return tree(key=0)


@pytest.fixture
def gradients() -> list[dict]:
    """Returns the gradients of five steps."""
    return [tree(key=k) for k in range(1, 6)]


@pytest.fixture
def zeros(params) -> dict:
    return jax.tree.map(jnp.zeros_like, params)


@pytest.fixture
def trajectory():
    """Returns a function (transformation, params, gradients) → parameters after every step, outside jit."""

    def run(tx, params, gradients):
        state, out = tx.init(params), []
        for gradient in gradients:
            updates, state = tx.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
            out.append(params)
        return out

    return run
