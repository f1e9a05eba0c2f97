"""Rotary positions, shared keys, windows, SwiGLU, scanned and recomputed blocks, against transformers and NumPy."""

import dataclasses
from functools import cache, partial

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from lvp import roles
from lvp.errors import InputError
from lvp.losses import next_token_loss
from lvp.models.attention import causal_attention, rotary_angles, rotated, splash_attention
from lvp.models.configs import DecoderConfig, hayou_liu_1b
from lvp.models.decoder import decoder
from lvp.models.layers import MLP
from tests.lvp.models.forms_reference import FILE, FORMS, tokens, weights
from tests.marking import slow

TOLERANCE = 1e-5  # other configurations differ by more than ten times as much
MODULES = {
    "embed_tokens": "embedding",
    "lm_head": "head",
    "norm": "norm_final",
    "input_layernorm": "norm_attention",
    "post_attention_layernorm": "norm_mlp",
    "self_attn.q_proj": "attention/query",
    "self_attn.k_proj": "attention/key",
    "self_attn.v_proj": "attention/value",
    "self_attn.o_proj": "attention/out",
    "mlp.gate_proj": "mlp/gate",
    "mlp.up_proj": "mlp/up",
    "mlp.down_proj": "mlp/down",
}


def ours(form):
    """Returns our decoder's parameters from transformers', whose matrices are [out, in]."""
    params = {}
    for name, array in weights(form).items():
        module, kind = name.removeprefix("model.").rsplit(".", 1)
        path = []
        if module.startswith("layers."):
            _, block, module = module.split(".", 2)
            path = [f"block_{block}"]
        node = params
        for parent in (*path, *MODULES[module].split("/")):
            node = node.setdefault(parent, {})
        if module == "embed_tokens":
            node["embedding"] = jnp.asarray(array)
        elif array.ndim == 2:
            node["kernel"] = jnp.asarray(array.T)
        else:
            node["scale" if kind == "weight" else "bias"] = jnp.asarray(array)
    return params


@pytest.fixture(autouse=True)
def whole_float32():
    with jax.default_matmul_precision("highest"):
        yield


@cache
def error(form, **changes):
    """Returns the largest difference of our logits from transformers', under changes of our configuration."""
    model, params = decoder(dataclasses.replace(FORMS[form], **changes)), ours(form)
    logits = jax.jit(model.apply)(params, tokens()) @ model.head(params)
    with np.load(FILE) as file:
        assert file[form].std() > 0.3
        return np.abs(np.asarray(logits) - file[form]).max()


@pytest.mark.parametrize("form", FORMS)
def test_logits_equal_transformers(form):
    assert error(form) < TOLERANCE


@pytest.mark.parametrize(
    ("form", "change"),
    [
        ("mistral", {"window": None}),
        slow("mistral", {"window": 4}),
        slow("mistral", {"rotary_dim": 8}),
        ("mistral", {"rotary_base": 9000.0}),
        ("mistral", {"norm_epsilon": 1e-6}),
        slow("stablelm", {"window": 5}),
        slow("stablelm", {"rotary_dim": 8}),
        ("stablelm", {"positions": "sinusoidal", "rotary_dim": None}),
    ],
    ids=str,
)
def test_other_configurations_do_not_agree(form, change):
    assert error(form, **change) > 10 * TOLERANCE


def test_rotation_is_multiplication_by_a_complex_number():
    """Su et al. 2021, equation 12: entry i is the real part, entry i + R the imaginary part. Other entries are
    unchanged."""
    x = np.random.default_rng(0).normal(size=(2, 7, 3, 10)).astype(np.float32)
    angles = np.arange(7)[:, None] * 100.0 ** (-np.arange(3) / 3)
    expected = (x[..., :3] + 1j * x[..., 3:6]) * np.exp(1j * angles)[None, :, None]
    turned = rotated(jnp.asarray(x), rotary_angles(7, 6, 100.0))
    np.testing.assert_allclose(turned[..., :3], expected.real, atol=2e-6)
    np.testing.assert_allclose(turned[..., 3:6], expected.imag, atol=2e-6)
    np.testing.assert_array_equal(turned[..., 6:], x[..., 6:])


def test_rotated_products_depend_only_on_the_distance():
    q, k = np.random.default_rng(0).normal(size=(2, 1, 1, 1, 8)).astype(np.float32)
    q, k = (rotated(jnp.broadcast_to(x, (1, 20, 1, 8)), rotary_angles(20, 8, 1e4))[0, :, 0] for x in (q, k))
    scores = np.asarray(q @ k.T)
    for distance in range(-19, 20):
        diagonal = np.diagonal(scores, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], atol=1e-5)
    assert np.ptp(scores[0]) > 0.1


def plain_attention(q, k, v, window):
    """Computes attention by token and head, in float64."""
    out = np.zeros(q.shape)
    for b, t, h in np.ndindex(*q.shape[:3]):
        group, first = h * k.shape[2] // q.shape[2], max(0, t - window + 1)
        scores = k[b, first : t + 1, group] @ q[b, t, h] / np.sqrt(q.shape[3])
        share = np.exp(scores - scores.max())
        out[b, t, h] = share @ v[b, first : t + 1, group] / share.sum()
    return out


@pytest.mark.parametrize(
    ("window", "block", "groups"),
    [
        (5, 4, 2),
        (5, 16, 1),
        *(slow(*case) for case in ((1, 4, 2), (13, 3, 6), (40, 5, 2))),
    ],
)
def test_attention_equals_plain_attention(window, block, groups):
    rng = np.random.default_rng(window)
    q = rng.normal(size=(2, 13, 6, 8)).astype(np.float32)
    k, v = rng.normal(size=(2, 2, 13, groups, 8)).astype(np.float32)
    attended = causal_attention(*map(jnp.asarray, (q, k, v)), block, window)
    np.testing.assert_allclose(attended, plain_attention(q, k, v, window), atol=2e-6)


@pytest.mark.parametrize("groups", [1, 2])
def test_attention_has_the_gradients_of_the_library_s_attention(groups):
    """On CPU the softmax has its own backward pass."""
    rng = np.random.default_rng(0)
    q, weights = rng.normal(size=(2, 2, 13, 6, 8)).astype(np.float32)
    k, v = rng.normal(size=(2, 2, 13, groups, 8)).astype(np.float32)
    mask = jnp.asarray(np.tril(np.ones((13, 13), bool)) & ~np.tril(np.ones((13, 13), bool), -5))[None, None]

    def gradients(attention):
        return jax.jit(jax.grad(lambda *qkv: (attention(*qkv) * weights).sum(), (0, 1, 2)))(q, k, v)

    expected = gradients(lambda *qkv: jax.nn.dot_product_attention(*qkv, mask=mask))
    for got, want in zip(gradients(lambda *qkv: causal_attention(*qkv, 16, 5)), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=5e-6)
        assert np.abs(want).max() > 0.1


def test_fused_attention_equals_masked_attention():
    shape = {
        "vocab": 40,
        "width": 32,
        "context": 24,
        "layers": 1,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "window": 6,
    }
    masked, fused = (decoder(DecoderConfig(**shape, dtype="bfloat16", attention=kind)) for kind in ("masked", "fused"))
    params, tokens = jax.jit(masked.init)(jax.random.key(0)), jnp.arange(48).reshape(2, 24) % 40
    outputs = (jax.jit(model.apply)(params, tokens) for model in (masked, fused))
    np.testing.assert_allclose(*map(np.float32, outputs), atol=0.05)
    with pytest.raises(InputError, match="attention 'fused' needs dtype 'bfloat16', got 'float32'"):
        DecoderConfig(**shape, attention="fused")


@pytest.mark.parametrize("length, groups, window", [slow(128, 4, None), (256, 2, 100), slow(384, 1, 130)])
def test_the_tpu_kernel_equals_masked_attention(length, groups, window):
    """Outputs and gradients. Pallas interprets the kernel."""
    rng = np.random.default_rng(0)
    q, weights = rng.normal(size=(2, 2, length, 4, 16)).astype(np.float32)
    k, v = rng.normal(size=(2, 2, length, groups, 16)).astype(np.float32)

    def results(attention):
        loss = lambda *qkv: (attention(*qkv, window=window) * weights).sum()  # noqa: E731
        return attention(q, k, v, window=window), *jax.grad(loss, (0, 1, 2))(q, k, v)

    expected = results(partial(causal_attention, block=128))
    for got, want in zip(results(partial(splash_attention, interpret=True)), expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)
        assert np.abs(want).max() > 0.1


ONE = DecoderConfig(
    **{"vocab": 40, "width": 16, "layers": 3, "context": 12, "heads": 4, "kv_heads": 2, "head_dim": 8, "window": 4},
    **{"positions": "rotary", "mlp": "swiglu", "attention_block": 5},
)


def stacked(params):
    """Returns the same parameters with all blocks stacked."""
    blocks = [params[f"block_{i}"] for i in range(ONE.layers)]
    rest = {name: x for name, x in params.items() if not name.startswith("block_")}
    return rest | {"blocks": jax.tree.map(lambda *xs: jnp.stack(xs), *blocks)}


def loss_and_gradient(config, params):
    model, windows = decoder(config), jax.random.randint(jax.random.key(1), (2, 13), 0, 40)

    def loss(params):
        return next_token_loss(model.apply(params, windows[:, :-1]), model.head(params), windows[:, 1:])

    return jax.jit(jax.value_and_grad(loss))(params)


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["none", "dots", "block"])
def test_scanned_and_recomputed_blocks_are_the_same_function(remat):
    """They agree only up to rounding, because a scan is compiled separately."""
    params = jax.jit(decoder(ONE).init)(jax.random.key(0))
    loss, gradient = loss_and_gradient(ONE, params)
    scanned_loss, of_stacked = loss_and_gradient(dataclasses.replace(ONE, scan=True, remat=remat), stacked(params))
    np.testing.assert_allclose(scanned_loss, loss, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), of_stacked, stacked(gradient))


@pytest.mark.slow
def test_a_scanned_decoder_has_the_roles_of_a_plain_one():
    model = decoder(dataclasses.replace(ONE, scan=True, remat="block"))
    params, tokens = jax.jit(model.init)(jax.random.key(0)), jnp.arange(24).reshape(2, 12)
    kernel = params["blocks"]["mlp"]["gate"]["kernel"]
    assert kernel.shape == (3, 16, 64) and not np.allclose(kernel[0], kernel[1])
    leaves = {leaf.path: leaf for leaf in jax.tree.leaves(roles.classify(params))}
    assert leaves["blocks/attention/key/kernel"].stacked == (0,)
    _, inputs = jax.jit(partial(model.apply, capture=True))(params, tokens)
    plain = {
        **{k: v for k, v in params.items() if k != "blocks"},
        **{f"block_{i}": jax.tree.map(lambda x, i=i: x[i], params["blocks"]) for i in range(3)},
    }
    _, expected = jax.jit(partial(decoder(ONE).apply, capture=True))(plain, tokens)
    assert set(inputs) == {path for path, leaf in leaves.items() if leaf.role != "vector"}
    for i in range(3):
        for path in (path for path in inputs if path.startswith("blocks/")):
            unscanned = expected[path.replace("blocks/", f"block_{i}/")]
            np.testing.assert_allclose(inputs[path][i], unscanned, atol=1e-5, err_msg=path)


@pytest.mark.slow
def test_the_traced_program_does_not_grow_with_depth():
    def equations(layers, scan):
        config = dataclasses.replace(ONE, layers=layers, scan=scan)
        params = jax.eval_shape(decoder(config).init, jax.random.key(0))
        return count(jax.make_jaxpr(lambda p: decoder(config).apply(p, jnp.zeros((1, 12), jnp.int32)))(params).jaxpr)

    def count(jaxpr):
        return sum(1 + sum(map(count, jax.extend.core.jaxprs_in_params(eqn.params))) for eqn in jaxpr.eqns)

    assert equations(24, True) < 1.01 * equations(2, True)
    assert equations(6, False) > 2 * equations(2, False)


def test_the_1b_has_the_published_shapes():
    """Hand count from Table 3: queries 32 · 128, keys and values 8 · 128, three matrices of SwiGLU, LayerNorm without
    biases, two vocabulary matrices."""
    config = hayou_liu_1b()
    d, q, kv, f = 2048, 32 * 128, 8 * 128, 8192
    by_hand = 24 * (d * q + 2 * d * kv + q * d + 3 * d * f + 2 * d) + d + 2 * 32064 * d
    assert config.num_params == by_hand == 1_842_710_528
    params = jax.eval_shape(decoder(config).init, jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(params)) == by_hand
    assert params["blocks"]["attention"]["key"]["kernel"].shape == (24, 2048, 1024)
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(params))


@pytest.mark.parametrize("window", [None, 1, 3, 12])
def test_keys_seen_equal_the_mask_to_half_a_token(window):
    config = dataclasses.replace(ONE, window=window)
    behind = np.arange(12)[:, None] - np.arange(12)[None]
    seen = np.mean(np.sum((behind >= 0) & (behind < (window or 12)), axis=1))
    assert abs(config.keys_seen - seen) <= 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kv_heads": 3}, "kv_heads 3 does not divide the 4 heads"),
        ({"norm": "rms", "norm_biases": True}, "norm_biases needs norm 'layer', got 'rms'"),
        ({"rotary_dim": 10}, "rotary_dim 10 must be even and at most head_dim 8"),
        ({"rotary_dim": 3}, "rotary_dim 3 must be even"),
        ({"positions": "learned", "rotary_dim": 4}, "rotary_dim 4 needs positions 'rotary', got 'learned'"),
        ({"window": 0}, "window must be at least 1"),
        ({"mlp": "relu"}, "mlp must be one of gelu, swiglu"),
        ({"remat": "all"}, "remat must be one of none, dots, block"),
        ({"heads": None, "head_dim": 7}, "head_dim 7 does not divide width 16"),
    ],
    ids=str,
)
def test_bad_input_is_named(change, words):
    with pytest.raises(InputError, match=words):
        dataclasses.replace(ONE, **change)


def test_swiglu_is_silu_of_the_gate_times_the_up_projection():
    mlp = MLP(dataclasses.replace(ONE, layers=1))
    x = jax.random.normal(jax.random.key(0), (5, 16))
    params = mlp.init(jax.random.key(1), x)
    gate, up, down = (np.asarray(params["params"][n]["kernel"], np.float64) for n in ("gate", "up", "down"))
    xg = np.asarray(x, np.float64) @ gate
    expected = (xg / (1 + np.exp(-xg)) * (np.asarray(x, np.float64) @ up)) @ down
    np.testing.assert_allclose(mlp.apply(params, x), expected, rtol=2e-5, atol=2e-4)
