"""`by_role` and `scale_by_role` against separate runs of optax on each role's subtree."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.errors import InputError
from lvp.parametrization import table
from lvp.roles import ROLES, Declaration, labels

RATES = {"embedding": 0.3, "position": 0.1, "hidden": 0.01, "output": 0.02, "vector": 0.5}
EQUAL = dict.fromkeys(ROLES, 0.01)


def assert_trees_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_trees_close(a, b, rtol=1e-6, atol=1e-7):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol), a, b)


@pytest.mark.parametrize("factory", [optax.adam, optax.lion, optax.sgd, functools.partial(optax.rmsprop, decay=0.5)])
def test_equal_rates_equal_the_plain_optimizer_bit_for_bit(factory, params, gradients, trajectory):
    # Lion without decay: by_role passes 0, while optax's default is 1e-3.
    plain = factory(0.01, weight_decay=0.0) if factory is optax.lion else factory(learning_rate=0.01)
    # optax compiles its bias correction for the whole tree, and the fused code rounds differently
    with jax.disable_jit():
        ours, theirs = (trajectory(tx, params, gradients) for tx in (optim.by_role(factory, EQUAL), plain))
    assert_trees_equal(ours, theirs)


def test_rates_equal_separate_runs_of_adam_per_role(params, gradients, trajectory):
    kwargs = {"b1": 0.8, "b2": 0.9, "eps": 1e-3}
    together = trajectory(optim.by_role(optax.adam, RATES, **kwargs), params, gradients)
    roles = jax.tree.leaves(labels(params))
    assert set(roles) == set(ROLES)
    for role, rate in RATES.items():
        only = lambda tree, role=role: [  # noqa: E731
            leaf for leaf, r in zip(jax.tree.leaves(tree), roles, strict=True) if r == role
        ]
        alone = trajectory(optax.adam(rate, **kwargs), only(params), [only(g) for g in gradients])
        assert_trees_close([only(p) for p in together], alone)  # optax compiles its bias correction for the whole tree


def test_schedules_per_role(params, gradients, trajectory):
    rates = {**RATES, "hidden": optax.linear_schedule(0.1, 0.0, 5)}
    after = trajectory(optim.by_role(optax.sgd, rates), params, gradients)
    kernel = lambda tree: tree["block_0"]["mlp"]["up"]["kernel"]  # noqa: E731
    steps = [0.1 * (1 - t / 5) * kernel(g) for t, g in enumerate(gradients)]
    np.testing.assert_allclose(kernel(after[-1]), kernel(params) - sum(steps), rtol=1e-5, atol=1e-6)


def test_traced_rates_under_jit_and_vmap_equal_the_loop(params, gradients):
    def trained(rates):
        tx = optim.by_role(optax.adam, rates, b1=0.9, b2=0.95, eps=1e-8)

        def step(carry, gradient):
            params, state = carry
            updates, state = tx.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *gradients)
        return jax.lax.scan(step, (params, tx.init(params)), stacked)[0][0]

    runs = {role: jnp.asarray([rate, 2 * rate, 0.0]) for role, rate in RATES.items()}
    batched = jax.jit(jax.vmap(trained))(runs)
    single = jax.jit(trained)
    for run in range(3):
        alone = single(jax.tree.map(lambda rate, run=run: rate[run], runs))
        assert_trees_close(jax.tree.map(lambda leaf, run=run: leaf[run], batched), alone)
    assert_trees_equal(jax.tree.map(lambda leaf: leaf[2], batched), params)  # a rate of 0 changes nothing
    assert single._cache_size() == 1  # the rate is traced: one compilation for all rates


def test_a_diverging_rate_changes_no_bit_of_other_runs(params, gradients):
    def step(rate):
        tx = optim.by_role(optax.adam, {**RATES, "hidden": rate})
        return optax.apply_updates(params, tx.update(gradients[0], tx.init(params), params)[0])

    run = lambda rates: jax.tree.map(lambda leaf: leaf[0], jax.vmap(step)(jnp.asarray(rates)))  # noqa: E731
    assert_trees_equal(run([0.1, jnp.inf]), run([0.1, 0.1]))


def test_absent_roles_have_no_parameter_state(params):
    head = {"head": params["head"]}
    full, only = (optim.by_role(optax.adam, rates) for rates in (RATES, {"output": 0.02}))
    arrays = lambda state: [leaf.shape for leaf in jax.tree.leaves(state) if leaf.ndim]  # noqa: E731
    assert arrays(full.init(head)) == arrays(only.init(head)) == [params["head"]["kernel"].shape] * 2
    assert_trees_equal(full.update(head, full.init(head))[0], only.update(head, only.init(head))[0])


def test_state_can_be_mapped_like_parameters(params):
    # optax users derive the state's sharding with it. It calls init with a placeholder that has no leaves.
    tx = optim.by_role(optax.adam, RATES)
    state = tx.init(params)
    marked = optax.tree_utils.tree_map_params(
        tx, lambda _, path: path, state, jax.tree.map(lambda leaf: leaf + 7, params),
        is_leaf=lambda node: isinstance(node, optax.MaskedNode),
    )  # fmt: skip
    moment = marked.inner_states["output"].inner_state[0].mu["head"]["kernel"]
    np.testing.assert_array_equal(moment, params["head"]["kernel"] + 7)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Callable:
    """A callable pytree, like an Equinox module. optax would take it for a mask function."""

    w: jax.Array
    bias: jax.Array

    def __call__(self, x):
        raise AssertionError("called")


def test_parameters_in_a_callable_pytree():
    params = {"head": Callable(jnp.ones((2, 3)), jnp.ones(3)), "list": [jnp.ones(2)]}
    declarations = (
        Declaration("(?:head/)?w", "output", fan_in=(0,)),
        Declaration(r"list/\d+", "vector", optional=True),
    )
    for tree in (params, params["head"]):
        tx = optim.by_role(optax.sgd, RATES, declarations=declarations)
        updates, _ = tx.update(tree, tx.init(tree), tree)
        head = updates["head"] if isinstance(updates, dict) else updates
        np.testing.assert_allclose(head.w, -RATES["output"], rtol=1e-6)
        np.testing.assert_allclose(head.bias, -RATES["vector"], rtol=1e-6)


def test_decay_is_per_role_and_zero_by_default(params, zeros):
    def shrinks(weight_decay):
        tx = optim.by_role(optax.adamw, RATES, weight_decay=weight_decay)
        updates, _ = tx.update(zeros, tx.init(params), params)
        ratios = jax.tree.map(lambda u, p: -u / p, updates, params)
        return {
            role: np.asarray(ratio, np.float64).mean()
            for role, ratio in zip(jax.tree.leaves(labels(params)), jax.tree.leaves(ratios), strict=True)
        }

    assert shrinks(None) == dict.fromkeys(ROLES, 0.0)  # optax.adamw's default would be 1e-4
    assert shrinks(0.5) == pytest.approx({role: 0.5 * rate for role, rate in RATES.items()}, rel=1e-5)
    assert shrinks({"hidden": 0.5}) == pytest.approx({**dict.fromkeys(ROLES, 0.0), "hidden": 0.005}, rel=1e-5)


def test_scale_by_role_multiplies_and_keeps_dtypes(params):
    updates = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    factors = {
        "embedding": 2.0,
        "position": jnp.float32(4.0),
        "hidden": np.float64(0.5),
        "output": 8,
        "vector": 1,
    }
    scaled, state = optim.scale_by_role(factors).update(updates, optax.EmptyState())
    assert state == optax.EmptyState()
    expected = jax.tree.map(lambda role, u: u * jnp.bfloat16(float(factors[role])), labels(params), updates)
    assert_trees_equal(scaled, expected)
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(scaled))


def test_scale_by_role_takes_a_table_or_traced_factors(params):
    t = table("lvp", width=16, vocab=64)
    scaled, _ = optim.scale_by_role(t).update(params, optax.EmptyState())
    np.testing.assert_array_equal(scaled["embedding"]["embedding"], 4 * params["embedding"]["embedding"])
    np.testing.assert_array_equal(scaled["head"]["kernel"], params["head"]["kernel"])
    factors = {role: jnp.asarray([t[role].lr_multiplier, 0.0]) for role in t}
    batched = jax.vmap(lambda f: optim.scale_by_role(f).update(params, optax.EmptyState())[0])(factors)
    assert_trees_equal(jax.tree.map(lambda leaf: leaf[0], batched), scaled)
    assert not any(leaf[1].any() for leaf in jax.tree.leaves(batched))


def test_scale_by_role_refuses_unusable_factors(params):
    missing = {role: 1.0 for role in ROLES if role != "output"}
    with pytest.raises(InputError, match="factors has no 'output'.*'head/kernel'"):
        optim.scale_by_role(missing).update(params, optax.EmptyState())
    with pytest.raises(InputError, match="unknown role 'bias'"):
        optim.scale_by_role({"bias": 1.0})
    with pytest.raises(InputError, match="must be a number"):
        optim.scale_by_role({"hidden": optax.constant_schedule(1.0)})
    with pytest.raises(InputError, match="must map roles"):
        optim.scale_by_role(3.0)


def test_errors_name_the_path(params):
    rates = {role: 0.1 for role in ROLES if role != "position"}
    with pytest.raises(InputError, match="rates has no 'position'.*'position/embedding'"):
        optim.by_role(optax.adam, rates).init(params)
    with pytest.raises(InputError, match="'block_0/conv/kernel'"):
        optim.by_role(optax.adam, RATES).init({"block_0": {"conv": {"kernel": jnp.zeros((3, 3, 2, 4))}}})


@pytest.mark.parametrize(
    ("factory", "rates", "kwargs", "message"),
    [
        (optax.adam, {"bias": 0.1}, {}, "rates: unknown role 'bias'"),
        (optax.adam, 0.1, {}, "rates must map roles"),
        (optax.adam, {"hidden": -0.1}, {}, r"rates\['hidden'\] must be finite and not negative"),
        (optax.adam, {"hidden": float("nan")}, {}, "finite"),
        (optax.adam, {"hidden": np.float32("inf")}, {}, "finite"),
        (optax.adam, {"hidden": "0.1"}, {}, "must be a number"),
        (optax.adam, {"hidden": None}, {}, "must be a number"),
        (optax.adam, {"hidden": np.ones(3)}, {}, "scalar, got shape.*vmap"),
        (optax.adam, EQUAL, {"beta1": 0.9}, "factory adam.*beta1"),
        (optax.adam, EQUAL, {"weight_decay": 0.1}, "weight_decay: factory adam has no such parameter"),
        (optax.adamw, EQUAL, {"weight_decay": -0.1}, "weight_decay.*not negative"),
        (optax.adamw, EQUAL, {"weight_decay": {"bias": 0.1}}, "weight_decay: unknown role"),
        (optax.adamw, {"hidden": 0.1}, {"weight_decay": {"output": 0.1}}, "weight_decay: role 'output' has no rate"),
        (functools.partial(optax.adamw, weight_decay=0.1), EQUAL, {}, "weight_decay is bound in a partial"),
        (functools.partial(optax.adam, learning_rate=0.1), EQUAL, {}, "learning_rate is bound in a partial"),
        (functools.partial(optax.adam, 0.1), EQUAL, {}, "learning_rate"),
        (optax.adam(0.1), EQUAL, {}, "factory must be a function"),
    ],
)
def test_bad_arguments(factory, rates, kwargs, message):
    with pytest.raises(InputError, match=message):
        optim.by_role(factory, rates, **kwargs)
