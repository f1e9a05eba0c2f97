"""The chunked loss equals the dense loss in value, gradients, weights and padding, and does not store the logits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp.losses import chunks, dense_next_token_loss, next_token_loss
from tests.marking import slow


def problem(tokens, width, vocab, seed=0, dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(seed), 4)
    hidden = jax.random.normal(keys[0], (tokens, width), dtype)
    head = jax.random.normal(keys[1], (width, vocab), dtype) * width**-0.5
    targets = jax.random.randint(keys[2], (tokens,), 0, vocab)
    return hidden, head, targets, jax.random.uniform(keys[3], (tokens,))


@pytest.mark.parametrize(
    "tokens, chunk",
    [(61, 16), *(slow(*case) for case in ((5, 256), (64, 16), (64, 64), (1, 1)))],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_dense_loss_and_its_gradients(tokens, chunk, weighted):
    hidden, head, targets, weights = problem(tokens, 24, 97)
    weights = weights if weighted else jnp.ones(tokens)
    ours = lambda *a: next_token_loss(a[0], a[1], targets, a[2], chunk=chunk)  # noqa: E731
    dense = lambda *a: dense_next_token_loss(a[0], a[1], targets, a[2])  # noqa: E731
    ours, dense = (jax.jit(jax.value_and_grad(loss, (0, 1, 2))) for loss in (ours, dense))
    (loss, grads), (expected, expected_grads) = ours(hidden, head, weights), dense(hidden, head, weights)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    for got, want in zip(grads, expected_grads, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6 * float(jnp.max(jnp.abs(want))) + 1e-9)


def test_chunks_are_the_array_padded_with_zeros():
    rows, weights = chunks(4, jnp.arange(30.0).reshape(10, 3), jnp.ones(10))
    assert rows.shape == (3, 4, 3) and weights.shape == (3, 4)
    np.testing.assert_array_equal(rows.reshape(12, 3), np.append(np.arange(30.0), np.zeros(6)).reshape(12, 3))
    assert weights.ravel().tolist() == [1.0] * 10 + [0.0] * 2


def test_uniform_logits_have_a_loss_of_log_vocab():
    loss = next_token_loss(jnp.zeros((7, 3)), jnp.ones((3, 50)), jnp.arange(7), chunk=4)
    np.testing.assert_allclose(loss, np.log(50), rtol=1e-6)


def test_tokens_of_weight_zero_do_not_count():
    hidden, head, targets, _ = problem(20, 8, 30)
    weights = jnp.asarray([1.0] * 12 + [0.0] * 8)
    masked = next_token_loss(hidden, head, targets, weights, chunk=8)
    np.testing.assert_allclose(masked, next_token_loss(hidden[:12], head, targets[:12], chunk=8), rtol=1e-6)
    assert masked != next_token_loss(hidden, head, targets, chunk=8)  # control: these tokens would have counted
    assert next_token_loss(hidden, head, targets, jnp.zeros(20)) == 0


@pytest.mark.parametrize("target", [-1, -100, 30])
def test_a_target_out_of_range_gives_nan(target):
    hidden, head, targets, _ = problem(20, 8, 30)
    assert np.isfinite(next_token_loss(hidden, head, targets, chunk=8))
    assert np.isnan(next_token_loss(hidden, head, targets.at[3].set(target), chunk=8))


def test_the_value_without_gradient_is_the_same():
    hidden, head, targets, weights = problem(30, 8, 40)
    value = next_token_loss(hidden, head, targets, weights, chunk=7)
    both, _ = jax.value_and_grad(next_token_loss)(hidden, head, targets, weights, chunk=7)
    np.testing.assert_allclose(value, both, rtol=1e-6)


def test_vmap_over_models_equals_a_loop():
    problems = [problem(12, 8, 20, seed) for seed in range(3)]
    stacked = [jnp.stack(x) for x in zip(*problems, strict=True)]
    grad = jax.grad(lambda h, w, t, a: next_token_loss(h, w, t, a, chunk=5), (0, 1))
    for got, want in zip(jax.vmap(grad)(*stacked), zip(*[grad(*p) for p in problems], strict=True), strict=True):
        np.testing.assert_allclose(got, jnp.stack(want), rtol=1e-5, atol=1e-8)


def test_bfloat16_gradients_are_close_to_float32():
    hidden, head, targets, weights = problem(64, 32, 100)
    want = jax.grad(next_token_loss, (0, 1))(hidden, head, targets, weights, chunk=16)
    low = hidden.astype(jnp.bfloat16), head.astype(jnp.bfloat16)
    got = jax.grad(next_token_loss, (0, 1))(*low, targets, weights, chunk=16)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == jnp.bfloat16
        assert jnp.linalg.norm(g.astype(jnp.float32) - w) < 0.02 * jnp.linalg.norm(w)


def test_temporary_memory_is_a_sixteenth_of_the_dense_loss():
    """From the compiled programs with gradients, at 4,096 tokens × 32,768 × 256. Nothing is executed."""
    shapes = [jax.ShapeDtypeStruct(s, d) for s, d in (((4096, 256), "f4"), ((256, 32768), "f4"), ((4096,), "i4"))]

    def temporary(loss):
        compiled = jax.jit(jax.value_and_grad(loss, (0, 1))).lower(*shapes).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary(lambda h, w, t: next_token_loss(h, w, t)) * 15 < temporary(dense_next_token_loss)
