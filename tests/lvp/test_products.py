"""`lvp.products` against plain products and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp.products import ROWS, product, weight_gradient

# Rows with one block, several blocks, and a rest; inputs narrower and wider than outputs.
SIZES = [(ROWS, 3, 5), (2 * ROWS, 3, 5), (3 * ROWS, 5, 3), (2 * ROWS + 1, 3, 5), (7, 4, 4)]


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
    x, y = (np.stack([a, 2 * a]) for a in operands(2 * ROWS, 3, 5, "float32"))
    got = jax.vmap(lambda x, y: weight_gradient(x, y, jnp.float32))(x, y)
    for i in range(2):
        np.testing.assert_allclose(got[i], x[i].T @ y[i], rtol=0, atol=1e-3)


def test_blocks_of_bfloat16_are_summed_in_float32():
    """A bfloat16 sum would stop at 512 blocks, where the spacing of bfloat16 exceeds `ROWS`."""
    ones = jnp.ones((512 * ROWS + ROWS, 2), jnp.bfloat16)
    got = weight_gradient(ones, ones, jnp.float32)
    np.testing.assert_array_equal(got, np.full((2, 2), ones.shape[0], np.float32))


def sums_over_blocks(platform: str, inputs: int, outputs: int) -> bool:
    shapes = [jax.ShapeDtypeStruct((4 * ROWS, n), jnp.float32) for n in (inputs, outputs)]
    traced = jax.jit(lambda x, y: weight_gradient(x, y, jnp.float32)).trace(*shapes)
    return "batching_dims" in traced.lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize(("platform", "blocked"), [("cpu", True), ("tpu", False), ("cuda", False)])
def test_only_cpu_sums_over_blocks(platform, blocked):
    assert sums_over_blocks(platform, 3, 5) == blocked


def test_blocks_need_no_more_memory_than_the_operands():
    assert sums_over_blocks("cpu", 2 * ROWS, 2 * ROWS)
    assert not sums_over_blocks("cpu", 2 * ROWS, 2 * ROWS + 1)
