"""Matrix products with a fast weight gradient on CPU.

XLA's CPU back end takes a slow path for xᵀ y if x has more columns than y. `tests/benchmarks/products.py` compares its
time with that of `weight_gradient`.

The backward pass uses `dot_general` without transpositions. On a mesh, a transposed matrix would be gathered in
addition to the matrix.
"""

import jax
from jax.typing import DTypeLike


def weight_gradient(x_NI: jax.Array, y_NO: jax.Array, dtype: DTypeLike) -> jax.Array:
    """Returns xᵀ y [I, O] of `dtype`: the gradient of a matrix that maps x to an output with gradient y.

    On CPU it is (yᵀ x)ᵀ if x has more columns than y.
    """

    def at_once(x, y):
        return jax.lax.dot_general(x, y, (((0,), (0,)), ((), ())), preferred_element_type=dtype)

    def narrow_first(x, y):
        if x.shape[1] > y.shape[1]:
            return narrow_first(y, x).T
        return jax.lax.optimization_barrier(at_once(x, y))  # XLA would merge a transposition into the product

    return jax.lax.platform_dependent(x_NI, y_NO, cpu=narrow_first, default=at_once)


@jax.custom_vjp
def product(x_NI: jax.Array, kernel_IO: jax.Array) -> jax.Array:
    """Returns x · kernel [N, O]. Differentiable in reverse mode only; the backward pass calls `weight_gradient`."""
    return x_NI @ kernel_IO


def _forward(x_NI, kernel_IO):
    return x_NI @ kernel_IO, (x_NI, kernel_IO)


def _backward(operands, y_NO):
    x_NI, kernel_IO = operands
    x_gradient = jax.lax.dot_general(y_NO, kernel_IO, (((1,), (1,)), ((), ())))
    return x_gradient, weight_gradient(x_NI, y_NO, kernel_IO.dtype)


product.defvjp(_forward, _backward)
