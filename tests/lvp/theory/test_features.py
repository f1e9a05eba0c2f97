"""Components of the output's change that the theorems do not cover: they equal a NumPy loop of their definitions, and
depend on ε, on the targets and on the loss as stated."""

import jax
import numpy as np
import pytest

from lvp import theory
from lvp.errors import InputError
from lvp.models import linear
from lvp.theory import simulation
from tests.marking import slow

D, M = 8, 20
SETTING = dict(learning_rate_embedding=0.05, learning_rate_output=0.02, sigma_embedding=0.5, sigma_output=0.3)


def zipf(m: int) -> np.ndarray:
    weights = 1 / np.arange(1.0, m + 1)
    return weights / weights.sum()


def dense_components(key, alpha, targets, steps, optimizer, loss, eps):
    """Returns E_0 W_0, and the components after each of `steps`: [m, m] matrices in float64, from the definitions."""
    params = linear.init(key, D, M, SETTING["sigma_embedding"], SETTING["sigma_output"])
    start = [np.asarray(x, np.float64) for x in linear.matrices(params)]
    current, first, second, by_step = [x.copy() for x in start], [0.0, 0.0], [0.0, 0.0], {}
    for t in range(1, max(steps) + 1):
        logits = current[0] @ current[1]
        if loss == "square":
            residual = (logits - np.eye(M)[targets]) / M
        else:
            residual = np.exp(logits) / np.sum(np.exp(logits), axis=1, keepdims=True) - np.eye(M)[targets]
        residual *= alpha[:, None]
        for i, gradient in enumerate((residual @ current[1].T, current[0].T @ residual)):
            if optimizer == "sign":
                step = np.where(gradient < 0, -1.0, 1.0)
            else:
                first[i] = 0.9 * first[i] + 0.1 * gradient
                second[i] = 0.999 * second[i] + 0.001 * gradient**2
                step = first[i] / (1 - 0.9**t) / (np.sqrt(second[i] / (1 - 0.999**t)) + eps)
            current[i] = current[i] - SETTING[("learning_rate_embedding", "learning_rate_output")[i]] * step
        change_e, change_w = start[0] - current[0], start[1] - current[1]
        by_step[t] = change_e @ start[1], start[0] @ change_w, change_e @ change_w
        logits_after = start[0] @ start[1] - by_step[t][1] - by_step[t][0] + by_step[t][2]
        np.testing.assert_allclose(logits_after, current[0] @ current[1], atol=1e-12)
    return start[0] @ start[1], [by_step[t] for t in steps]


@pytest.mark.parametrize("loss", linear.LOSSES)
@pytest.mark.parametrize("optimizer", [slow("sign"), "adam"])
def test_components_equal_their_definitions(optimizer, loss):
    alpha = np.append(zipf(M - 1), 0.0)  # token M − 1 is absent: sign moves it, since S(0) = 1; Adam does not
    targets = np.random.default_rng(0).integers(0, M, M)
    key, tokens, steps = jax.random.key(1), [0, 5, M - 1], (1, 2, 5)
    measured = simulation.feature_components(
        key, D, alpha, targets=targets, steps=steps, optimizer=optimizer, loss=loss, tokens=tokens, chunk=7, **SETTING
    )
    # The key of the initialisation of the only draw, derived as in `lvp.theory.simulation`.
    init_key = jax.random.split(jax.random.split(key, 1)[0])[0]
    initial, expected = dense_components(init_key, alpha, targets, steps, optimizer, loss, 1e-8)
    for index, name in enumerate(("embedding", "projection", "product")):
        component = getattr(measured, name)
        assert component.per_token.mean.shape == (3, 3) and component.overall.mean.shape == (3,)
        for at in range(len(steps)):
            per_token = np.sqrt(np.mean(expected[at][index] ** 2, axis=1))
            np.testing.assert_allclose(component.per_token.mean[at], per_token[tokens], rtol=1e-4, atol=1e-6)
            overall = np.sqrt(np.mean(expected[at][index][:-1] ** 2))  # of the tokens that occur
            assert component.overall.mean[at] == pytest.approx(overall, rel=1e-4)
        assert np.all(np.isnan(component.overall.standard_error))
    per_token = np.sqrt(np.mean(initial**2, axis=1))
    np.testing.assert_allclose(measured.initial.per_token.mean, per_token[tokens], rtol=1e-4)
    assert measured.initial.overall.mean == pytest.approx(np.sqrt(np.mean(initial[:-1] ** 2)), rel=1e-4)
    absent = measured.embedding.per_token.mean[:, 2]
    assert np.all(absent > 0) if optimizer == "sign" else np.all(absent == 0)


def test_adams_first_step_is_sign_descent():
    run = dict(steps=(1,), **SETTING)
    sign = simulation.feature_components(jax.random.key(2), D, zipf(M), **run)
    adam, large_epsilon = (
        simulation.feature_components(jax.random.key(2), D, zipf(M), optimizer="adam", eps=eps, **run)
        for eps in (1e-20, 0.1)
    )
    for name in ("embedding", "projection", "product"):
        of_sign, of_adam = (getattr(measured, name).per_token.mean for measured in (sign, adam))
        np.testing.assert_allclose(of_sign, of_adam, rtol=1e-3)
    # An ε above the gradients, which are about α_i/m, makes the steps proportional to them.
    relative = large_epsilon.embedding.per_token.mean[0] / sign.embedding.per_token.mean[0]
    assert relative[0] < 0.2 and np.mean(relative[-5:]) < relative[0] / 5


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "lowest", "highest"), [("square", 0.85, 0.95), ("cross_entropy", 0.6, 0.75)])
def test_true_targets_keep_the_embedding_component(loss, lowest, highest):
    """Assumption 2 of the paper excludes true targets. At m = 8d under Zipf's law, δ̄_E keeps its form, and δ̄_W of the
    top token becomes smaller."""
    d, m = 32, 256
    measured = simulation.feature_components(
        jax.random.key(3), d, zipf(m), loss=loss, draws=400, steps=(1,), tokens=[0],
        learning_rate_embedding=1.0, learning_rate_output=1.0, sigma_embedding=1.0, sigma_output=1 / d,
    )  # fmt: skip
    form_e = theory.embedding_component(d, m, 1.0, 1 / d)
    assert measured.embedding.overall.mean[0] == pytest.approx(form_e, rel=0.04)
    form_w = theory.projection_component(d, 1.0, 1.0, zipf(m), exact=True)
    assert measured.projection.overall.mean[0] == pytest.approx(np.sqrt(np.mean(form_w**2)), rel=0.03)
    top, error = (x[0, 0] / form_w[0] for x in measured.projection.per_token)
    assert error < 0.015 and lowest < top < highest


def test_default_targets_are_a_new_permutation_per_draw():
    by_default = [simulation.feature_components(jax.random.key(i), D, zipf(M), steps=(1,), **SETTING) for i in (2, 3)]
    keys = [jax.random.split(jax.random.split(jax.random.key(i), 1)[0])[1] for i in (2, 3)]
    drawn = [np.asarray(jax.random.permutation(key, M)) for key in keys]
    assert sorted(drawn[0]) == sorted(drawn[1]) == list(range(M)) and np.any(drawn[0] != drawn[1])
    for i, targets, equal in ((2, drawn[0], True), (3, drawn[1], True), (2, drawn[1], False)):
        given = simulation.feature_components(
            jax.random.key(i), D, zipf(M), targets=targets, steps=(1,), **SETTING
        ).projection.per_token.mean
        assert np.allclose(given, by_default[i - 2].projection.per_token.mean, rtol=1e-4) == equal


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"optimizer": "sgd"}, "optimizer"),
        ({"loss": "hinge"}, "loss"),
        ({"steps": ()}, "steps"),
        ({"steps": (0, 1)}, "steps"),
        ({"steps": (2, 1)}, "steps"),
        ({"steps": (1, 1)}, "steps"),
        ({"targets": [0, 1]}, "targets"),
        ({"targets": [0, 1, 3]}, "targets"),
        ({"eps": -1.0}, "eps"),
        ({"draws": 0}, "draws"),
        ({"frequencies": [0.5, 0.5, 0.1]}, "frequencies"),
        ({"sigma_embedding": "a"}, "sigma_embedding"),
    ],
)
def test_unusable_arguments_are_refused(arguments, name):
    good = {"width": 4, "frequencies": [0.5, 0.3, 0.2], **SETTING}
    with pytest.raises(InputError, match=name):
        simulation.feature_components(jax.random.key(0), **{**good, **arguments})
