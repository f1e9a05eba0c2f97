"""Matrix products with a fast weight gradient on CPU.

XLA's CPU back end takes a slow path for xᵀ y if x and y have many rows. `tests/benchmarks/products.py` compares the two
products.
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

ROWS = 256  # rows per block


def weight_gradient(x_NI: jax.Array, y_NO: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Returns xᵀ y [I, O] of `dtype`: the gradient of a matrix that maps x to an output with gradient y.

    On CPU it is a sum over blocks of rows, in float32 or wider, if `ROWS` divides the number of rows and the products
    of all blocks take no more memory than x and y.
    """

    def at_once(x_NI, y_NO):
        return jnp.matmul(x_NI.T, y_NO, preferred_element_type=dtype)

    (rows, inputs), outputs = x_NI.shape, y_NO.shape[1]
    if rows % ROWS or rows == ROWS or inputs * outputs > ROWS * (inputs + outputs):
        return at_once(x_NI, y_NO)
    return jax.lax.platform_dependent(x_NI, y_NO, cpu=lambda x, y: _by_blocks(x, y).astype(dtype), default=at_once)


def _by_blocks(x_NI: jax.Array, y_NO: jax.Array) -> jax.Array:
    """xᵀ y [I, O] in float32 or wider, as a sum over blocks of rows."""
    if x_NI.shape[1] > y_NO.shape[1]:
        return _by_blocks(y_NO, x_NI).T  # the narrower operand is copied
    wide = jnp.promote_types(jnp.result_type(x_NI, y_NO), jnp.float32)
    x_BNI, y_BNO = (a.reshape(-1, ROWS, a.shape[1]) for a in (x_NI, y_NO))
    x_BIN = jax.lax.optimization_barrier(x_BNI.mT)  # without the barrier XLA merges the copy into the slow product
    return jnp.matmul(x_BIN, y_BNO, preferred_element_type=wide).sum(axis=0)


@jax.custom_vjp
def product(x_NI: jax.Array, kernel_IO: jax.Array) -> jax.Array:
    """Returns x · kernel [N, O]. Differentiable in reverse mode only; the backward pass calls `weight_gradient`."""
    return x_NI @ kernel_IO


def _forward(x_NI, kernel_IO):
    return x_NI @ kernel_IO, (x_NI, kernel_IO)


def _backward(operands, y_NO):
    x_NI, kernel_IO = operands
    return y_NO @ kernel_IO.T, weight_gradient(x_NI, y_NO, kernel_IO.dtype)


product.defvjp(_forward, _backward)
