"""Measures against closed forms and NumPy implementations of their definitions, with gradients that sum to zero and one
that does not. The measures are compiled, which is faster; `test_frequency` compares compiled with plain calls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp import losses, measures, roles
from lvp.errors import InputError

DTYPES = ["float32", "float64"]
TOLERANCE = {"float32": 2e-6, "float64": 1e-13}

angle = jax.jit(measures.angle, static_argnames="axes")
updates = jax.jit(measures.updates)
embeddings = jax.jit(measures.embeddings)
gradient_sum = jax.jit(measures.gradient_sum)
against_hidden = jax.jit(measures.against_hidden)


def turned(theta, along=0.0, width=48, seed=0):
    """Returns float64 w and Δ such that w + Δ is (1 + along) w plus an orthogonal part, at the angle theta < π/2 to
    w."""
    rng = np.random.default_rng(seed)
    w, other = rng.standard_normal((2, width))
    other -= (other @ w) / (w @ w) * w
    return w, along * w + np.tan(theta) * (1 + along) * np.linalg.norm(w) / np.linalg.norm(other) * other


def wedge_angle(w, u):
    """Returns ∠(w, w + u) in float64 by Lagrange's identity: ‖w ∧ u‖ is the root of Σ_{i<j} (w_i u_j − w_j u_i)². It
    needs no projection, has no cancellation and does not form w + u."""
    w, u = (np.ravel(np.asarray(x, np.float64)) / np.max(np.abs(w)) for x in (w, u))
    wedge = np.triu(np.outer(w, u) - np.outer(u, w), 1)
    return np.arctan2(np.sqrt(np.sum(wedge**2)), w @ w + w @ u)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("theta", [1e-12, 1e-8, 1e-6, 1e-3, 0.1, 1.2])
@pytest.mark.parametrize("along", [0.0, -1e-4, -0.3, 2.0])
def test_angle_has_its_stated_accuracy(theta, along, dtype):
    w, u = (x.astype(dtype) for x in turned(theta, along))
    expected = wedge_angle(w, u)
    with jax.enable_x64(dtype == "float64"):
        measured = angle(jnp.asarray(w), jnp.asarray(u))
        assert measured.dtype == dtype and measured.shape == ()
    sum_ = w.astype(np.float64) + u
    part = abs(np.dot(u.astype(np.float64), w)) / np.linalg.norm(w) / np.linalg.norm(sum_)
    bound = 5e-7 * expected + 5e-7 * part
    assert abs(float(measured) - expected) < bound * (1 if dtype == "float32" else 1e-8)
    if along == 0.0:
        assert float(measured) == pytest.approx(theta, rel=1e-6 if dtype == "float32" else 1e-13)


def test_arccos_loses_small_angles():
    def by_arccos(w, u):
        moved = w + u
        return jnp.arccos(jnp.minimum(jnp.sum(w * moved) / jnp.linalg.norm(w) / jnp.linalg.norm(moved), 1))

    for theta in (1e-6, 1e-5, 1e-4):
        w, u = map(np.float32, turned(theta))
        assert abs(float(by_arccos(w, u)) - theta) > 0.5 * theta
        assert abs(float(angle(w, u)) - theta) < 1e-6 * theta
    w, u = map(np.float32, turned(1.0))  # the reference itself is correct at a large angle
    assert float(by_arccos(w, u)) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gap", [0.0, 1e-6, 1e-3, 0.5])
def test_angles_near_pi(gap, dtype):
    w, _ = turned(1.0)
    u = (turned(gap, 0.0)[1] - 2 * w).astype(dtype)
    w = w.astype(dtype)
    with jax.enable_x64(dtype == "float64"):
        measured = float(angle(jnp.asarray(w), jnp.asarray(u)))
    assert abs(measured - wedge_angle(w, u)) < (1e-6 if dtype == "float32" else 1e-14)
    assert measured == pytest.approx(np.pi - gap, abs=1e-6)


def test_angles_of_zero_vectors():
    zero, vector = np.zeros(48, np.float32), np.float32(turned(0.1)[0])
    assert angle(zero, zero) == 0 and angle(vector, zero) == 0
    right = np.float32(np.pi / 2)
    assert angle(zero, vector) == right and angle(vector, -vector) == right
    np.testing.assert_array_equal(angle(np.stack([vector, zero]), np.stack([zero, vector]), 1), [0, right])


def test_angle_does_not_depend_on_a_common_scale():
    w, u = map(np.float32, turned(0.02, -0.1))
    measured = angle(w, u)
    for scale in (2.0**-90, 2.0**100):  # exactly representable
        assert angle(w * np.float32(scale), u * np.float32(scale)) == measured
    np.testing.assert_allclose(angle(w * np.float32(3e-25), u * np.float32(3e-25)), measured, rtol=1e-6)
    assert abs(angle(2 * w, u) / measured - 0.5) < 0.06  # scaling only one of them changes the angle


@pytest.mark.parametrize(
    "axes, neurons", [(0, (0,)), (-1, (2,)), ((0, 1), (0, 1)), ((2, 0), (0, 2)), (None, (0, 1, 2))]
)
def test_angle_over_axes_is_the_angle_of_every_vector(axes, neurons):
    w, u = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    measured = angle(w, u, axes=axes)
    rest = [axis for axis in range(3) if axis not in neurons]
    w, u = (np.moveaxis(x, neurons, range(-len(neurons), 0)) for x in (w, u))
    assert measured.shape == tuple(w.shape[: len(rest)])
    for i in np.ndindex(measured.shape):
        assert float(measured[i]) == pytest.approx(wedge_angle(w[i], u[i]), rel=2e-6)


def tree(seed, dtype="float32"):
    """Returns parameters or updates of every role, with two layers stacked in one array."""
    shapes = {
        "embedding/embedding": (7, 4),
        "position/embedding": (3, 4),
        "blocks/mlp/up/kernel": (2, 4, 6),
        "block_9/mlp/down/kernel": (6, 4),
        "norm_final/scale": (4,),
        "norm_final/bias": (4,),
        "head/kernel": (4, 7),
    }
    rng = np.random.default_rng(seed)
    nested: dict = {}
    for path, shape in shapes.items():
        *parents, name = path.split("/")
        node = nested
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = (rng.standard_normal(shape) * (seed == 0 or 0.01)).astype(dtype)
    return nested


@pytest.mark.parametrize("dtype", DTYPES)
def test_updates_per_matrix_and_per_role(dtype):
    params, moves = tree(0, dtype), tree(1, dtype)
    params["block_9"]["mlp"]["down"]["kernel"][...] = 0
    with jax.enable_x64(dtype == "float64"):
        measured = jax.tree.map(np.asarray, updates(params, moves))
    described = jax.tree.leaves(roles.classify(params))
    leaves = list(zip(described, jax.tree.leaves(params), jax.tree.leaves(moves), strict=True))

    def expect(got, w, u):
        with np.errstate(divide="ignore"):
            relative = np.linalg.norm(u.ravel()) / np.linalg.norm(w.ravel())
        expected = {"norm": np.linalg.norm(u.ravel()), "relative": relative, "angle": np.pi / 2}
        if np.any(w):
            expected["angle"] = wedge_angle(w, u)
        assert set(got) == set(expected)
        for name, value in expected.items():
            assert got[name].dtype == dtype
            np.testing.assert_allclose(got[name], value, rtol=TOLERANCE[dtype], err_msg=name)

    assert set(measured["matrices"]) == {leaf.path for leaf, *_ in leaves if leaf.role != "vector"}
    for leaf, w, u in leaves:
        if leaf.stacked:
            for layer in range(2):
                got = {name: x[layer] for name, x in measured["matrices"][leaf.path].items()}
                expect(got, w[layer], u[layer])
        elif leaf.role != "vector":
            expect(measured["matrices"][leaf.path], w, u)
    assert measured["matrices"]["block_9/mlp/down/kernel"]["relative"] == np.inf
    assert set(measured["roles"]) == set(roles.ROLES)
    for role, got in measured["roles"].items():
        of_role = [(w.ravel(), u.ravel()) for leaf, w, u in leaves if leaf.role == role]
        expect(got, *(np.concatenate(xs) for xs in zip(*of_role, strict=True)))


def test_updates_take_declarations_and_low_precision():
    params = {"tensor": jnp.ones((2, 3), jnp.bfloat16)}
    declarations = [roles.Declaration("tensor", "hidden", fan_in=(0,))]
    declared = jax.jit(lambda p: measures.updates(p, p, declarations))(params)
    assert list(declared["roles"]) == ["hidden"] and declared["matrices"]["tensor"]["norm"].dtype == jnp.float32
    assert declared["matrices"]["tensor"]["relative"] == 1
    with pytest.raises(InputError, match="tensor"):
        measures.updates(params, params)
    unmoved = updates(tree(0), jax.tree.map(np.zeros_like, tree(0)))
    assert not any(np.any(x) for x in jax.tree.leaves(unmoved))


def reference_embeddings(matrix, initial_mean):
    rows = [row for row in matrix if np.any(row)]
    pairs = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for i, a in enumerate(rows) for b in rows[:i]]
    _, _, directions = np.linalg.svd(matrix)
    z = [np.sum(np.exp(matrix @ (sign * c))) for c in directions for sign in (1, -1)]
    length = np.mean([np.linalg.norm(row) for row in matrix])
    mean = matrix.mean(axis=0)
    return {
        "mean_drift": np.linalg.norm(mean - initial_mean) / length,
        "mean_norm": np.linalg.norm(mean) / length,
        "average_cosine": np.mean(pairs),
        "isotropy": min(z) / max(z),
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_embeddings_follow_their_definition(dtype):
    rng = np.random.default_rng(2)
    matrix = rng.gamma(1.0, 1.0, (60, 5)) * np.array([1, -2, 0.5, 0.3, 0.1])
    matrix[[4, 17]] = 0
    matrix, start = matrix.astype(dtype), rng.standard_normal(5).astype(dtype)
    expected = reference_embeddings(matrix.astype(np.float64), start)
    with jax.enable_x64(dtype == "float64"):
        measured = embeddings(jnp.asarray(matrix), initial_mean=start)
        mirrored = embeddings(-jnp.asarray(matrix), initial_mean=-start)
    assert set(measured) == set(expected)
    for name, value in expected.items():
        assert measured[name].shape == () and measured[name].dtype == dtype
        tolerance = (2e-5 if dtype == "float32" else 1e-12) if name == "isotropy" else TOLERANCE[dtype]
        np.testing.assert_allclose(measured[name], value, rtol=tolerance, err_msg=name)
        np.testing.assert_allclose(mirrored[name], measured[name], rtol=tolerance)  # the arbitrary sign does not matter
    _, _, directions = np.linalg.svd(matrix.astype(np.float64))
    one_sign = [np.sum(np.exp(matrix @ c)) for c in directions]
    assert abs(min(one_sign) / max(one_sign) / expected["isotropy"] - 1) > 0.1  # with one sign it would matter


CROSS = np.concatenate([np.eye(3), -np.eye(3)]).astype(np.float32)
ZERO = np.zeros(3, np.float32)


def test_embeddings_in_closed_form():
    measured = embeddings(CROSS, initial_mean=ZERO)
    assert measured["mean_drift"] == measured["mean_norm"] == 0 and measured["isotropy"] == 1
    np.testing.assert_allclose(measured["average_cosine"], -1 / 5, rtol=1e-6)  # 3 of 15 pairs are opposite
    lengths = np.array([[0.5, 1.0, 2.0]], np.float32)
    measured = embeddings(CROSS * lengths, initial_mean=ZERO)
    np.testing.assert_allclose(measured["isotropy"], (2 * np.cosh(0.5) + 4) / (2 * np.cosh(2.0) + 4), rtol=1e-6)
    same = embeddings(np.tile(lengths, (6, 1)), initial_mean=ZERO)
    for name in ("average_cosine", "mean_norm", "mean_drift"):
        np.testing.assert_allclose(same[name], 1, rtol=1e-6)
    orthogonal = np.where(CROSS > 0, 7 * CROSS, 0)  # plus rows of zeros, which form no pairs
    assert embeddings(orthogonal, initial_mean=ZERO)["average_cosine"] == 0
    single = embeddings(np.where(np.arange(6)[:, None] == 2, CROSS, 0), initial_mean=ZERO)
    assert single["average_cosine"] == 0
    np.testing.assert_allclose(single["mean_norm"], 1, rtol=1e-6)


def test_embeddings_of_extreme_rows():
    for scale in (500, 1e25, 1e-30):
        measured = embeddings(np.float32(scale) * CROSS, initial_mean=ZERO)
        assert measured["isotropy"] == 1
        np.testing.assert_allclose(measured["average_cosine"], -1 / 5, rtol=1e-6)
    assert np.isinf(jnp.exp(500.0))  # a direct sum of exponentials overflows
    measured = embeddings(0 * CROSS, initial_mean=ZERO)
    assert measured == {"mean_drift": 0, "mean_norm": 0, "average_cosine": 0, "isotropy": 1}
    assert embeddings(0 * CROSS, initial_mean=ZERO + 1)["mean_drift"] == np.inf


def head_problem(dtype="float32", tokens=96, width=16, vocab=200):
    rng = np.random.default_rng(3)
    hidden, head = rng.standard_normal((tokens, width)) + 1, rng.standard_normal((width, vocab))
    return hidden.astype(dtype), head.astype(dtype), rng.integers(0, vocab, tokens), rng.uniform(size=tokens)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("float64", 1e-12)])
@pytest.mark.parametrize("loss", [losses.next_token_loss, losses.dense_next_token_loss])
def test_a_heads_gradients_sum_to_zero(loss, dtype, tolerance):
    with jax.enable_x64(dtype == "float64"):
        gradient = np.array(jax.jit(jax.grad(loss, 1))(*head_problem(dtype))).T
        assert gradient.dtype == dtype and gradient_sum(gradient) < tolerance
        gradient[-50:] = 0
        assert gradient_sum(gradient) > 1e-2  # 50 of 200 tokens left out


def test_the_input_embeddings_gradients_do_not_sum_to_zero():
    _, head, targets, _ = head_problem()
    embedding, tokens = head.T, np.roll(targets, 1)

    def loss(embedding, head):
        return losses.next_token_loss(jnp.tanh(embedding[tokens]), head, targets)

    of_embedding, of_head = jax.jit(jax.grad(loss, (0, 1)))(jnp.asarray(embedding), head)
    assert gradient_sum(of_head.T) < 1e-6
    assert gradient_sum(of_embedding) > 0.02


def test_gradient_sum_in_closed_form():
    g = np.array([[3, 0], [0, 4], [0, 0]], np.float32)
    for scale in (1, 1e-30, 1e30):
        np.testing.assert_allclose(gradient_sum(np.float32(scale) * g), 5 / 7, rtol=1e-6)
    assert gradient_sum(0 * g) == 0 and gradient_sum(g - g[::-1]) == 0
    np.testing.assert_allclose(gradient_sum(np.ones((3, 2), np.float32)), 1, rtol=1e-6)


def test_the_direction_of_the_mean_in_closed_form():
    """Rows move by −h each: the cosine is 1. It is 0 without movement or if the movement is orthogonal to the mean."""
    hidden = np.array([[3, 0], [1, 0]], np.float32)
    for scale in (1, 1e-30, 1e30):
        u = np.float32(scale) * np.array([[-1, 0], [-2, 0], [1, 0]], np.float32)
        np.testing.assert_allclose(against_hidden(u, hidden), 1, rtol=1e-6)
        np.testing.assert_allclose(against_hidden(-u, hidden), -1, rtol=1e-6)
    assert against_hidden(np.array([[0, 1]], np.float32), hidden) == against_hidden(0 * hidden, hidden) == 0
    np.testing.assert_allclose(against_hidden(np.array([[-1, -1]], np.float32), hidden), 0.5**0.5, rtol=1e-6)


def test_an_unseen_token_moves_against_the_mean_state():
    """Stollenwerk & Stollenwerk 2025: the gradient of a row other than the true token's is p h."""
    hidden, head, targets, weights = head_problem()
    gradient = np.array(jax.grad(losses.next_token_loss, 1)(hidden, np.zeros_like(head), targets, np.ones(96))).T
    absent = np.setdiff1d(np.arange(200), targets)
    np.testing.assert_allclose(against_hidden(-gradient[absent], hidden), 1, rtol=1e-5)
    present = against_hidden(-gradient[np.unique(targets)], hidden)
    assert present < 0  # control: the others make up for it
