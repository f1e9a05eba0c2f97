"""`optim.transfer`: every parameter's settings, abc-equivalent rules in training, residual branches, refusals."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.coordinates import growth
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig, forward_multipliers
from lvp.models.decoder import decoder
from lvp.parametrization import Row
from lvp.parametrization.scaling import Shape, scale
from lvp.roles import ROLES

VOCAB, CONTEXT = 40, 8
BASE = Shape(width=16, vocab=VOCAB, depth=1, batch=64, tokens=6400)
TARGET = Shape(width=32, vocab=VOCAB, depth=4, batch=128, tokens=25600)
TOKENS = jax.random.randint(jax.random.key(1), (4, CONTEXT + 1), 0, VOCAB)


def model_of(table, layers=1):
    form = {"context": CONTEXT, "head_dim": 8, "positions": "rotary"}
    return decoder(DecoderConfig(table.vocab, table.width, layers=layers, **form, **forward_multipliers(table)))


def transferred(factory=optax.adamw, *, base, target, learning_rate, rule="lvp", axes=None, rows=(), **more):
    return optim.transfer(factory, scale(base, target, rule, axes=axes, rows=rows), learning_rate, **more)


def test_every_parameter_gets_its_settings():
    """One step against `optax.multi_transform` with the settings by hand."""
    axes = {"decay": "constant_timescale", "horizon": "completed", "batch": "sqrt"}
    tx = transferred(
        base=BASE,
        target=TARGET,
        rule="lvp",
        axes=axes,
        learning_rate=0.1,
        weight_decay=0.2,
        b1=0.8,
        b2=0.9,
    )
    # m_N 2, m_L 4, m_B 2, m_D 4: noise √(2/4), 1 − β times 1/2, steps times 2, ε of blocks 1/4 and of all √2.
    noise = math.sqrt(0.5)
    hand = {
        "embedding": (0.1 * 4 * noise / math.sqrt(2), 0.2 * math.sqrt(2) / noise / 2, math.sqrt(2)),
        "hidden": (0.1 * noise / 2, 0.2 * 2 / noise / 2, math.sqrt(2) / 4),
        "output": (0.1 * noise / 2, 0.2 * 2 / noise / 2, math.sqrt(2)),
        "vector": (0.1 * noise / 2, 0.0, math.sqrt(2) / 4),
    }
    by_hand = {
        role: optax.adamw(rate, b1=0.9, b2=0.95, eps=1e-8 * epsilon, weight_decay=decay)
        for role, (rate, decay, epsilon) in hand.items()
    }
    params = {
        "embedding": {"embedding": jnp.ones((VOCAB, 32))},
        "block_0": {"mlp": {"up": {"kernel": jnp.ones((32, 64))}}},
        "norm_final": {"scale": jnp.ones(32)},
        "head": {"kernel": jnp.ones((32, VOCAB))},
    }
    labels = {"embedding": "embedding", "block_0": "hidden", "norm_final": "vector", "head": "output"}
    reference = optax.multi_transform(by_hand, labels)
    # Gradients of the size of ε, so that ε is seen.
    gradients = jax.tree.map(lambda x: 2e-8 * jax.random.normal(jax.random.key(2), x.shape), params)

    def steps(transform):
        state, updates = transform.init(params), params
        for factor in (1.0, -0.5):
            updates, state = transform.update(jax.tree.map(lambda g: factor * g, gradients), state, params)  # noqa: B023
        return jax.tree.leaves(updates)

    for ours, wanted in zip(steps(tx), steps(reference), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=2e-5)
    plain = optim.parametrized(optax.adamw, tx.table, learning_rate=0.1, weight_decay=0.2)  # control
    assert not np.allclose(steps(plain)[0], steps(reference)[0], rtol=1e-2)
    described = {row.role: row for row in optim.describe(tx, params).rows}
    for role, (rate, decay, epsilon) in hand.items():
        row = described[role]
        assert (row.learning_rate, row.weight_decay) == pytest.approx((rate, decay))
        assert (row.b1, row.b2, row.eps) == pytest.approx((0.9, 0.95, 1e-8 * epsilon))


def embedding_of_umup(width, vocab):
    """u-μP without forward multipliers."""
    roles = {"embedding": (1.0, width**-0.5), "position": (1.0, width**-0.5), "vector": (0.0, 1.0)}
    return roles | {"hidden": (width**-0.5, 1 / width), "output": (1 / width, 1 / width)}


@functools.cache
def losses(rule, steps=6):
    """Losses [steps] of an embedding, a hidden matrix and a head at width 16 that are tuned at width 1."""
    base, target = Shape(1, VOCAB, 1, 64, 6400), Shape(16, VOCAB, 4, 64, 12800)
    axes = {"epsilon": "completed", "decay": "constant_timescale", "horizon": "completed"}
    tuned = {"learning_rate": 0.1, "weight_decay": 0.5, "eps": 1e-2}  # ε and λ are large enough to be seen
    tx = transferred(base=base, target=target, rule=rule, axes=axes, **tuned)
    rows = {name: tx.table[name] for name in ("embedding", "hidden", "output")}
    shapes = {"embedding": (VOCAB, 16), "hidden": (16, 16), "output": (16, VOCAB)}
    keys = dict(zip(shapes, jax.random.split(jax.random.key(0), 3), strict=True))
    drawn = {name: rows[name].init_std * jax.random.normal(keys[name], shape) for name, shape in shapes.items()}
    params = {"embedding": {"embedding": drawn["embedding"]}, "head": {"kernel": drawn["output"]}}
    params |= {"block_0": {"mlp": {"up": {"kernel": drawn["hidden"]}}}}

    def loss_of(params):
        x = rows["embedding"].forward_multiplier * params["embedding"]["embedding"][TOKENS[:, :-1]]
        x = x + jnp.tanh(rows["hidden"].forward_multiplier * x @ params["block_0"]["mlp"]["up"]["kernel"])
        logits = rows["output"].forward_multiplier * x @ params["head"]["kernel"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, TOKENS[:, 1:]).mean()

    def step(carry, _):
        params, state = carry
        loss, gradient = jax.value_and_grad(loss_of)(params)
        updates, state = tx.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), loss

    return np.asarray(jax.lax.scan(step, (params, tx.init(params)), length=steps)[1])


@pytest.mark.parametrize(("rule", "twin"), [("completep", "mup"), ("umup", embedding_of_umup)])
def test_rules_with_forward_multipliers_train_alike(rule, twin):
    """At width 1 the rules are equal, so both are tuned alike there."""
    np.testing.assert_allclose(losses(rule), losses(twin), rtol=2e-5)
    # Control: another embedding rate is another network.
    other = "umup" if rule == "completep" else "mup"
    assert np.abs(losses(rule) - losses(other)).max() > 1e-3


def test_the_decoder_multiplies_its_residual_branches():
    """A branch times 1/2 equals the branch whose last matrices are halved."""
    form = {"layers": 1, "context": CONTEXT, "head_dim": 8, "positions": "rotary"}
    half = decoder(DecoderConfig(VOCAB, 16, branch_multiplier=0.5, **form))
    plain = decoder(DecoderConfig(VOCAB, 16, **form))
    params = jax.jit(plain.init)(jax.random.key(0))
    halved = jax.tree_util.tree_map_with_path(
        lambda path, x: x * 0.5 if {"out", "down"} & {getattr(k, "key", None) for k in path} else x, params
    )
    of_half, of_plain = jax.jit(half.apply), jax.jit(plain.apply)
    np.testing.assert_allclose(of_half(params, TOKENS), of_plain(halved, TOKENS), rtol=2e-5, atol=1e-6)
    assert not np.allclose(of_half(params, TOKENS), of_plain(params, TOKENS), rtol=1e-2)
    with pytest.raises(InputError, match="branch_multiplier must be a finite number above zero, got 0.0"):
        DecoderConfig(VOCAB, 16, branch_multiplier=0.0, **form)


def depth_check(name):
    """Coordinate check over the depth instead of the width, for a decoder of width 32."""
    width, base = 32, Shape(32, VOCAB, 2)
    scaled = functools.cache(
        lambda depth: transferred(
            base=base, target=Shape(width, VOCAB, depth), rule="mup", axes={"depth": name}, learning_rate=0.01
        )
    )

    def activations(params, tokens, depth):
        model = model_of(scaled(depth).table, depth)
        hidden, inputs = model.apply(params, tokens[:, :-1], capture=True)
        logits = hidden.reshape(-1, width) @ model.head(params)
        return {"hidden": hidden, "logits": logits}

    def loss(activations, tokens):
        logits = jax.nn.log_softmax(activations["logits"])
        return -jnp.mean(jnp.take_along_axis(logits, tokens[:, 1:].reshape(-1, 1), axis=1))

    return growth.check(
        lambda key, depth: model_of(scaled(depth).table, depth).init(
            key, {row.role: row.init_std for row in scaled(depth).table.rows}
        ),
        activations,
        (2, 4, 8, 16),
        loss=loss,
        optimizer=scaled,
        batch=TOKENS,
        steps=4,
        seeds=4,
    )


@pytest.mark.slow
def test_the_coordinate_check_over_depth():
    checked = {name: depth_check(name) for name in ("completep", "none")}
    slopes = {name: abs(c["hidden", "change"].fit.slope) for name, c in checked.items()}
    assert slopes["completep"] < 0.15 and slopes["completep"] < slopes["none"]


def test_schedules_and_independent_decay():
    schedule = optim.trapezoid(0.1, 10, warmup=0.2, cooldown=0.2)
    common = {"base": Shape(16, VOCAB), "target": Shape(64, VOCAB), "rule": "lvp", "weight_decay": 0.1}
    tx = transferred(learning_rate=schedule, axes={"decay": "independent_inverse_width"}, **common)
    params = {"head": {"kernel": jax.ShapeDtypeStruct((64, VOCAB), jnp.float32)}}
    (row,) = optim.describe(tx, params).rows
    assert row.learning_rate == pytest.approx(0.1 / 4)
    assert row.decay_per_step == pytest.approx(0.1 / 4)  # λ per step at the peak, ∝ 1/width
    coupled = transferred(learning_rate=schedule, **common)
    assert optim.describe(coupled, params).rows[0].weight_decay == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"factory": optax.lion, "axes": {"batch": "sqrt"}},
            "axis rules batch='sqrt' multiply eps by .*, and factory lion of role 'embedding' has no eps: "
            "use axes={'batch': 'sqrt_rate'}",
        ),
        (
            {"axes": {"decay": "constant_timescale"}, "weight_decay": 0.1, "rates": {"hidden": 0.1}},
            "decay rule 'constant_timescale' uses the rule's rate of role 'hidden', which rows or rates replaces",
        ),
        (
            {"factory": functools.partial(optax.sgd, momentum=0.9), "rule": "sp", "axes": {"batch": "sqrt"}},
            "axis rules batch='sqrt' multiply 1 − b1 by 2, and factory sgd of role .* has no b1: use axes={'batch'",
        ),
        ({"factory": optax.adamw(1e-3)}, "factory must be a function such as optax.adam, not its result"),
        ({"factory": functools.partial(optax.adamw, b22=0.9)}, "factory adamw has no parameter 'b22'"),
        ({"base": None}, r"base must be a lvp.parametrization.Shape\(width=…, vocab=…\), got None"),
        ({"target": (64, 1024)}, r"target must be a lvp.parametrization.Shape\(width=…, vocab=…\), got \(64, 1024\)"),
        (
            {"axes": {"decay": "constant_timescale"}, "weight_decay": 0.1, "rows": [Row("output", 1.0, 1.0, True)]},
            "decay rule 'constant_timescale' uses the rule's rate of role 'output', which rows or rates replaces",
        ),
        ({"declarations": {"head": "output"}}, "declarations must be a list of lvp.roles.Decl.*, got "),
        ({"weight_decay": {"hiden": 0.1}}, "weight_decay: unknown role 'hiden'"),
        ({"axes": {"decay": "sqrt_width"}}, "decay rule 'sqrt_width' needs weight_decay: give the value tuned at"),
        (
            {"axes": {"decay": "constant_timescale"}, "decay": "independent", "weight_decay": 0.1},
            "decay rule 'constant_timescale' needs decay='coupled', got 'independent'",
        ),
        (
            {"axes": {"decay": "independent_inverse_width"}, "decay": "coupled", "weight_decay": 0.1},
            "decay rule 'independent_inverse_width' needs decay='independent', got 'coupled'",
        ),
        ({"rule": "nanochat"}, "rule 'nanochat' has Muon's rate"),
        ({"target": Shape(32, VOCAB, 4, 6400, 6400), "axes": {"batch": "sqrt"}}, "b1 0.9 becomes -9"),
        ({"eps": -1.0}, "eps must be finite and not negative"),
        ({"learning_rate": -0.1}, "learning_rate"),
        ({"axes": {"depht": "completep"}}, "did you mean depth?"),
    ],
)
def test_bad_input_is_refused(settings, message):
    given = {"factory": optax.adamw, "base": BASE, "target": TARGET, "rule": "lvp", "learning_rate": 0.1} | settings
    with pytest.raises(InputError, match=message.replace("?", r"\?").replace("{", r"\{").replace("}", r"\}")) as error:
        transferred(**given)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="scaling must be the result of lvp.parametrization.scaling.scale, got 'lvp'"):
        optim.transfer(optax.adamw, "lvp", 0.1)


def test_roles_of_your_own_keep_their_row_and_decay():
    """The axes change no setting of a role that the rule does not have, with one factory or a factory per role."""
    rows = [Row("router", init_std=0.02, lr_multiplier=4.0, decay=True)]
    axes = {"batch": "sqrt_rate", "depth": "none", "decay": "constant_timescale"}
    given = {"base": BASE, "target": TARGET, "rows": rows, "axes": axes, "learning_rate": 0.1, "weight_decay": 0.3}
    for factory in (optax.adamw, dict.fromkeys((*ROLES, "router"), optax.adamw)):
        tx = transferred(factory, **given)
        assert tx.settings["router"] == {"learning_rate": pytest.approx(0.4), "weight_decay": 0.3}
        assert tx.settings["hidden"]["weight_decay"] == pytest.approx(0.3 * tx.scaling["hidden"].decay) != 0.3


def test_a_role_of_your_own_may_have_a_rate():
    rows = [Row("router", init_std=0.02, lr_multiplier=4.0, decay=True)]
    given = {"base": BASE, "target": TARGET, "rows": rows, "axes": {"decay": "constant_timescale"}}
    tx = transferred(**given, learning_rate=0.1, weight_decay=0.3, rates={"router": 0.5})
    assert tx.settings["router"] == {"learning_rate": 0.5, "weight_decay": 0.3}


def test_roles_of_your_own_keep_their_momentum():
    """Batch rule "sqrt" changes β and ε of the rule's roles only."""
    rows = [Row("router", init_std=0.02, lr_multiplier=4.0, decay=True)]
    tx = transferred(base=BASE, target=TARGET, rows=rows, axes={"batch": "sqrt"}, learning_rate=0.1)
    assert tx.options["router"] == {"b1": 0.9, "b2": 0.999, "eps": 1e-8}
    assert tx.options["embedding"]["b1"] == pytest.approx(0.8)


def test_a_decay_by_role_is_transferred_by_role():
    given = {"base": BASE, "target": TARGET, "learning_rate": 0.1}
    axes = {"batch": "sqrt_rate", "depth": "none", "decay": "constant_timescale"}
    one = transferred(weight_decay=0.3, axes=axes, **given)
    own = transferred(weight_decay={"hidden": 0.3, "output": 0.0}, axes=axes, **given)
    decays = {role: settings["weight_decay"] for role, settings in own.settings.items()}
    assert decays == {**dict.fromkeys(ROLES, 0.0), "hidden": one.settings["hidden"]["weight_decay"]}


def test_rates_by_role_hold_at_the_target():
    factories = dict.fromkeys(ROLES, optax.adamw) | {"hidden": optax.contrib.muon}
    axes = {"batch": "sqrt_rate"}
    tx = transferred(
        factories, base=BASE, target=TARGET, learning_rate=0.1, rates={"hidden": 0.02}, axes=axes | {"depth": "none"}
    )
    assert tx.settings["hidden"]["learning_rate"] == 0.02
    assert tx.settings["output"]["learning_rate"] == pytest.approx(0.1 * tx.scaling["output"].lr_multiplier)


def test_factories_without_beta_take_the_other_rules():
    axes = {"batch": "sqrt_rate", "depth": "none"}
    tx = transferred(optax.lion, base=BASE, target=TARGET, rule="lvp", learning_rate=0.1, axes=axes)
    assert tx.settings["hidden"]["learning_rate"] == pytest.approx(0.1 * math.sqrt(2) / 2)


def test_muon_for_hidden_matrices_with_the_rates_of_nanochat():
    factories = dict.fromkeys(("embedding", "position", "output", "vector"), optax.adamw)
    factories["hidden"] = optax.contrib.muon
    shapes = {"base": Shape(768, 4096, batch=2**19), "target": Shape(3072, 4096, batch=2**21)}
    tx = transferred(factories, rule="nanochat", axes={"batch": "sqrt_rate"}, learning_rate=0.02, **shapes)
    rates = {role: own["learning_rate"] for role, own in tx.settings.items()}
    # Twice the rate for four times the batch; half for four times the width, except Muon's.
    assert rates == pytest.approx({"embedding": 0.3, "position": 0.3, "output": 0.008, "hidden": 0.04, "vector": 0.01})
    params = {"block_0": {"mlp": {"up": {"kernel": jax.ShapeDtypeStruct((3072, 12288), jnp.float32)}}}}
    jax.eval_shape(tx.init, params)
