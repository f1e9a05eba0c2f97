"""Sharding of parameters, optimizer state and tokens on a mesh: the table of roles, and errors for sizes that do not
fit."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from lvp import mesh_axes, optim, roles
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig, gpt2, hayou_liu_1b
from lvp.models.decoder import decoder
from lvp.parallel import sharding

SMALL = DecoderConfig(vocab=64, width=32, layers=2, context=16, heads=8, kv_heads=4, head_dim=8, mlp="swiglu")
HEADS = {"heads": 8, "heads of keys and values": 4}


def shapes(config):
    return jax.eval_shape(decoder(config).init, jax.random.key(0))


def by_path(tree, is_leaf=lambda x: isinstance(x, P)):
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_leaf)
    return {jax.tree_util.keystr(keys, simple=True, separator="/"): x for keys, x in leaves}


def test_parameters_are_sharded_by_role():
    specs = by_path(sharding.specs(shapes(hayou_liu_1b())))
    assert specs == {
        "embedding/embedding": P("model", "fsdp"),
        "head/kernel": P("fsdp", "model"),
        "norm_final/scale": P(),
        **{f"blocks/{n}/scale": P() for n in ("norm_attention", "norm_mlp")},
        **{f"blocks/attention/{n}/kernel": P(None, "fsdp", "model") for n in ("query", "key", "value")},
        **{f"blocks/mlp/{n}/kernel": P(None, "fsdp", "model") for n in ("gate", "up")},
        "blocks/attention/out/kernel": P(None, "model", "fsdp"),
        "blocks/mlp/down/kernel": P(None, "model", "fsdp"),
    }


@pytest.mark.parametrize("config", [SMALL, gpt2(64, width=32, layers=2, head_dim=8)], ids=["untied", "gpt2"])
def test_no_mesh_axis_is_used_twice_and_layers_are_never_split(config):
    for leaf in jax.tree.leaves(roles.classify(shapes(config))):
        places = [p for p in sharding.spec_of(leaf) if p is not None]
        assert len(set(places)) == len(places)
        assert leaf.role == "vector" or len(places) >= 1, leaf.path


@pytest.mark.parametrize(
    "tx", [optim.adamw(0.1), optim.lion_ar(0.1), optim.by_role(optim.coupled_adam, dict.fromkeys(roles.ROLES, 0.1))]
)
def test_optimizer_state_is_sharded_like_its_parameters(tx):
    params = shapes(SMALL)
    state = jax.eval_shape(tx.init, params)
    specs, sizes = by_path(sharding.state_specs(state, params)), by_path(state, is_leaf=None)
    split = {path: spec for path, spec in specs.items() if spec != P()}
    where = by_path(sharding.specs(params))
    assert len(split) >= sum(spec != P() for spec in where.values())  # at least one moment of each
    for path, spec in split.items():
        of = next(p for p in where if path.endswith("/" + p))
        assert len(spec) <= len(sizes[path].shape)
        assert all(p is None or p == q for p, q in zip(spec, where[of], strict=False)), path
        if sizes[path].shape == by_path(params, is_leaf=None)[of].shape:
            assert tuple(spec) == (*where[of], *[None] * (len(spec) - len(where[of]))), path


def test_state_without_parameters_is_replicated():
    state = {"count": jnp.zeros(()), "losses": jnp.zeros(64), "params": shapes(SMALL)}
    specs = by_path(sharding.state_specs(state, shapes(SMALL)))
    assert specs["count"] == specs["losses"] == P()
    assert specs["params/head/kernel"] == P("fsdp", "model")


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("data=2,fsdp=2,model=2", (2, 2, 2)),
        ("model=4", (1, 2, 4)),  # fsdp takes the remaining devices
        ("", (1, 8, 1)),
        ("data=8, fsdp=1", (8, 1, 1)),
        ({"data": 2}, (2, 4, 1)),
    ],
)
def test_sizes_of_a_mesh(text, sizes):
    assert tuple(sharding.mesh_sizes(text, 8).values()) == sizes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model=3", r"data 1 × fsdp 1 × model 3 needs 3 devices, but there are 8"),
        ("data=2,fsdp=2", "needs 4 devices, but there are 8"),
        ("tensor=2", "unknown axis of the mesh 'tensor'; known: data, fsdp, model"),
        ("model=two", "model must be a whole number above 0, got 'two'"),
        ("model=0", "model must be a whole number above 0"),
        ("model=2,model=4", "model is given twice"),
    ],
)
def test_bad_meshes_are_named(text, words):
    with pytest.raises(InputError, match=words):
        sharding.mesh_sizes(text, 8)


@pytest.mark.parametrize(
    ("sizes", "config", "rows", "words"),
    [
        ((4, 2, 1), SMALL, 12, "data × fsdp = 8 does not divide the 12 rows"),
        ((1, 1, 8), SMALL, 8, "model = 8 does not divide the 4 heads of keys and values"),
        ((1, 1, 4), {"vocab": 63}, 8, "does not divide the vocabulary of 63; a model with vocab 64 would fit"),
        ((1, 3, 1), SMALL, 9, "fsdp = 3 does not divide axis"),
    ],
)
def test_sizes_that_do_not_fit_a_mesh_are_named(sizes, config, rows, words):
    if isinstance(config, dict):
        config = DecoderConfig(**({"vocab": 64, "width": 32, "head_dim": 8, "heads": 8, "kv_heads": 4} | config))
    sizes = dict(zip(mesh_axes.AXES, sizes, strict=True))
    with pytest.raises(InputError, match=words):
        sharding.check_fits(sizes, rows=rows, params=shapes(config), heads=HEADS)


def test_sizes_that_fit_a_mesh_pass():
    sharding.check_fits({"data": 2, "fsdp": 2, "model": 4}, rows=8, params=shapes(SMALL), heads=HEADS)
