"""A factory per role: Muon for hidden matrices and Adam for the rest, options by role, units of updates, and a user's
own roles."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder
from lvp.parametrization import Row, table
from lvp.roles import ROLES, Declaration, labels
from lvp.training import OptimizerConfig
from tests.marking import all_slow_but

WIDTH, VOCAB = 64, 64
LVP = table("lvp", width=WIDTH, vocab=VOCAB)
RATE, MUON_RATE, LAMBDA = 0.02, 0.3, 0.1
MUON = dict.fromkeys(ROLES, optax.adamw) | {"hidden": optax.contrib.muon}


def assert_trees_close(a, b, rtol=2e-6, atol=1e-7):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=rtol, atol=atol), a, b)


def of_role(tree, role):
    """Returns the leaves of a role."""
    return [leaf for leaf, own in zip(jax.tree.leaves(tree), jax.tree.leaves(labels(tree)), strict=True) if own == role]


def alone(factory, role, params, gradients, trajectory):
    """Returns the parameters of a role after training by its factory, without other roles."""
    return trajectory(factory, of_role(params, role), [of_role(g, role) for g in gradients])


# Factories and options -------------------------------------------------------------------------------


def test_every_role_is_trained_by_its_own_factory(params, gradients, trajectory):
    tx = optim.parametrized(MUON, LVP, learning_rate=RATE, rates={"hidden": MUON_RATE}, weight_decay=LAMBDA)
    together = trajectory(tx, params, gradients)
    muon = optax.contrib.muon(MUON_RATE, weight_decay=LAMBDA)
    assert_trees_close(
        [of_role(p, "hidden") for p in together], alone(muon, "hidden", params, gradients, trajectory), 1e-4, 1e-5
    )
    for role in ("embedding", "position", "output", "vector"):
        row = LVP[role]
        adam = optax.adamw(RATE * row.lr_multiplier, weight_decay=LAMBDA * row.decay)
        expected = alone(adam, role, params, gradients, trajectory)
        assert_trees_close([of_role(p, role) for p in together], expected, 1e-5, 1e-6)
        if role == "embedding":  # control: Muon moves the embedding differently
            other = alone(muon, role, params, gradients, trajectory)
            assert not np.allclose(other[-1][0], expected[-1][0], atol=1e-2)


def test_the_program_is_that_of_multi_transform(params):
    """The lowered program of a step has the same text as optax's, so there is no extra cost."""

    def program(tx):
        def step(params, state, gradients):
            updates, state = tx.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        return jax.jit(step).lower(params, jax.eval_shape(tx.init, params), params).as_text()

    transforms = {row.role: optax.adamw(RATE * row.lr_multiplier, weight_decay=LAMBDA * row.decay) for row in LVP.rows}
    transforms["hidden"] = optax.contrib.muon(MUON_RATE, weight_decay=LAMBDA)
    ours = optim.parametrized(MUON, LVP, learning_rate=RATE, rates={"hidden": MUON_RATE}, weight_decay=LAMBDA)
    assert program(ours) == program(optax.multi_transform(transforms, labels))
    transforms["vector"] = optax.adamw(2 * RATE, weight_decay=0.0)
    assert program(ours) != program(optax.multi_transform(transforms, labels))  # control


def test_muon_with_adam_trains():
    """A bigram model: the loss falls below that of the best predictor without context."""
    width, vocab = 16, 8
    keys = jax.random.split(jax.random.key(0), 3)
    params = {
        "embedding": {"embedding": jnp.zeros((vocab, width))},
        "block_0": {"mlp": {"up": {"kernel": jnp.zeros((width, width)), "bias": jnp.zeros(width)}}},
        "head": {"kernel": jnp.zeros((width, vocab))},
    }
    tokens = jax.random.randint(keys[0], (64,), 0, vocab)
    targets = (3 * tokens + 1) % vocab

    def loss(params):
        x = params["embedding"]["embedding"][tokens]
        up = params["block_0"]["mlp"]["up"]
        logits = (x + jnp.tanh(x @ up["kernel"] + up["bias"][None])) @ params["head"]["kernel"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()

    tx = optim.parametrized(
        MUON, "lvp", width=width, vocab=vocab, learning_rate=0.02, rates={"hidden": 0.1}, weight_decay=0.01
    )
    params = optim.initialize(tx, params, keys[1])
    first = loss(params)

    @jax.jit
    def step(params, state):
        updates, state = tx.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    state = tx.init(params)
    for _ in range(60):
        params, state = step(params, state)
    assert loss(params) < 0.1 < np.log(vocab) * 0.9 < first


def test_options_by_role(params, gradients, trajectory):
    """β and ε by a partial, clipping by a chain, decay by a mapping."""

    def clipped(learning_rate, weight_decay):
        return optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(learning_rate, weight_decay=weight_decay))

    own = {"embedding": functools.partial(optax.adamw, b2=0.5, eps=0.1), "output": clipped}
    decays = {"output": 0.3, "vector": 0.2}
    factories = dict.fromkeys(ROLES, optax.adamw) | own
    tx = optim.parametrized(factories, LVP, learning_rate=RATE, weight_decay=decays)
    together = trajectory(tx, params, gradients)
    expected = {
        "embedding": optax.adamw(8 * RATE, b2=0.5, eps=0.1, weight_decay=0.0),
        "output": optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(RATE, weight_decay=0.3)),
        "vector": optax.adamw(RATE, weight_decay=0.2),
        "hidden": optax.adamw(RATE, weight_decay=0.0),
    }
    for role, tx in expected.items():
        own = alone(tx, role, params, gradients, trajectory)
        assert_trees_close([of_role(p, role) for p in together], own, 1e-5, 1e-6)


def test_a_rate_of_its_own_has_its_own_peak(params):
    """Independent decay shrinks by λ η_t / max η, with the schedule of the role."""
    half = optax.linear_schedule(1.0, 0.0, 2)
    half.peak = 1.0
    tx = optim.parametrized(
        optax.adamw, LVP, learning_rate=RATE, rates={"hidden": half}, weight_decay=LAMBDA, decay="independent"
    )
    zeros, state = jax.tree.map(jnp.zeros_like, params), tx.init(params)
    for factor in (1.0, 0.5):
        updates, state = tx.update(zeros, state, params)
        for role, expected in (("hidden", factor * LAMBDA), ("output", LAMBDA), ("vector", 0.0)):
            for u, p in zip(of_role(updates, role), of_role(params, role), strict=True):
                np.testing.assert_allclose(u, -expected * p, rtol=1e-5, atol=1e-8)
    rows = {row.path: row for row in optim.describe(tx, params).rows}
    assert rows["block_0/mlp/up/kernel"].learning_rate == 1.0 and rows["head/kernel"].learning_rate == RATE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"factory": {"hidden": optax.adam}}, "factory has no 'embedding': give a factory for each of"),
        ({"factory": MUON | {"heads": optax.adam}}, "factory: unknown role 'heads'"),
        ({"factory": MUON | {"output": optax.adam(0.1)}}, "factory must be a function"),
        ({"rates": {"heads": 0.1}}, "rates: unknown role 'heads'"),
        ({"rates": {"hidden": -0.1}}, r"rates\['hidden'\] must be finite and not negative"),
        ({"rates": 0.1}, "rates must map roles"),
        ({"weight_decay": {"heads": 0.1}}, "weight_decay: unknown role 'heads'"),
        ({"weight_decay": {"output": -0.1}}, r"weight_decay\['output'\] must be finite"),
        (
            {"factory": MUON | {"output": optax.adam}, "weight_decay": 0.1},
            "weight_decay: factory adam has no such parameter",
        ),
        ({"factory": MUON, "rates": {"hidden": 0.1}, "b1": 0.8}, "factory muon.*b1"),
    ],
)
def test_bad_arguments(arguments, message):
    arguments = {"factory": optax.adamw, "rule": LVP, "learning_rate": 0.1, "rates": {"hidden": 0.1}, **arguments}
    with pytest.raises(InputError, match=message) as error:
        optim.parametrized(arguments.pop("factory"), arguments.pop("rule"), **arguments)
    assert "\n" not in str(error.value)


# Units of updates ------------------------------------------------------------------------------------


def rms(factory, random, shape=(8, 16), gradient=1.0, weight=1.0, rate=1.0):
    """Returns the RMS of the 100th update. Gradients have random signs, constant or drawn at every step."""
    own = {optax.polyak_sgd: {"scaling": 1.0}, optax.noisy_sgd: {"learning_rate": 1.0, "eta": 0.0, "key": 0}}
    own[optax.contrib.dpsgd] = {"learning_rate": 1.0, "l2_norm_clip": 1e9, "noise_multiplier": 0.0, "seed": 0}
    tx = factory(**own.get(factory, {"learning_rate": rate}))
    extra = {"value": jnp.float32(1.0)} if factory in LOSS_IS_NEEDED else {}
    params = weight * jax.random.normal(jax.random.key(0), shape)

    def step(state, key):
        gradients = gradient * jnp.sign(jax.random.normal(key if random else jax.random.key(1), shape))
        if factory is optax.contrib.dpsgd:
            gradients = gradients[None]  # one example
        updates, state = tx.update(gradients, state, params, **extra)
        return state, jnp.sqrt(jnp.mean(jnp.square(updates)))

    return float(jax.lax.scan(step, tx.init(params), jax.random.split(jax.random.key(2), 100))[1][-1])


LOSS_IS_NEEDED = (optax.polyak_sgd, optax.contrib.momo, optax.contrib.momo_adam)
SEARCHES = (optax.lbfgs, optax.contrib.sophia)  # they need the loss as a function


def is_of_order_one(factory):
    """True if the RMS of updates is proportional to the rate, of order one at rate 1, and the same for every shape and
    scale."""
    for random, (low, high) in ((False, (0.2, 8.0)), (True, (0.04, 3.0))):
        base = rms(factory, random)
        others = [rms(factory, random, (256, 8)), rms(factory, random, gradient=1e-2), rms(factory, random, weight=0.1)]
        if not (low < base < high and all(0.5 < other / base < 2 for other in others)):
            return False
    return 0.09 < rms(factory, False, rate=0.1) / rms(factory, False) < 0.11


def factories_of_optax():
    """The factories of optax whose only required argument is the learning rate."""
    for module in (optax, optax.contrib):
        for factory in vars(module).values():
            if inspect.isfunction(factory):
                parameters = inspect.signature(factory).parameters
                required = {name for name, x in parameters.items() if x.default is x.empty and x.kind < x.VAR_KEYWORD}
                if "learning_rate" in parameters and required - {"args"} <= {"learning_rate"}:
                    yield factory


def is_refused(factory):
    try:
        optim.parametrized(dict.fromkeys(ROLES, optax.adam) | {"hidden": factory}, LVP, RATE)
    except InputError as error:
        assert f"factory {factory.__name__} for the role 'hidden'" in str(error), error
        assert "rates={'hidden': RATE}" in str(error) and "\n" not in str(error)
        return True
    return False


@pytest.mark.slow
def test_factories_with_another_unit_are_refused_by_measure():
    factories = {*factories_of_optax()} - {*SEARCHES}
    assert len(factories) > 40
    accepted = {factory.__name__ for factory in factories if is_of_order_one(factory)}
    assert accepted == {factory.__name__ for factory in factories if not is_refused(factory)}


@pytest.mark.parametrize("factory", [optax.sgd, optax.lamb, optax.adagrad, optax.contrib.prodigy, optax.contrib.cocob])
def test_factories_with_another_unit_are_refused(factory):
    assert is_refused(factory) and not is_refused(optax.lion)
    assert not is_refused(lambda learning_rate: factory(learning_rate))  # the unit of other functions is not known


def test_muon_needs_a_rate_of_its_own_or_a_constant_rms():
    make = functools.partial(optim.parametrized, width=WIDTH, vocab=VOCAB, learning_rate=0.1)
    with pytest.raises(InputError, match="muon for the role 'embedding'"):
        make(optax.contrib.muon, "lvp")
    with pytest.raises(InputError, match="muon for the role 'hidden'.*or consistent_rms=0.2") as error:
        make(MUON, "lvp")
    assert "\n" not in str(error.value)
    make(MUON, "lvp", rates={"hidden": 0.02})
    make(optax.contrib.muon, "lvp", rates=dict.fromkeys(ROLES, 0.02))
    make(optax.contrib.muon, "sp")
    adamlike = functools.partial(optax.contrib.muon, consistent_rms=0.2)
    made = make(MUON | {"hidden": adamlike}, "lvp")
    assert made.settings["hidden"]["learning_rate"] == 0.1
    with pytest.raises(InputError, match="muon for the role 'embedding'"):  # its rows are not updated one by one
        make(adamlike, "lvp")


def test_muon_with_a_constant_rms_has_the_unit_of_adam(params):
    adamlike = functools.partial(optax.contrib.muon, consistent_rms=0.2)
    tx = optim.parametrized(MUON | {"hidden": adamlike}, LVP, learning_rate=1.0)
    updates, _ = tx.update(params, tx.init(params), params)
    for update in of_role(updates, "hidden"):
        assert 0.1 < float(jnp.sqrt(jnp.mean(jnp.square(update)))) < 0.3


# Roles of one's own ----------------------------------------------------------------------------------

ROUTED = {
    "head": {"kernel": jnp.ones((WIDTH, VOCAB))},
    "moe": {"router": jnp.ones((WIDTH, 4)), "lora_a": jnp.ones((WIDTH, 2)), "lora_b": jnp.ones((2, 7))},
}
OPEN = [
    Declaration("moe/router", "router", fan_in=(0,)),
    Declaration("moe/lora_a", "lora_a", fan_in=(0,)),
    Declaration("moe/lora_b", "lora_b", fan_in=(0,)),
]
ROWS = [
    Row("router", init_std=0.5, lr_multiplier=3.0, decay=False),
    Row("lora_a", init_std=1.0, lr_multiplier=1.0, decay=True),
    Row("lora_b", init_std=0.0, lr_multiplier=16.0, decay=True),
]


def test_rows_of_the_caller_set_init_rate_and_decay():
    tx = optim.parametrized(optax.adamw, LVP.with_rows(*ROWS), RATE, weight_decay=LAMBDA, declarations=OPEN)
    rows = {row.path.split("/")[-1]: row for row in optim.describe(tx, ROUTED).rows}
    assert {name: row.learning_rate / RATE for name, row in rows.items()} == pytest.approx(
        {"kernel": 1, "router": 3, "lora_a": 1, "lora_b": 16}
    )
    assert {name: row.weight_decay for name, row in rows.items()} == {
        "kernel": LAMBDA, "router": 0.0, "lora_a": LAMBDA, "lora_b": LAMBDA
    }  # fmt: skip
    drawn = optim.initialize(tx, ROUTED, jax.random.key(0))
    assert not drawn["moe"]["lora_b"].any() and float(drawn["moe"]["router"].std()) == pytest.approx(0.5, rel=0.2)
    zeros = jax.tree.map(jnp.zeros_like, ROUTED)
    updates, _ = tx.update(zeros, tx.init(ROUTED), ROUTED)
    np.testing.assert_allclose(updates["moe"]["lora_b"], -16 * RATE * LAMBDA, rtol=1e-5)
    assert not updates["moe"]["router"].any()


def test_a_rule_may_have_rows_for_further_roles():
    def ours(width, vocab):
        return dict.fromkeys(ROLES, (1.0, 1.0)) | {"router": (0.1, 2.0), "lora_a": (0.1, 1.0), "lora_b": (0.0, 1.0)}

    tx = optim.parametrized(optax.adamw, ours, width=WIDTH, vocab=VOCAB, learning_rate=RATE, declarations=OPEN)
    rates = {row.role: row.learning_rate for row in optim.describe(tx, ROUTED).rows}
    assert rates == pytest.approx({"output": RATE, "router": 2 * RATE, "lora_a": RATE, "lora_b": RATE})
    own = table(ours, width=WIDTH, vocab=VOCAB).with_rows(ROWS[0])
    replaced = optim.parametrized(optax.adamw, own, RATE, declarations=OPEN)
    assert replaced.settings["router"]["learning_rate"] == pytest.approx(3 * RATE)


def test_a_role_without_a_row_is_named():
    with pytest.raises(
        InputError, match="rule lvp has no row for the role 'router' of the declaration 'moe/router'.*Row"
    ):
        optim.parametrized(optax.adamw, LVP, learning_rate=RATE, declarations=OPEN)
    with pytest.raises(InputError, match="no row for the role 'lora_a'.*roles are embedding, .*router") as error:
        optim.parametrized(optax.adamw, LVP.with_rows(ROWS[0]), RATE, declarations=OPEN)
    assert "\n" not in str(error.value)
    for call in (optim.describe, functools.partial(optim.initialize, key=jax.random.key(0))):
        with pytest.raises(InputError, match="no row for the role 'lora_a' of parameter 'moe/lora_a'"):
            call(LVP, ROUTED, declarations=OPEN)


def test_by_role_takes_open_roles_and_a_factory_for_each():
    factories = {"router": optax.sgd, "lora_a": optax.sign_sgd, "lora_b": optax.sign_sgd, "output": optax.sign_sgd}
    rates = {"router": 0.5, "lora_a": 0.1, "lora_b": 0.2, "output": 0.3}
    tx = optim.by_role(factories, rates, declarations=OPEN)
    doubled = jax.tree.map(lambda p: 2 * p, ROUTED)
    updates, _ = tx.update(doubled, tx.init(ROUTED), ROUTED)
    expected = {"router": -1.0, "lora_a": -0.1, "lora_b": -0.2}
    assert {name: float(u[0, 0]) for name, u in updates["moe"].items()} == pytest.approx(expected)
    with pytest.raises(InputError, match="factory has no 'router'"):
        optim.by_role({"output": optax.sgd}, rates, declarations=OPEN)


def test_describe_shows_the_options_of_each_role(params):
    """A keyword of the call precedes a partial's, and the partial's precedes the factory's default."""
    factories = MUON | {"embedding": functools.partial(optax.adamw, b1=0.8, b2=0.9)}
    tx = optim.parametrized(factories, LVP, learning_rate=RATE, rates={"hidden": MUON_RATE}, eps=1e-6)
    rows = {row.role: row for row in optim.describe(tx, params).rows}
    assert (rows["embedding"].b1, rows["embedding"].b2, rows["embedding"].eps) == (0.8, 0.9, 1e-6)
    assert (rows["output"].b1, rows["output"].b2, rows["output"].eps) == (0.9, 0.999, 1e-6)
    assert (rows["hidden"].b1, rows["hidden"].eps) == (None, 1e-6)  # Muon's own β has another name
    head, *lines = str(optim.describe(tx, params)).splitlines()[1:]
    assert head.split()[-3:] == ["β₁", "β₂", "ε"] and any(line.split()[-3:] == ["–", "–", "1e-06"] for line in lines)
    described = str(optim.describe(optim.parametrized(optax.lion, LVP, learning_rate=RATE), params))
    assert "β₂" in described and "ε" not in described


# Fused matrices --------------------------------------------------------------------------------------

KERNELS = {
    "queries, keys and values": ((64, 192), {"fan_in": (0,), "fused": 3}, [64, 128]),
    "[out, in]": ((192, 64), {"fan_in": (1,), "fused": 3}, [64, 128]),
    "grouped queries": ((64, 96), {"fan_in": (0,), "fused": (64, 16, 16)}, [64, 80]),
    "stacked layers": ((2, 64, 192), {"fan_in": (1,), "stacked": (0,), "fused": 3}, [64, 128]),
}


@pytest.mark.parametrize("kernel", all_slow_but(("grouped queries",), KERNELS))
def test_muon_orthogonalises_fused_matrices_one_by_one(kernel):
    shape, declared, ends = KERNELS[kernel]
    adamlike = functools.partial(optax.contrib.muon, consistent_rms=0.2)
    axis = next(axis for axis in range(len(shape)) if axis not in (*declared["fan_in"], *declared.get("stacked", ())))
    params = {"joined": jnp.zeros(shape), "head": {"kernel": jnp.zeros((WIDTH, VOCAB))}}
    gradients = [jax.tree.map(lambda x: jax.random.normal(jax.random.key(i), x.shape), params) for i in range(3)]  # noqa: B023

    def trained(**options):
        made = [Declaration("joined.*", "hidden", **(declared | options))]
        tx = optim.parametrized(MUON | {"hidden": adamlike}, LVP, RATE, declarations=made)
        state = jax.jit(tx.init)(params)
        for gradient in gradients:
            updates, state = jax.jit(tx.update)(gradient, state, params)
        return updates["joined"]

    numbers = optax.contrib.MuonDimensionNumbers(declared["fan_in"], (axis,))
    alone, parts = adamlike(RATE, muon_weight_dimension_numbers=lambda tree: jax.tree.map(lambda _: numbers, tree)), []
    for i in range(len(ends) + 1):
        first, *others = [jnp.split(gradient["joined"], ends, axis)[i] for gradient in gradients]
        update, state = alone.update(first, alone.init(jnp.zeros_like(first)), jnp.zeros_like(first))
        for gradient in others:
            update, state = alone.update(gradient, state, jnp.zeros_like(first))
        parts.append(update)
    expected = jnp.concatenate(parts, axis)
    np.testing.assert_allclose(trained(), expected, rtol=1e-4, atol=1e-6)
    assert not np.allclose(trained(fused=1), expected, rtol=0.1)  # negative control


def test_undeclared_grouped_queries_need_their_lengths():
    """The default declaration knows three equal parts: keys and values of (64, 96) may have fewer heads."""
    for length, known in ((192, True), (96, False), (128, False)):
        params = {"block_0": {"attention": {"qkv": {"kernel": jnp.ones((64, length))}}}}
        optim.parametrized(optax.adamw, LVP, RATE).init(params)
        muon = optim.parametrized(MUON, LVP, RATE, rates={"hidden": RATE})
        if known:
            muon.init(params)
            continue
        with pytest.raises(InputError, match="attention/qkv/kernel.*of unknown lengths.*fused=3"):
            muon.init(params)


def test_heads_of_the_decoder_need_not_fill_the_width():
    config = DecoderConfig(vocab=VOCAB, width=WIDTH, layers=1, context=8, heads=2, head_dim=8)
    params = jax.eval_shape(decoder(config).init, jax.random.key(0))
    assert params["block_0"]["attention"]["qkv"]["kernel"].shape == (WIDTH, 48)
    tx = OptimizerConfig("muon", {"consistent_rms": 0.2}).transformation(LVP, RATE, {})
    jax.eval_shape(tx.init, params)


@pytest.mark.parametrize("fused", [5, (64, 64), (64, 64, 65)])
def test_parts_that_are_not_the_output_axis_are_refused(fused):
    made = [Declaration("joined", "hidden", fan_in=(0,), fused=fused)]
    tx = optim.parametrized(optax.adamw, LVP, RATE, declarations=made)
    with pytest.raises(InputError, match=r"'joined' of shape \(64, 192\): fused"):
        tx.init({"joined": jnp.zeros((64, 192))})


@pytest.mark.parametrize("fused", [0, -3, (), 1.5, (64, 0)])
def test_a_number_of_parts_is_positive(fused):
    with pytest.raises(InputError, match="fused must be a positive integer"):
        Declaration("joined", "hidden", fused=fused)
