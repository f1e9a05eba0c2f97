"""Second moments against frequencies, bins of frequency, and all measures under jit and vmap."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lvp import measures
from lvp.errors import InputError
from tests.marking import all_slow_but

second_moment_fit = jax.jit(measures.second_moment_fit)
frequency_bins = jax.jit(measures.frequency_bins)
by_frequency = jax.jit(measures.by_frequency)


def noisy_line(vocab=500, seed=0, slope=1e-8, intercept=2e-12):
    """Returns second moments of about 1e-11 and Zipf frequencies p, related by a line with an intercept and noise."""
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, vocab + 1)
    p /= p.sum()
    return (slope * p + intercept) * rng.gamma(8.0, 1 / 8, vocab), p


@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-5), ("float64", 1e-12)])
def test_fit_equals_scipy_and_least_squares(dtype, rtol):
    v, p = (x.astype(dtype) for x in noisy_line())
    with jax.enable_x64(dtype == "float64"):
        fit = second_moment_fit(jnp.asarray(v), jnp.asarray(p))
        assert all(x.dtype == dtype and x.shape == () for x in fit.values())
        fit = jax.tree.map(np.asarray, fit)
    v, p = v.astype(np.float64), p.astype(np.float64)
    line = stats.linregress(p, v)
    (origin,), (residual,), *_ = np.linalg.lstsq(p[:, None], v * 1e9, rcond=None)
    expected = {
        "slope": line.slope,
        "r_squared": line.rvalue**2,
        "slope_through_origin": origin / 1e9,
        "r_squared_through_origin": 1 - residual / np.sum((v * 1e9 - v.mean() * 1e9) ** 2),
    }
    assert set(fit) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(fit[name], value, rtol=rtol, err_msg=name)
    assert fit["r_squared_through_origin"] < fit["r_squared"] < 1


def test_fit_scales_values_that_would_underflow_in_float32():
    v, p = (x.astype(np.float32) for x in noisy_line(slope=1e-22, intercept=0.0))
    assert np.all(v > 0) and np.all((v - v.mean()) ** 2 == 0)  # squares leave float32's range
    fit, reference = second_moment_fit(v, p), stats.linregress(p.astype(float), v.astype(float))
    np.testing.assert_allclose(fit["r_squared"], reference.rvalue**2, rtol=1e-5)
    np.testing.assert_allclose(fit["slope"], reference.slope, rtol=1e-5)


def test_fit_in_closed_form():
    p = np.array([0.5, 0.25, 0.125, 0.125], np.float32)
    exact = second_moment_fit(np.float32(1e-9) * p, p)
    np.testing.assert_allclose([exact["slope"], exact["slope_through_origin"]], 1e-9, rtol=1e-6)
    np.testing.assert_allclose([exact["r_squared"], exact["r_squared_through_origin"]], 1, rtol=1e-6)
    falling = second_moment_fit(1 - p, p)  # a line through the origin fits worse than a constant
    np.testing.assert_allclose([falling["slope"], falling["r_squared"]], [-1, 1], rtol=1e-6)
    assert falling["r_squared_through_origin"] < -1
    counts = second_moment_fit(np.float32(1e-9) * p, 8 * p)
    np.testing.assert_allclose(counts["slope"], 1e-9 / 8, rtol=1e-6)


def test_undefined_quantities_of_a_fit_are_nan():
    p, equal = np.arange(1, 50, dtype=np.float32), np.full(49, 0.1, np.float32)
    flat = second_moment_fit(equal, p)
    assert flat["slope"] == 0 and np.isnan(flat["r_squared"]) and np.isnan(flat["r_squared_through_origin"])
    uniform = second_moment_fit(p, equal)
    assert np.isnan(uniform["slope"]) and np.isnan(uniform["r_squared"])
    np.testing.assert_allclose(uniform["slope_through_origin"], 250, rtol=1e-6)
    assert np.isnan(second_moment_fit(p, 0 * p)["slope_through_origin"])


@pytest.mark.parametrize("vocab", [1, 2, 3, 7, 8, 1000, 32768])
def test_bins_follow_the_rank(vocab):
    rng = np.random.default_rng(vocab)
    counts = rng.poisson(3.0, vocab).astype(np.uint32)  # many ties, some zero
    rank = np.empty(vocab, int)
    rank[np.lexsort((np.arange(vocab), -counts.astype(int)))] = np.arange(1, vocab + 1)
    last = int(np.floor(np.log2(vocab))) + 1
    expected = np.where(counts > 0, np.floor(np.log2(rank)), last)
    assert measures.num_bins(vocab) == last + 1
    for frequencies in (counts, counts / counts.sum())[: 2 if vocab == 1000 else 1]:
        bins = frequency_bins(frequencies)
        assert bins.dtype == jnp.int32
        np.testing.assert_array_equal(bins, expected)


def test_bins_are_powers_of_two():
    frequencies = np.array([0, 5, 0, 5, 9, 1, 1, 1, 1, 1.0])
    np.testing.assert_array_equal(frequency_bins(frequencies), [4, 1, 4, 1, 0, 2, 2, 2, 2, 3])
    np.testing.assert_array_equal(np.bincount(frequency_bins(np.ones(20))), [1, 2, 4, 8, 5])
    assert np.all(frequency_bins(np.zeros(8)) == measures.num_bins(8) - 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_means_by_bin(dtype):
    rng = np.random.default_rng(4)
    vocab, frequencies = 45, np.append(np.zeros(30), rng.permutation(15))  # bins 4 and 5 stay empty
    matrix, moves = rng.standard_normal((2, vocab, 6)).astype(dtype)
    moves *= np.array(0.1, dtype)
    second_moment = rng.uniform(1e-12, 2e-12, vocab).astype(dtype)
    rtol = 2e-6 if dtype == "float32" else 1e-12
    with jax.enable_x64(dtype == "float64"):
        bins = frequency_bins(frequencies)
        means = by_frequency(jnp.asarray(matrix), jnp.asarray(moves), jnp.asarray(second_moment), bins)
        without = by_frequency(jnp.asarray(matrix), jnp.asarray(moves), None, bins)
    assert set(means) == {"norm", "angle", "second_moment"} and set(without) == {"norm", "angle"}
    before, moved = matrix.astype(np.float64), matrix.astype(np.float64) + moves
    cosine = np.sum(before * moved, axis=1) / np.linalg.norm(before, axis=1) / np.linalg.norm(moved, axis=1)
    rows = {"norm": np.linalg.norm(moves, axis=1), "angle": np.arccos(cosine), "second_moment": second_moment}
    used = 0
    for b in range(measures.num_bins(vocab)):
        members = np.flatnonzero(np.asarray(bins) == b)
        used += len(members)
        for name, values in rows.items():
            expected = values[members].mean() if len(members) else np.nan
            np.testing.assert_allclose(means[name][b], expected, rtol=rtol)
    assert used == vocab and np.isnan(means["norm"]).any() and not np.isnan(means["norm"]).all()


def calls():
    """Returns name → (function of arrays, shapes of the arrays)."""
    m, d = 12, 5
    matrix, vector = (m, d), (m,)
    tree = {"blocks": {"mlp": {"up": {"kernel": (2, d, 7)}}}}
    bins = functools.partial(measures.by_bin, num_bins=measures.num_bins(m))
    return {
        "angle": (functools.partial(measures.angle, axes=-1), (matrix, matrix)),
        "updates": (measures.updates, (tree, tree)),
        "embeddings": (lambda e, mean: measures.embeddings(e, initial_mean=mean), (matrix, (d,))),
        "gradient_sum": (measures.gradient_sum, (matrix,)),
        "second_moment_fit": (measures.second_moment_fit, (vector, vector)),
        "frequency_bins": (measures.frequency_bins, (vector,)),
        "by_bin": (lambda x, f: bins(x, measures.frequency_bins(f)), (vector, vector)),
        "by_frequency": (
            lambda e, u, v, f: measures.by_frequency(e, u, v, measures.frequency_bins(f)),
            (matrix, matrix, vector, vector),
        ),
    }


@pytest.mark.parametrize("name", all_slow_but(("updates", "by_frequency"), calls()))
def test_traced_and_batched_calls_equal_plain_calls(name):
    function, shapes = calls()[name]
    is_shape = lambda x: isinstance(x, tuple) and all(isinstance(n, int) for n in x)  # noqa: E731
    rng = np.random.default_rng(5)
    batches = jax.tree.map(lambda s: rng.standard_normal((3, *s)).astype(np.float32), shapes, is_leaf=is_shape)
    plain = [function(*jax.tree.map(lambda x, i=i: x[i], batches)) for i in range(3)]
    stacked = jax.tree.map(lambda *xs: np.stack(xs), *plain)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(close, jax.jit(jax.vmap(function))(*batches), stacked)
    first = jax.tree.map(lambda x: x[0], batches)
    jax.tree.map(close, jax.jit(function)(*first), plain[0])


GRID, ROW = np.ones((4, 3), np.float32), np.ones(4, np.float32)
REFUSED = {
    "updates": [
        lambda: measures.angle(GRID, GRID.T),
        lambda: measures.updates({"embedding": {"embedding": GRID}}, {"embedding": {"embedding": ROW}}),
        lambda: measures.updates({"embedding": {"embedding": GRID}}, {"embedding": GRID}),
        lambda: measures.by_frequency(GRID, GRID.T, None, ROW.astype(int)),
    ],
    "axes": [lambda a=a: measures.angle(GRID, GRID, axes=a) for a in (2, -3, (0, 0), (0, -2), (), 0.5, "0")],
    "matrix": [
        lambda: measures.embeddings(ROW, initial_mean=ROW),
        lambda: measures.embeddings(GRID[:0], initial_mean=ROW[:3]),
        lambda: measures.by_frequency(ROW, ROW, None, ROW.astype(int)),
    ],
    "initial_mean": [lambda: measures.embeddings(GRID, initial_mean=ROW)],
    "gradient": [lambda: measures.gradient_sum(ROW)],
    "second_moment": [
        lambda: measures.second_moment_fit(GRID, GRID),
        lambda: measures.by_frequency(GRID, GRID, GRID, ROW.astype(int)),
    ],
    "frequencies": [lambda: measures.second_moment_fit(ROW, ROW[1:]), lambda: measures.frequency_bins(GRID)],
    "vocab": [lambda v=v: measures.num_bins(v) for v in (0, -1, 2.0, True, "8")],
    "values": [lambda: measures.by_bin(GRID, ROW.astype(int), 4)],
    "bins": [
        lambda: measures.by_bin(ROW, ROW, 4),
        lambda: measures.by_bin(ROW, ROW[1:].astype(int), 4),
        lambda: measures.by_frequency(GRID, GRID, None, ROW[1:].astype(int)),
    ],
}


@pytest.mark.parametrize("argument", REFUSED)
def test_input_errors_name_the_argument(argument):
    for call in REFUSED[argument]:
        with pytest.raises(InputError, match=rf"^{argument}\b") as error:
            call()
        assert "\n" not in str(error.value)
