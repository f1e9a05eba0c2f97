"""GPT-2's configuration of the decoder against transformers with the same random weights; its counts and parameters."""

import functools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from lvp import roles
from lvp.errors import InputError
from lvp.losses import dense_next_token_loss
from lvp.models.configs import gpt2
from lvp.models.decoder import decoder
from tests.lvp.models.gpt2_reference import FILE, FULL, LAST, POSITIONS, SMALL, VOCABULARY, tokens, weights

# Float32 is within 1e-6 (124M: 4e-6), as is transformers' own; other configurations differ by more than 1e-4.
TOLERANCE = 1e-5
MODULES = {
    "wte": "tied_embedding",
    "wpe": "position",
    "ln_1": "norm_attention",
    "ln_2": "norm_mlp",
    "ln_f": "norm_final",
    "attn.c_attn": "attention/qkv",
    "attn.c_proj": "attention/out",
    "mlp.c_fc": "mlp/up",
    "mlp.c_proj": "mlp/down",
}


def path_of(name):
    """Returns our path for transformers' name of a module."""
    if not name.startswith("h."):
        return MODULES[name]
    _, block, module = name.split(".", 2)
    return f"block_{block}/{MODULES[module]}"


def ours(shape):
    """Returns our decoder's parameters from transformers'."""
    params = {}
    for name, array in weights(shape).items():
        module, kind = name.rsplit(".", 1)
        *parents, last = path_of(module).split("/")
        node = params
        for parent in (*parents, last):
            node = node.setdefault(parent, {})
        weight = "embedding" if module in ("wte", "wpe") else "kernel" if array.ndim == 2 else "scale"
        node[weight if kind == "weight" else "bias"] = jnp.asarray(array)
    return params


def configured(shape, **changes):
    sizes = {"width": shape.width, "layers": shape.layers, "head_dim": shape.width // shape.heads}
    # Blocks of queries do not divide the context.
    return gpt2(shape.vocab, **({"context": shape.context, "attention_block": 7} | sizes | changes))


@pytest.fixture(autouse=True)
def whole_float32():
    """Some accelerators multiply float32 matrices with a third of the digits by default."""
    with jax.default_matmul_precision("highest"):
        yield


@pytest.fixture(scope="module")
def reference():
    with np.load(FILE) as file:
        return dict(file)


@pytest.fixture(scope="module")
def params():
    return ours(SMALL)


@cache
def small(**changes):
    """Returns the decoder of the small shape with a compiled forward pass, shared by all tests."""
    model = decoder(configured(SMALL, **changes))
    return model._replace(apply=jax.jit(model.apply, static_argnames="capture"))


def logits_of(model, params):
    return model.apply(params, tokens(SMALL)) @ model.head(params)


def with_leaf(params, path, change):
    """Returns the tree with one leaf changed."""
    return jax.tree_util.tree_map_with_path(
        lambda keys, x: change(x) if jax.tree_util.keystr(keys, simple=True, separator="/") == path else x, params
    )


def error(logits, reference):
    return np.abs(np.asarray(logits) - reference["small/logits"]).max()


def test_logits_equal_transformers(params, reference):
    assert reference["small/logits"].std() > 0.3
    assert error(logits_of(small(), params), reference) < TOLERANCE


@pytest.mark.parametrize("wrong", ["exact GeLU", "epsilon", "norm", "positions", "biases", "heads"])
def test_other_configurations_do_not_agree(wrong, params, reference, monkeypatch):
    model = small()
    if wrong == "exact GeLU":
        gelu = nn.gelu
        monkeypatch.setattr(nn, "gelu", lambda x: gelu(x, approximate=False))
        model = decoder(configured(SMALL))  # the model of small() is compiled already
        model = model._replace(apply=jax.jit(model.apply))
    elif wrong == "epsilon":
        model = small(norm_epsilon=1e-6)
    elif wrong == "norm":
        model = small(norm="rms")
    elif wrong == "positions":
        params = with_leaf(params, "position/embedding", lambda x: jnp.roll(x, 1, axis=0))
    elif wrong == "biases":
        params = with_leaf(params, "block_1/mlp/down/bias", jnp.zeros_like)
    elif wrong == "heads":  # the columns of a head are strided, not adjacent
        columns = np.arange(SMALL.width).reshape(SMALL.heads, -1).T.ravel()
        qkv = np.concatenate([columns + i * SMALL.width for i in range(3)])
        params = with_leaf(params, "block_0/attention/qkv/kernel", lambda x: x[:, qkv])
    assert error(logits_of(model, params), reference) > 1e-4


def test_captured_inputs_equal_transformers(params, reference):
    _, inputs = small().apply(params, tokens(SMALL), capture=True)
    recorded = {name: x for name, x in reference.items() if name.startswith("small/inputs/")}
    assert len(recorded) == 4 * SMALL.layers
    for name, x in recorded.items():
        captured = inputs[path_of(name.removeprefix("small/inputs/")) + "/kernel"]
        captured = captured.reshape(SMALL.rows, SMALL.context, -1)[:, -LAST:]
        np.testing.assert_allclose(captured, x, atol=TOLERANCE, err_msg=name)


@pytest.mark.slow
def test_logits_of_124m_equal_transformers(reference):
    params, model = ours(FULL), decoder(configured(FULL, attention_block=64))
    assert model.config == gpt2()
    hidden = jax.jit(model.apply)(params, tokens(FULL))[0, np.array(POSITIONS)]
    logits = hidden @ model.head(params)
    np.testing.assert_allclose(logits[:, np.array(VOCABULARY)], reference["full/logits"], atol=TOLERANCE)
    np.testing.assert_allclose(jax.nn.logsumexp(logits, axis=-1), reference["full/logsumexp"], atol=TOLERANCE)
    assert reference["full/logits"].std() > 0.3


def test_gelu_is_the_tanh_approximation():
    """GPT-2's `gelu_new`: x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    x = np.linspace(-6, 6, 1001, dtype=np.float32)
    wide = x.astype(np.float64)
    tanh_form = wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    np.testing.assert_allclose(nn.gelu(x), tanh_form, atol=1e-6)
    assert np.abs(nn.gelu(x, approximate=False) - tanh_form).max() > 1e-4


@pytest.mark.parametrize(
    "config, count",
    [
        (gpt2(), 124_439_808),  # (50257 + 1024) · 768 + 12 · (12 · 768² + 9 · 768) + 25 · 2 · 768
        (gpt2(50304), 124_475_904),  # plus 47 · 768
        (gpt2(width=1024, layers=24), 354_823_168),
        (gpt2(width=1280, layers=36), 774_030_080),
        (gpt2(width=1600, layers=48), 1_557_611_200),
    ],
)
def test_parameter_counts_equal_the_published_ones(config, count):
    assert config.num_params == count
    assert config.num_heads == config.width / 64


def test_count_and_flops_of_124m_by_hand():
    shapes = jax.eval_shape(decoder(gpt2()).init, jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(shapes)) == 124_439_808
    assert shapes["position"]["embedding"].shape == (1024, 768)
    # 6 · (50257 · 768 + 12 · 12 · 768²) for the weights, 6 · 12 · 1024 · 768 for attention.
    assert gpt2().flops_per_token() == 741_192_192 + 56_623_104


def test_roles_and_initial_values():
    std = {"embedding": 9.0, "position": 0.01, "hidden": 0.25, "output": 0.02, "vector": 9.0}
    params = jax.jit(decoder(gpt2(500, width=128, context=100, layers=1)).init)(jax.random.key(0), std)
    leaves = {}
    for leaf, x in zip(jax.tree.leaves(roles.classify(params)), jax.tree.leaves(params), strict=True):
        leaves.setdefault(leaf.role, {})[leaf.path] = np.asarray(x)
    assert set(leaves["position"]) == {"position/embedding"} and set(leaves["output"]) == {"tied_embedding/embedding"}
    for role in ("position", "hidden", "output"):
        for path, x in leaves[role].items():
            assert x.std() == pytest.approx(std[role], rel=0.02), path
    for kind, count, start in (("bias", 6 + 1, 0), ("scale", 2 + 1, 1)):
        initial = [x for path, x in leaves["vector"].items() if path.endswith(f"/{kind}")]
        assert len(initial) == count and all((x == start).all() for x in initial)
    assert set(leaves) == {"position", "hidden", "output", "vector"}


@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_only_layer_norm_has_biases(norm):
    shapes = jax.eval_shape(decoder(gpt2(61, width=64, norm=norm)).init, jax.random.key(0))
    biased = {leaf.path for leaf in jax.tree.leaves(roles.classify(shapes)) if leaf.path.endswith("bias")}
    matrices = {"attention/qkv", "attention/out", "mlp/up", "mlp/down"}
    expected = {f"block_{i}/{name}/bias" for i in range(12) for name in matrices}
    if norm == "layer":
        norms = {f"block_{i}/norm_{name}/bias" for i in range(12) for name in ("attention", "mlp")}
        expected |= norms | {"norm_final/bias"}
    assert biased == expected


def test_biases_of_zero_equal_no_biases(params):
    def without(node):
        return {k: without(v) if isinstance(v, dict) else v for k, v in node.items() if k != "bias"}

    zero = jax.tree_util.tree_map_with_path(lambda keys, x: x * (keys[-1].key != "bias"), params)
    plain = small(biases=False).apply(without(params), tokens(SMALL))
    np.testing.assert_allclose(small().apply(zero, tokens(SMALL)), plain, atol=1e-5)
    assert jnp.abs(small().apply(params, tokens(SMALL)) - plain).max() > 0.1


@pytest.mark.slow
def test_only_key_biases_have_no_gradient(params):
    """A key's bias adds the same to all scores of a query, so its gradient is zero. Every other leaf has a gradient."""
    model, targets = small(), np.roll(tokens(SMALL), -1, axis=1)

    @jax.jit
    @jax.grad
    def gradients_of(params):
        return dense_next_token_loss(model.apply(params, tokens(SMALL)), model.head(params), jnp.asarray(targets))

    gradients = gradients_of(params)
    for i in range(SMALL.layers):
        bias = gradients[f"block_{i}"]["attention"]["qkv"].pop("bias")
        query, key, value = jnp.abs(bias).reshape(3, -1).max(axis=1)
        assert key < 1e-6 * value and query > 1e-3 * value
    assert all(jnp.abs(leaf).max() > 1e-4 for leaf in jax.tree.leaves(gradients))


def test_captured_positions_are_the_rows_in_use(params):
    captured = jax.jit(functools.partial(small().apply, capture=True))
    hidden, inputs = captured(params, tokens(SMALL)[:, :9])
    leaves = {leaf.path: leaf for leaf in jax.tree.leaves(roles.classify(params)) if leaf.role != "vector"}
    assert set(inputs) == set(leaves)
    rows = inputs.pop("position/embedding")
    assert rows.dtype == jnp.int32
    np.testing.assert_array_equal(rows, np.arange(9))
    for path, x in inputs.items():
        assert x.shape == (18, leaves[path].shape[leaves[path].fan_in[0]]), path
    # No other row matters: the rest may be NaN.
    other = with_leaf(params, "position/embedding", lambda x: x.at[9:].set(jnp.nan))
    np.testing.assert_array_equal(hidden, captured(other, tokens(SMALL)[:, :9])[0])


def test_rows_longer_than_learned_positions_are_refused(params):
    """Sinusoidal positions have no limit."""
    long = np.zeros((1, SMALL.context + 1), np.int32)
    for apply in (small().apply, decoder(configured(SMALL)).apply):  # compiled and plain
        with pytest.raises(InputError, match="17 tokens.*context 16"):
            apply(params, long)
    assert jax.eval_shape(small(positions="sinusoidal").apply, params, long).shape == (1, 17, SMALL.width)
