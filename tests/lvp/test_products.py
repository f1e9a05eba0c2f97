"""`lvp.products` against plain products and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp.products import product, weight_gradient

SIZES = [(7, 3, 5), (7, 5, 3), (4, 4, 4), (1, 2, 3)]  # rows, inputs, outputs


def operands(rows: int, inputs: int, outputs: int, dtype="float64") -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(rows, inputs)).astype(dtype), random.normal(size=(rows, outputs)).astype(dtype)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_weight_gradient_is_the_transposed_product(sizes):
    x, y = operands(*sizes)
    with jax.enable_x64(True):
        got = weight_gradient(jnp.asarray(x), jnp.asarray(y), jnp.float64)
    np.testing.assert_allclose(got, x.T @ y, rtol=0, atol=1e-12)
    assert got.dtype == "float64"


@pytest.mark.parametrize("sizes", SIZES)
def test_the_product_has_the_derivatives_of_a_plain_product(sizes):
    x, y = operands(*sizes)
    kernel = np.random.default_rng(1).normal(size=sizes[1:])
    with jax.enable_x64(True):
        value, pull = jax.vjp(product, *map(jnp.asarray, (x, kernel)))
        expected, plain_pull = jax.vjp(jnp.matmul, *map(jnp.asarray, (x, kernel)))
        np.testing.assert_array_equal(value, expected)
        for got, want in zip(pull(jnp.asarray(y)), plain_pull(jnp.asarray(y)), strict=True):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


def test_vmap_over_models_equals_a_loop():
    x, y = (np.stack([a, 2 * a]) for a in operands(7, 5, 3, "float32"))
    got = jax.vmap(lambda x, y: weight_gradient(x, y, jnp.float32))(x, y)
    for i in range(2):
        np.testing.assert_allclose(got[i], x[i].T @ y[i], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("platform", "reordered"), [("cpu", True), ("tpu", False), ("cuda", False)])
def test_only_cpu_reorders_the_operands(platform, reordered):
    shapes = [jax.ShapeDtypeStruct((7, n), jnp.float32) for n in (5, 3)]
    traced = jax.jit(lambda x, y: weight_gradient(x, y, jnp.float32)).trace(*shapes)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ("optimization_barrier" in text) == reordered
