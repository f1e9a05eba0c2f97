"""The LM head's updates in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp.errors import InputError
from lvp.theory import head_updates


def test_sgd_equals_the_gradient_of_cross_entropy():
    rng = np.random.default_rng(0)
    embeddings, hidden = rng.normal(size=(7, 4)), rng.normal(size=4)
    gradient = jax.grad(lambda e: -jax.nn.log_softmax(e @ hidden)[3])(jnp.asarray(embeddings, jnp.float32))
    logits = embeddings @ hidden
    probabilities = np.exp(logits) / np.exp(logits).sum()
    updates = head_updates(hidden, probabilities, 3)
    np.testing.assert_allclose(updates, -gradient, atol=1e-6)
    np.testing.assert_allclose(updates.sum(axis=0), 0, atol=1e-12)


def test_adam_changes_the_mean_unless_moments_are_equal():
    hidden, probabilities = np.array([1.0, 2.0]), np.array([0.2, 0.5, 0.3])
    moved = head_updates(hidden, probabilities, 0, second_moment=[0.6, 0.3, 0.1]).sum(axis=0)
    coefficient = 0.8 / np.sqrt(0.6) - 0.5 / np.sqrt(0.3) - 0.3 / np.sqrt(0.1)
    np.testing.assert_allclose(moved, coefficient * hidden, rtol=1e-12)
    equal = head_updates(hidden, probabilities, 0, second_moment=[0.3] * 3)
    np.testing.assert_allclose(equal.sum(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize(
    "arguments, says",
    [
        (([1.0], [0.5, 0.6], 0), "probabilities"),
        (([1.0], [1.5, -0.5], 0), "probabilities"),
        (([1.0], [0.5, 0.5], 2), "target"),
    ],
)
def test_unusable_arguments_are_named(arguments, says):
    with pytest.raises(InputError, match=says):
        head_updates(*arguments)
    with pytest.raises(InputError, match="second_moment"):
        head_updates([1.0], [0.5, 0.5], 0, second_moment=[1.0, 0.0])
