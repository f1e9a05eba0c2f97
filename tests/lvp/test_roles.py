"""Every leaf has one role and its axes, or an error names it."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from lvp.errors import InputError
from lvp.roles import DEFAULT, ROLES, Declaration, Leaf, classify, labels

m, d, T, L, heads, hd, ff = 24, 8, 5, 3, 2, 4, 32


def tree(shapes: dict) -> dict:
    """Returns nested dicts from "/"-joined paths."""
    out = {}
    for path, shape in shapes.items():
        *parents, name = path.split("/")
        node = out
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = jax.ShapeDtypeStruct(shape, jnp.float32)
    return out


def by_path(params, **kwargs) -> dict[str, Leaf]:
    return {leaf.path: leaf for leaf in jax.tree.leaves(classify(params, **kwargs))}


# path: shape, role, fan_in, stacked, vocab_axis
DECODER = {
    "embedding/embedding": ((m, d), "embedding", (1,), (), 0),
    "position/embedding": ((T, d), "position", (1,), (), None),
    "block_0/attention/qkv/kernel": ((d, 3 * d), "hidden", (0,), (), None),
    "block_0/attention/out/kernel": ((d, d), "hidden", (0,), (), None),
    "block_0/mlp/up/kernel": ((d, ff), "hidden", (0,), (), None),
    "block_0/mlp/gate/kernel": ((d, ff), "hidden", (0,), (), None),
    "block_0/mlp/down/kernel": ((ff, d), "hidden", (0,), (), None),
    "block_0/norm_attention/scale": ((d,), "vector", (), (), None),
    "block_0/norm_attention/bias": ((d,), "vector", (), (), None),
    "block_0/norm_mlp/scale": ((d,), "vector", (), (), None),
    "block_11/mlp/up/bias": ((ff,), "vector", (), (), None),
    "norm_final/scale": ((d,), "vector", (), (), None),
    "head/kernel": ((d, m), "output", (0,), (), 1),
    "head/bias": ((m,), "vector", (), (), None),
    "tied_embedding/embedding": ((m, d), "output", (1,), (), 0),
}
SCANNED = {
    "blocks/attention/qkv/kernel": ((L, d, 3 * d), "hidden", (1,), (0,), None),
    "blocks/attention/out/kernel": ((L, d, d), "hidden", (1,), (0,), None),
    "blocks/mlp/up/kernel": ((L, d, ff), "hidden", (1,), (0,), None),
    "blocks/mlp/gate/kernel": ((L, d, ff), "hidden", (1,), (0,), None),
    "blocks/mlp/down/kernel": ((L, ff, d), "hidden", (1,), (0,), None),
    "blocks/attention/query/kernel": ((L, d, heads, hd), "hidden", (1,), (0,), None),
    "blocks/norm_mlp/scale": ((L, d), "vector", (), (), None),
    "blocks/mlp/up/bias": ((L, ff), "vector", (), (), None),
}
SEPARATE = {
    "block_0/attention/query/kernel": ((d, heads, hd), "hidden", (0,), (), None),
    "layers/0/attention/key/kernel": ((d, heads, hd), "hidden", (0,), (), None),
    "encoder/attention/value/kernel": ((d, d), "hidden", (0,), (), None),
    "block_0/attention/out/kernel": ((heads, hd, d), "hidden", (0, 1), (), None),
    "block_0/attention/query/bias": ((heads, hd), "vector", (), (), None),
}


@pytest.mark.parametrize("prefix", ["", "params/"])
@pytest.mark.parametrize("model", [DECODER, SCANNED, SEPARATE], ids=["decoder", "scanned", "separate"])
def test_defaults_cover_our_models(model, prefix):
    described = by_path(tree({prefix + path: shape for path, (shape, *_) in model.items()}))
    assert described == {
        prefix + path: Leaf(prefix + path, role, shape, fan_in, stacked, vocab_axis)
        for path, (shape, role, fan_in, stacked, vocab_axis) in model.items()
    }


def test_fan_in_of_scanned_attention_out_with_separate_heads():
    (leaf,) = by_path(tree({"blocks/attention/out/kernel": (L, heads, hd, d)})).values()
    assert (leaf.fan_in, leaf.stacked) == ((1, 2), (0,))


def test_blocks_in_a_list_are_not_stacked():
    params = {"blocks": [{"mlp": {"up": {"kernel": jnp.zeros((d, ff))}}} for _ in range(2)]}
    leaves = jax.tree.leaves(classify(params))
    assert [leaf.path for leaf in leaves] == ["blocks/0/mlp/up/kernel", "blocks/1/mlp/up/kernel"]
    assert all(leaf.fan_in == (0,) and leaf.stacked == () for leaf in leaves)


def test_an_undeclared_stack_of_layers_is_refused_and_not_read_as_heads():
    # [L, d, heads·hd] could otherwise be read as [d, heads, hd].
    with pytest.raises(InputError, match="'layers/attention/query/kernel'"):
        classify(tree({"layers/attention/query/kernel": (L, d, d)}))


class Fields(NamedTuple):
    kernel: jax.Array
    bias: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Module:
    scale: jax.Array
    table: jax.Array


def test_names_take_precedence_over_ranks():
    shapes = {"a/bias": (2, 3, 4), "b/scale": (), "c/gain": (2, 3), "bias": (7,)}
    assert set(jax.tree.leaves(labels(tree(shapes)))) == {"vector"}


@pytest.mark.parametrize(
    "path",
    [
        "my/embedding/embedding",
        "embedding/embedding/extra",
        "head/kernel2",
        "bias2",
        "not_bias",
        "value_head/kernel",
        "block_x/mlp/up/kernel",
    ],
)
def test_patterns_match_only_whole_paths(path):
    with pytest.raises(InputError, match=f"{path!r}.*no declaration"):
        classify(tree({path: (m, d)}))


def test_a_leaf_of_the_wrong_rank_is_named_with_its_declaration():
    with pytest.raises(InputError, match=r"'embedding/embedding' of shape \(2, 24, 8\).*not for rank 3"):
        classify(tree({"embedding/embedding": (2, m, d)}))


def test_rank_three_needs_declared_axes():
    params = tree({"mix/kernel": (2, 3, 4)})
    with pytest.raises(InputError, match="'mix/kernel'.*fan_in"):
        classify(params, extra=(Declaration("mix/kernel", "hidden"),))
    (leaf,) = jax.tree.leaves(classify(params, extra=(Declaration("mix/kernel", "hidden", fan_in=(0, 1)),)))
    assert leaf.fan_in == (0, 1)
    # Declaring the stacked axis leaves a matrix, for which the convention applies.
    (leaf,) = jax.tree.leaves(classify(params, extra=(Declaration("mix/kernel", "hidden", stacked=(0,)),)))
    assert (leaf.fan_in, leaf.stacked) == ((1,), (0,))


def test_a_rank_one_matrix_role_is_refused():
    with pytest.raises(InputError, match="'w'.*hidden without declared axes"):
        classify({"w": jnp.zeros(3)}, extra=(Declaration("w", "hidden"),))


@pytest.mark.parametrize(
    ("role", "fan_in", "vocab_axis"),
    [("embedding", (1,), 0), ("position", (1,), None), ("hidden", (0,), None), ("output", (0,), 1)],
)
def test_conventions_for_undeclared_matrices(role, fan_in, vocab_axis):
    (leaf,) = jax.tree.leaves(classify({"w": jnp.zeros((3, 4))}, extra=(Declaration("w", role),)))
    assert (leaf.role, leaf.fan_in, leaf.vocab_axis) == (role, fan_in, vocab_axis)


def test_user_declarations_take_precedence():
    params = tree({"head/kernel": (d, m), "head/bias": (m,)})
    assert labels(params) == {"head": {"kernel": "output", "bias": "vector"}}
    extra = (Declaration(r"head/.*", "hidden", fan_in=(0,)),)
    assert labels(params, extra=extra) == {"head": {"kernel": "hidden", "bias": "hidden"}}


def test_conflicting_declarations_of_equal_precedence_are_an_error():
    params = tree({"w": (3, 4)})
    first = Declaration("w", "hidden")
    with pytest.raises(InputError, match="'w'.*hidden.*output.*disagree"):
        classify(params, extra=(first, Declaration(".", "output")))
    with pytest.raises(InputError, match="disagree in role or axes"):
        classify(params, extra=(first, Declaration(".", "hidden", fan_in=(1,))))
    assert labels(params, extra=(first, Declaration(".", "hidden", fan_in=(0,)))) == {"w": "hidden"}


def test_no_path_matches_two_conflicting_defaults():
    for path, rank in [("a/b/attention/out/kernel", 2), ("blocks/attention/out/kernel", 3)]:
        assert sum(d.names(path) and d.admits(rank) for d in DEFAULT) == 1


@pytest.mark.parametrize(
    "declaration",
    [
        Declaration("w", "hidden", fan_in=(2,)),
        Declaration("w", "hidden", fan_in=(0,), stacked=(0,)),
        Declaration("w", "output", fan_in=(0,), vocab_axis=0),
    ],
)
def test_axes_must_exist_and_be_distinct(declaration):
    with pytest.raises(InputError, match="'w'.*distinct and below its rank 2"):
        classify({"w": jnp.zeros((3, 4))}, extra=(declaration,))


@pytest.mark.parametrize(
    "arguments",
    [
        {"role": "matrix"},
        {"pattern": "(", "role": "hidden"},
        {"role": "hidden", "fan_in": (-1,)},
        {"role": "hidden", "fan_in": (0, 0)},
        {"role": "hidden", "fan_in": 0},
        {"role": "output", "vocab_axis": "0"},
    ],
)
def test_bad_declarations(arguments):
    with pytest.raises(InputError, match="declaration"):
        Declaration(**{"pattern": "w", **arguments})
    with pytest.raises(InputError, match="Declaration"):
        classify({"w": jnp.zeros(3)}, extra=("w",))


def test_all_container_types_are_supported():
    params = {
        "list": [jnp.zeros((3, 4)), jnp.zeros((4, 3))],
        "pair": (Fields(jnp.zeros((2, 2)), jnp.zeros(2)),),
        "module": Module(jnp.zeros(2), jnp.zeros((5, 2))),
        "none": None,
    }
    extra = (
        Declaration("module/table", "embedding"),
        Declaration(r"list/\d", "hidden"),
        Declaration("pair/0/kernel", "output"),
    )
    described = classify(params, extra=extra)
    assert jax.tree.structure(described) == jax.tree.structure(params)
    assert labels(params, extra=extra) == {
        "list": ["hidden", "hidden"],
        "pair": (Fields("output", "vector"),),
        "module": Module("vector", "embedding"),
        "none": None,
    }
    assert labels(jnp.zeros((2, 3)), extra=(Declaration("", "hidden"),)) == "hidden"
    with pytest.raises(InputError, match="parameter ''"):
        classify(jnp.zeros((2, 3)))


def test_tracers_are_supported():
    seen = []

    @jax.jit
    def trace(params):
        seen.append(labels(params))
        return 0

    trace({"head": {"kernel": jnp.zeros((d, m))}})
    assert seen == [{"head": {"kernel": "output"}}]


def test_the_roles():
    assert ROLES == ("embedding", "position", "hidden", "output", "vector")
    assert {declaration.role for declaration in DEFAULT} == set(ROLES)
