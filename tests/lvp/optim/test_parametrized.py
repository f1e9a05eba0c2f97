"""`parametrized`: rates, decay in closed form, peaks, injection, and refused arguments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.errors import InputError
from lvp.optim import rates
from lvp.parametrization import table
from lvp.roles import ROLES, Declaration, labels
from tests.marking import all_slow_but

WIDTH, VOCAB = 64, 64
TABLES = [table(rule, width=WIDTH, vocab=VOCAB, base_width=1) for rule in ("sp", "mup", "lvp", "interpolated")]
LVP = table("lvp", width=WIDTH, vocab=VOCAB)
RATE, LAMBDA = 0.02, 0.3


def assert_trees_close(a, b, rtol=2e-6, atol=1e-7):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol), a, b)


def assert_trees_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def norm(tree) -> float:
    return float(np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(tree))))


def by_role(tree, roles_of) -> dict[str, np.ndarray]:
    """Returns role → all of its entries, flattened."""
    out: dict[str, list] = {role: [] for role in ROLES}
    for role, leaf in zip(jax.tree.leaves(labels(roles_of)), jax.tree.leaves(tree), strict=True):
        out[role].append(np.ravel(leaf))
    return {role: np.concatenate(leaves) for role, leaves in out.items()}


def shrinkage(tx, params, zeros, steps: int) -> list[dict[str, np.ndarray]]:
    """Returns, by step and role, the fraction by which θ shrinks under a zero gradient: pure decay."""
    state, out = tx.init(params), []
    for _ in range(steps):
        updates, state = tx.update(zeros, state, params)
        fractions = jax.tree.map(lambda u, p: -u / p, updates, params)
        out.append(by_role(fractions, params))
        params = optax.apply_updates(params, updates)
    return out


# Rates -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", all_slow_but(("lvp",), TABLES, [t.rule for t in TABLES]))
@pytest.mark.parametrize("factory", [optax.adam, optax.sign_sgd, optax.radam])
def test_equals_scaling_after_a_linear_base_optimizer(t, factory, params, gradients, trajectory):
    inside = optim.parametrized(factory, t, learning_rate=RATE)
    after = optax.chain(factory(RATE), optim.scale_by_role(t))
    assert_trees_close(trajectory(inside, params, gradients), trajectory(after, params, gradients))


def test_the_rate_enters_before_a_projection(params, gradients):
    # A toy like LARS: the update is normalised after the rate has entered, so a later factor would be wrong.
    def projected(learning_rate):
        def update(updates, state, params):
            moved = jax.tree.map(lambda p, g: p - learning_rate * g, params, updates)
            back = jax.tree.map(lambda n, p: n * (jnp.linalg.norm(p) / jnp.linalg.norm(n)) - p, moved, params)
            return back, state

        return optax.GradientTransformation(optax.init_empty_state, update)

    norms = lambda tree: np.array([np.linalg.norm(leaf) for leaf in jax.tree.leaves(tree)])  # noqa: E731

    def moved(tx):
        updates, _ = tx.update(gradients[0], tx.init(params), params)
        return norms(optax.apply_updates(params, updates))

    inside = optim.parametrized(projected, LVP, learning_rate=RATE)
    np.testing.assert_allclose(moved(inside), norms(params), rtol=1e-5)
    after = optax.chain(projected(RATE), optim.scale_by_role(LVP))
    assert np.max(np.abs(moved(after) / norms(params) - 1)) > 1e-2


def test_the_learning_rate_is_the_hidden_rate_of_the_table(params, gradients):
    def step(rule, **kwargs):
        tx = optim.parametrized(optax.sign_sgd, rule, RATE, **kwargs)
        updates, _ = tx.update(gradients[0], tx.init(params), params)
        return {role: float(np.abs(values).max()) for role, values in by_role(updates, params).items()}

    shape = {"width": WIDTH, "vocab": VOCAB}
    hidden = step("lvp", **shape)
    assert hidden == pytest.approx(
        {"embedding": 8 * RATE, "position": 8 * RATE, "hidden": RATE, "output": RATE, "vector": RATE}
    )
    assert step(LVP) == pytest.approx(hidden)
    assert step(table("lvp", base_width=16, **shape)) == pytest.approx(
        {"embedding": 2 * RATE, "position": 2 * RATE} | dict.fromkeys(("hidden", "output", "vector"), RATE / 4)
    )
    assert step(table("lvp", ratios=1, **shape)) == pytest.approx(dict.fromkeys(ROLES, RATE))


# Decay -----------------------------------------------------------------------------------------------

COSINE = optax.cosine_decay_schedule(RATE, 4)


@pytest.mark.parametrize("t", all_slow_but(("lvp",), TABLES, [t.rule for t in TABLES]))
@pytest.mark.parametrize("factory", [optax.adamw, optax.nadamw, optax.adamaxw, optax.lion, optax.adan])
def test_decay_from_zero_gradients_in_closed_form(t, factory, params, zeros):
    make = functools.partial(
        optim.parametrized, factory, t, learning_rate=COSINE, weight_decay=LAMBDA, peak_learning_rate=RATE
    )
    coupled = shrinkage(make(decay="coupled"), params, zeros, 4)
    independent = shrinkage(make(decay="independent"), params, zeros, 4)
    for step in range(4):
        rate = float(COSINE(step))
        for role in ROLES:
            decays = LAMBDA if t[role].decay else 0.0
            np.testing.assert_allclose(coupled[step][role], rate * t[role].lr_multiplier * decays, rtol=1e-5, atol=1e-9)
            np.testing.assert_allclose(independent[step][role], rate / RATE * decays, rtol=1e-5, atol=1e-9)


def test_a_multiplier_after_adamw_also_multiplies_the_decay(params, zeros):
    after = optax.chain(optax.adamw(RATE, weight_decay=LAMBDA), optim.scale_by_role(LVP))
    (fractions,) = shrinkage(after, params, zeros, 1)
    np.testing.assert_allclose(fractions["vector"], RATE * LAMBDA, rtol=1e-5)  # by default gains decay, too
    np.testing.assert_allclose(fractions["embedding"], 8 * RATE * LAMBDA, rtol=1e-5)


def test_the_closed_form_needs_decoupled_decay(params, zeros):
    # The negative example of the docstring: lamb normalises the decay together with the gradient.
    tx = optim.parametrized(optax.lamb, TABLES[0], learning_rate=RATE, weight_decay=LAMBDA)
    (fractions,) = shrinkage(tx, params, zeros, 1)
    assert np.abs(fractions["hidden"] / (RATE * LAMBDA) - 1).min() > 0.5


def test_no_weight_decay_is_the_default(params, zeros):
    (fractions,) = shrinkage(optim.parametrized(optax.adamw, LVP, learning_rate=1.0), params, zeros, 1)
    assert all(not values.any() for values in fractions.values())
    (optaxs,) = shrinkage(optax.adamw(1.0), params, zeros, 1)
    assert all(values.all() for values in optaxs.values())  # control: AdamW's own default decays


def test_decay_does_not_change_the_gradient_part(params, gradients):
    tx, bare = (
        optim.parametrized(optax.adamw, LVP, learning_rate=RATE, weight_decay=w, decay="independent")
        for w in (LAMBDA, None)
    )
    with_decay, without = (t.update(gradients[0], t.init(params), params)[0] for t in (tx, bare))
    decay = jax.tree.map(lambda role, p: -LAMBDA * p if role != "vector" else jnp.zeros_like(p), labels(params), params)
    assert_trees_close(with_decay, jax.tree.map(jnp.add, without, decay), rtol=1e-5, atol=1e-6)


# Peaks -----------------------------------------------------------------------------------------------


def test_the_peak_is_taken_from_the_argument_or_the_schedule(params, zeros):
    def halved(count):
        return RATE * 0.5 ** (count + 1)  # reaches half its peak at the first step

    make = functools.partial(optim.parametrized, optax.adamw, LVP, weight_decay=LAMBDA, decay="independent")
    first = lambda tx: shrinkage(tx, params, zeros, 1)[0]["hidden"]  # noqa: E731
    with pytest.raises(InputError, match="peak_learning_rate is required"):
        make(learning_rate=halved)
    optim.parametrized(optax.adamw, LVP, learning_rate=halved, weight_decay=LAMBDA)  # coupled decay does not need it
    np.testing.assert_allclose(first(make(learning_rate=halved, peak_learning_rate=RATE)), LAMBDA / 2, rtol=1e-5)
    halved.peak = RATE
    np.testing.assert_allclose(first(make(learning_rate=halved)), LAMBDA / 2, rtol=1e-5)
    np.testing.assert_allclose(first(make(learning_rate=halved, peak_learning_rate=RATE / 2)), LAMBDA, rtol=1e-5)
    for own in (RATE, np.float32(RATE)):
        np.testing.assert_allclose(first(make(learning_rate=own)), LAMBDA, rtol=1e-5)
    with pytest.raises(InputError, match="peak_learning_rate is required: learning_rate is an array"):
        make(learning_rate=jnp.asarray(RATE))


def test_scaled_schedules_have_their_scaled_peak():
    seen = {}

    def factory(learning_rate, tag=None):
        seen[float(learning_rate(0))] = getattr(learning_rate, "peak", None)
        return optax.sgd(learning_rate)

    schedule = optax.linear_schedule(1.0, 0.0, 10)
    optim.parametrized(factory, LVP, learning_rate=schedule)
    assert set(seen.values()) == {None}
    optim.parametrized(factory, LVP, learning_rate=schedule, peak_learning_rate=2.0)
    assert seen == {8.0: 16.0, 1.0: 2.0}
    schedule.peak = 1.0
    optim.parametrized(factory, LVP, learning_rate=schedule)
    assert seen == {8.0: 8.0, 1.0: 1.0}
    assert rates.scaled(0.5, 4.0) == 2.0


# Combination with optax's wrappers -------------------------------------------------------------------


@pytest.mark.parametrize("decay", ["coupled", "independent"])
def test_injected_rates_and_schedules(decay, params, gradients, trajectory):
    kwargs = {"weight_decay": LAMBDA, "decay": decay, "b1": 0.8, "peak_learning_rate": RATE}
    inject = optax.inject_hyperparams(functools.partial(optim.parametrized, optax.adamw, LVP, **kwargs))
    for rate in (RATE, jnp.asarray(RATE)):
        plain = optim.parametrized(optax.adamw, LVP, learning_rate=rate, **kwargs)
        assert_trees_close(
            trajectory(inject(learning_rate=rate), params, gradients), trajectory(plain, params, gradients)
        )
    plain = optim.parametrized(optax.adamw, LVP, learning_rate=COSINE, **kwargs)
    assert_trees_close(
        trajectory(inject(learning_rate=COSINE), params, gradients),
        trajectory(plain, params, gradients),
    )


def test_an_injected_rate_changes_without_recompiling(params, gradients):
    tx = optax.inject_hyperparams(functools.partial(optim.parametrized, optax.sign_sgd, LVP))(learning_rate=RATE)
    state = tx.init(params)
    update = jax.jit(tx.update)
    before, state = update(gradients[0], state, params)
    state.hyperparams["learning_rate"] = jnp.float32(2 * RATE)
    after, _ = update(gradients[0], state, params)
    assert_trees_close(after, jax.tree.map(lambda u: 2 * u, before))
    assert update._cache_size() == 1


def test_vmap_over_rates_and_decays_equals_a_loop(params, gradients):
    def trained(rate, weight_decay):
        tx = optim.parametrized(
            optax.adamw,
            LVP,
            learning_rate=rate,
            weight_decay=weight_decay,
            decay="independent",
            peak_learning_rate=rate,
        )
        current, state = params, tx.init(params)
        for gradient in gradients:
            updates, state = tx.update(gradient, state, current)
            current = optax.apply_updates(current, updates)
        return current

    some, decays = jnp.asarray([0.01, 0.03, 0.1]), jnp.asarray([0.0, 0.1, 0.2])
    batched = jax.jit(jax.vmap(trained))(some, decays)
    single = jax.jit(trained)
    for run in range(3):
        alone = single(some[run], decays[run])
        assert_trees_close(jax.tree.map(lambda leaf, run=run: leaf[run], batched), alone, atol=1e-6)


def test_multi_steps_averages_gradients(params, gradients, trajectory):
    tx = optim.parametrized(optax.adamw, LVP, learning_rate=RATE, weight_decay=LAMBDA)
    steps = optax.MultiSteps(tx, 2)
    jitted = optax.GradientTransformation(steps.init, jax.jit(steps.update))
    accumulated = trajectory(jitted, params, gradients[:4])
    means = [jax.tree.map(lambda a, b: (a + b) / 2, *pair) for pair in (gradients[:2], gradients[2:4])]
    whole = trajectory(tx, params, means)
    assert_trees_equal(accumulated[0], params)
    assert_trees_close([accumulated[1], accumulated[3]], whole, rtol=1e-5, atol=1e-6)


def test_chains_after_a_clip_of_the_whole_tree(params, gradients):
    inner = optim.parametrized(optax.sgd, TABLES[0], learning_rate=1.0)
    chained = optax.chain(optax.clip_by_global_norm(0.1), inner)
    updates, _ = jax.jit(chained.update)(gradients[0], chained.init(params), params)
    assert norm(updates) == pytest.approx(0.1, rel=1e-5)
    # Negative control: inside, every role would be clipped separately.
    clipped = lambda learning_rate: optax.chain(  # noqa: E731
        optax.clip_by_global_norm(0.1), optax.sgd(learning_rate)
    )
    inside = optim.parametrized(clipped, TABLES[0], learning_rate=1.0)
    updates, _ = inside.update(gradients[0], inside.init(params), params)
    assert norm(updates) == pytest.approx(0.1 * 5**0.5, rel=1e-5)


def test_extra_arguments_reach_the_factory(params, gradients):
    def factory(learning_rate):
        def update(updates, state, params=None, *, boost, **extra):
            return jax.tree.map(lambda u: -learning_rate * boost * u, updates), state

        return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)

    tx = optim.parametrized(factory, LVP, learning_rate=RATE)
    updates, _ = tx.update(gradients[0], tx.init(params), params, boost=3.0)
    np.testing.assert_allclose(updates["head"]["kernel"], -3 * RATE * gradients[0]["head"]["kernel"], rtol=1e-6)


def test_declarations_of_a_foreign_model():
    params = {"wte": jnp.ones((VOCAB, WIDTH)), "lm_head": jnp.ones((WIDTH, VOCAB))}
    declarations = (Declaration("wte", "embedding"), Declaration("lm_head", "output", fan_in=(0,)))
    tx = optim.parametrized(optax.sign_sgd, LVP, learning_rate=1.0, declarations=declarations)
    updates, _ = tx.update(params, tx.init(params))
    assert float(updates["wte"][0, 0]) == -8 and float(updates["lm_head"][0, 0]) == -1
    with pytest.raises(InputError, match="'lm_head'"):
        optim.parametrized(optax.adam, LVP, learning_rate=1.0).init(params)
    stale = (*declarations, Declaration("wpe", "position"))
    with pytest.raises(InputError, match="'wpe' matches no parameter"):
        optim.parametrized(optax.adam, LVP, learning_rate=1.0, declarations=stale).init(params)


def test_a_masked_tree_does_not_show_the_whole_model():
    """Frozen parameters: the declaration of a masked leaf is not refused."""
    params = {"wte": jnp.ones((VOCAB, WIDTH)), "lm_head": jnp.ones((WIDTH, VOCAB))}
    declarations = (Declaration("wte", "embedding"), Declaration("lm_head", "output", fan_in=(0,)))
    tx = optim.parametrized(optax.sign_sgd, LVP, learning_rate=1.0, declarations=declarations)
    frozen = optax.partition({"train": tx, "freeze": optax.set_to_zero()}, {"wte": "freeze", "lm_head": "train"})
    updates, _ = frozen.update(params, frozen.init(params), params)
    assert not updates["wte"].any() and float(updates["lm_head"][0, 0]) == -1


# Refused arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "factory",
    [
        optax.sgd,
        functools.partial(optax.sgd, momentum=0.9),
        functools.partial(functools.partial(optax.sgd, momentum=0.9), nesterov=True),
        optax.inject_hyperparams(optax.sgd),
        functools.partial(optax.noisy_sgd, eta=0.1, key=0),
        optax.polyak_sgd,
    ],
)
def test_plain_sgd_takes_only_sp(factory):
    for t in TABLES[1:]:
        with pytest.raises(InputError, match="of order one per coordinate"):
            optim.parametrized(factory, t, learning_rate=0.1)


def test_plain_sgd_under_sp_is_sgd(params, gradients, trajectory):
    tx = optim.parametrized(optax.sgd, "sp", width=WIDTH, vocab=VOCAB, learning_rate=RATE, momentum=0.9)
    plain = optax.sgd(RATE, momentum=0.9)
    assert_trees_equal(trajectory(tx, params, gradients), trajectory(plain, params, gradients))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "lvp"}, "width is required with rule 'lvp'"),
        ({"rule": "lvp", "width": 8}, "vocab is required"),
        ({"rule": "muP", "width": 8, "vocab": 8}, "unknown rule 'muP'; did you mean mup"),
        ({"width": 8}, "width is for a rule's name"),
        ({"vocab": 8}, "vocab is for a rule's name"),
        ({"learning_rate": "0.1"}, "learning_rate must be a number"),
        ({"learning_rate": -0.1}, "learning_rate must be finite and not negative"),
        ({"learning_rate": jnp.ones(2)}, "learning_rate must be a scalar"),
        ({"decay": "decoupled"}, "decay must be 'coupled' or 'independent'"),
        ({"weight_decay": -1.0}, "weight_decay must be finite and not negative"),
        ({"weight_decay": 0.1, "factory": optax.adam}, "weight_decay: factory adam has no such parameter"),
        ({"weight_decay": 0.0, "factory": optax.adam}, "weight_decay: factory adam has no such parameter"),
        ({"weight_decay": 0.1, "decay": "independent", "learning_rate": 0.0}, "positive number"),
        ({"peak_learning_rate": 0.0}, "positive number"),
        ({"peak_learning_rate": lambda count: 1.0}, "a number or a scalar array, got a schedule"),
        ({"beta1": 0.9}, "factory adamw.*beta1"),
    ],
)
def test_bad_arguments(arguments, message):
    arguments = {"factory": optax.adamw, "rule": LVP, "learning_rate": 0.1, **arguments}
    with pytest.raises(InputError, match=message) as error:
        optim.parametrized(arguments.pop("factory"), arguments.pop("rule"), **arguments)
    assert "\n" not in str(error.value)


def test_a_user_rule_is_a_function_or_its_table():
    """Plain SGD takes a user's rule and SP, and no other rule of lvp."""

    def ours(width, vocab):
        return dict.fromkeys(ROLES, (1.0, 1.0)) | {"embedding": (1.0, width**0.5), "output": (1.0, 1 / vocab)}

    shape = {"width": WIDTH, "vocab": VOCAB}
    made = optim.parametrized(optax.adamw, ours, learning_rate=RATE, **shape)
    given = optim.parametrized(optax.adamw, table(ours, **shape), learning_rate=RATE)
    assert made.settings == given.settings
    rates = {role: own["learning_rate"] for role, own in made.settings.items()}
    assert rates == pytest.approx(dict.fromkeys(ROLES, RATE) | {"embedding": RATE * 8, "output": RATE / VOCAB})
    optim.parametrized(optax.sgd, ours, learning_rate=RATE, **shape)
    with pytest.raises(InputError, match="factory sgd for the role 'embedding'"):
        optim.parametrized(optax.sgd, "lvp", learning_rate=RATE, **shape)
    with pytest.raises(InputError, match="width is required with rule ours"):
        optim.parametrized(optax.adamw, ours, learning_rate=RATE)
