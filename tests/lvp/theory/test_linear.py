"""The linear network: its gradients as printed, against automatic differentiation, and in chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp import losses, roles
from lvp.errors import InputError
from lvp.models import linear

D, M = 6, 20


@pytest.fixture
def case():
    """Returns (params, α with an absent token, targets that are not a permutation), float64."""
    with jax.enable_x64(True):
        params = linear.init(jax.random.key(0), D, M, 0.7, 0.4, dtype=jnp.float64)
        alpha = np.append(1 / np.arange(1, M), 0.0)
        yield params, jnp.asarray(alpha / alpha.sum()), jnp.asarray(np.random.default_rng(0).integers(0, M, M))


def assert_trees_close(tree, other, rtol):
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * float(np.max(np.abs(b))))


def test_square_gradients_equal_the_printed_ones(case):
    params, alpha, targets = case
    embedding, output = map(np.asarray, linear.matrices(params))
    residual = embedding @ output - np.eye(M)[targets]
    weighted = np.diag(alpha) @ residual / M
    expected = linear.as_params(weighted @ output.T, embedding.T @ weighted)
    assert_trees_close(linear.gradients(params, alpha, targets), expected, 1e-13)


def dense_loss(params, alpha, targets, loss):
    """Σ_i α_i ℓ(E_i W, Z_i): ℓ is ‖z − Z‖²/(2m) for "square", and −log softmax(z)[target] in nats otherwise."""
    embedding, output = linear.matrices(params)
    logits, wanted = embedding @ output, jnp.eye(M)[targets]
    if loss == "square":
        return alpha @ jnp.sum((logits - wanted) ** 2, axis=1) / (2 * M)
    return -alpha @ jnp.sum(wanted * jax.nn.log_softmax(logits), axis=1)


@pytest.mark.parametrize("loss", linear.LOSSES)
def test_gradients_equal_the_dense_loss_for_any_chunk(case, loss):
    params, alpha, targets = case
    expected = jax.grad(dense_loss)(params, alpha, targets, loss)
    for chunk in (None, 1, 7):
        assert_trees_close(linear.gradients(params, alpha, targets, loss, chunk=chunk), expected, 1e-12)
    other = linear.LOSSES[loss == linear.LOSSES[0]]
    with pytest.raises(AssertionError):
        assert_trees_close(linear.gradients(params, alpha, targets, other), expected, 1e-2)


def test_cross_entropy_equals_the_librarys_next_token_loss():
    params = linear.init(jax.random.key(1), D, M, 1.0, 1.0)
    alpha, targets = jnp.full(M, 1 / M), jnp.arange(M)[::-1]
    embedding, output = linear.matrices(params)
    expected = jax.grad(losses.next_token_loss, argnums=(0, 1))(embedding, output, targets, alpha)
    assert_trees_close(
        linear.gradients(params, alpha, targets, "cross_entropy"), linear.as_params(*expected), rtol=1e-5
    )


def test_random_signal_replaces_the_residual(case):
    params, alpha, _ = case
    key = jax.random.key(2)
    rows = [jax.random.normal(jax.random.fold_in(key, i), (M,), jnp.float64) for i in range(M)]
    embedding, output = map(np.asarray, linear.matrices(params))
    weighted = np.diag(alpha) @ np.stack(rows) / M
    expected = linear.as_params(weighted @ output.T, embedding.T @ weighted)
    for chunk in (None, 3):
        assert_trees_close(linear.random_signal_gradients(params, alpha, key, chunk=chunk), expected, 1e-12)
    other = linear.random_signal_gradients(params, alpha, jax.random.key(3))
    assert not np.allclose(linear.matrices(other)[0], linear.matrices(expected)[0], rtol=0.1)


def test_the_random_signal_is_standard_normal():
    """With E = 0 and W = I, dE is m⁻¹ D_α V itself. Other parameters have the same V."""
    size = 300
    alpha = jnp.full(size, 1 / size)
    identity = linear.as_params(jnp.zeros((size, size)), jnp.eye(size))
    gradients = linear.random_signal_gradients(identity, alpha, jax.random.key(4))
    signal = size**2 * np.asarray(linear.matrices(gradients)[0], np.float64)
    count = size * size
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (4, 3, 96)):
        assert abs(np.mean(signal**power) - moment) < 4 * (variance / count) ** 0.5
    spectrum = np.linalg.svd(signal, compute_uv=False)  # for iid entries the range is 0 to 2 √size
    assert spectrum[0] < 2.05 * size**0.5 and spectrum[-1] < 0.05 * size**0.5


def test_init_has_the_stds_it_is_given():
    embedding, output = map(np.asarray, linear.matrices(linear.init(jax.random.key(5), 200, 300, 0.5, 0.02)))
    assert embedding.shape == (300, 200) and output.shape == (200, 300)
    for matrix, sigma in ((embedding, 0.5), (output, 0.02)):
        assert np.std(matrix) == pytest.approx(sigma, rel=4 / (2 * 60_000) ** 0.5)
    assert abs(np.corrcoef(embedding.reshape(-1), output.reshape(-1))[0, 1]) < 4 / 60_000**0.5


def test_roles_are_known_by_default():
    params = linear.init(jax.random.key(0), D, M, 1.0, 1.0)
    assert roles.labels(params) == linear.as_params("embedding", "output")


def test_traced_scales_compile_and_seeds_can_be_mapped():
    def run(key, sigma):
        params = linear.init(key, D, M, sigma, sigma)
        return linear.gradients(params, jnp.full(M, 1 / M), jnp.arange(M), chunk=8)

    keys = jax.random.split(jax.random.key(6), 3)
    together = jax.jit(jax.vmap(run))(keys, jnp.array([0.1, 1.0, 2.0]))
    alone = run(keys[1], 1.0)
    assert_trees_close(jax.tree.map(lambda x: x[1], together), alone, 1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "hinge"}, "loss"),
        ({"frequencies": jnp.ones(M - 1)}, "frequencies"),
        ({"targets": jnp.zeros(M)}, "targets"),
        ({"targets": jnp.zeros((M, M), int)}, "targets"),
        ({"params": linear.as_params(jnp.ones((M, D)), jnp.ones((M, D)))}, "params"),
        ({"chunk": 0}, "chunk"),
    ],
)
def test_bad_arguments(arguments, message):
    params = linear.init(jax.random.key(0), D, M, 1.0, 1.0)
    good = {"params": params, "frequencies": jnp.full(M, 1 / M), "targets": jnp.arange(M)}
    with pytest.raises(InputError, match=message):
        linear.gradients(**{**good, **arguments})


def test_bad_sizes():
    for width, vocab in ((0, 4), (4, 0)):
        with pytest.raises(InputError, match="width and vocab"):
            linear.init(jax.random.key(0), width, vocab, 1.0, 1.0)
