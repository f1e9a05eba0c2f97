"""Dead units and stable ranks against NumPy implementations of their definitions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp import roles
from lvp.errors import InputError
from lvp.experiments.large_updates import dead_units

stable_rank = jax.jit(dead_units.stable_rank)


def layers(seed=0, count=6):
    """Returns the inputs of three ReLUs, convolutional and dense, with known dead units in the first two layers."""
    rng = np.random.default_rng(seed)
    inputs = {"stem": rng.standard_normal((count, 4, 4, 8)), "block/relu": rng.standard_normal((count, 2, 2, 3))}
    inputs["dense"] = rng.standard_normal((count, 5))
    inputs["stem"][..., [1, 6]] = -np.abs(inputs["stem"][..., [1, 6]])
    inputs["block/relu"][..., 0] = 0  # all zero: the ReLU returns zero with zero gradient
    inputs["dense"] = np.abs(inputs["dense"])
    return {path: x.astype(np.float32) for path, x in inputs.items()}


def fraction(given):
    return dead_units.dead_fraction(dead_units.unit_maxima(given))


def test_a_unit_is_dead_if_it_is_never_above_zero():
    given = layers()
    dead = jax.jit(fraction)(given)
    expected = {path: np.mean([not (x[..., u] > 0).any() for u in range(x.shape[-1])]) for path, x in given.items()}
    assert expected == {"stem": 2 / 8, "block/relu": 1 / 3, "dense": 0.0}
    for path, value in expected.items():
        assert dead["layers"][path] == np.float32(value)
    assert dead["all"] == np.float32(3 / 16)  # over units; the mean over layers differs
    assert abs(dead["all"] - np.mean(list(expected.values()))) > 1e-3


@pytest.mark.parametrize("sample, row, column", [(0, 0, 0), (5, 3, 2)])
def test_a_unit_above_zero_anywhere_is_alive(sample, row, column):
    given = layers()
    given["stem"][sample, row, column, 6] = 1e-30
    assert fraction(given)["layers"]["stem"] == np.float32(1 / 8)
    given["stem"][sample, row, column, 6] = -1e-30  # control: a negative value does not count
    assert fraction(given)["layers"]["stem"] == np.float32(2 / 8)


def test_maxima_of_parts_combine_to_the_whole():
    first, second = layers(0), layers(1)
    second["stem"][..., 6] = 1.0
    whole = dead_units.unit_maxima({path: np.concatenate([first[path], second[path]]) for path in first})
    parts = jax.tree.map(jnp.maximum, dead_units.unit_maxima(first), dead_units.unit_maxima(second))
    jax.tree.map(np.testing.assert_array_equal, whole, parts)
    assert dead_units.dead_fraction(parts)["layers"]["stem"] == np.float32(1 / 8)
    for path, x in whole.items():
        both = np.concatenate([first[path], second[path]])
        np.testing.assert_array_equal(x, both.reshape(-1, x.shape[0]).max(0))


def test_nan_makes_the_dead_fraction_nan():
    given = layers()
    given["stem"][2, 1, 1, 0] = np.nan
    dead = fraction(given)
    assert jnp.isnan(dead["layers"]["stem"]) and jnp.isnan(dead["all"]) and dead["layers"]["dense"] == 0
    given["stem"][2, 1, 1, 0] = -np.inf
    assert fraction(given)["all"] == np.float32(3 / 16)


def test_runs_are_counted_separately():
    stacked = jax.tree.map(lambda *xs: np.stack(xs), layers(0), layers(3))
    stacked["dense"][1] *= -1
    dead = jax.vmap(fraction)(stacked)
    np.testing.assert_array_equal(dead["layers"]["dense"], np.float32([0, 1]))
    np.testing.assert_array_equal(dead["all"], np.float32([3 / 16, 8 / 16]))


@pytest.mark.parametrize(
    "call, word",
    [
        (lambda: dead_units.unit_maxima({"stem": np.zeros(3)}), "stem.*non-empty"),
        (lambda: dead_units.unit_maxima({"stem": np.zeros((0, 3))}), "stem.*non-empty"),
        (lambda: dead_units.dead_fraction({"stem": np.zeros((2, 3))}), "stem.*one per unit"),
        (lambda: dead_units.dead_fraction({}), "at least one layer"),
        (lambda: dead_units.stable_rank(np.zeros(3)), "rank 2 or more"),
        (lambda: dead_units.stable_rank(np.zeros((3, 0))), "non-empty"),
        (lambda: dead_units.stable_ranks({"norm": {"scale": np.ones(3)}}), "no matrix"),
        (lambda: dead_units.stable_ranks({"thing": np.ones((3, 3))}), "thing"),
    ],
)
def test_bad_shapes_are_named(call, word):
    with pytest.raises(InputError, match=word):
        call()


def by_svd(matrix):
    values = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)
    return np.sum(values**2) / values[0] ** 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(12, 7), (7, 12), (5, 5), (1, 6)])
def test_stable_rank_by_singular_values(shape, dtype):
    matrix = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        rank = stable_rank(jnp.asarray(matrix))
        assert rank.dtype == dtype and rank.shape == ()
    assert float(rank) == pytest.approx(by_svd(matrix), rel=2e-6 if dtype == "float32" else 1e-13)


def test_stable_rank_of_matrices_with_known_singular_values():
    rng = np.random.default_rng(1)
    left, right = (np.linalg.qr(rng.standard_normal((n, 6)))[0] for n in (20, 9))
    equal, single, halved = (
        left * values @ right.T for values in (np.ones(6), [1, 0, 0, 0, 0, 0], 0.5 ** np.arange(6))
    )
    for matrix, expected in ((equal, 6), (single, 1), (halved, sum(0.25 ** np.arange(6)))):
        assert float(stable_rank(np.float32(matrix))) == pytest.approx(expected, rel=2e-6)
    assert stable_rank(np.zeros((3, 4), np.float32)) == 0


def test_stable_rank_does_not_depend_on_the_scale():
    matrix = np.random.default_rng(2).standard_normal((9, 4)).astype(np.float32)
    rank = stable_rank(matrix)
    for power in (2.0**-100, 2.0**100):  # squares leave float32's range
        assert stable_rank(matrix * np.float32(power)) == rank
    assert abs(stable_rank(matrix * np.float32([9, 1, 1, 1])) - rank) > 0.1  # scaling one column changes it


def test_a_kernel_is_the_matrix_of_its_filters():
    kernel = np.random.default_rng(3).standard_normal((3, 3, 4, 5)).astype(np.float32)
    assert stable_rank(kernel) == stable_rank(kernel.reshape(36, 5))
    assert abs(stable_rank(kernel) - stable_rank(kernel.transpose(3, 0, 1, 2))) > 0.1


def test_stable_ranks_of_a_tree_are_by_role_and_layer():
    rng = np.random.default_rng(4)
    shapes = {
        "embedding/embedding": (7, 4),
        "blocks/mlp/up/kernel": (2, 4, 6),
        "conv/kernel": (3, 3, 2, 5),
        "filters/kernel": (5, 2, 3, 3),  # [out, in, h, w]
        "norm/scale": (4,),
        "head/bias": (7,),
    }
    params = {path: rng.standard_normal(shape).astype(np.float32) for path, shape in shapes.items()}
    declared = (
        roles.Declaration("conv/kernel", "hidden", fan_in=(0, 1, 2)),
        roles.Declaration("filters/kernel", "hidden", fan_in=(1, 2, 3)),
    )
    ranks = jax.jit(functools.partial(dead_units.stable_ranks, declarations=declared))(params)
    expected = {
        "embedding/embedding": by_svd(params["embedding/embedding"]),
        "blocks/mlp/up/kernel": [by_svd(layer) for layer in params["blocks/mlp/up/kernel"]],
        "conv/kernel": by_svd(params["conv/kernel"].reshape(18, 5)),
        "filters/kernel": by_svd(params["filters/kernel"].reshape(5, 18)),
    }
    assert set(ranks["matrices"]) == set(expected)
    for path, value in expected.items():
        np.testing.assert_allclose(ranks["matrices"][path], value, rtol=2e-6, err_msg=path)
    assert float(ranks["mean"]) == pytest.approx(np.mean(np.concatenate([np.ravel(x) for x in expected.values()])))
