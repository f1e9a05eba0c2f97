"""Compares the optimizers' equations for expectations, angles, norms and means with simulations.

K is Kosson, Messmer, Jaggi 2024 (warm-up).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.errors import InputError
from lvp.optim.elementwise import lion_scale
from lvp.theory.representation_change import simulated_representation_change
from tests.lvp.optim import oracle
from tests.marking import slow

STEPS = 200
SAMPLES = 500_000  # the error of a mean square is then 0.2 %, of a root 0.1 %
NEURONS = {"kernel_.*": (0,)}
PEAK, DECAY, B = 1e-2, 0.1, 0.9
AVERAGE_ANGLE = np.sqrt(2 * PEAK * DECAY)  # before γ


def rms(x):
    return np.sqrt(np.mean(np.square(x, dtype=np.float32), dtype=np.float64))


@pytest.fixture(scope="module", params=[0.9, slow(0.98)])
def simulated(request):
    """Returns β, and name → RMS at t = 1 … STEPS of a momentum of decay β over iid unit gradients.

    ours: m of `scale_by_adam`, and ε times its direction with and without correction; an ε of 10⁶ leaves m̂ and m.
    NumPy's: LionA's u, heavy-ball ("momentum") and Nesterov ("nesterov").
    """
    b, rng = request.param, np.random.default_rng(0)
    eps = 1e6
    corrected, plain = (optim.scale_by_adam(b, 0.9, eps, bias_correction_first=first) for first in (True, False))
    # Compiled together, so that the two moments are computed once.
    step = jax.jit(lambda g, states: [tx.update(g, s) for tx, s in zip((corrected, plain), states, strict=True)])
    states = [tx.init(jnp.zeros(SAMPLES)) for tx in (corrected, plain)]
    seen = {name: [] for name in ("mu", "corrected", "plain", "momentum", "nesterov")}
    m = np.zeros(SAMPLES, np.float32)
    for _ in range(STEPS):
        g = rng.standard_normal(SAMPLES, np.float32)
        m = b * m + (1 - b) * g
        (direction, state), (uncorrected, other) = step(g, states)
        states = [state, other]
        values = (state.mu, eps * direction, eps * uncorrected, m, b * m + (1 - b) * g)
        for name, value in zip(seen, values, strict=True):
            seen[name].append(rms(np.asarray(value)))
    return b, {name: np.array(values) for name, values in seen.items()}


@pytest.mark.slow
def test_second_moment_of_momentum_and_its_early_amplification(simulated):
    b, curves = simulated
    for t in (1, 2, 5, 20, 200):
        expected = (1 - b ** (2 * t)) * (1 - b) / (1 + b)  # K 17
        assert curves["mu"][t - 1] ** 2 == pytest.approx(expected, rel=0.01)
        assert curves["plain"][t - 1] ** 2 == pytest.approx(expected, rel=0.01)
        amplified = curves["corrected"][t - 1] / np.sqrt((1 - b) / (1 + b))  # over the RMS at t → ∞: K 1
        assert amplified == pytest.approx(np.sqrt((1 + b**t) / (1 - b**t)), rel=0.01)


@pytest.mark.parametrize("nesterov", [False, True])
def test_lion_scale_is_the_rms_of_the_direction_it_replaces(simulated, nesterov):
    b, curves = simulated
    u = curves["nesterov" if nesterov else "momentum"]
    exact = [lion_scale(b, t, nesterov=nesterov, inverse_bias_correction=True) for t in range(1, STEPS + 1)]
    np.testing.assert_allclose(exact, u, rtol=0.01)
    constant = lion_scale(b, 1, nesterov=nesterov, inverse_bias_correction=False)
    np.testing.assert_allclose(constant, u[-1], rtol=0.01)
    assert abs(constant / u[0] - 1) > 0.1  # control: the two differ by more than the tolerance


def trajectory(tx, params, steps, *, every=1, gradient=None):
    """Returns the parameters before, and after every `every` steps on random gradients: a tree of [1 + steps/every,
    ...] arrays.

    `gradient(key, params)` → gradients; normal entries by default.
    """

    def normal(key, params):
        leaves, treedef = jax.tree.flatten(params)
        keys = jax.random.split(key, len(leaves))
        return treedef.unflatten([jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)])

    def single_step(t, carry):
        params, state = carry
        gradients = (gradient or normal)(jax.random.fold_in(jax.random.key(1), t), params)
        updates, state = tx.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    def recorded_steps(carry, i):
        carry = jax.lax.fori_loop(i * every, (i + 1) * every, single_step, carry)
        return carry, carry[0]

    run = jax.jit(lambda p: jax.lax.scan(recorded_steps, (p, tx.init(p)), jnp.arange(steps // every))[1])
    return jax.tree.map(lambda first, rest: np.concatenate([first[None], rest]).astype(float), params, run(params))


def kernels(*shapes):
    """Returns kernels [in, out] by name."""
    rng = np.random.default_rng(2)
    return {f"kernel_{i}": jnp.asarray(rng.standard_normal(shape) / 8, jnp.float32) for i, shape in enumerate(shapes)}


def mean_angles(path):
    """Returns ∠(w_t, w_{t+1}), averaged over neurons, of kernels [steps, in, out]."""
    before, after = path[:-1], path[1:]
    cosine = (before * after).sum(1) / np.linalg.norm(before, axis=1) / np.linalg.norm(after, axis=1)
    return np.arccos(np.clip(cosine, -1, 1)).mean(-1)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_rms_of_lion_a_updates_is_constant(nesterov):
    tx = optim.lion_a(1.0, b=B, weight_decay=0.0, nesterov=nesterov)
    state, sizes = tx.init(jnp.zeros(10_000)), []
    step = jax.jit(tx.update)
    rng = np.random.default_rng(3)
    for _ in range(50):
        update, state = step(rng.standard_normal(10_000, np.float32), state, jnp.zeros(10_000))
        sizes.append(np.linalg.norm(np.asarray(update, float)) / 100)
        assert np.all(optax.tree_utils.tree_get(state, "mu") != 0)  # a zero has no sign, which would reduce the RMS
    np.testing.assert_allclose(sizes, oracle.gamma(B, 1, nesterov, False), rtol=1.2e-7)
    assert np.ptp(sizes) <= 1.2e-7 * sizes[0]


@pytest.mark.slow
@pytest.mark.parametrize("nesterov", [False, True])
def test_lion_ar_angles_follow_the_schedule(nesterov):
    arguments = {"total_steps": STEPS, "warmup": 0.1, "cooldown": 0.5}
    tx = optim.lion_ar(optim.trapezoid(PEAK, **arguments), b=B, weight_decay=DECAY, nesterov=nesterov, neurons=NEURONS)
    expected = oracle.trapezoid(1.0, *arguments.values()) * AVERAGE_ANGLE * oracle.gamma(B, 1, nesterov, False)
    for path in trajectory(tx, kernels((64, 128), (512, 32)), STEPS).values():
        np.testing.assert_allclose(mean_angles(path), expected, rtol=0.02)


def test_lion_ar_angles_are_proportional_to_an_injected_rate():
    schedule = optax.exponential_decay(PEAK, STEPS, 0.05)
    factory = optax.inject_hyperparams(functools.partial(optim.lion_ar, neurons=NEURONS))
    tx = factory(learning_rate=schedule, peak_learning_rate=PEAK, b=B, weight_decay=DECAY)
    rates = PEAK * 0.05 ** (np.arange(STEPS) / STEPS)
    for path in trajectory(tx, kernels((64, 128), (512, 32)), STEPS).values():
        gamma = oracle.gamma(B, 1, False, False)
        np.testing.assert_allclose(mean_angles(path) / rates, AVERAGE_ANGLE * gamma / PEAK, rtol=0.02)


@pytest.mark.slow
def test_rotational_adamw_rotates_by_adamws_equilibrium_angle():
    # Corrected first moments have a square of (1 + βᵗ)/(1 − βᵗ) times the final one (K 1). The average of ‖u‖² includes
    # this until t βᵗ is small: 0.26 at step 50, 0.003 at step 100.
    settled = slice(100, None)
    expected = np.sqrt(2 * PEAK * DECAY * (1 - B) / (1 + B))
    constant = optim.rotational_adamw(PEAK, b1=B, weight_decay=DECAY, neurons=NEURONS)
    for path in trajectory(constant, kernels((64, 256), (512, 64)), STEPS).values():
        assert mean_angles(path)[settled].mean() == pytest.approx(expected, rel=0.02)
    schedule = optax.exponential_decay(PEAK, STEPS, 0.05)
    decaying = optim.rotational_adamw(schedule, b1=B, weight_decay=DECAY, neurons=NEURONS)
    for path in trajectory(decaying, kernels((256, 128), (512, 64)), STEPS).values():
        turned = mean_angles(path) / 0.05 ** (np.arange(STEPS) / STEPS / 2)  # √(η_t / peak)
        np.testing.assert_allclose(turned[settled], expected, rtol=0.02)


def uneven(key, params):
    """Draws gradients in [−0.7, 1.3]. Their mean makes neurons rotate far. They are uniform because drawing normal
    entries would take most of the time."""
    keys = jax.random.split(key, len(params))
    draw = lambda key, x: jax.random.uniform(key, x.shape, x.dtype, -0.7, 1.3)  # noqa: E731
    return {name: draw(key, x) for key, (name, x) in zip(keys, params.items(), strict=True)}


def drift(paths):
    """Returns the largest relative deviation of any neuron's norm from its initial value."""
    norms = [np.linalg.norm(path, axis=1) for path in paths.values()]
    return max(np.abs(n / n[0] - 1).max() for n in norms)


@pytest.mark.parametrize(
    "factory, shapes",
    [(optim.lion_ar, ((16, 16), (256, 8), (4096, 2))), (optim.rotational_adamw, ((16, 16), (256, 4)))],
)
@pytest.mark.parametrize("steps", [1000, slow(10_000)])
def test_norms_are_constant_for_thousands_of_steps(factory, shapes, steps):
    tx = factory(PEAK, weight_decay=DECAY, neurons=NEURONS)
    paths = trajectory(tx, kernels(*shapes), steps, every=50, gradient=uneven)
    assert drift(paths) < 1e-6
    assert min(np.abs(path[-1] - path[0]).max() for path in paths.values()) > 0.1  # control: the neurons rotated


def test_norms_drift_without_projection():
    """Negative control: LionAR's θ̂ without the projection."""

    def init(params):
        norms = jax.tree.map(lambda p: jnp.linalg.norm(p, axis=0, keepdims=True), params)
        return jax.tree.map(lambda p, n: jnp.broadcast_to(n / p.shape[0] ** 0.5, p.shape), params, norms)

    def update(updates, state, params=None):
        return jax.tree.map(lambda u, per_weight: -AVERAGE_ANGLE * per_weight * u, updates, state), state

    tx = optax.chain(optim.scale_by_lion_a(B), optax.GradientTransformation(init, update))
    assert drift(trajectory(tx, kernels((16, 16), (256, 8)), 1000, every=50, gradient=uneven)) > 0.1


@pytest.mark.parametrize("phi", [0.0, 0.003, 0.1, 2.0])
@pytest.mark.parametrize("b, k", [(1, 2), (1, 16), (4, 8), (8, 2)])
def test_gradient_snr_is_unbiased_per_sequence(phi, b, k):
    trials, size = 120, 4096  # 1/s² has a bias of 2/((K − 1) size), a fifth of the mean's standard error at K = 2
    rng = np.random.default_rng([b, k])
    mean = rng.standard_normal(size)
    mean *= np.sqrt(phi * size) / np.linalg.norm(mean)  # the noise has unit variance, so ‖ḡ‖²/E‖g̃‖² = φ
    draw = lambda: rng.standard_normal((k, b, size), np.float32).mean(1) + mean.astype(np.float32)  # noqa: E731
    estimates = np.array([snr(draw(), b) for _ in range(trials)], float)
    assert abs(estimates.mean() - phi) < 3 * estimates.std(ddof=1) / np.sqrt(trials)
    if b > 1 and phi:  # control: the φ of micro-batches is b times as large
        assert abs(estimates.mean() - b * phi) > 3 * estimates.std(ddof=1) / np.sqrt(trials)


@functools.partial(jax.jit, static_argnums=1)
def snr(micro_gradients, micro_batch_size):
    return optim.gradient_snr(micro_gradients, micro_batch_size)


def test_gradient_snr_is_per_parameter_and_has_its_limits():
    rng = np.random.default_rng(4)
    noise = rng.standard_normal((6, 50, 20)).astype(np.float32)
    tree = {"zero": jnp.zeros((4, 3)), "equal": jnp.ones((4, 3)), "nested": [noise, 3.0 + noise]}
    ratios = optim.gradient_snr(tree, 5)
    assert ratios["zero"] == 0 and np.isposinf(ratios["equal"])
    for value, micro in zip(ratios["nested"], tree["nested"], strict=True):
        per_sequence = 5 * micro.var(0, ddof=1, dtype=float).sum()
        expected = (np.square(micro.mean(0, dtype=float)).sum() - per_sequence / 30) / per_sequence
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-6)
    for micro, size in ((jnp.ones((1, 3)), 5), (jnp.ones((4, 3)), 0)):
        with pytest.raises(InputError):
            optim.gradient_snr({"a": micro}, size)


@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-6), ("float64", 1e-14)])
@pytest.mark.parametrize("batch", [1, 2, 32, 480])
@pytest.mark.parametrize("fan_in", [1, 16, 768, 65_536])
def test_representation_change_factor_equals_equation_nine(batch, fan_in, dtype, rtol):
    phi = np.array([0.0, 1e-6, 1e-3, 1 / 480, 0.1, 1.0, 30.0])
    ratio = oracle.representation_change(0.0, batch, fan_in) / oracle.representation_change(phi, batch, fan_in)
    with jax.enable_x64(dtype == "float64"):
        exact = np.asarray(optim.representation_change_factor(jnp.asarray(phi, dtype), batch, fan_in))
        limit = np.asarray(optim.representation_change_factor(jnp.asarray(phi, dtype), batch))
    assert exact.dtype == limit.dtype == dtype
    np.testing.assert_allclose(exact, np.sqrt(ratio), rtol=rtol)
    np.testing.assert_allclose(limit, np.sqrt((1 + phi) / (1 + batch * phi)), rtol=rtol)
    np.testing.assert_allclose([exact[0], limit[0]], 1.0, rtol=rtol)
    if batch == 1 or fan_in == 1:
        np.testing.assert_allclose(exact, 1.0, rtol=rtol)
    else:
        assert np.all(np.diff(exact) < 0)
    if batch == 1:
        np.testing.assert_allclose(limit, 1.0, rtol=rtol)


def test_the_change_factor_at_large_fan_in_is_its_limit():
    phi = np.array([1e-4, 1e-2, 1.0])
    exact, limit = (optim.representation_change_factor(phi, 480, fan_in) for fan_in in (10**9, None))
    np.testing.assert_allclose(exact, limit, rtol=1e-4)


def test_representation_change_factor_of_a_noiseless_gradient():
    """`gradient_snr` may be infinite. The terms in φ of equation 9 then leave only C."""
    factor = optim.representation_change_factor(jnp.inf, 32, 64)
    np.testing.assert_allclose(factor, np.sqrt((1 + 31 / 64) / 32), rtol=1e-6)
    np.testing.assert_allclose(optim.representation_change_factor(jnp.inf, 32), np.sqrt(1 / 32), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("phi, batch, fan_in", [(0.01, 64, 256), (0.1, 16, 512)])
def test_representation_change_equals_a_simulated_layer(phi, batch, fan_in):
    key, snrs = jax.random.key(5), [phi, 0.0]
    noisy, quiet = simulated_representation_change(key, snrs, batch, fan_in, draws=1500).mean
    assert noisy == pytest.approx(oracle.representation_change(phi, batch, fan_in), rel=0.02)
    assert quiet == pytest.approx(oracle.representation_change(0.0, batch, fan_in), rel=0.02)
    factor = float(optim.representation_change_factor(phi, batch, fan_in))
    assert factor == pytest.approx(np.sqrt(quiet / noisy), rel=0.01)


@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-6), ("float64", 1e-14)])
@pytest.mark.parametrize(
    "total, warmup, cooldown", [(40, 0.25, 0.5), (10, 0.0, 0.5), (7, 0.3, 0.0), (5, 0.4, 0.6), (7, 0.5, 0.5)]
)
def test_trapezoid_equals_its_formula(total, warmup, cooldown, dtype, rtol):
    with jax.enable_x64(dtype == "float64"):
        schedule = optim.trapezoid(0.3, total, warmup, cooldown)
        steps = jnp.arange(total + 3, dtype=jnp.int32)  # optax counts in int32 at either precision
        values = np.array([[schedule(t) for t in steps], jax.jit(jax.vmap(schedule))(steps)])
    assert schedule.peak == 0.3
    np.testing.assert_allclose(values.max(1), 0.3, rtol=rtol)
    assert not values[:, total:].any()
    expected = oracle.trapezoid(0.3, total, warmup, cooldown)
    np.testing.assert_allclose(values[:, :total], [expected, expected], rtol=rtol)


def mean_embedding(tx, tied, dtype):
    """Returns (change of the mean embedding, largest change of an embedding), over 200 steps of an LM head alone."""
    rng = np.random.default_rng(6)
    vocab, width = 64, 32
    embeddings = 0.2 * rng.standard_normal((vocab, width))
    tokens = rng.choice(vocab, (STEPS, 16), p=(p := 1 / np.arange(1, vocab + 1)) / p.sum())
    hidden = rng.standard_normal((STEPS, 16, width)) + rng.standard_normal(width)
    with jax.enable_x64(dtype == "float64"):
        kernel = jnp.asarray(embeddings, dtype)
        params = {"tied_embedding": {"embedding": kernel}} if tied else {"head": {"kernel": kernel.T}}

        def loss(params, h, tokens):
            (leaf,) = jax.tree.leaves(params)
            logits = h @ (leaf.T if tied else leaf)
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens).mean()

        def step(carry, batch):
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params, *batch), state, params)
            return (optax.apply_updates(params, updates), state), None

        batches = (jnp.asarray(hidden, dtype), jnp.asarray(tokens))
        (after,) = jax.tree.leaves(jax.jit(lambda p: jax.lax.scan(step, (p, tx.init(p)), batches)[0][0])(params))
    moved = np.asarray(after if tied else after.T, float) - np.asarray(kernel, float)
    return np.abs(moved.mean(0)).max(), np.abs(moved).max()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype, rounding", [("float32", 1e-6), ("float64", 1e-14)])
def test_coupled_adam_keeps_the_mean_embedding(tied, dtype, rounding):
    mean, largest = mean_embedding(optim.coupled_adam(1e-2), tied, dtype)
    assert largest > 0.1 and mean < rounding


def test_adam_changes_the_mean_embedding():
    mean, largest = mean_embedding(optax.adam(1e-2, b2=0.95), False, "float32")
    assert largest > 0.1 and mean > 0.01
