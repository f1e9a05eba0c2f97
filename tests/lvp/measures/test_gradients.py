"""φ, alignment and representation change against direct calculations in NumPy, by matrix, by layer and by role."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import measures, optim
from lvp.errors import InputError

SHAPES = {
    "embedding/embedding": (7, 4),
    "position/embedding": (3, 4),
    "blocks/mlp/up/kernel": (2, 4, 6),  # two layers stacked in one array
    "block_9/mlp/down/kernel": (6, 4),
    "norm_final/scale": (4,),
    "head/kernel": (4, 7),
}
ROLES = {
    "embedding": ["embedding/embedding"],
    "position": ["position/embedding"],
    "hidden": ["blocks/mlp/up/kernel", "block_9/mlp/down/kernel"],
    "output": ["head/kernel"],
    "vector": ["norm_final/scale"],
}
K, B = 5, 4  # micro-batches, sequences in each


def nested(flat):
    tree = {}
    for path, x in flat.items():
        *parents, name = path.split("/")
        at = tree
        for parent in parents:
            at = at.setdefault(parent, {})
        at[name] = jnp.asarray(x, jnp.float32)
    return tree


def drawn(seed, lead=(), shift=0.0):
    rng = np.random.default_rng(seed)
    return {path: shift + rng.standard_normal((*lead, *shape)) for path, shape in SHAPES.items()}


def phi(micro):
    """Returns (‖Ḡ‖² − s²/(K B)) / s² of vectors [K, n], with s² = B Var."""
    s2 = B * micro.var(axis=0, ddof=1).sum()
    return ((micro.mean(axis=0) ** 2).sum() - s2 / (K * B)) / s2


def joined_vector(flat, paths, lead=0):
    return np.concatenate([flat[p].reshape(*flat[p].shape[:lead], -1) for p in paths], axis=-1)


def snr_of(micro):
    """Returns `measures.snr` of micro-batches {path: [K, …]}."""
    squares = [measures.neuron_squares(nested({p: x[k] for p, x in micro.items()})) for k in range(K)]
    mean_squares = jax.tree.map(lambda *xs: sum(xs) / K, *squares)
    return measures.snr(nested({p: x.mean(axis=0) for p, x in micro.items()}), mean_squares, K, B)


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_snr_by_matrix_layer_and_role(shift):
    micro = drawn(0, (K,), shift)
    ratios = snr_of(micro)
    assert set(ratios["matrices"]) == set(SHAPES) - {"norm_final/scale"}
    for path in ratios["matrices"]:
        if path.startswith("blocks/"):
            expected = [phi(micro[path][:, layer].reshape(K, -1)) for layer in range(2)]
        else:
            expected = phi(micro[path].reshape(K, -1))
        np.testing.assert_allclose(ratios["matrices"][path]["snr"], expected, rtol=2e-5, atol=2e-6)
    for role, paths in ROLES.items():
        expected = phi(joined_vector(micro, paths, lead=1))
        assert float(ratios["roles"][role]["snr"]) == pytest.approx(expected, rel=2e-5, abs=2e-6)
    # The φ of a role is that of one joined vector, not a mean over matrices.
    both = [float(jnp.mean(ratios["matrices"][p]["snr"])) for p in ROLES["hidden"]]
    assert shift == 0 or abs(np.mean(both) - float(ratios["roles"]["hidden"]["snr"])) > 1e-4


def test_the_snr_of_neurons_is_the_median_of_phi_over_neurons():
    micro = drawn(0, (K,), 0.3)
    micro["block_9/mlp/down/kernel"][..., 0] *= 100.0  # the largest neuron dominates φ of the matrix, not the median
    ratios = snr_of(micro)
    up, down = micro["blocks/mlp/up/kernel"], micro["block_9/mlp/down/kernel"]
    of_up = [[phi(up[:, layer, :, neuron]) for neuron in range(6)] for layer in range(2)]
    of_down = [phi(down[:, :, neuron]) for neuron in range(4)]
    of_row = [phi(micro["embedding/embedding"][:, row]) for row in range(7)]
    matrices = {path: measured["neuron_snr"] for path, measured in ratios["matrices"].items()}
    np.testing.assert_allclose(matrices["blocks/mlp/up/kernel"], np.median(of_up, axis=1), rtol=1e-4)
    np.testing.assert_allclose(matrices["block_9/mlp/down/kernel"], np.median(of_down), rtol=1e-4)
    np.testing.assert_allclose(matrices["embedding/embedding"], np.median(of_row), rtol=1e-4)
    of_hidden = ratios["roles"]["hidden"]
    assert float(of_hidden["neuron_snr"]) == pytest.approx(np.median([*np.ravel(of_up), *of_down]), rel=1e-4)
    assert float(of_hidden["snr"]) == pytest.approx(phi(joined_vector(micro, ROLES["hidden"], lead=1)), rel=1e-4)
    assert abs(float(of_hidden["snr"]) / float(of_hidden["neuron_snr"]) - 1) > 0.1
    vector = ratios["roles"]["vector"]  # one neuron
    assert float(vector["neuron_snr"]) == pytest.approx(float(vector["snr"]), rel=1e-6)


def test_snr_of_squares_equals_snr_of_micro_gradients():
    micro = drawn(1, (K,), 0.2)
    whole = optim.gradient_snr({p: jnp.asarray(x) for p, x in micro.items()}, B)
    for path, x in micro.items():
        mean_square = np.mean([(g**2).sum() for g in x])
        ratio = optim.snr_of_squares((x.mean(axis=0) ** 2).sum(), mean_square, K, B)
        assert float(ratio) == pytest.approx(float(whole[path]), rel=1e-5)
    assert optim.snr_of_squares(jnp.float32(0), jnp.float32(0), K, B) == 0
    # Rounding errors below zero count as zero variance: equal gradients are all signal.
    assert np.isinf(optim.snr_of_squares(jnp.float32(1.0), jnp.float32(1.0 - 1e-7), K, B))


@pytest.mark.parametrize("decay", [0.9, 0.0, 0.5])
def test_alignment_and_cancellation_by_momentum(decay):
    gradients, momentum = drawn(2), drawn(3)
    measured = measures.alignment(nested(gradients), {p: jnp.asarray(x) for p, x in momentum.items()}, decay)

    def expected(g, m):
        g, m = np.ravel(g), np.ravel(m)
        cosine = g @ m / np.linalg.norm(g) / np.linalg.norm(m)
        # The projection of β m onto (1 − β) g, divided by the length of the latter, with its sign reversed.
        return cosine, -(decay * m @ ((1 - decay) * g)) / np.sum(((1 - decay) * g) ** 2)

    for path in measured["matrices"]:
        layers = [(0,), (1,)] if path.startswith("blocks/") else [()]
        for layer in layers:
            values = [measured["matrices"][path][name][layer] for name in ("alignment", "cancelled")]
            np.testing.assert_allclose(
                values, expected(gradients[path][layer], momentum[path][layer]), rtol=1e-4, atol=1e-6
            )
    for role, paths in ROLES.items():
        values = [measured["roles"][role][name] for name in ("alignment", "cancelled")]
        np.testing.assert_allclose(
            values, expected(joined_vector(gradients, paths), joined_vector(momentum, paths)), rtol=1e-4, atol=1e-6
        )


def test_a_gradient_opposite_to_its_momentum_is_cancelled():
    gradients = drawn(4)
    against = {p: jnp.asarray(-x / 18) for p, x in gradients.items()}  # β/(1 − β) = 9
    measured = measures.alignment(nested(gradients), against, 0.9)
    assert float(measured["roles"]["hidden"]["alignment"]) == pytest.approx(-1, abs=1e-6)
    assert float(measured["roles"]["hidden"]["cancelled"]) == pytest.approx(0.5, rel=1e-5)
    zero = {p: jnp.zeros(s) for p, s in SHAPES.items()}
    assert float(measures.alignment(nested(gradients), zero, 0.9)["roles"]["hidden"]["alignment"]) == 0
    with pytest.raises(InputError, match="momentum has no leaf 'head/kernel'"):
        measures.alignment(nested(gradients), {p: x for p, x in against.items() if p != "head/kernel"}, 0.9)


@pytest.mark.parametrize("factory", [optax.adam, optax.lion, optim.lion_a, optim.adamw])
def test_first_moments_are_the_moving_average_of_the_gradient(factory):
    params = {p: jnp.asarray(x) for p, x in drawn(5).items()}
    tx = optim.by_role(factory, dict.fromkeys(ROLES, 0.1))
    gradients = {p: jnp.asarray(x) for p, x in drawn(6).items()}
    _, state = tx.update(gradients, tx.init(params), params)
    moments = measures.first_moments(state)
    decay = {"adam": 0.9, "adamw": 0.9, "lion": 0.99, "lion_a": 0.9}[factory.__name__]
    assert set(moments) == set(SHAPES)
    for path, m in moments.items():
        np.testing.assert_allclose(m, (1 - decay) * gradients[path], rtol=1e-5)
    assert measures.first_moments(optax.sgd(0.1).init(params)) == {}


def test_representation_change_uses_the_given_inputs():
    params, updates = drawn(7), {p: 0.01 * x for p, x in drawn(8).items()}
    rng = np.random.default_rng(9)
    tokens, x, h = rng.integers(0, 7, (3, 5)), rng.standard_normal((700, 6)), rng.standard_normal((700, 4))
    inputs = {"embedding/embedding": tokens, "block_9/mlp/down/kernel": x, "head/kernel": h}
    changes = measures.representation_change(
        nested(params), nested(updates), {p: jnp.asarray(v) for p, v in inputs.items()}
    )
    norm = np.linalg.norm
    w, u = (tree["embedding/embedding"][tokens] for tree in (params, updates))
    expected = {"embedding/embedding": norm(u) / norm(w)}
    for path in ("block_9/mlp/down/kernel", "head/kernel"):
        expected[path] = norm(inputs[path] @ updates[path]) / norm(inputs[path] @ params[path])
    assert set(changes["matrices"]) == set(expected)
    for path, value in expected.items():
        assert float(changes["matrices"][path]["representation_change"]) == pytest.approx(value, rel=1e-5)
    # Control: inputs of one direction give another change for the same update.
    parallel = {"head/kernel": jnp.asarray(np.outer(rng.standard_normal(50), h[0]))}
    changed = measures.representation_change(nested(params), nested(updates), parallel)["matrices"]["head/kernel"]
    assert abs(float(changed["representation_change"]) / expected["head/kernel"] - 1) > 0.02


@pytest.mark.parametrize(
    "inputs, says",
    [
        ({"nowhere": np.ones((2, 4))}, "'nowhere', which is not a parameter"),
        ({"head/kernel": np.ones((2, 5))}, r"must be \[N, 4\]"),
        ({"blocks/mlp/up/kernel": np.ones((2, 4))}, "must be a single matrix"),
    ],
)
def test_unsuitable_inputs_are_named(inputs, says):
    with pytest.raises(InputError, match=says):
        measures.representation_change(
            nested(drawn(0)), nested(drawn(1)), {p: jnp.asarray(x) for p, x in inputs.items()}
        )
