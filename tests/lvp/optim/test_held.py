"""Optimizers that hold the representation change: their input, and the transforms that they consist of."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.errors import InputError


def test_lion_ar_with_held_change_equals_its_chain():
    params = {"head": {"kernel": jnp.asarray(np.random.default_rng(0).standard_normal((5, 3)), jnp.float32)}}
    gradients = jax.tree.map(jnp.cos, params)
    chain = optax.chain(
        optim.scale_by_lion_a(0.9),
        optim.scale_by_representation_change(batch_size=8),
        optim.rotate_by_learning_rate(0.01, weight_decay=0.1),
    )
    whole, plain = optim.lion_ar(0.01, weight_decay=0.1, batch_size=8), optim.lion_ar(0.01, weight_decay=0.1)
    updates = [tx.update(gradients, tx.init(params), params, gradient_snr=0.5)[0] for tx in (whole, chain, plain)]
    np.testing.assert_array_equal(*[u["head"]["kernel"] for u in updates[:2]])
    assert not np.allclose(*[u["head"]["kernel"] for u in updates[1:]], rtol=0.1)  # control: holding changes the update


def test_representation_change_needs_its_measurement():
    tx = optim.scale_by_representation_change(batch_size=8)
    params = {"head": {"kernel": jnp.ones((2, 3))}}
    with pytest.raises(InputError, match="gradient_snr"):
        tx.update(params, tx.init(params), params)
    tx.update(params, tx.init(params), params, gradient_snr=0.1)
    with pytest.raises(InputError, match="gradient_snr at 'head/kernel' must be a scalar, got shape \\(3,\\)"):
        tx.update(params, tx.init(params), params, gradient_snr={"head": {"kernel": jnp.ones(3)}})


def test_only_negative_estimates_of_matrices_are_counted():
    tx = optim.by_role(
        optim.lion_ar, dict.fromkeys(("hidden", "output", "vector"), 0.1), weight_decay=0.1, batch_size=8
    )
    params = {
        "block_0": {"mlp": {"up": {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}}},
        "head": {"kernel": jnp.eye(3)},
    }
    _, state = tx.update(params, tx.init(params), params, gradient_snr=jax.tree.map(lambda _: -0.1, params))
    is_state = lambda x: hasattr(x, "clipped")  # noqa: E731
    clipped = [s.clipped for s in jax.tree.leaves(state, is_leaf=is_state) if is_state(s)]
    assert sorted(map(int, clipped)) == [0, 1, 1]  # vectors, hidden, output
