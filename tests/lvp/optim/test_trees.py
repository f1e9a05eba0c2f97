"""Parameter trees of plain dicts, Flax Linen, Flax NNX and Equinox; and the errors of the optimizers."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from lvp import optim
from lvp.errors import InputError
from lvp.parametrization import table
from lvp.roles import Declaration
from tests.marking import all_slow_but

VOCAB, WIDTH, HEADS = 12, 8, 2
TOKENS = jnp.asarray([[1, 5, 2, 7], [0, 3, 11, 3]])
TARGETS = jnp.roll(TOKENS, -1, axis=1)


class Case(NamedTuple):
    """A model with its declarations. `axes`: path → axes of a neuron. `coupled`: path → shape of the shared second
    moment."""

    params: Any
    logits: Callable
    declarations: tuple[Declaration, ...]
    axes: dict[str, tuple[int, ...]]
    coupled: dict[str, tuple[int, ...]]


def cross_entropy(case: Case) -> Callable:
    def loss(params):
        return optax.softmax_cross_entropy_with_integer_labels(case.logits(params), TARGETS).mean()

    return loss


def train(tx, case: Case, steps: int = 2):
    @jax.jit
    def step(params, state):
        updates, state = tx.update(jax.grad(cross_entropy(case))(params), state, params)
        return optax.apply_updates(params, updates), state

    params, state = case.params, tx.init(case.params)
    for _ in range(steps):
        params, state = step(params, state)
    return params, state


def by_path(tree) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(keys, simple=True, separator="/"): np.asarray(leaf) for keys, leaf in leaves}


def lengths(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.sqrt(np.sum(np.square(x, dtype=np.float64), axis=axes))


def changes(before, after, axes) -> float:
    """Returns the largest relative change of a norm over `axes`."""
    return float(np.max(np.abs(lengths(after, axes) / lengths(before, axes) - 1)))


def dictionary() -> Case:
    matrix = functools.partial(jax.random.normal, jax.random.key(0))
    params = {
        "embedding": {"embedding": matrix((VOCAB, WIDTH))},
        "block_0": {"mlp": {"up": {"kernel": matrix((WIDTH, WIDTH)) / 3, "bias": jnp.ones(WIDTH)}}, "unused": None},
        "head": {"kernel": matrix((WIDTH, VOCAB)) / 3},
    }

    def logits(params):
        up = params["block_0"]["mlp"]["up"]
        assert params["block_0"]["unused"] is None
        x = jnp.tanh(params["embedding"]["embedding"][TOKENS] @ up["kernel"] + up["bias"][None, None])
        return x @ params["head"]["kernel"]

    axes = {"embedding/embedding": (1,), "block_0/mlp/up/kernel": (0,), "head/kernel": (0,)}
    return Case(params, logits, (), axes, {"embedding/embedding": (WIDTH,), "head/kernel": (WIDTH,)})


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(WIDTH, name="down")(nn.relu(nn.Dense(2 * WIDTH, name="up")(x)))


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _=None):
        x = x + nn.MultiHeadDotProductAttention(HEADS, name="attention")(nn.LayerNorm(name="norm")(x))
        return x + Mlp(name="mlp")(x), None


class Decoder(nn.Module):
    scanned: bool

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(VOCAB, WIDTH, name="embedding")(tokens)
        if self.scanned:
            blocks = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=2)
            x, _ = blocks(name="blocks")(x, None)
        else:
            x, _ = Block(name="block_0")(x)
        return nn.Dense(VOCAB, name="head")(x)


def linen(scanned: bool) -> Case:
    """A decoder with the default names; attention kernels are [d, heads, hd] and [heads, hd, d]."""
    model = Decoder(scanned)
    params = jax.jit(model.init)(jax.random.key(0), TOKENS)
    block, first = ("params/blocks", 1) if scanned else ("params/block_0", 0)
    axes = {"params/embedding/embedding": (1,), "params/head/kernel": (0,)}
    axes |= {f"{block}/mlp/{name}/kernel": (first,) for name in ("up", "down")}
    axes |= {f"{block}/attention/{name}/kernel": (first,) for name in ("query", "key", "value")}
    axes[f"{block}/attention/out/kernel"] = (first, first + 1)
    coupled = {"params/embedding/embedding": (WIDTH,), "params/head/kernel": (WIDTH,)}
    return Case(params, lambda p: model.apply(p, TOKENS), (), axes, coupled)


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)

    def __call__(self, x):
        return x + nnx.relu(self.up(self.norm(x)))


class NnxModel(nnx.Module):
    def __init__(self, rngs):
        self.embedding = nnx.Embed(VOCAB, WIDTH, rngs=rngs)
        self.blocks = nnx.List([NnxBlock(rngs), NnxBlock(rngs)])
        self.head = nnx.Linear(WIDTH, VOCAB, use_bias=False, rngs=rngs)

    def __call__(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def nnx_dictionary() -> Case:
    graph, state = nnx.split(NnxModel(nnx.Rngs(0)), nnx.Param)
    axes = {"embedding/embedding": (1,), "head/kernel": (0,), "blocks/0/up/kernel": (0,), "blocks/1/up/kernel": (0,)}
    declarations = (Declaration(r"blocks/\d+/up/kernel", "hidden"),)
    coupled = {"embedding/embedding": (WIDTH,), "head/kernel": (WIDTH,)}
    return Case(nnx.to_pure_dict(state), lambda p: nnx.merge(graph, p)(TOKENS), declarations, axes, coupled)


def test_nnx_optimizer_needs_one_declaration_per_parameter():
    """`nnx.Optimizer` gives variables to `init` and arrays to `update`. Sign descent moves a parameter by its rate."""
    model = NnxModel(nnx.Rngs(0))
    declarations = nnx_dictionary().declarations
    tx = optim.parametrized(optim.sign_sgd, LVP, learning_rate=0.01, declarations=declarations)
    before = by_path(nnx.to_pure_dict(nnx.state(model, nnx.Param)))
    rates = {row.path: row.learning_rate for row in optim.describe(tx, nnx.state(model, nnx.Param)).rows}
    assert rates.keys() == before.keys() and len(set(rates.values())) == 2
    nnx.Optimizer(model, tx, wrt=nnx.Param).update(model, nnx.state(model, nnx.Param))
    for path, after in by_path(nnx.to_pure_dict(nnx.state(model, nnx.Param))).items():
        np.testing.assert_allclose(np.abs(after - before[path]), rates[path], rtol=1e-3)


class EquinoxModel(eqx.Module):
    """Callable, as Equinox modules are. optax takes such a pytree for a function wherever it accepts one."""

    embedding: eqx.nn.Embedding
    layers: list
    head: eqx.nn.Linear
    steps: jax.Array

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.embedding = eqx.nn.Embedding(VOCAB, WIDTH, key=keys[0])
        self.layers = [eqx.nn.LayerNorm(WIDTH), eqx.nn.Linear(WIDTH, WIDTH, key=keys[1]), jax.nn.relu]
        self.head = eqx.nn.Linear(WIDTH, VOCAB, use_bias=False, key=keys[2])
        self.steps = jnp.zeros([], jnp.int32)

    def __call__(self, token):
        x = self.embedding(token)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def equinox() -> Case:
    """Weights are [out, in], so a neuron of the hidden matrix and of the head is a row."""
    params, static = eqx.partition(EquinoxModel(jax.random.key(0)), eqx.is_inexact_array)
    assert params.layers[2] is None and params.steps is None and params.head.bias is None
    declarations = (
        Declaration("embedding/weight", "embedding"),
        Declaration("layers/0/weight", "vector"),
        Declaration("layers/1/weight", "hidden"),
        Declaration("head/weight", "output"),
    )
    axes = {"embedding/weight": (1,), "layers/1/weight": (1,), "head/weight": (1,)}
    coupled = {"embedding/weight": (WIDTH,), "head/weight": (WIDTH,)}

    def logits(params):
        return jax.vmap(jax.vmap(eqx.combine(params, static)))(TOKENS)

    return Case(params, logits, declarations, axes, coupled)


MODELS = {
    "dict": dictionary,
    "linen": functools.partial(linen, False),
    "linen_scanned": functools.partial(linen, True),
    "nnx": nnx_dictionary,
    "equinox": equinox,
}
models = pytest.mark.parametrize("make", all_slow_but(("dict",), MODELS.values(), MODELS))
LVP = table("lvp", width=WIDTH, vocab=VOCAB)


@models
def test_neurons_rotate_at_constant_norm(make):
    case = make()
    tx = optim.parametrized(
        optim.lion_ar, LVP, learning_rate=0.1, weight_decay=0.1, declarations=case.declarations, nesterov=True
    )
    params, _ = train(tx, case)
    assert jax.tree.structure(params) == jax.tree.structure(case.params)  # None stays None
    before, after = by_path(case.params), by_path(params)
    for path, axes in case.axes.items():
        assert changes(before[path], after[path], axes) < 5e-7, path  # about 4 times float32's epsilon
        others = tuple(axis for axis in range(before[path].ndim) if axis not in axes)
        # control: the norms over the other axes change
        assert changes(before[path], after[path], others[-1:]) > 1e-3, path
    for path in before.keys() - case.axes.keys():
        assert np.any(after[path] != before[path]), path
    assert cross_entropy(case)(params) < cross_entropy(case)(case.params)


@models
def test_a_vocabulary_shares_its_second_moment(make):
    case = make()
    tx = optim.parametrized(
        functools.partial(optim.coupled_adam, couple=("output", "embedding")),
        LVP, learning_rate=0.01, weight_decay=0.1, declarations=case.declarations,
    )  # fmt: skip
    params, state = train(tx, case)
    assert jax.tree.structure(params) == jax.tree.structure(case.params)
    before, after = by_path(case.params), by_path(params)
    moments = {}
    for own in state.inner_states.values():
        moments |= by_path(own.inner_state[0].nu)
    assert {path: leaf.shape for path, leaf in moments.items()} == {
        path: case.coupled.get(path, leaf.shape) for path, leaf in before.items()
    }
    assert all(np.any(after[path] != before[path]) for path in before)
    assert cross_entropy(case)(params) < cross_entropy(case)(case.params)


@pytest.mark.parametrize(
    "factory", [functools.partial(optim.lion_ar, learning_rate=0.1), functools.partial(optim.rotational_adamw, 0.1)]
)
def test_filters_of_a_convolution_keep_their_norms(factory):
    """A kernel is [height, width, in, out]: a filter is all weights of one output channel."""
    params = {"conv": {"kernel": jax.random.normal(jax.random.key(0), (3, 2, 4, 5)), "bias": jnp.ones(5)}}
    gradients = jax.tree.map(lambda leaf: jnp.cos(7 * leaf) + 0.1, params)
    tx = factory(weight_decay=0.1, neurons={"conv/kernel": (0, 1, 2)})
    updates, state = tx.update(gradients, tx.init(params), params)
    after, before = optax.apply_updates(params, updates)["conv"], params["conv"]
    assert changes(before["kernel"], after["kernel"], (0, 1, 2)) < 3e-7
    assert changes(before["kernel"], after["kernel"], (0, 1)) > 1e-3  # control: a plane of a filter is not a neuron
    assert not np.allclose(after["bias"], before["bias"])
    assert state[-1].norms["conv"]["kernel"].shape == (1, 1, 1, 5)


@pytest.mark.parametrize("kind", ["linear", "scanned"])
def test_muon_orthogonalises_the_declared_matrices(kind):
    """The update of every layer equals Muon's update of this layer's matrix alone. Heads are columns of one matrix.
    Stacked layers are separate matrices."""
    shape, fan_in, stacked = ((6, 2, 4), (0,), ()) if kind == "linear" else ((3, 6, 2, 4), (1,), (0,))
    declared = [Declaration("w", "hidden", fan_in=fan_in, stacked=stacked)]
    factories = dict.fromkeys(LVP, optax.adam) | {"hidden": optax.contrib.muon}
    tx = optim.parametrized(
        factories, replace(LVP, width=6), learning_rate=1.0, rates={"hidden": 1.0}, declarations=declared
    )
    params = {"w": jax.random.normal(jax.random.key(0), shape)}
    updates, _ = tx.update(params, tx.init(params), params)
    layers = np.asarray(updates["w"]).reshape(-1, 6, 8)
    alone = optax.contrib.muon(1.0)
    for layer, update in zip(np.asarray(params["w"]).reshape(-1, 6, 8), layers, strict=True):
        matrix = {"w": jnp.asarray(layer)}
        expected, _ = alone.update(matrix, alone.init(matrix), matrix)
        np.testing.assert_allclose(update, expected["w"], rtol=1e-4, atol=1e-5)
    # Control: without dimension numbers, optax trains an array of rank 3 by Adam.
    plain, _ = alone.update(params, alone.init(params), params)
    assert not np.allclose(plain["w"], updates["w"], atol=0.1)


def test_muon_scales_a_weight_by_its_own_fan_in():
    """optax multiplies by √(fan-out / fan-in). An Equinox weight [out, in] = [64, 16] has √4, not 1."""
    params = eqx.filter(eqx.nn.Linear(16, 64, use_bias=False, key=jax.random.key(0)), eqx.is_inexact_array)
    factories = dict.fromkeys(LVP, optax.adam) | {"hidden": optax.contrib.muon}
    tx = optim.parametrized(
        factories, replace(LVP, width=16), learning_rate=1.0, rates={"hidden": 1.0},
        declarations=[Declaration("weight", "hidden")],
    )  # fmt: skip
    updates, _ = tx.update(params, tx.init(params), params)
    values = np.linalg.svd(np.asarray(updates.weight), compute_uv=False)
    plain, _ = optax.contrib.muon(1.0).update(params, optax.contrib.muon(1.0).init(params), params)
    np.testing.assert_allclose(values, 2 * np.linalg.svd(np.asarray(plain.weight), compute_uv=False), rtol=1e-3)


class Critic(eqx.Module):
    value: eqx.nn.Linear


class ActorCritic(eqx.Module):
    critic: Critic
    logits: eqx.nn.Linear


def test_a_field_called_value_is_no_box_of_an_array():
    layers = Critic(eqx.nn.Linear(8, 8, key=jax.random.key(0))), eqx.nn.Linear(8, 32, key=jax.random.key(1))
    params = eqx.filter(ActorCritic(*layers), eqx.is_inexact_array)
    declared = [
        Declaration("critic/.*weight", "hidden"),
        Declaration("logits/weight", "output"),
        Declaration(".*bias", "vector"),
    ]
    for factory in (optim.coupled_adam, optim.lion_ar, optim.rotational_adamw):
        tx = factory(0.1, declarations=declared)
        updates, state = tx.update(params, tx.init(params), params)
        assert jax.tree.map(jnp.shape, updates) == jax.tree.map(jnp.shape, params)
        if factory is optim.coupled_adam:
            assert state[0].nu.logits.weight.shape == (8,) and state[0].nu.critic.value.weight.shape == (8, 8)


# Errors ----------------------------------------------------------------------------------------------

CONV = {"conv": {"kernel": jnp.ones((3, 3, 2, 4))}}
BETAS = [
    (factory, name)
    for factory, names in [
        (functools.partial(optim.adamw, 0.1), ("b1", "b2")),
        (functools.partial(optim.adamw, 0.1, bias_correction_first=False), ("b1", "b2")),
        (functools.partial(optim.lion_a, 0.1), ("b",)),
        (functools.partial(optim.lion_ar, 0.1), ("b",)),
        (functools.partial(optim.rotational_adamw, 0.1), ("b1", "b2", "norm_decay")),
        (functools.partial(optim.coupled_adam, 0.1), ("b1", "b2")),
        (optim.scale_by_adam, ("b1", "b2")),
        (optim.scale_by_lion_a, ("b",)),
        (optim.scale_by_coupled_adam, ("b1", "b2")),
        (optim.normalize_by_average_norm, ("b",)),
    ]
    for name in names
]
DECAYING = [optim.adamw, optim.lion_a, optim.lion_ar, optim.rotational_adamw, optim.coupled_adam]
TURNING = [optim.lion_ar, optim.rotational_adamw]
named = lambda factory: getattr(getattr(factory, "func", factory), "__name__", None)  # noqa: E731


@pytest.mark.parametrize("value", [1.0, 1.5, -0.1, float("nan"), np.float32(1), 1])
@pytest.mark.parametrize(("factory", "name"), BETAS, ids=[f"{named(f)}-{name}" for f, name in BETAS])
def test_betas_must_lie_between_zero_and_one(factory, name, value):
    with pytest.raises(InputError, match=rf"^{name} must"):
        factory(**{name: value})
    factory(**{name: 0.0})


@pytest.mark.parametrize("factory", DECAYING)
def test_rates_and_decays_must_not_be_negative(factory):
    with pytest.raises(InputError, match="^weight_decay must.*not negative"):
        factory(0.1, weight_decay=-0.1)
    with pytest.raises(InputError, match="^learning_rate must.*not negative"):
        factory(-0.1)


@pytest.mark.parametrize("factory", TURNING)
def test_neurons_need_an_angle(factory):
    params = {"head": {"kernel": jnp.ones((WIDTH, VOCAB)), "bias": jnp.ones(VOCAB)}}
    with pytest.raises(InputError, match="weight_decay must be above 0.*'head/kernel'"):
        factory(0.1, weight_decay=0.0).init(params)
    factory(0.1, weight_decay=0.0).init({"head": {"bias": jnp.ones(VOCAB)}})  # without neurons no angle is needed
    with pytest.raises(InputError, match="weight_decay must be above 0"):  # by default `parametrized` has no decay
        optim.parametrized(factory, LVP, learning_rate=0.1).init(params)


@pytest.mark.parametrize("factory", TURNING)
def test_undeclared_parameters_are_named_with_what_is_needed(factory):
    with pytest.raises(InputError, match="'conv/kernel'.*lvp.roles.Declaration.*neurons={PATTERN: AXES}.*without ne"):
        factory(0.1).init(CONV)
    with pytest.raises(InputError, match="'conv/kernel'"):
        optim.parametrized(factory, LVP, learning_rate=0.1, weight_decay=0.1).init(CONV)
    declared = (Declaration("conv/kernel", "output", fan_in=(0, 1, 2)),)
    state = factory(0.1, declarations=declared).init(CONV)  # for example a state from a checkpoint
    with pytest.raises(InputError, match="'conv/kernel'"):
        factory(0.1).update(CONV, state, CONV)


def test_neurons_of_equinox_are_rows():
    """A weight [out, in] has one norm per row. The same array under a name that does not tell its axes is refused."""
    weight = eqx.nn.Linear(32, 64, use_bias=False, key=jax.random.key(0))
    declared = [Declaration("weight", "hidden")]
    state = optim.lion_ar(0.1, declarations=declared).init(eqx.filter(weight, eqx.is_inexact_array))
    assert state[-1].norms.weight.shape == (64, 1)
    for tree in ({"weight": jnp.ones((64, 32))}, {"kernels": jnp.ones((64, 32))}):
        with pytest.raises(InputError, match=r"^neurons: .*\[in, out\] or \[out, in\]"):
            optim.lion_ar(0.1, declarations=[Declaration(".*", "hidden")]).init(tree)


def test_undeclared_parameters_are_not_coupled():
    """Coupled Adam is Adam for them. The head beside them is coupled."""
    params = CONV | {"head": {"kernel": jax.random.normal(jax.random.key(0), (4, 6))}}
    gradients = jax.tree.map(lambda p: jnp.sin(3 * p), params)
    ours, adam = optim.coupled_adam(0.1), optax.adam(0.1, b2=0.95)
    (updates, state), (expected, _) = (tx.update(gradients, tx.init(params), params) for tx in (ours, adam))
    np.testing.assert_allclose(updates["conv"]["kernel"], expected["conv"]["kernel"], rtol=1e-5)
    assert not np.allclose(updates["head"]["kernel"], expected["head"]["kernel"], rtol=1e-2)
    assert state[0].nu["head"]["kernel"].shape == (4,)
    with pytest.raises(
        InputError, match="^couple: no parameter has a role of .'output', 'tied'., so that nothing is coupled"
    ):
        optim.coupled_adam(0.1).init(CONV)
    optim.coupled_adam(0.1).init({})  # a placeholder without leaves
    for factory in (optim.coupled_adam, optim.lion_ar):
        with pytest.raises(InputError, match="'hed/kernel' matches no parameter"):
            factory(0.1, declarations=[Declaration("hed/kernel", "output")]).init({"head": params["head"]})


def test_rows_of_padding_do_not_change_the_shared_moment():
    """A head padded to a multiple of 64, whose padding gets no gradient, moves as without padding."""
    gradient = jax.random.normal(jax.random.key(0), (8, 20))
    sizes = {}
    for rows, tokens in ((20, None), (64, 20), (64, None)):
        head = {"head": {"kernel": jnp.pad(gradient, ((0, 0), (0, rows - 20)))}}
        tx = optim.coupled_adam(0.1, declarations=[Declaration("head/kernel", "output", tokens=tokens)])
        updates, _ = tx.update(head, tx.init(head), head)
        sizes[rows, tokens] = updates["head"]["kernel"][:, :20]
    np.testing.assert_allclose(sizes[64, 20], sizes[20, None], rtol=1e-5)
    np.testing.assert_allclose(sizes[64, None], sizes[20, None] * 3.2**0.5, rtol=1e-5)  # control: undeclared padding


@pytest.mark.parametrize("factory", TURNING)
def test_the_state_of_shapes_is_made_abstractly(factory):
    shapes = {"head": {"kernel": jax.ShapeDtypeStruct((8, 20), jnp.float32)}}
    assert jax.eval_shape(factory(0.1).init, shapes)
    with pytest.raises(InputError, match="'head/kernel' has a shape and no values.*jax.eval_shape") as error:
        factory(0.1).init(shapes)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("factory", TURNING)
def test_axes_of_neurons_must_exist(factory):
    for axes in ((4,), (0, 7)):
        with pytest.raises(InputError, match="^neurons.*'conv/kernel'"):
            factory(0.1, neurons={"conv/kernel": axes}).init(CONV)
    with pytest.raises(InputError, match="^neurons.*'conv/kernel'"):  # no axes are given
        factory(0.1, neurons={"conv/bias": ()}).init(CONV)
    with pytest.raises(InputError, match=r"^neurons\['conv/kernel'\] must be a tuple"):
        factory(0.1, neurons={"conv/kernel": 0}).init(CONV)
    with pytest.raises(InputError, match="axes counted from 0"):
        factory(0.1, neurons={"conv/kernel": (-1,)}).init(CONV)
    with pytest.raises(InputError, match="^neurons: declaration 'cnv/kernel' matches no parameter: correct"):
        factory(0.1, neurons={"conv/kernel": (0, 1, 2), "cnv/kernel": (0,)}).init(CONV)


def test_only_vocabularies_are_coupled():
    for role in ("hidden", "vector", "heads"):
        with pytest.raises(InputError, match=f"^couple: '{role}' has no vocabulary"):
            optim.coupled_adam(0.1, couple=("output", role))
    heads = (Declaration("conv/kernel", "output", fan_in=(0, 1)),)  # either axis could be the vocabulary
    with pytest.raises(InputError, match="^couple: parameter 'conv/kernel'.*vocab_axis"):
        optim.coupled_adam(0.1, declarations=heads).init(CONV)
