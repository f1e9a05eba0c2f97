"""Optax's conformance matrix (rewritten from its `alias_test` and `contrib/_common_test`) for every optimizer
factory."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.errors import InputError
from lvp.parametrization import table
from lvp.roles import ROLES, Declaration
from tests.marking import all_slow_but

RATE = 0.1
# Signs with decoupled decay λ keep minima with |θ| < γ/λ (γ, the update's RMS, is at least 0.22), and the largest
# coordinate of a minimum below is 4.
LAMBDA = 0.01
LVP = table("lvp", width=64, vocab=512)
# The head of a vocabulary alone, so that every optimizer uses its leading axis.
OUTPUT = (Declaration(".*", "output", fan_in=(), vocab_axis=0),)


def coupled_by_role(learning_rate, weight_decay, declarations):
    rates = dict.fromkeys(ROLES, learning_rate)
    return optim.by_role(optim.coupled_adam, rates, weight_decay=weight_decay, declarations=declarations)


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A factory and its arguments; `turns`: it rotates neurons; `peaked`: it needs the peak of its rate; `moments`:
    the number of trees in its state that are shaped like the parameters."""

    factory: Callable
    kwargs: Mapping[str, Any]
    moments: int
    turns: bool = False
    peaked: bool = False

    def arguments(self, axes=(0,), **more):
        """Returns the keyword arguments except the rate, with the axes of a neuron."""
        neurons = {"neurons": {".*": axes}} if self.turns else {}
        return {**self.kwargs, **neurons, **more}

    def make(self, rate, **more):
        peak = {"peak_learning_rate": RATE} if self.peaked and callable(rate) and not hasattr(rate, "peak") else {}
        return self.factory(learning_rate=rate, **self.arguments(**peak, **more))


DECAY = {"weight_decay": LAMBDA}
ANGLE = {"weight_decay": 0.1}  # in rotational optimizers λ sets the angle and is no decay
TURNS = {"turns": True, "peaked": True}
CASES = {
    "sign_sgd_0": Case(optim.sign_sgd, {"sign_of_zero": 0}, 0),
    "sign_sgd_1": Case(optim.sign_sgd, {"sign_of_zero": 1}, 0),
    "adamw": Case(optim.adamw, {**DECAY, "b2": 0.95}, 2),
    "adamw_uncorrected": Case(optim.adamw, {**DECAY, "b2": 0.95, "bias_correction_first": False}, 2),
    "lion_a": Case(optim.lion_a, DECAY, 1),
    "lion_a_nesterov": Case(optim.lion_a, {**DECAY, "nesterov": True, "inverse_bias_correction": True}, 1),
    "lion_ar": Case(optim.lion_ar, ANGLE, 1, **TURNS),
    "lion_ar_nesterov": Case(optim.lion_ar, {**ANGLE, "nesterov": True, "inverse_bias_correction": True}, 1, **TURNS),
    "rotational_adamw": Case(optim.rotational_adamw, {**DECAY, "b2": 0.95}, 2, turns=True),
    "coupled_adam": Case(optim.coupled_adam, {**DECAY, "declarations": OUTPUT}, 1),
    "parametrized_adamw": Case(
        functools.partial(optim.parametrized, optim.adamw, LVP), {**DECAY, "b2": 0.95, "declarations": OUTPUT}, 2
    ),
    "parametrized_lion_ar": Case(
        functools.partial(optim.parametrized, optim.lion_ar, LVP), {**ANGLE, "declarations": OUTPUT}, 1, **TURNS
    ),
    "by_role_coupled_adam": Case(coupled_by_role, {**DECAY, "declarations": OUTPUT}, 1),
}
FEW = ("sign_sgd_0", "adamw", "lion_a_nesterov", "rotational_adamw", "parametrized_lion_ar", "by_role_coupled_adam")
every = pytest.mark.parametrize("case", all_slow_but(FEW, CASES.values(), CASES))
turning = pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.turns])
is_masked = lambda node: isinstance(node, optax.MaskedNode)  # noqa: E731


def tensors(seed: int, dtype=jnp.float32) -> list:
    """Returns a matrix and a tensor of rank three."""
    keys = jax.random.split(jax.random.key(seed))
    return [jax.random.normal(k, shape, dtype) for k, shape in zip(keys, [(2, 3), (2, 5, 2)], strict=True)]


def assert_trees_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_trees_close(a, b, rtol, atol=0.0):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol), a, b)


# Compilation, extra arguments, map_params ------------------------------------------------------------


def compilations(tx, params, steps: int = 3) -> int:
    @jax.jit
    def step(params, state):
        gradients = jax.grad(lambda p: jnp.sum(jnp.square(p - 3)))(params)
        updates, state = tx.update(gradients, state, params, nobody_expects_this=1)
        return optax.apply_updates(params, updates), state

    state = tx.init(params)
    for _ in range(steps):
        params, state = step(params, state)
    assert all(np.isfinite(params))
    return step._cache_size()


@every
def test_unknown_extra_arguments_are_accepted(case):
    assert compilations(case.make(RATE), jnp.array([0.5, -1.0])) == 1


def test_recompilations_are_counted():
    """Control: a state that starts as an integer and continues as a float is compiled twice."""
    leaky = optax.GradientTransformationExtraArgs(
        lambda params: jnp.asarray(0), lambda updates, state, params, **extra: (updates, state + 1.0)
    )
    assert compilations(leaky, jnp.array([0.5, -1.0])) == 2


@every
def test_state_can_be_mapped_like_parameters(case):
    tx, params = case.make(RATE), tensors(0)
    state = tx.init(params)
    assert_trees_equal(optax.tree.map_params(tx, lambda leaf: leaf, state), state)
    # A transform without neurons has an `optax.MaskedNode` in place of their norms, as have absent roles.
    mark = lambda leaf, p, i: np.full(2, i) if getattr(leaf, "shape", None) == p.shape else leaf  # noqa: E731
    marked = optax.tree.map_params(tx, mark, state, params, [0, 1], is_leaf=is_masked)
    flat = [leaf for leaf in jax.tree.leaves(marked) if isinstance(leaf, np.ndarray)]
    assert [int(leaf[0]) for leaf in flat] == [0, 1] * case.moments


# Convergence -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Target:
    """`start` is any start; `beside` gives the direction of a start on the sphere of the minimum."""

    start: Any
    beside: Any
    minimum: Any
    loss: Callable


def parabola(minimum):
    return lambda p: optax.tree.sum(jax.tree.map(lambda x, y: jnp.sum(jnp.square(x - y)), p, minimum))


MATRIX = np.float32([[3, -2], [1, 4]])
MIXED = (np.float32([1, -1, 2]), np.float32([[1, 0], [-1, 1]]))
TARGETS = {
    "parabola": Target(np.float32([-1, 10, 1]), np.float32([-1, 10, 1]), np.float32([1, -1, 1]), None),
    "matrix_parabola": Target(np.zeros_like(MATRIX), np.ones((2, 2), np.float32), MATRIX, None),
    "mixed": Target(
        jax.tree.map(np.zeros_like, MIXED), (np.float32([2, 1, 1]), np.ones((2, 2), np.float32)), MIXED, None
    ),
    "rosenbrock": Target(
        np.zeros(2, np.float32), np.float32([1, -0.3]), np.ones(2, np.float32),
        lambda p: jnp.square(1 - p[0]) + 100 * jnp.square(p[1] - jnp.square(p[0])),
    ),
}  # fmt: skip
STEPS, TIME = 10_000, 1000.0


def decaying(count):
    """Returns a decaying rate. The last step of a sign update is as long as the first, so signed updates do not
    converge at a constant rate. The decay is exponential, and slow compared with the valley of Rosenbrock, where a sign
    follows the valley only once its step is below a 200th of the remaining way."""
    return RATE * jnp.exp(-count / TIME)


def onto_sphere(direction, minimum):
    """Returns `direction` scaled to the norms of `minimum`'s neurons, which lie along axis 0."""
    length = lambda x: np.sqrt(np.sum(np.square(x), axis=0))  # noqa: E731
    return jax.tree.map(lambda x, y: np.float32(x * (length(y) / length(x))), direction, minimum)


@functools.cache
def optimized(name: str, axes: tuple, on_sphere: bool) -> dict:
    """Returns the final parameters for all targets at once: their losses are added, and no optimizer couples its
    leaves."""
    tx = CASES[name].make(decaying, axes=axes)
    losses = {key: t.loss or parabola(t.minimum) for key, t in TARGETS.items()}
    start = {key: onto_sphere(t.beside, t.minimum) if on_sphere else t.start for key, t in TARGETS.items()}
    loss = lambda params: sum(losses[key](params[key]) for key in params)  # noqa: E731

    def step(carry, _):
        params, state = carry
        updates, state = tx.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def run(params):
        return jax.lax.scan(step, (params, tx.init(params)), length=STEPS)[0][0]

    return jax.device_get(run(jax.tree.map(jnp.asarray, start)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", all_slow_but(FEW, CASES))
def test_converges(name, target):
    # These parameters are not neurons, so no norm is kept: the plain part of a rotational optimizer.
    assert_trees_close(optimized(name, (), False)[target], TARGETS[target].minimum, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("target", TARGETS)
@turning
def test_neurons_converge_on_their_sphere(name, target):
    """A neuron keeps its norm, so the start has the norm of the minimum."""
    assert_trees_close(optimized(name, (0,), True)[target], TARGETS[target].minimum, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "parabola"])
@turning
def test_neurons_that_start_at_zero_converge_anywhere(name, target):
    """A zero neuron has no direction along which to keep a norm, and is updated like a vector."""
    assert_trees_close(optimized(name, (0,), False)[target], TARGETS[target].minimum, rtol=3e-2, atol=3e-2)


@turning
def test_neurons_keep_their_norm_if_the_minimum_has_another(name):
    """Control for the two tests above: a start off the minimum's sphere, as in optax's parabola, stays off it."""
    start, end = TARGETS["parabola"].start, optimized(name, (0,), False)["parabola"]
    assert np.linalg.norm(end) == pytest.approx(np.linalg.norm(start), rel=1e-6)
    assert np.linalg.norm(end - TARGETS["parabola"].minimum) > 8


@pytest.mark.parametrize("sign_of_zero", [0, 1])
def test_signs_end_within_one_step_of_the_minimum(sign_of_zero):
    """|d| ↦ ||d| − η| once the distance d of a coordinate is below η, so d stays below η but does not shrink in
    general."""
    tx, target, rate = optim.sign_sgd(0.1, sign_of_zero=sign_of_zero), TARGETS["parabola"], 0.1
    gradient = jax.grad(parabola(target.minimum))

    def step(params, _):
        params = optax.apply_updates(params, tx.update(gradient(params), tx.init(params))[0])
        return params, jnp.abs(params - target.minimum)

    distance = jax.lax.scan(step, jnp.asarray(target.start) + 0.03, length=300)[1]
    assert np.all(distance[120:] <= rate + 1e-5)  # the longest way is 11, or 110 steps
    assert np.all(np.max(distance[-2:], axis=0) > rate / 2 - 1e-5)  # two neighbours add up to a step


# Injected hyperparameters and schedules --------------------------------------------------------------


def steps(tx, params, gradients, *, rates=None):
    """Returns the parameters after every step, and the last state. `rates` are set by hand before each step."""
    update, state, out = jax.jit(tx.update), tx.init(params), []
    for t, gradient in enumerate(gradients):
        if rates is not None:
            state = state._replace(hyperparams={**state.hyperparams, "learning_rate": jnp.float32(rates[t])})
        updates, state = update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        out.append(params)
    return out, state


GRADIENTS = range(1, 4)


@functools.cache
def plain(case):
    return steps(case.make(RATE), tensors(0), [tensors(k) for k in GRADIENTS])


@every
def test_injected_hyperparameters_change_nothing(case):
    """An injected β is a float32, so 1 − β is off by up to 2⁻²⁵/(1 − β), 6e-7 at 0.95. The tolerance is three times
    that."""
    peak = {"peak_learning_rate": RATE} if case.peaked else {}
    tx = optax.inject_hyperparams(case.factory)(**case.arguments(learning_rate=RATE, **peak))
    injected, injected_state = steps(tx, tensors(0), [tensors(k) for k in GRADIENTS])
    params, state = plain(case)
    assert_trees_close(injected, params, rtol=2e-6, atol=2e-7)
    assert_trees_close(injected_state.inner_state, state, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.peaked])
def test_an_injected_rate_needs_its_peak(name):
    """The rate arrives as one array per step, which contains no peak."""
    case = CASES[name]
    tx = optax.inject_hyperparams(case.factory)(**case.arguments(learning_rate=RATE))
    with pytest.raises(InputError, match="peak_learning_rate"):
        tx.init(tensors(0))
    assert issubclass(InputError, ValueError)


@every
def test_a_schedule_is_read_at_steps_from_zero(case):
    """Compares with the same rates injected by hand, and with a first rate of zero, at which nothing changes."""
    rates = [0.0, RATE, RATE / 4]
    params, gradients = tensors(0), [tensors(k) for k in GRADIENTS]
    scheduled, _ = steps(case.make(lambda count: jnp.asarray(rates)[count]), params, gradients)
    peak = {"peak_learning_rate": RATE} if case.peaked else {}
    tx = optax.inject_hyperparams(case.factory)(**case.arguments(learning_rate=RATE, **peak))
    by_hand, _ = steps(tx, params, gradients, rates=rates)
    assert_trees_close(scheduled, by_hand, rtol=2e-6, atol=2e-7)
    assert_trees_equal(scheduled[0], params)
    assert all(np.all(a != b) for a, b in zip(scheduled[1], params, strict=True))


@every
def test_a_constant_schedule_equals_a_number(case):
    tx = case.make(optax.constant_schedule(RATE))
    scheduled, _ = steps(tx, tensors(0), [tensors(k) for k in GRADIENTS])
    assert_trees_close(scheduled, plain(case)[0], rtol=1e-6, atol=1e-7)


# Dtypes ----------------------------------------------------------------------------------------------


def avals(tree):
    return [(leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("dtype", all_slow_but(("float16",), ("float16", "bfloat16", "float32", "float64")))
@every
def test_dtypes_and_shapes_are_stable(case, dtype):
    with jax.enable_x64(dtype == "float64"):
        tx, params, gradients = case.make(RATE), tensors(0, dtype)[:1], tensors(1, dtype)[:1]
        state = tx.init(params)

        def step(go, gradients, state, params):
            return jax.lax.cond(go, lambda: tx.update(gradients, state, params), lambda: (gradients, state))

        jitted = jax.eval_shape(tx.update, gradients, state, params)
        by_schedule = case.make(decaying)
        scheduled = jax.eval_shape(by_schedule.update, gradients, jax.eval_shape(by_schedule.init, params), params)
        assert avals(scheduled[0]) == avals(gradients)  # a schedule's values are float32 or wider
        branched = jax.eval_shape(step, True, gradients, state, params)  # raises if the branches have different types
        for updates, after in (jitted, branched):
            assert avals(updates) == avals(gradients)
            assert avals(after) == avals(state)
        if dtype == "float16":  # the narrowest range; outside jit other promotion rules apply
            updates, after = tx.update(gradients, state, params)
            assert avals(updates) == avals(gradients)
            assert avals(after) == avals(state)
            assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((updates, after)))


@pytest.mark.parametrize("mu_dtype", [None, "bfloat16", "float32"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", [name for name in CASES if "sign" not in name and "by_role" not in name])
def test_mu_dtype_is_the_dtype_of_the_first_moment(name, dtype, mu_dtype):
    tx, params = CASES[name].make(RATE, mu_dtype=mu_dtype), tensors(0, dtype)
    state = jax.eval_shape(tx.init, params)
    updates, after = jax.eval_shape(tx.update, params, state, params)
    assert avals(after) == avals(state)
    trees = lambda name: [tree for _, tree in optax.tree.get_all_with_path(state, name)]  # noqa: E731
    dtypes = lambda name: {leaf.dtype for leaf in jax.tree.leaves(trees(name))}  # noqa: E731
    assert dtypes("mu") == {jnp.dtype(mu_dtype or dtype)}
    assert dtypes("nu") <= {jnp.dtype(dtype)}
    # A moment that is wider than the gradients makes wider updates, as in optax. `apply_updates` rounds them.
    assert {leaf.dtype for leaf in updates} == {jnp.promote_types(dtype, mu_dtype or dtype)}


# Accumulation ----------------------------------------------------------------------------------------


@every
def test_gradients_can_be_accumulated(case):
    """The mean of four gradients is applied at the fourth step, and nothing before it."""
    params, gradients = tensors(0), [tensors(k) for k in range(1, 5)]
    tx = case.make(RATE)
    mean = jax.tree.map(lambda *leaves: jnp.mean(jnp.stack(leaves), axis=0), *gradients)
    whole, _ = steps(tx, params, [mean])
    accumulated, state = steps(optax.MultiSteps(tx, every_k_schedule=4), params, gradients)
    for before in accumulated[:3]:
        assert_trees_equal(before, params)
    assert_trees_close(accumulated[3], whole[0], rtol=1e-6, atol=1e-6)
    assert int(state.gradient_step) == 1


@every
def test_gradients_can_be_accumulated_in_bfloat16(case):
    tx, params = optax.MultiSteps(case.make(RATE), every_k_schedule=4), tensors(0, jnp.bfloat16)
    state = jax.eval_shape(tx.init, params)
    updates, after = jax.eval_shape(tx.update, params, state, params)
    assert avals(updates) == avals(params)
    assert avals(after) == avals(state)
