"""Norms of neurons, for every way to compute the sum."""

import jax
import numpy as np
import pytest

from lvp.optim import neurons


@pytest.mark.parametrize(
    "shape, fan_in",
    [
        ((64, neurons.LONG_ROW), (0,)),  # rows in order
        ((64, neurons.LONG_ROW - 1), (0,)),
        ((63, neurons.LONG_ROW), (0,)),  # not a whole number of blocks
        ((64, neurons.LONG_ROW), (1,)),
        ((2, 3, neurons.LONG_ROW), (0, 1)),
    ],
)
def test_norms_equal_numpy(shape, fan_in):
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    expected = np.sqrt(np.sum(x.astype(np.float64) ** 2, axis=fan_in, keepdims=True))
    got = jax.jit(neurons.norm, static_argnums=1)(x, fan_in)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-6)
