"""Equation 9 of Kosson et al. 2024 and its exact form, against gradient descent, other references and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from lvp.errors import InputError
from lvp.theory import representation_change
from lvp.theory.representation_change import simulated_representation_change, squared_representation_change
from tests.lvp.optim import oracle
from tests.marking import slow

PHI = np.array([0.0, 1e-4, 1 / 480, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0])


def forms(batch, fan_in, **scale):
    return {name: squared_representation_change(PHI, batch, fan_in, form=name, **scale) for name in ("paper", "exact")}


@pytest.mark.parametrize("batch", [1, 2, 32, 480])
@pytest.mark.parametrize("fan_in", [1, 8, 768])
def test_equation_nine_equals_its_printed_form(batch, fan_in):
    change = squared_representation_change(PHI, batch, fan_in, learning_rate=0.3, weight_norm=2.0)
    np.testing.assert_allclose(change, (0.3 / 2.0) ** 2 * oracle.representation_change(PHI, batch, fan_in), rtol=1e-12)


@pytest.mark.parametrize("fan_in", [2, 8, 64, 768, 65_536])
def test_the_exact_form_contains_the_mean_of_a_noncentral_beta(fan_in):
    """cos²(ḡ, g_b) is beta(1/2 + K, (C − 1)/2) with K Poisson of mean φC/2, so its mean is E (1 + 2K)/(C + 2K)."""
    for phi in PHI[1:]:
        count = stats.poisson(phi * fan_in / 2)
        k = np.arange(*map(int, count.interval(1 - 1e-14)), dtype=float)
        alignment = np.sum(count.pmf(k) * (1 + 2 * k) / (fan_in + 2 * k))
        batch, own, mean = 480, 1.0, phi
        change = own + mean + (batch - 1) / fan_in + (batch - 1) ** 2 * phi * alignment + 2 * (batch - 1) * phi
        expected = fan_in / batch**2 / (phi + 1 / batch) * change
        assert squared_representation_change(phi, batch, fan_in, form="exact") == pytest.approx(expected, rel=1e-9)


def test_forms_agree_without_randomness():
    """One sequence changes its own output by η ‖x‖. One input has one direction. Without a mean, nothing is aligned."""
    for change in forms(1, 64, learning_rate=0.5).values():
        np.testing.assert_allclose(change, 0.25 * 64, rtol=1e-12)
    for change in forms(480, 1).values():
        np.testing.assert_allclose(change, 1.0, rtol=1e-12)
    both = forms(480, 64)
    assert both["paper"][0] == pytest.approx(both["exact"][0], rel=1e-12)
    far = forms(480, 10**7)
    np.testing.assert_allclose(far["paper"], far["exact"], rtol=1e-6)


def largest_excess(fan_in):
    """Returns the largest excess of equation 9 over the exact form, over all φ, in a batch so large that only the
    common mean remains."""
    phi = np.geomspace(1e-5, 1e3, 200)
    paper, exact = (squared_representation_change(phi, 10**7, fan_in, form=form) for form in ("paper", "exact"))
    assert np.all(paper / exact > 1 - 1e-9)  # never below, by Jensen's inequality
    return np.max(paper / exact) - 1


def test_equation_nine_is_close_only_from_64_inputs_on():
    assert all(largest_excess(fan_in) < 0.03 for fan_in in (64, 128, 768))
    assert largest_excess(64) == pytest.approx(0.022, abs=0.001)
    assert largest_excess(16) > 0.05 and largest_excess(8) == pytest.approx(0.1, abs=0.01)


def test_the_limit_of_large_fan_in():
    for batch in (1, 480):
        limit = squared_representation_change(PHI, batch, 1e9, form="limit", learning_rate=0.1)
        np.testing.assert_allclose(limit, 0.01 * 1e9 / batch * (1 + batch * PHI) / (1 + PHI), rtol=1e-12)
        whole = squared_representation_change(PHI, batch, 1e9, learning_rate=0.1)
        np.testing.assert_allclose(whole, limit, rtol=1e-6)
    phi = np.array([1e-4, 1 / 480, 0.01])
    whole, limit = (squared_representation_change(phi, 480, 768, form=form) for form in ("paper", "limit"))
    np.testing.assert_allclose(whole / limit, [1.6, 1.3, 1.1], atol=0.05)


def test_a_draw_is_a_step_of_gradient_descent_on_a_neuron():
    """Uses automatic differentiation, with inputs of both signs and w along every axis in turn, which covers all of
    R^C."""
    key, phi, batch, fan_in, rate, norm = jax.random.key(3), 0.3, 6, 5, 0.2, 1.5
    ratios = []
    for draw_key in jax.random.split(key, 2):
        noise = np.asarray(jax.random.normal(draw_key, (batch, fan_in))) / np.sqrt(fan_in)
        wanted = np.sqrt(phi / fan_in) + noise  # the gradients g_b [B, C]
        signs = np.where(np.arange(batch) % 2 == 0, 1.0, -1.0)[:, None]
        x = 2.0 * signs * wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
        slopes = np.sum(wanted * x, axis=1) / np.sum(x**2, axis=1)
        gradient = jax.grad(lambda w, x=x, slopes=slopes: jnp.mean(slopes * (x @ w)))(jnp.ones(fan_in))
        np.testing.assert_allclose(gradient, np.mean(wanted, axis=0), atol=1e-6)
        change = x @ (-rate * np.asarray(gradient) / np.sqrt(phi + 1 / batch))
        outputs = x @ (norm * np.eye(fan_in))
        ratios.append(np.mean(change**2) / np.mean(outputs**2))
    simulated = simulated_representation_change(
        key, [phi], batch, fan_in, learning_rate=rate, weight_norm=norm, draws=2
    )
    np.testing.assert_allclose(simulated.mean, [np.mean(ratios)], rtol=1e-5)


@pytest.mark.parametrize(
    "batch, fan_in, draws",
    [
        (1, 8, 20_000),
        (16, 64, 5000),
        *(slow(*case) for case in ((16, 8, 20_000), (480, 8, 3000), (480, 64, 500))),
    ],
)
def test_simulation_equals_the_exact_form(batch, fan_in, draws):
    simulated, both = (
        simulated_representation_change(jax.random.key(1), PHI, batch, fan_in, draws=draws),
        forms(batch, fan_in),
    )
    assert np.all(3 * simulated.standard_error <= 0.03 * both["exact"]), "too few draws to tell"
    assert np.all(np.abs(simulated.mean - both["exact"]) <= 3 * simulated.standard_error)
    off = np.abs(simulated.mean - both["paper"])
    if fan_in >= 64 or batch == 1:
        assert np.all(off < 0.03 * both["paper"])
    else:  # control: the simulation distinguishes equation 9
        assert np.any(off > 8 * simulated.standard_error) and np.any(off > 0.03 * both["paper"])


@pytest.mark.slow
def test_standard_errors_equal_the_spread_of_repetitions():
    runs = [simulated_representation_change(jax.random.key(i), [0.01, 1.0], 12, 6, draws=50) for i in range(150)]
    spread = np.std([run.mean for run in runs], axis=0, ddof=1)
    claimed = np.sqrt(np.mean([run.standard_error**2 for run in runs], axis=0))
    # the spread of 150 repetitions has an error of 6 %
    assert np.all((spread / claimed > 0.8) & (spread / claimed < 1.25))


@pytest.mark.slow
def test_the_number_of_batches_in_memory_changes_nothing(monkeypatch):
    arguments = (jax.random.key(2), [0.0, 0.1], 10, 7)
    whole = simulated_representation_change(*arguments, draws=13)
    monkeypatch.setattr(representation_change, "_CHUNK_ELEMENTS", 5 * 70)
    np.testing.assert_allclose(simulated_representation_change(*arguments, draws=13).mean, whole.mean, rtol=1e-6)


@pytest.mark.parametrize(
    "change, name",
    [
        ({"snr": [-0.1]}, "snr"),
        ({"snr": [np.nan]}, "snr"),
        ({"snr": "much"}, "snr"),
        ({"batch_size": 0}, "batch_size"),
        ({"fan_in": 0}, "fan_in"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"weight_norm": 0.0}, "weight_norm"),
    ],
)
def test_bad_arguments(change, name):
    arguments = {"snr": [0.1], "batch_size": 2, "fan_in": 3} | change
    with pytest.raises(InputError, match=name):
        squared_representation_change(**arguments)
    with pytest.raises(InputError, match=name):
        simulated_representation_change(jax.random.key(0), **arguments)


def test_bad_arguments_of_single_functions():
    with pytest.raises(InputError, match="form must be one of paper, exact, limit"):
        squared_representation_change(0.1, 2, 3, form="best")
    for change, name in (({"snr": 0.1}, "snr"), ({"draws": 1}, "draws"), ({"fan_in": 2.5}, "fan_in")):
        with pytest.raises(InputError, match=name):
            simulated_representation_change(
                jax.random.key(0), **({"snr": [0.1], "batch_size": 2, "fan_in": 3} | change)
            )
