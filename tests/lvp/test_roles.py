"""Every leaf has one role and its axes, or an error names it."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp.errors import InputError
from lvp.roles import DEFAULT, ROLES, Declaration, Leaf, check_used, classify, labels

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
        prefix + path: Leaf(
            prefix + path, role, shape, fan_in, stacked, vocab_axis, fused=(d, d, d) if "qkv" in path else ()
        )
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


@pytest.mark.parametrize("parent", ["layers", "ScanBlock_0", "decoder/VmapScanBlock_0", "stack"])
def test_an_undeclared_stack_of_layers_is_refused(parent):
    # [L, d, heads·hd] could otherwise be read as [d, heads, hd].
    for name in ("query", "out"):
        with pytest.raises(InputError, match=f"'{parent}/attention/{name}/kernel'.*stacked=AXES for stacked layers"):
            classify(tree({f"{parent}/attention/{name}/kernel": (L, d, d)}))


def test_a_stack_of_vectors_is_not_a_matrix():
    params = tree({"layers/up/weight": (L, d, d), "layers/norm/weight": (L, d), "head/weight": (m, d)})
    up = Declaration(r"layers/up/\w+", "hidden", fan_in=(2,), stacked=(0,))
    with pytest.raises(
        InputError, match=r"'layers/norm/weight' of shape \(3, 8\) \(position\): axis 0 is as long as"
    ) as error:
        classify(params, extra=(up, Declaration("head/weight", "embedding"), Declaration(".*", "position")))
    assert "head/weight" not in str(error.value)
    for declared in (Declaration(".*norm.*", "vector"), Declaration(".*norm.*", "position", fan_in=(1,))):
        classify(params, extra=(up, declared, Declaration(".*", "position")))
    # Control: beside the stack, and without a stack, a matrix may have this length.
    classify(tree({"layers/up/weight": (L, d, d), "head/weight": (L, d)}), extra=(up, Declaration(".*", "position")))
    classify(tree({"layers/norm/weight": (L, d)}), extra=(Declaration(".*", "position"),))


def test_one_error_lists_all_problems_of_a_tree():
    params = tree({"a/kernel": (2, 3, 4), "b/weight": (3, 4), "c": (3, 4), "block_0/mlp/up/kernel": (d, ff)})
    with pytest.raises(InputError, match="'c' of.*no declaration.*'a/kernel'.*fan-in is unknown.*'b/weight'") as error:
        classify(params, extra=(Declaration("[ab]/.*", "hidden"),))
    assert "\n" not in str(error.value) and "mlp" not in str(error.value)
    with pytest.raises(InputError, match="; and 15 more$"):
        classify(tree({f"{i}/kernel": (2, 3, 4) for i in range(20)}), extra=(Declaration(".*", "hidden"),))


def test_tokens_in_use_of_a_padded_vocabulary():
    params = tree({"head/kernel": (d, m)})
    padded = lambda tokens: (Declaration("head/kernel", "output", tokens=tokens),)  # noqa: E731
    assert by_path(params)["head/kernel"].vocab == m
    assert by_path(params, extra=padded(20))["head/kernel"].vocab == 20
    for tokens, said in ((m + 1, "tokens 25 of declaration 'head/kernel' needs a vocab_axis"), (0, "positive integer")):
        with pytest.raises(InputError, match=said):
            classify(params, extra=padded(tokens))


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
    with pytest.raises(InputError, match="'w'.*hidden.*its fan-in is unknown; put Declaration"):
        classify({"w": jnp.zeros(3)}, extra=(Declaration("w", "hidden"),))


@pytest.mark.parametrize(
    ("role", "fan_in", "vocab_axis"),
    [("embedding", (1,), 0), ("position", (1,), None), ("hidden", (0,), None), ("output", (0,), 1)],
)
def test_conventions_for_undeclared_matrices(role, fan_in, vocab_axis):
    (leaf,) = jax.tree.leaves(classify({"w": jnp.zeros((3, 4))}, extra=(Declaration("w", role),)))
    assert (leaf.role, leaf.fan_in, leaf.vocab_axis) == (role, fan_in, vocab_axis)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Weight:
    weight: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Value:
    value: jax.Array


@pytest.mark.parametrize(
    ("params", "fan_in"),
    [
        ({"kernel": jnp.zeros((3, 4))}, (0,)),  # Flax Linen
        ({"kernel": Value(jnp.zeros((3, 4)))}, (0,)),  # Flax NNX
        ({"w": jnp.zeros((3, 4))}, (0,)),  # Haiku
        (Weight(jnp.zeros((3, 4))), (1,)),  # Equinox
    ],
)
def test_the_fan_in_is_that_of_the_framework(params, fan_in):
    for role in ("hidden", "output", "router"):
        (leaf,) = jax.tree.leaves(classify(params, extra=(Declaration(".*", role),)))
        assert leaf.fan_in == fan_in


@pytest.mark.parametrize("name", ["weight", "lm_head", "value"])
def test_the_fan_in_of_other_names_is_asked_for(name):
    with pytest.raises(InputError, match=rf"'{name}' of shape \(3, 4\).*fan_in=\(0,\) for \[in, out\], fan_in=\(1,\)"):
        classify({name: jnp.zeros((3, 4))}, extra=(Declaration(".*", "hidden"),))
    classify({name: jnp.zeros((3, 4))}, extra=(Declaration(".*", "hidden", fan_in=(1,)),))
    classify({name: jnp.zeros((3, 4))}, extra=(Declaration(".*", "embedding"),))  # a table's rows are its neurons


def test_the_array_of_a_variable_and_the_variable_have_one_path():
    """`nnx.Optimizer` passes variables to `init` and their arrays to `update`."""
    extra = (Declaration("out/kernel", "output"),)
    array, held = jnp.zeros((3, 4)), Value(jnp.zeros((3, 4)))
    (bare,) = jax.tree.leaves(classify({"out": {"kernel": array}}, extra=extra))
    (inside,) = jax.tree.leaves(classify({"out": {"kernel": held}}, extra=extra))
    assert bare == inside and bare.path == "out/kernel"
    # The entry `value` of a dict, such as an attention's, is a part of the path.
    (entry,) = jax.tree.leaves(classify({"attention": {"value": array}}, extra=(Declaration(".*", "embedding"),)))
    assert entry.path == "attention/value"


def test_a_role_of_ones_own():
    (leaf,) = jax.tree.leaves(classify({"kernel": jnp.zeros((3, 4))}, extra=(Declaration(".*", "router"),)))
    assert (leaf.role, leaf.vocab_axis, leaf.fan_out) == ("router", None, (1,))
    assert (leaf.size(leaf.fan_in), leaf.size(leaf.fan_out)) == (3, 4)


def test_user_declarations_take_precedence():
    params = tree({"head/kernel": (d, m), "head/bias": (m,)})
    assert labels(params) == {"head": {"kernel": "output", "bias": "vector"}}
    extra = (Declaration(r"head/.*", "hidden", fan_in=(0,)),)
    assert labels(params, extra=extra) == {"head": {"kernel": "hidden", "bias": "hidden"}}


def test_the_first_match_decides():
    params = tree({"head/kernel": (3, 4), "up/kernel": (4, 3)})
    head, rest = Declaration("head/kernel", "output"), Declaration(".*/kernel", "hidden")
    assert labels(params, extra=(head, rest)) == {"head": {"kernel": "output"}, "up": {"kernel": "hidden"}}
    assert set(jax.tree.leaves(labels(params, extra=(rest, head)))) == {"hidden"}
    ranks = (Declaration(".*", "vector", rank=1), rest)  # a declaration for another rank does not match
    assert set(jax.tree.leaves(labels(params, extra=ranks))) == {"hidden"}


def test_every_declaration_decides_a_parameter():
    params = tree({"head/kernel": (3, 4), "up/kernel": (4, 3)})
    head, rest = Declaration("head/kernel", "output"), Declaration(".*/kernel", "hidden")
    check_used(params, (head, rest))
    with pytest.raises(InputError, match="'head/kernel' decides nothing, because '.*/kernel' comes first") as late:
        check_used(params, (rest, head))
    with pytest.raises(InputError, match="'hed/kernel' matches no parameter") as absent:
        check_used(params, (Declaration("hed/kernel", "output"), rest))
    with pytest.raises(InputError, match="'.*' matches no parameter"):
        check_used(params, (rest, Declaration(".*", "hidden", rank=3)))
    assert not any("\n" in str(error.value) for error in (late, absent))
    absent, late = Declaration("bias", "vector", optional=True), Declaration("head/kernel", "output", optional=True)
    check_used(params, (head, rest, absent, late))


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
        {"role": ""},
        {"role": 3},
        {"pattern": "(", "role": "hidden"},
        {"role": "hidden", "fan_in": (-1,)},
        {"role": "hidden", "fan_in": (0, 0)},
        {"role": "hidden", "fan_in": 0},
        {"role": "output", "vocab_axis": "0"},
        {"role": "hidden", "rank": [2, 3]},
        {"role": "hidden", "rank": "2"},
    ],
)
def test_bad_declarations(arguments):
    with pytest.raises(InputError, match="declaration"):
        Declaration(**{"pattern": "w", **arguments})
    with pytest.raises(InputError, match="Declaration"):
        classify({"w": jnp.zeros(3)}, extra=("w",))


def test_axes_and_sizes_may_be_numbers_of_numpy():
    one, rows = np.int64(1), np.int32(3)
    declared = Declaration("w", "output", fan_in=(one,), vocab_axis=one * 0, rank=one + 1, tokens=rows)
    (leaf,) = jax.tree.leaves(classify({"w": jnp.zeros((4, 5))}, extra=[declared]))
    assert (leaf.fan_in, leaf.vocab_axis, leaf.tokens) == ((1,), 0, 3)


def test_all_container_types_are_supported():
    params = {
        "list": [jnp.zeros((3, 4)), jnp.zeros((4, 3))],
        "pair": (Fields(jnp.zeros((2, 2)), jnp.zeros(2)),),
        "module": Module(jnp.zeros(2), jnp.zeros((5, 2))),
        "none": None,
    }
    extra = (
        Declaration("module/table", "embedding"),
        Declaration(r"list/\d", "hidden", fan_in=(0,)),
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
    assert labels(jnp.zeros((2, 3)), extra=(Declaration("", "hidden", fan_in=(0,)),)) == "hidden"
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
