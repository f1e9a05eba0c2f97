"""A run of a table trains like `optim.parametrized` with the same table in a user script."""

import functools

import jax
import numpy as np
import optax
import pytest

from lvp import optim, roles, training
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig, forward_multipliers
from lvp.models.decoder import decoder
from lvp.parametrization import table, uniform
from lvp.training import DataConfig, OptimizerConfig, Program, Run, Setting, TrainingData
from tests.lvp.training import plain_training
from tests.marking import slow

WIDTH, VOCAB, RATE = 16, 40, 0.3 / 16
LVP = table("lvp", width=WIDTH, vocab=VOCAB, token_rows="sqrt")


@pytest.fixture(scope="module")
def data_of():
    tokens = (np.random.default_rng(0).zipf(1.4, 4000) % VOCAB)[:600].astype(np.int32)
    return lambda setting: TrainingData.from_tokens(setting, tokens[:500], tokens[500:])


def setting_of(optimizer):
    model = DecoderConfig(VOCAB, WIDTH, layers=1, context=12, **forward_multipliers(LVP))
    return Setting(model, DataConfig("none"), batch=4, steps=6, optimizer=optimizer)


@pytest.mark.parametrize(
    "optimizer, factory, decay",
    [
        slow(OptimizerConfig("adam"), optax.adam, None, id="adam"),
        pytest.param(OptimizerConfig("adamw", {"b2": 0.95, "weight_decay": 0.5}), optim.adamw, 0.5, id="adamw"),
    ],
)
def test_the_program_equals_the_documented_chain(optimizer, factory, decay, data_of):
    setting = setting_of(optimizer)
    run, data = Run.under(LVP, RATE, seed=0), data_of(setting)
    (outcome,) = training.run(Program(setting), [run], data)
    options = {name: value for name, value in optimizer.options.items() if name != "weight_decay"}
    chain = optim.parametrized(factory, LVP, learning_rate=RATE, weight_decay=decay, **options)
    by_hand = [step.loss for step in plain_training.steps(setting, run, data, chain)]
    np.testing.assert_allclose(outcome.curve_losses, by_hand, rtol=3e-5)
    # Control: one rate for all roles gives another training.
    one_rate = optim.parametrized(factory, uniform(width=WIDTH, vocab=VOCAB), learning_rate=RATE, **options)
    assert not np.allclose(by_hand, [s.loss for s in plain_training.steps(setting, run, data, one_rate)], rtol=1e-3)


def test_a_run_has_the_tables_numbers_and_its_deviations():
    run = Run.under(LVP, RATE, seed=3, rates={"embedding": 0.7}, stds={"output": 0.9})
    assert run.learning_rates == {
        "embedding": 0.7,
        "position": RATE * 4,
        "hidden": RATE,
        "output": RATE,
        "vector": RATE,
    }
    assert run.init_std == {"embedding": 0.25, "position": 0.25, "hidden": 0.25, "output": 0.9, "vector": 0.0}
    with pytest.raises(InputError, match="'head'"):
        Run.under(LVP, RATE, 0, rates={"head": 0.1})


def test_uniform_has_one_rate_and_decays_only_matrices():
    made = uniform(width=WIDTH, vocab=VOCAB, init_std=0.02)
    assert {row.lr_multiplier for row in made.rows} == {1.0} and {row.init_std for row in made.rows} == {0.02}
    assert {row.role for row in made.rows if not row.decay} == {"vector"}
    assert set(made) == set(roles.ROLES)
    with pytest.raises(InputError, match="init_std must be finite"):
        uniform(width=WIDTH, vocab=VOCAB, init_std=-1.0)


def test_the_table_chooses_the_decay_by_role():
    with pytest.raises(InputError, match="the table of a parametrization says which roles decay"):
        OptimizerConfig("adamw", {"weight_decay": {"hidden": 0.1}})


def updates_of(tx, params):
    """Returns the second update of a transformation, under gradients that differ from step to step."""
    state, update = tx.init(params), jax.jit(tx.update)
    for step in range(2):
        keys = jax.random.split(jax.random.key(step), len(jax.tree.leaves(params)))
        gradients = jax.tree.unflatten(jax.tree.structure(params), list(keys))
        gradients = jax.tree.map(lambda key, leaf: 1e-3 * jax.random.normal(key, leaf.shape), gradients, params)
        updates, state = update(gradients, state, params)
    return updates


EPS_BY_ROLE = dict.fromkeys(roles.ROLES, 1e-8) | {"hidden": 1e-3}


@pytest.mark.parametrize(
    "optimizer, factories",
    [
        pytest.param(
            OptimizerConfig("muon", {"consistent_rms": 0.2, "adam_b2": 0.95}),
            dict.fromkeys(roles.ROLES, functools.partial(optax.adam, b2=0.95))
            | {"hidden": functools.partial(optax.contrib.muon, consistent_rms=0.2)},
            id="muon",
        ),
        pytest.param(
            OptimizerConfig("adam", {"b1": 0.9, "b2": 0.999, "eps": EPS_BY_ROLE}),
            {role: functools.partial(optax.adam, eps=eps) for role, eps in EPS_BY_ROLE.items()},
            id="epsilon by role",
        ),
    ],
)
def test_settings_by_role_equal_a_factory_per_role(optimizer, factories):
    params = decoder(DecoderConfig(VOCAB, WIDTH, layers=1, context=12)).init(
        jax.random.key(0), dict.fromkeys(roles.ROLES, 0.1)
    )
    ours = updates_of(optimizer.transformation(LVP, RATE, {}), params)
    theirs = updates_of(optim.parametrized(factories, LVP, learning_rate=RATE), params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-12), ours, theirs)
    adam = updates_of(optim.parametrized(optax.adam, LVP, learning_rate=RATE), params)  # control
    of_hidden, of_adam = (updates["block_0"]["mlp"]["up"]["kernel"] for updates in (ours, adam))
    assert not np.allclose(of_hidden, of_adam)


@pytest.mark.slow
def test_muon_decays_the_matrices_and_no_vector():
    """The gradients are zero, so that only the decay moves a parameter."""
    model = decoder(DecoderConfig(VOCAB, WIDTH, layers=1, context=12, norm="layer"))
    params = model.init(jax.random.key(0), dict.fromkeys(roles.ROLES, 0.1))
    optimizer = OptimizerConfig("muon", {"consistent_rms": 0.2, "weight_decay": 0.1})
    tx = optimizer.transformation(LVP, RATE, {})
    updates, _ = tx.update(jax.tree.map(np.zeros_like, params), tx.init(params), params)
    moved = jax.tree.map(lambda update, before: bool(np.any(update)) == (before.ndim > 1), updates, params)
    assert all(jax.tree.leaves(moved))


def test_epsilon_by_role_must_name_all_roles():
    with pytest.raises(InputError, match="eps by role must name the roles"):
        OptimizerConfig("adam", {"eps": {"hidden": 1e-3}})
