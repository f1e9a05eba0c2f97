"""The decoder: causality through gradients, shapes and counts, attention against NumPy, captured inputs."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp import roles
from lvp.errors import InputError
from lvp.models.attention import causal_attention
from lvp.models.configs import DecoderConfig, default_head_dim
from lvp.models.decoder import decoder
from lvp.models.layers import sinusoidal_positions
from tests.marking import slow

SMALL = DecoderConfig(vocab=50, width=24, context=10, head_dim=8, attention_block=4)
FORMS = {
    "default": {},
    "tied": {"tied": True},
    "learned positions": {"positions": "learned"},
    "biases": {"biases": True},
    "all three": {"tied": True, "positions": "learned", "biases": True},
}


def forms(*names):
    return pytest.mark.parametrize("form", [FORMS[name] for name in names], ids=names)


@pytest.fixture(scope="module")
def small():
    model = decoder(SMALL)
    return model, jax.jit(model.init)(jax.random.key(0)), jax.random.randint(jax.random.key(1), (2, 10), 0, 50)


@pytest.mark.parametrize(
    ("change", "factors"),
    [
        ({"residual_init": True}, {"attention/out": 0.5, "mlp/down": 0.5}),  # two blocks
        ({"down_init": "fan_in"}, {"mlp/down": 0.5}),
        ({"residual_init": True, "down_init": "fan_in"}, {"attention/out": 0.5, "mlp/down": 0.25}),
    ],
    ids=str,
)
@pytest.mark.parametrize("scan", [False, slow(True)])
def test_residual_projections_have_their_init_factors(change, factors, scan):
    plain, changed = (
        decoder(dataclasses.replace(SMALL, scan=scan, **given)).init(jax.random.key(0)) for given in ({}, change)
    )
    leaves = zip(jax.tree_util.tree_leaves_with_path(plain), jax.tree.leaves(changed), strict=True)
    seen = set()
    for (path, before), after in leaves:
        name = "/".join(jax.tree_util.keystr(path, simple=True, separator="/").split("/")[1:-1])
        seen |= {name} & set(factors)
        np.testing.assert_allclose(after, before * factors.get(name, 1.0), rtol=1e-6)
    assert seen == set(factors)


def test_the_exact_gelu_is_another_function_and_both_are_close(small):
    model, params, tokens = small
    exact = jax.jit(decoder(dataclasses.replace(SMALL, gelu="exact")).apply)(params, tokens)
    difference = np.abs(exact - jax.jit(model.apply)(params, tokens)).max()
    assert 1e-6 < difference < 0.01


@pytest.mark.parametrize("norm", [*(slow(norm) for norm in ("none", "layer")), "rms"])
@forms("all three")
def test_each_position_depends_on_earlier_positions_only(norm, form):
    config = dataclasses.replace(SMALL, norm=norm, **form)
    model = decoder(config)
    params = jax.jit(model.init)(jax.random.key(0), dict.fromkeys(roles.ROLES, 0.3))
    tokens = jax.random.permutation(jax.random.key(2), 50)[:10][None]  # distinct, so that a row is a position

    def depends(name):
        """Returns a bool array [position, row of the matrix]."""
        jacobian = jax.jit(jax.jacrev(lambda rows: model.apply(params | {name: {"embedding": rows}}, tokens)[0]))
        return np.abs(jacobian(params[name]["embedding"])).max(axis=(1, 3)) > 0

    looked_up = depends("tied_embedding" if config.tied else "embedding")[:, tokens[0]]
    np.testing.assert_array_equal(looked_up, np.tril(np.ones((10, 10), bool)))
    if config.positions == "learned":
        np.testing.assert_array_equal(depends("position"), np.tril(np.ones((10, 10), bool)))


def test_layers_of_equal_shapes_trace_attention_once(monkeypatch):
    blocks, traced = 5, []
    causal_attention.clear_cache()  # other tests trace attention of the same shapes
    model = decoder(dataclasses.replace(SMALL, layers=3, attention_block=2))
    params = jax.eval_shape(model.init, jax.random.key(0))
    attend = jax.nn.dot_product_attention
    monkeypatch.setattr(jax.nn, "dot_product_attention", lambda *args, **kw: traced.append(1) or attend(*args, **kw))
    jax.make_jaxpr(jax.grad(lambda p: model.apply(p, jnp.zeros((1, 2 * blocks), jnp.int32)).sum()))(params)
    assert len(traced) == blocks


@pytest.mark.parametrize("block", [*map(slow, (1, 4)), 3, 16])
def test_attention_in_blocks_equals_plain_causal_attention(block):
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 10, 3, 8)).astype(np.float32)
    scores = np.einsum("bthk,bshk->bhts", q, k) / np.sqrt(8)
    scores = np.where(np.tril(np.ones((10, 10), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhts,bshk->bthk", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(causal_attention(q, k, v, block), expected, atol=2e-6)


@forms(*FORMS)
@pytest.mark.parametrize("norm, layers, factor", [("none", 1, 2), ("layer", 2, 4), ("rms", 3, 4)])
def test_hand_count_of_parameters(norm, layers, factor, form):
    config = DecoderConfig(vocab=40, width=16, layers=layers, context=12, norm=norm, mlp_factor=factor, **form)
    params = jax.eval_shape(decoder(config).init, jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(params)) == config.num_params


@forms("default", "tied", "all three")
def test_flops_count_the_matrix_products(form):
    """Compares with XLA's count of the forward pass, a third of training. XLA also counts the masked half of
    attention."""
    config = DecoderConfig(vocab=512, width=64, context=64, attention_block=64, norm="none", **form)
    model = decoder(config)
    params = jax.eval_shape(model.init, jax.random.key(0))

    def forward(params, tokens):
        return jnp.sum(model.apply(params, tokens) @ model.head(params))

    tokens = jax.ShapeDtypeStruct((4, 64), jnp.int32)
    counted = jax.jit(forward).lower(params, tokens).compile().cost_analysis()["flops"]
    masked = config.layers * 2 * 64 * 64 * 4 * 64  # the half of T², in each layer
    ours = config.flops_per_token() / 3 * 4 * 64 + masked
    assert 1.0 <= counted / ours < 1.1  # XLA also counts operations other than matrix products


def test_init_std_by_role():
    config = DecoderConfig(vocab=4000, width=64)
    std = {"embedding": 1.0, "position": 1.0, "hidden": 0.25, "output": 0.125, "vector": 9.0}
    params = jax.jit(decoder(config).init)(jax.random.key(0), std)
    assert jnp.std(params["embedding"]["embedding"]) == pytest.approx(1.0, rel=0.01)
    assert jnp.std(params["head"]["kernel"]) == pytest.approx(0.125, rel=0.01)
    assert jnp.std(params["block_1"]["mlp"]["down"]["kernel"]) == pytest.approx(0.25, rel=0.02)
    assert jnp.all(params["norm_final"]["scale"] == 1)
    default = jax.jit(decoder(config).init)(jax.random.key(0))
    assert jnp.std(default["embedding"]["embedding"]) == pytest.approx(64**-0.5, rel=0.01)


def test_every_parameter_has_the_role_of_its_path(small):
    _, params, _ = small
    by_path = {leaf.path: leaf.role for leaf in jax.tree.leaves(roles.classify(params))}
    assert by_path["embedding/embedding"] == "embedding" and by_path["head/kernel"] == "output"
    assert {r for p, r in by_path.items() if p.endswith("scale")} == {"vector"}
    assert {r for p, r in by_path.items() if p.startswith("block") and p.endswith("kernel")} == {"hidden"}


def test_capture_returns_the_input_of_every_matrix(small):
    model, params, tokens = small
    apply = jax.jit(model.apply, static_argnames="capture")
    hidden, inputs = apply(params, tokens, capture=True)
    np.testing.assert_allclose(hidden, apply(params, tokens), atol=2e-6)
    leaves = {leaf.path: leaf for leaf in jax.tree.leaves(roles.classify(params)) if leaf.role != "vector"}
    assert set(inputs) == set(leaves)
    for path, leaf in leaves.items():
        if leaf.role != "embedding":
            assert inputs[path].shape == (20, leaf.shape[0]), path
    # The captured array is the input of the second block's MLP: it is normalised, so its mean square is 1.
    np.testing.assert_allclose(jnp.mean(inputs["block_1/mlp/up/kernel"] ** 2, -1), 1.0, atol=1e-2)


def test_a_tied_head_receives_both_gradients(small):
    model, params, tokens = small
    tied = decoder(dataclasses.replace(SMALL, tied=True))
    embedding = params["embedding"]["embedding"]
    shared = {k: v for k, v in params.items() if k not in ("embedding", "head")}
    shared["tied_embedding"] = {"embedding": embedding}
    apart = params | {"head": {"kernel": embedding.T}}
    np.testing.assert_allclose(jax.jit(tied.apply)(shared, tokens), jax.jit(model.apply)(apart, tokens), atol=2e-6)
    np.testing.assert_array_equal(tied.head(shared), embedding.T)

    def loss(model, params):
        logits = model.apply(params, tokens) @ model.head(params)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - logits[..., 0])

    of_tied = jax.jit(jax.grad(lambda p: loss(tied, p)))(shared)
    of_untied = jax.jit(jax.grad(lambda p: loss(model, p)))(apart)
    whole = of_untied["embedding"]["embedding"] + of_untied["head"]["kernel"].T
    np.testing.assert_allclose(of_tied["tied_embedding"]["embedding"], whole, atol=1e-6)
    leaves = jax.tree.leaves(roles.classify(jax.eval_shape(tied.init, jax.random.key(0))))
    assert {leaf.path: leaf.role for leaf in leaves if "embedding" in leaf.path} == {
        "tied_embedding/embedding": "output"
    }
    _, inputs = jax.eval_shape(functools.partial(tied.apply, capture=True), shared, tokens)
    assert set(inputs) == {leaf.path for leaf in leaves if leaf.role != "vector"}


def test_positions_distinguish_equal_tokens(small):
    model, params, _ = small
    same = jnp.full((1, 10), 7)
    assert not np.allclose(*jax.jit(model.apply)(params, same)[0, :2])
    flat = decoder(DecoderConfig(vocab=50, width=24, context=10, head_dim=8, position_amplitude=0.0))
    hidden = np.array(jax.jit(flat.apply)(params, same)[0])
    np.testing.assert_allclose(hidden, np.broadcast_to(hidden[:1], hidden.shape), atol=1e-5)


def test_sinusoidal_positions_have_norm_sqrt_half_width():
    np.testing.assert_allclose(np.linalg.norm(sinusoidal_positions(12, 64), axis=1), np.sqrt(32), rtol=1e-6)
    assert sinusoidal_positions(4, 7).shape == (4, 7)


@forms("default", "all three")
def test_bfloat16_is_close_to_float32(form):
    high = dataclasses.replace(SMALL, **form)
    low = dataclasses.replace(high, dtype="bfloat16")
    params = jax.jit(decoder(high).init)(jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (2, 10), 0, 50)
    hidden, reference = (jax.jit(decoder(x).apply)(params, tokens) for x in (low, high))
    assert hidden.dtype == jnp.bfloat16
    assert jnp.linalg.norm(hidden.astype(jnp.float32) - reference) < 0.03 * jnp.linalg.norm(reference)


@pytest.mark.parametrize("width, head_dim", [(32, 32), (48, 48), (64, 64), (80, 40), (96, 48), (128, 64), (4096, 64)])
def test_head_dimension_rule(width, head_dim):
    assert default_head_dim(width) == head_dim


@pytest.mark.parametrize(
    "wrong, word",
    [
        ({"width": 33}, "33"),
        ({"width": 64, "head_dim": 48}, "48"),
        ({"norm": "batch"}, "batch"),
        ({"dtype": "float16"}, "float16"),
        ({"positions": "relative"}, "relative"),
        ({"positions": "learned", "position_amplitude": 0.5}, "position_amplitude 0.5"),
        ({"layers": 0}, "layers"),
    ],
)
def test_bad_settings_are_named(wrong, word):
    with pytest.raises(InputError, match=word):
        DecoderConfig(**({"vocab": 10, "width": 32} | wrong))
