"""Declarations from the shapes at two widths, of models in Flax Linen, NNX and Equinox, and of public models."""

import re
from typing import NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

from lvp import declarations, optim
from lvp.errors import InputError
from lvp.roles import VOCABULARY, Declaration, check_used, classify, infer
from tests.lvp import test_declarations as public
from tests.lvp.test_roles import tree

VOCAB, LAYERS, EXPERTS, CONTEXT = 96, 3, 5, 7


def inferred(at, *, vocab=VOCAB, declared=(), widths=(16, 32)):
    """Returns path → (role, axes of fan-in, stacked axes) at the first width."""
    result = infer(*(at(width) for width in widths), vocab=vocab, declarations=declared)
    check_used(at(widths[0]), result)
    leaves = jax.tree.leaves(classify(at(widths[0]), declarations=result))
    assert all(leaf.vocab == vocab for leaf in leaves if leaf.role in VOCABULARY)
    return {leaf.path: (leaf.role, leaf.fan_in, leaf.stacked) for leaf in leaves}


def flat(decoder):
    """Returns width → tree, from width → {path: shape}."""
    return lambda width: tree(decoder(width))


class Block(nn.Module):
    width: int
    heads: int = 4
    bias: bool = True
    kv_heads: int = 0

    @nn.compact
    def __call__(self, x, _):
        size = self.width // self.heads
        y = nn.RMSNorm(name="norm")(x)
        attention = nn.MultiHeadDotProductAttention(self.heads, use_bias=self.bias, name="attention")
        x = x + attention(y) if not self.kv_heads else x
        if self.kv_heads:
            for name in ("k_proj", "v_proj"):
                nn.DenseGeneral((self.kv_heads, size), use_bias=self.bias, name=name)(y)
            q = nn.DenseGeneral((self.heads, size), use_bias=self.bias, name="q_proj")(y)
            x = x + nn.DenseGeneral(self.width, axis=(-2, -1), use_bias=self.bias, name="o_proj")(q)
        y = nn.relu(nn.Dense(4 * self.width, use_bias=self.bias, name="up")(x))
        return x + nn.Dense(self.width, use_bias=self.bias, name="down")(y), None


class Linen(nn.Module):
    """A decoder whose layers `nn.scan` stacks along one axis."""

    width: int
    tied: bool = False
    axis: int = 0
    block: dict = None

    @nn.compact
    def __call__(self, tokens):
        table = nn.Embed(VOCAB, self.width, name="tokens")
        x = table(tokens) + nn.Embed(CONTEXT, self.width, name="pos")(jnp.arange(tokens.shape[1])[None])
        scanned = nn.scan(Block, {"params": self.axis}, split_rngs={"params": True}, length=LAYERS)
        x, _ = scanned(self.width, **self.block or {}, name="layers")(x, None)
        return table.attend(x) if self.tied else nn.Dense(VOCAB, use_bias=False, name="logits")(x)


def linen(**options):
    tokens = jnp.zeros((2, CONTEXT), jnp.int32)
    return lambda width: jax.eval_shape(Linen(width, **options).init, jax.random.key(0), tokens)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("grows", ["heads", "size"])
def test_a_scanned_linen_model(bias, grows):
    def at(width):
        return linen(block={"bias": bias, "heads": width // 4 if grows == "heads" else 4})(width)

    found = inferred(at)
    assert found["params/tokens/embedding"] == ("embedding", (1,), ())
    assert found["params/pos/embedding"] == ("position", (1,), ())
    assert found["params/logits/kernel"] == ("output", (0,), ())
    for name in ("attention/query", "attention/key", "attention/value", "up", "down"):
        assert found[f"params/layers/{name}/kernel"] == ("hidden", (1,), (0,))
    assert found["params/layers/attention/out/kernel"] == ("hidden", (1, 2), (0,))
    vectors = {path for path, (role, *_) in found.items() if role == "vector"}
    assert vectors == {path for path in found if re.search("bias|scale", path)}


def test_layers_stacked_along_axis_one():
    def at(width):
        return linen(axis=1, block={"heads": width // 4, "bias": False})(width)

    found = inferred(at)
    assert found["params/layers/attention/query/kernel"] == ("hidden", (0,), (1,))
    assert found["params/layers/attention/out/kernel"] == ("hidden", (0, 2), (1,))
    assert found["params/layers/down/kernel"] == ("hidden", (0,), (1,))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_grouped_queries(kv_heads, bias):
    def at(width):
        return linen(block={"heads": width // 2, "bias": bias, "kv_heads": kv_heads})(width)

    found = inferred(at)
    for name in "qkv":
        assert found[f"params/layers/{name}_proj/kernel"] == ("hidden", (1,), (0,))
    assert found["params/layers/o_proj/kernel"] == ("hidden", (1, 2), (0,))


def test_a_single_matrix_of_tokens_is_tied():
    assert inferred(linen(tied=True))["params/tokens/embedding"] == ("tied", (1,), ())
    with pytest.raises(InputError, match=r"'head/kernel' \(8, 96\) → \(16, 96\): the names do not tell embedding, out"):
        infer(*(tree({"head/kernel": (d, VOCAB)}) for d in (8, 16)), vocab=VOCAB)


class NNX(nnx.Module):
    def __init__(self, width, heads, rngs):
        self.tokens = nnx.Embed(VOCAB, width, rngs=rngs)
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, rngs=rngs, use_bias=False, decode=False)
        self.up, self.down = nnx.Linear(width, 4 * width, rngs=rngs), nnx.Linear(4 * width, width, rngs=rngs)
        self.logits = nnx.Linear(width, VOCAB, rngs=rngs)


@pytest.mark.parametrize("grows", ["heads", "size"])
def test_an_nnx_model_trains_with_the_declarations(grows):
    def model(width):
        return NNX(width, width // 4 if grows == "heads" else 4, nnx.Rngs(0))

    def at(width):
        return nnx.state(nnx.eval_shape(lambda: model(width)), nnx.Param)

    found = inferred(at)
    assert found["attention/query/kernel"] == found["down/kernel"] == ("hidden", (0,), ())
    assert found["attention/out/kernel"] == ("hidden", (0, 1), ())
    assert (found["tokens/embedding"][0], found["logits/kernel"]) == ("embedding", ("output", (0,), ()))
    declared = infer(at(16), at(32), vocab=VOCAB)
    tx = optim.parametrized(optax.adamw, "lvp", 1e-3, width=16, vocab=VOCAB, declarations=declared)
    optimizer = nnx.Optimizer(model(16), tx, wrt=nnx.Param)
    optimizer.update(model(16), nnx.state(model(16), nnx.Param))
    rows = {row.path: row for row in optim.describe(tx, nnx.state(model(16), nnx.Param)).rows}
    assert rows["attention/out/kernel"].fan_in == 16


class Layer(eqx.Module):
    norm: eqx.nn.RMSNorm
    attention: eqx.nn.MultiheadAttention
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, width, key):
        self.norm, self.attention = eqx.nn.RMSNorm(width), eqx.nn.MultiheadAttention(4, width, key=key)
        self.up, self.down = eqx.nn.Linear(width, 4 * width, key=key), eqx.nn.Linear(4 * width, width, key=key)


class Experts(eqx.Module):
    router: eqx.nn.Linear
    experts: Layer

    def __init__(self, width, key):
        self.router = eqx.nn.Linear(width, EXPERTS, use_bias=False, key=key)
        self.experts = eqx.filter_vmap(lambda key: Layer(width, key))(jax.random.split(key, EXPERTS))


class Equinox(eqx.Module):
    tokens: eqx.nn.Embedding
    layers: Layer | Experts
    logits: eqx.nn.Linear

    def __init__(self, layer, width):
        key = jax.random.key(0)
        self.tokens, self.logits = eqx.nn.Embedding(VOCAB, width, key=key), eqx.nn.Linear(width, VOCAB, key=key)
        self.layers = eqx.filter_vmap(lambda key: layer(width, key))(jax.random.split(key, LAYERS))


def equinox(layer):
    return lambda width: eqx.filter(eqx.filter_eval_shape(Equinox, layer, width), lambda x: hasattr(x, "shape"))


def test_stacked_blocks_of_equinox():
    found = inferred(equinox(Layer))
    for name in ("up", "down", "attention/query_proj", "attention/output_proj"):
        assert found[f"layers/{name}/weight"] == ("hidden", (2,), (0,))
    assert found["layers/norm/weight"] == ("vector", (), ())
    assert (found["tokens/weight"], found["logits/weight"]) == (("embedding", (1,), ()), ("output", (1,), ()))


def test_experts_in_stacked_layers():
    router = Declaration("layers/router/weight", "router", fan_in=(2,), stacked=(0,))
    found = inferred(equinox(Experts), declared=[router])
    assert found["layers/experts/up/weight"] == found["layers/experts/down/weight"] == ("hidden", (3,), (0, 1))
    assert found["layers/experts/norm/weight"][0] == "vector"
    with pytest.raises(InputError, match=r"'layers/router/weight' \(3, 5, 16\) → \(3, 5, 32\): one axis grows"):
        inferred(equinox(Experts))


def moe(module):
    def at(d):
        shapes = {"wte": (VOCAB, d), f"{module}/up/kernel": (EXPERTS, d, 4 * d)}
        return tree(shapes | {f"{module}/down/kernel": (EXPERTS, 4 * d, d)})

    return at


def test_experts_without_vectors_are_named():
    assert inferred(moe("experts"))["experts/down/kernel"] == ("hidden", (1,), (0,))
    # Control: [experts, in, out] could be [heads, size, width].
    with pytest.raises(InputError, match=r"'m/down/kernel' \(5, 64, 16\) .*, 'm/up/kernel' .*: heads, stacked layers"):
        inferred(moe("m"))


def test_heads_do_not_look_like_stacked_layers():
    """Queries and outputs [heads, size, width] of an einsum are not experts, although their bias has the heads."""

    def at(d):
        block = {"query/kernel": (4, d, d // 4), "query/bias": (4, d // 4), "out/kernel": (4, d // 4, d)}
        return tree({"wte": (VOCAB, d)} | {f"attention/{path}": shape for path, shape in block.items()})

    with pytest.raises(InputError, match="'attention/out/kernel'.*heads, stacked layers and experts"):
        inferred(at)


def test_a_router_does_not_look_like_a_stacked_vector():
    """The axis of the experts, which stacks their parameters, is the output of a router [experts, width]."""

    def at(d):
        block = {"router": (EXPERTS, d), "up/kernel": (EXPERTS, d, d), "norm/scale": (EXPERTS, d)}
        return tree({"wte": (VOCAB, d)} | {f"experts/{path}": shape for path, shape in block.items()})

    with pytest.raises(InputError, match="undecided parameters: 'experts/router' [^']*: one axis grows"):
        inferred(at)


def test_a_change_of_depth_is_no_width():
    """Layers that grow with the width do not look like a fan-in."""

    def at(d):
        block = {"up/kernel": (d // 8, d, 4 * d), "down/kernel": (d // 8, 4 * d, d), "norm/scale": (d // 8, d)}
        return tree({"wte": (VOCAB, d)} | {f"layers/{path}": shape for path, shape in block.items()})

    with pytest.raises(InputError, match="'layers/down/kernel' .*'layers/up/kernel' .*: heads, stacked layers"):
        inferred(at)


def test_as_many_positions_as_tokens():
    found = inferred(flat(lambda d: {"wte/embedding": (VOCAB, d), "wpe/embedding": (VOCAB, d)}))
    assert found == {"wte/embedding": ("tied", (1,), ()), "wpe/embedding": ("position", (1,), ())}


def test_lora_is_declared_by_the_user():
    def at(d):
        adapters = {"block/lora_a/kernel": (d, 4), "block/lora_b/value": (4, d)}
        return tree({"wte": (VOCAB, d), "block/up/kernel": (d, d)} | adapters)

    with pytest.raises(
        InputError, match=r"'block/lora_a/kernel' \(16, 4\) → \(32, 4\), 'block/lora_b/value' .*: one axis"
    ) as error:
        inferred(at)
    assert "up" not in str(error.value) and "\n" not in str(error.value)
    found = inferred(at, declared=[Declaration(".*/lora_.*", "lora", fan_in=(0,))])
    assert found["block/lora_b/value"] == ("lora", (0,), ()) and found["block/up/kernel"] == ("hidden", (0,), ())


def test_undecided_layers_of_equal_shape_are_one_pattern():
    def at(d):
        return tree({"wte": (VOCAB, d)} | {f"block_{i}/router/kernel": (d, 8) for i in range(50)})

    with pytest.raises(InputError, match=r"undecided parameters: 'block_\\\\d\+/router/kernel' \(16, 8\) → [^']*$"):
        inferred(at)
    assert inferred(at, declared=[Declaration(r"block_\d+/router/kernel", "router")])["block_7/router/kernel"]


def test_the_users_declarations_come_first():
    declared = [Declaration("params/layers/up/kernel", "gate", fan_in=(1,), stacked=(0,))]
    result = infer(linen()(16), linen()(32), vocab=VOCAB, declarations=declared)
    assert result[0] is declared[0] and not any(d.names("params/layers/up/kernel") for d in result[1:])
    assert inferred(linen(), declared=declared)["params/layers/up/kernel"] == ("gate", (1,), (0,))


@pytest.mark.parametrize(("role", "other"), [("embedding", "output"), ("output", "embedding")])
def test_a_declared_matrix_of_tokens_tells_the_other(role, other):
    found = inferred(flat(lambda d: {"a": (VOCAB, d), "b": (VOCAB, d)}), declared=[Declaration("a", role, fan_in=(1,))])
    assert found == {"a": (role, (1,), ()), "b": (other, (1,), ())}


@pytest.mark.parametrize("names", ["ab", ("embed_in", "embed_out")])
def test_unclear_matrices_of_tokens_are_refused(names):
    with pytest.raises(InputError, match=f"'{names[0]}' .*'{names[1]}' .*names do not tell embedding"):
        inferred(flat(lambda d: dict.fromkeys(names, (VOCAB, d))))
    # Control: one of them cannot be looked up.
    if names != "ab":
        assert inferred(flat(lambda d: {"embed_in": (VOCAB, d), "embed_out": (d, VOCAB)}))["embed_out"][0] == "output"


def test_a_square_matrix_needs_a_convention():
    with pytest.raises(InputError, match=r"'mix' \(16, 16\) → .*: name and bias do not tell \[in, out\]"):
        inferred(flat(lambda d: {"wte": (VOCAB, d), "mix": (d, d)}))
    # Another matrix of this name has a bias.
    for shape, fan_in in (((16, 64), (0,)), ((64, 16), (1,))):
        decoder = {"wte": (VOCAB, 16), "a/W": (16, 16), "b/W": shape, "b/b": (64,)}
        assert inferred(growing(decoder, {16, 64}))["a/W"] == ("hidden", fan_in, ())


def growing(shapes, lengths):
    """Returns factor → tree, in which all axes of these lengths grow."""
    return lambda width: tree(
        {path: tuple(n * width // 16 if n in lengths else n for n in shape) for path, shape in shapes.items()}
    )


def test_the_bias_overrules_the_convention():
    shapes = {"wte": (VOCAB, 16), "a/kernel": (48, 16), "a/bias": (48,), "b/kernel": (16, 16), "b/bias": (16,)}
    found = inferred(growing(shapes, {16, 48}))
    assert found["a/kernel"] == found["b/kernel"] == ("hidden", (1,), ())


class Weight(NamedTuple):
    weight: jax.ShapeDtypeStruct


def levanter(d, kv=8):
    """Levanter's tree with `weight` as the field of an object."""
    shapes = public.levanter("", d=d, heads=d // 128, kv=kv, ff=3 * d)
    return jax.tree.map(Weight, tree({path.removesuffix("/weight"): shape for path, shape in shapes.items()}))


WIDE = {
    "nanodo": (lambda d: tree(public.nanodo(d, d // 64, 4 * d)), 32101),
    "nanodo_size": (lambda d: tree(public.nanodo(d, 8, 4 * d)), 32101),
    "gpt2": (lambda d: tree(public.gpt2(d)), 50257),
    "maxtext": (lambda d: tree(public.maxtext(False, d, d // 128, 8, ff=3 * d)), 128256),
    "maxtext_kv": (lambda d: tree(public.maxtext(False, d, d // 128, d // 512, ff=3 * d)), 128256),
    "maxtext_scanned": (lambda d: tree(public.maxtext(True, d, d // 128, 8, ff=3 * d)), 128256),
    "maxtext_scanned_kv": (lambda d: tree(public.maxtext(True, d, d // 128, d // 512, ff=3 * d)), 128256),
    "levanter": (levanter, 128256),
    "levanter_kv": (lambda d: levanter(d, d // 512), 128256),
    "haiku": (lambda d: tree(public.haiku(d, hd=d // 4, vocab=1000)), 1000),
}


@pytest.mark.parametrize("model", WIDE)
def test_public_models_have_their_declared_roles(model):
    at, vocab = WIDE[model]
    published = next(declared for name, (declared, *_) in public.MODELS.items() if model.startswith(name))
    found = inferred(at, vocab=vocab, widths=(1024, 2048))
    expected = {leaf.path: leaf for leaf in jax.tree.leaves(classify(at(1024), extra=published))}
    assert found == {path: (leaf.role, leaf.fan_in, leaf.stacked) for path, leaf in expected.items()}


def test_einsums_of_gemma_are_refused():
    def at(d):
        return tree(public.gemma(False, False, d=d, heads=8, kv=1, hd=d // 8, ff=8 * d, vocab=1000))

    with pytest.raises(InputError) as error:
        inferred(at, vocab=1000)
    assert all(name in str(error.value) for name in ("attn_vec_einsum", "gating", "kv_einsum", "linear", "q_einsum"))
    hidden = [declaration for declaration in declarations.GEMMA if declaration.role == "hidden"]
    assert inferred(at, vocab=1000, declared=hidden)["embedder/input_embedding"] == ("tied", (1,), ())


GOOD = {"wte": (VOCAB, 16), "up/kernel": (16, 64), "norm/scale": (16,)}
WIDER = {"wte": (VOCAB, 32), "up/kernel": (32, 128), "norm/scale": (32,)}


@pytest.mark.parametrize(
    ("other", "vocab", "said"),
    [
        (GOOD, VOCAB, "equal shapes, so that no axis grows: give the shapes at two widths"),
        (WIDER | {"up/bias": (128,)}, VOCAB, "'up/bias' is in one of shapes and other only: change only the width"),
        (WIDER | {"norm/scale": (1, 32)}, VOCAB, "'norm/scale' has rank 1 and 2"),
        (
            WIDER | {"norm/scale": (8,)},
            VOCAB,
            "contradict: axis 0 of 'up/kernel' is 16 and 32, but axis 0 of 'norm/scale'",
        ),
        (WIDER, 97, "vocab 97: no parameter has one axis of this length and one axis that grows"),
        (WIDER | {"wte": (128, 32)}, VOCAB, "vocab 96: no parameter.*give the length of the token axis in both trees"),
        (WIDER, 0, "vocab must be a positive integer, got 0"),
        (WIDER, 96.0, "vocab must be a positive integer, got 96.0"),
        (WIDER, True, "vocab must be a positive integer, got True"),
    ],
)
def test_bad_shapes_are_refused(other, vocab, said):
    with pytest.raises(InputError, match=said) as error:
        infer(tree(GOOD), tree(other), vocab=vocab)
    assert "\n" not in str(error.value)


def test_the_order_of_the_widths_does_not_matter():
    assert infer(tree(GOOD), tree(WIDER), vocab=VOCAB) == infer(tree(WIDER), tree(GOOD), vocab=VOCAB)


@pytest.mark.parametrize("vocab", [16, 32])
def test_a_vocabulary_as_long_as_the_width_is_refused(vocab):
    with pytest.raises(InputError, match=f"vocab {vocab} equals the width in one of shapes and other: choose other"):
        inferred(flat(lambda d: {"wte": (vocab, d)}), vocab=vocab)


def test_two_widths_of_token_matrices_are_refused():
    with pytest.raises(InputError, match=r"vocab 96: 'a' with widths \(16, 32\) and 'b' with widths \(32, 64\)"):
        inferred(flat(lambda d: {"a": (VOCAB, d), "b": (2 * d, VOCAB)}))


def test_leaves_without_shape_and_bad_declarations_are_refused():
    with pytest.raises(InputError, match="leaf 'f' has no shape: give parameters only"):
        infer(tree(GOOD) | {"f": jax.nn.relu}, tree(WIDER) | {"f": jax.nn.relu}, vocab=VOCAB)
    with pytest.raises(InputError, match="leaf '' has no shape"):
        infer(3, 3, vocab=VOCAB)
    with pytest.raises(InputError, match="equal shapes"):
        infer({}, {}, vocab=VOCAB)
    with pytest.raises(InputError, match="an element is 'wte'"):
        infer(tree(GOOD), tree(WIDER), vocab=VOCAB, declarations=["wte"])


def test_numbers_in_paths_are_patterns_if_all_agree():
    def at(d):
        shapes = {"wte": (VOCAB, d)} | {f"{i}/up/kernel": (d, d) for i in range(20)}
        return tree(shapes | {"a0/kernel": (d, d), "a1/kernel": (d, 4 * d), "a1/bias": (4 * d,), "b0/weight": (d,)})

    def reverse(d):
        return tree({"wte": (VOCAB, d), "a0/kernel": (d, d // 4, 4), "a1/kernel": (d // 4, 4, d)})

    patterns = {declaration.role: declaration.pattern for declaration in infer(at(16), at(32), vocab=VOCAB)}
    assert patterns["hidden"] == r"\d+/up/kernel|a\d+/kernel"
    assert [d.pattern for d in infer(reverse(16), reverse(32), vocab=VOCAB)] == ["a0/kernel", "a1/kernel", "wte"]


def test_paths_are_escaped():
    found = infer(*({"a.b(": jax.ShapeDtypeStruct((VOCAB, d), jnp.float32)} for d in (16, 32)), vocab=VOCAB)
    assert [declaration.pattern for declaration in found] == [r"a\.b\("]
