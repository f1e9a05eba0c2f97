"""Roles of parameters: embedding, position, hidden, output, vector, and roles of your own.

Initialisation, learning rate, decay, neurons of rotational optimizers and sharding depend on the role. Declarations map
a leaf's "/"-joined path to its role and axes, and the first declaration that matches decides. Every leaf needs a
declaration.
"""

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import jax
from jax.tree_util import DictKey, GetAttrKey

from lvp import role_inference
from lvp.errors import InputError, refuse, shown

ROLES = ("embedding", "position", "hidden", "output", "vector")
"""The roles for which every rule has a row. A declaration may also name "tied", one matrix that is both embedding and
head, or a role of your own, whose row the rule or the user gives (`lvp.parametrization.Table.with_rows`)."""

VOCABULARY = ("embedding", "output", "tied")
"""The roles of matrices with a row or column per token."""


def _is_axes(axes: Any) -> bool:
    if not isinstance(axes, tuple) or not all(isinstance(axis, Integral) for axis in axes):
        return False
    return not any(isinstance(axis, bool) or axis < 0 for axis in axes) and len(set(axes)) == len(axes)


@dataclass(frozen=True)
class Declaration:
    """The role and axes of all leaves whose path matches a pattern.

    Attributes:
      pattern: regular expression that must match the *whole* "/"-joined path ("block_0/mlp/up/kernel"; list
        items are their index, dataclass and NamedTuple fields their name; a bare array has the path ""). A last
        attribute `value`, as of a Flax NNX variable, is not a part of the path.
      role: one of ROLES, "tied", or the name of a role of your own.
      fan_in: axes of the array, stacked axes counted, over which one neuron sums. None is the convention of the leaf's
        framework, for a leaf of rank 2 without its stacked axes: in embedding, position and tied, a row is a neuron; a
        matrix is [in, out] if it is called `kernel` (Flax) or is the entry `w` of a dict (Haiku), and [out, in] if it
        is the field `weight` of an object (Equinox). Other names and ranks require `fan_in`. Vectors have no fan-in.
      stacked: axes that stack layers ("blocks/…" of a scanned model).
      vocab_axis: the token axis. None is, for embedding, output and tied, the only axis that is neither stacked nor
        fan-in (None if there are several).
      tokens: the number of tokens in use, for a vocabulary that is padded along `vocab_axis`. None is all. Coupled Adam
        divides by it, and it is compared with `vocab` of a rule. The padding must have gradients of zero.
      rank: the rank (or ranks) of the leaves to which the declaration applies; None is any rank. The same path can
        have a declaration per rank: `attention/out/kernel` is [heads · hd, d] or [heads, hd, d].
      fused: matrices that are concatenated along the only axis that is neither stacked nor fan-in: their number, or
        their lengths along this axis (queries, keys and values in one kernel). Muon treats each by itself.
      optional: True if the declaration may decide nothing. Other declarations must decide a parameter (`check_used`).

    Raises:
      InputError: `role` is not a non-empty string, `pattern` does not compile, axes are not a tuple of distinct
        non-negative integers, or `tokens` is not a positive integer.
    """

    pattern: str
    role: str
    fan_in: tuple[int, ...] | None = None
    stacked: tuple[int, ...] = ()
    vocab_axis: int | None = None
    rank: int | tuple[int, ...] | None = None
    optional: bool = False
    tokens: int | None = None
    fused: int | tuple[int, ...] = 1

    def __post_init__(self):
        if not isinstance(self.role, str) or not self.role:
            raise InputError(f"declaration {self.pattern!r}: role must be a name such as {ROLES}, not {self.role!r}")
        try:
            re.compile(self.pattern)
        except (re.error, TypeError) as error:
            raise InputError(f"declaration {self.pattern!r}: not a regular expression ({error})") from error
        vocab = () if self.vocab_axis is None else (self.vocab_axis,)
        for name, axes in (("fan_in", self.fan_in), ("stacked", self.stacked), ("vocab_axis", vocab)):
            if axes is not None and not _is_axes(axes):
                raise InputError(
                    f"declaration {self.pattern!r}: {name} must be a tuple of distinct axes counted from 0, such as "
                    f"(0,); got {axes!r}"
                )
        if self.tokens is not None and not (_is_axes((self.tokens,)) and self.tokens):
            raise InputError(f"declaration {self.pattern!r}: tokens must be a positive integer, got {self.tokens!r}")
        if self.rank is not None and not _is_axes(self.rank if isinstance(self.rank, tuple) else (self.rank,)):
            raise InputError(
                f"declaration {self.pattern!r}: rank must be a number of axes or a tuple of them, got {self.rank!r}"
            )
        parts = self.fused if isinstance(self.fused, tuple) else (self.fused,)
        if not parts or not all(_is_axes((part,)) and part for part in parts):
            raise InputError(
                f"declaration {self.pattern!r}: fused must be a positive integer or a tuple of them, got {self.fused!r}"
            )

    def names(self, path: str) -> bool:
        """True if the pattern matches the whole `path`; the leaf's rank is not checked."""
        return re.fullmatch(self.pattern, path) is not None

    def admits(self, rank: int) -> bool:
        """True if the declaration applies to leaves of this rank."""
        return self.rank is None or rank in (self.rank if isinstance(self.rank, tuple) else (self.rank,))


@dataclass(frozen=True)
class Leaf:
    """The description of one parameter, a leaf of the tree that `classify` returns."""

    path: str  # "/"-joined
    role: str  # the declaration's
    shape: tuple[int, ...]  # of the array
    fan_in: tuple[int, ...]  # axes over which a neuron sums; empty for vectors
    stacked: tuple[int, ...]  # axes that stack layers; possibly empty
    vocab_axis: int | None  # the token axis; None if there is none or it is unknown
    tokens: int | None = None  # the declared number of tokens in use; None if the vocabulary is not padded
    # Lengths of concatenated matrices along the only axis of `fan_out`; possibly empty; None if they are unknown.
    fused: tuple[int, ...] | None = ()

    @property
    def vocab(self) -> int | None:
        """The number of tokens in use; None without a token axis."""
        return self.shape[self.vocab_axis] if self.tokens is None and self.vocab_axis is not None else self.tokens

    @property
    def layer_axes(self) -> tuple[int, ...]:
        """The axes of one layer: all axes that do not stack layers."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.stacked)

    @property
    def fan_out(self) -> tuple[int, ...]:
        """The axes of one layer over which a neuron does not sum."""
        return tuple(axis for axis in self.layer_axes if axis not in self.fan_in)

    def size(self, axes: tuple[int, ...]) -> int:
        """The number of entries along these axes."""
        return math.prod(self.shape[axis] for axis in axes)


_ROOT = r"(?:params/)?"
_BLOCK = _ROOT + r"(?:block_\d+|(?:blocks|layers)/\d+)/"
_SCANNED = _ROOT + r"blocks/"

DEFAULT: tuple[Declaration, ...] = (
    Declaration(r"(?:.*/)?(?:bias|scale|gain)", "vector"),
    Declaration(_ROOT + "embedding/embedding", "embedding", fan_in=(1,), vocab_axis=0, rank=2),
    Declaration(_ROOT + "position/embedding", "position", fan_in=(1,), rank=2),
    Declaration(_ROOT + "tied_embedding/embedding", "output", fan_in=(1,), vocab_axis=0, rank=2),
    Declaration(_ROOT + "head/kernel", "output", fan_in=(0,), vocab_axis=1, rank=2),
    Declaration(_BLOCK + "mlp/(?:up|gate|down)/kernel", "hidden", fan_in=(0,), rank=2),
    Declaration(_BLOCK + "attention/qkv/kernel", "hidden", fan_in=(0,), rank=2, fused=3),
    Declaration("(?:.*/)?attention/(?:query|key|value|out)/kernel", "hidden", fan_in=(0,), rank=2),
    # Of rank 3, the first axis stacks layers under other parents, such as nn.scan's `ScanBlock_0`.
    Declaration(_BLOCK + "attention/(?:query|key|value)/kernel", "hidden", fan_in=(0,), rank=3),
    Declaration(_BLOCK + "attention/out/kernel", "hidden", fan_in=(0, 1), rank=3),
    Declaration(_SCANNED + "mlp/(?:up|gate|down)/kernel", "hidden", fan_in=(1,), stacked=(0,), rank=3),
    Declaration(_SCANNED + "attention/qkv/kernel", "hidden", fan_in=(1,), stacked=(0,), rank=3, fused=3),
    Declaration(_SCANNED + "attention/(?:query|key|value)/kernel", "hidden", fan_in=(1,), stacked=(0,), rank=(3, 4)),
    Declaration(_SCANNED + "attention/out/kernel", "hidden", fan_in=(1,), stacked=(0,), rank=3),
    Declaration(_SCANNED + "attention/out/kernel", "hidden", fan_in=(1, 2), stacked=(0,), rank=4),
)
"""The parameters of `lvp.models.decoder`, unscanned and scanned, and Flax's separate attention kernels. The tree may be
nested in `params/`.

The papers do not cover two cases:
- *Tied* (`tied_embedding/embedding`, [m, d]): the shared matrix has the role `output` here, because the committed runs
  of tied decoders name its rate and init std so. In a model of your own, declare it `tied`
  (`lvp.parametrization.tables.with_tied`).
- *Learned positions* (`position/embedding`, [T, d]) have a separate role with the **embedding**'s row in every table.
  Both are lookup tables whose rows are added to the same residual stream, so the size and the change of a row have the
  same bounds.
"""


def path_of(keys: Sequence[Any]) -> str:
    """The "/"-joined path of a leaf, without a last attribute `value`.

    A Flax NNX variable holds its array in the attribute `value`. `nnx.Optimizer` passes variables to `init` and their
    arrays to `update`, so that the same parameter has both paths.
    """
    if len(keys) > 1 and keys[-1] == GetAttrKey("value"):
        keys = keys[:-1]
    return jax.tree_util.keystr(tuple(keys), simple=True, separator="/")


def classify(params: Any, declarations: Sequence[Declaration] = DEFAULT, extra: Sequence[Declaration] = ()) -> Any:
    """Returns role and axes of every parameter, from the first declaration that matches its path and rank.

    Under the defaults, a leaf called `bias`, `scale` or `gain` is a vector at any rank (it has rank 2 in stacked
    blocks).

    Args:
      params: any pytree of arrays (or of anything with a `shape`: `jax.ShapeDtypeStruct`, tracers).
      declarations: declarations for the leaves that `extra` does not cover.
      extra: declarations that come before `declarations`, usually the user's.

    Returns:
      A pytree of `Leaf` with the structure of `params`.

    Raises:
      InputError: a declaration is not a `Declaration`; a leaf has no declaration for its path and rank; the fan-in of a
        leaf is neither declared nor known from its framework; a matrix by convention, beside stacked layers, may be a
        stack of vectors; declared axes overlap, or the leaf does not have them; `tokens` exceeds the length of the
        token axis. The message has the first five problems of the tree.
    """
    ordered = (*extra, *declarations)
    check_declarations(ordered)
    leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
    shapes = [(keys, path_of(keys), tuple(getattr(leaf, "shape", ()))) for keys, leaf in leaves]
    missing = [(path, shape) for _, path, shape in shapes if not any(d.names(path) for d in ordered)]
    problems = [_undeclared([path for path, _ in missing], missing[0][1])] if missing else []
    described, conventional = [], []
    for keys, path, shape in shapes:
        if (path, shape) in missing:
            continue
        try:
            declaration = _deciding(path, shape, ordered)
            described.append(_leaf(keys, path, shape, declaration))
        except InputError as error:
            problems.append(str(error))
        else:
            if declaration.fan_in is None and not declaration.stacked and described[-1].fan_in:
                conventional.append(described[-1])
    refuse([*problems, *_stacks(conventional, [leaf for leaf in described if leaf.stacked])])
    return jax.tree_util.tree_unflatten(treedef, described)


def infer(shapes: Any, other: Any, *, vocab: int, declarations: Sequence[Declaration] = ()) -> tuple[Declaration, ...]:
    """Returns declarations of a model's parameters, from their shapes at two widths.

    The axes that grow with the width decide:

    - A parameter of rank 1 is a vector. So is one whose name is that of a bias, scale, gain or norm.
    - A matrix with `vocab` tokens is an embedding or a head. A single matrix [tokens, width] is tied. Of two, the
      matrix [tokens, width] with "embed", "wte" or "token" in its path is the embedding.
    - A parameter with two or more growing axes is a hidden matrix. The bias of its module tells the outputs, else the
      convention of the framework does (`Declaration.fan_in`).
    - An axis that does not grow stacks layers if all parameters of a module have it, among them a norm or a bias
      [layers, width]. Without such a vector, "experts" in the path says so.
    - A parameter with one growing axis is a position table, or a hidden matrix of keys or values, if its name says so.

    Declare routers, LoRA matrices, and fused matrices for Muon. A matrix [tokens, width] that is only a head, or only
    an embedding, looks tied. Check the result: `print(optim.describe(tx, params))` shows the role and the fan-in of
    every parameter.

    Args:
      shapes: pytree of anything with a `shape`, such as `jax.eval_shape(init, key)`.
      other: the same at another width. Depth, vocabulary and context are equal.
      vocab: length of the token axis, with its padding.
      declarations: the user's. They decide the parameters that they match.

    Returns:
      `declarations`, and then one declaration for all parameters of the same role and axes. Its pattern has the paths;
      a number in them is any number, if this does not change a role.

    Raises:
      InputError: `vocab` is not a positive integer, equals the width, or is no parameter's number of tokens; the trees
        have different paths or ranks, or a leaf without a shape; no axis grows, or one grows and another shrinks;
        the width of matrices with `vocab` tokens differs; shapes and names do not decide a parameter. The message has
        all undecided parameters.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from lvp import roles
      >>> def init(width):
      ...     return {"wte": jnp.zeros((512, width)), "up": {"kernel": jnp.zeros((width, 4 * width))}}
      >>> for declaration in roles.infer(init(64), init(128), vocab=512):
      ...     print(declaration.pattern, declaration.role, declaration.fan_in)
      up/kernel hidden (0,)
      wte tied (1,)
    """
    check_declarations(declarations)
    if isinstance(vocab, bool) or not isinstance(vocab, Integral) or vocab < 1:
        raise InputError(f"vocab must be a positive integer, got {shown(vocab)}")
    parameters = _at_two_widths(shapes, other, declarations)
    lengths = {parameter.path: tuple(zip(*parameter.lengths, strict=True)) for parameter in parameters}
    decided = role_inference.roles_of(parameters, int(vocab))
    alike = defaultdict(set)
    for path, role in decided.items():
        alike[_numbered(path)].add(role)
    patterns: defaultdict[Any, dict[str, None]] = defaultdict(dict)
    for path, role in decided.items():
        pattern = _numbered(path) if len(alike[_numbered(path)]) == 1 else re.escape(path)
        if isinstance(role, str):  # the reason why it is undecided
            pattern = f"{pattern!r} {lengths[path][0]} → {lengths[path][1]}"
        patterns[role][pattern] = None
    if undecided := [f"{', '.join(named)}: {role}" for role, named in patterns.items() if isinstance(role, str)]:
        raise InputError(
            f"undecided parameters: {'; '.join(undecided)}. Add Declaration(PATTERN, ROLE, fan_in=AXES) of each to "
            "declarations"
        )
    return (*declarations, *(Declaration("|".join(named), *role) for role, named in patterns.items()))


def _numbered(path: str) -> str:
    """The pattern of all paths that differ from `path` in numbers only."""
    return re.sub(r"\d+", r"\\d+", re.escape(path))


def _at_two_widths(shapes: Any, other: Any, declarations: Sequence[Declaration]) -> list[role_inference.Parameter]:
    """Returns the parameters of two trees with their lengths in both, or refuses trees that do not correspond."""
    trees = []
    for tree in (shapes, other):
        leaves = [(keys, path_of(keys), leaf) for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)]
        for _, path, leaf in leaves:
            if not hasattr(leaf, "shape"):
                raise InputError(f"leaf {path!r} has no shape: give parameters only")
        trees.append({path: (keys, tuple(leaf.shape)) for keys, path, leaf in leaves})
    if missing := sorted(trees[0].keys() ^ trees[1].keys()):
        raise InputError(f"parameter {missing[0]!r} is in one of shapes and other only: change only the width")
    parameters = []
    for path, (keys, shape) in trees[0].items():
        if len(shape) != len(wide := trees[1][path][1]):
            raise InputError(f"parameter {path!r} has rank {len(shape)} and {len(wide)}: change only the width")
        declared = next((d.role for d in declarations if d.names(path) and d.admits(len(shape))), None)
        lengths = tuple(zip(shape, wide, strict=True))
        parameters.append(role_inference.Parameter(path, _last(keys), lengths, _order(keys), declared))
    return parameters


def _stacks(conventional: Sequence[Leaf], stacked: Sequence[Leaf]) -> Iterator[str]:
    """Problems: matrices by convention in a module that stacks layers, with an axis as long as the stack."""
    for leaf in conventional:
        for other in stacked:
            module = os.path.commonprefix([leaf.path.split("/"), other.path.split("/")])
            axes = [axis for axis in other.stacked if leaf.shape[axis : axis + 1] == (other.shape[axis],)]
            if module not in ([], ["params"]) and axes:
                yield (
                    f"parameter {leaf.path!r} of shape {leaf.shape} ({leaf.role}): axis {axes[0]} is as long as the "
                    f"stack of layers in {other.path!r}; declare it as 'vector' if it stacks vectors, else give its "
                    "fan_in"
                )
                break


def check_whole(leaves: Sequence[Leaf], arrays: Sequence[Any]) -> None:
    """Checks that matrices are whole arrays, of which norms, means and random values may be taken.

    Raises:
      InputError: a matrix varies over devices inside of `jax.shard_map`. With `check_vma=False`, JAX does not know what
        varies, and nothing is checked.
    """
    for leaf, x in zip(leaves, arrays, strict=True):
        if leaf.role != "vector" and isinstance(x, jax.core.Tracer) and (axes := _varying(x)):
            raise InputError(
                f"parameter {leaf.path!r} varies over the axes {sorted(map(str, axes))} of shard_map, and a norm or "
                "mean would be that of one device's part: call lvp.optim outside of shard_map, or, if each device "
                "holds the whole parameter, with check_vma=False"
            )


def _varying(x: jax.Array) -> frozenset:
    """The mesh axes of `jax.shard_map` over which a traced array varies."""
    kind: Any = jax.typeof(x)
    return kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else kind.vma  # JAX from, before 0.10


def over_boxes(function: Callable[[Leaf, Any], Any], described: Any, params: Any) -> Any:
    """Returns function(leaf, node) for every parameter: node is its array, or the box of metadata that holds it.

    A box is a node with the one attribute `value`, an array: `flax.linen.Partitioned`, a variable of Flax NNX. Its
    sharding is for the parameter's shape. State of another shape therefore replaces the box too.

    Args:
      described: the result of `classify` for `params`.
      params: pytree of arrays, in which `optax.masked` may have removed some.
    """
    leaves = iter(jax.tree.leaves(described))
    return jax.tree.map(lambda x: function(next(leaves), x) if jax.tree.leaves(x) else x, params, is_leaf=_is_box)


def _is_box(node: Any) -> bool:
    children = jax.tree_util.tree_leaves_with_path(node, is_leaf=lambda child: child is not node)
    return [keys for keys, _ in children] == [(GetAttrKey("value"),)] and jax.tree_util.all_leaves([children[0][1]])


def check_declarations(declarations: Sequence[Any]) -> None:
    """Checks the type of declarations.

    Raises:
      InputError: `declarations` is not a sequence, or a declaration is not a `Declaration`.
    """
    if not isinstance(declarations, Sequence) or isinstance(declarations, str):
        raise InputError(
            f"declarations must be a list of lvp.roles.Declaration(PATTERN, ROLE), got {shown(declarations)}"
        )
    for declaration in declarations:
        if not isinstance(declaration, Declaration):
            raise InputError(
                f"declarations must be a list of lvp.roles.Declaration(PATTERN, ROLE); an element is {declaration!r}"
            )


def labels(params: Any, declarations: Sequence[Declaration] = DEFAULT, extra: Sequence[Declaration] = ()) -> Any:
    """The role (a string) of every parameter, in the structure of `params`. The arguments are those of `classify`.

    Raises:
      InputError: a declaration is not a `Declaration`; a parameter has no declaration, no known fan-in, or axes that do
        not fit.
    """
    return jax.tree.map(lambda leaf: leaf.role, classify(params, declarations, extra))


def check_used(params: Any, declarations: Sequence[Declaration]) -> None:
    """Checks that every declaration decides the role of a parameter, except optional declarations.

    Raises:
      InputError: a declaration matches no parameter, or only parameters that earlier declarations match.
    """
    leaves = jax.tree_util.tree_leaves_with_path(params)
    named = [(path_of(keys), len(getattr(leaf, "shape", ()))) for keys, leaf in leaves]
    waiting = [declaration for declaration in declarations if not declaration.optional]
    for path, rank in named:
        if (first := next((d for d in declarations if d.names(path) and d.admits(rank)), None)) in waiting:
            waiting.remove(first)
    for late in waiting:
        matched = [(path, rank) for path, rank in named if late.names(path) and late.admits(rank)]
        if not matched:
            raise InputError(f"declaration {late.pattern!r} matches no parameter: correct its pattern, or remove it")
        path, rank = matched[0]
        first = next(d for d in declarations if d.names(path) and d.admits(rank))
        raise InputError(
            f"declaration {late.pattern!r} decides nothing, because {first.pattern!r} comes first and matches {path!r} "
            "too: the first match decides, so put the special declaration before the general one"
        )


def _deciding(path: str, shape: tuple[int, ...], declarations: Sequence[Declaration]) -> Declaration:
    """The first declaration for this path and rank."""
    by_name = [d for d in declarations if d.names(path)]
    for declaration in by_name:
        if declaration.admits(len(shape)):
            return declaration
    raise InputError(
        f"parameter {path!r} of shape {shape}: declaration {by_name[0].pattern!r} is not for rank {len(shape)}; "
        "add an lvp.roles.Declaration for this rank, with stacked=AXES for stacked layers"
    )


def _undeclared(paths: Sequence[str], shape: tuple[int, ...]) -> str:
    """The error message for paths without a declaration; `shape` is that of the first path."""
    first, *others = paths
    shown = ", ".join(map(repr, others[:5])) + (f" and {len(others) - 5} more" if others[5:] else "")
    also = f" (nor the paths {shown})" if others else ""
    return (
        f"parameter {first!r} of shape {shape}: no declaration matches its path{also}; pass "
        f"declarations=[lvp.roles.Declaration({re.escape(first)!r}, ROLE), …], ROLE one of {', '.join(ROLES)}, or tied "
        "for one matrix that is both embedding and head"
    )


def _leaf(keys: Sequence[Any], path: str, shape: tuple[int, ...], declaration: Declaration) -> Leaf:
    role, stacked = declaration.role, declaration.stacked
    core = [axis for axis in range(len(shape)) if axis not in stacked]
    fan_in = declaration.fan_in
    if fan_in is None:
        fan_in = () if role == "vector" else _conventional(keys, path, shape, declaration, core)
    vocab_axis = declaration.vocab_axis
    free = [axis for axis in core if axis not in fan_in]
    if vocab_axis is None and role in VOCABULARY and len(free) == 1:
        vocab_axis = free[0]
    axes = (*fan_in, *stacked, *(() if vocab_axis is None else (vocab_axis,)))
    if any(axis >= len(shape) for axis in axes) or len(set(axes)) != len(axes):
        raise InputError(
            f"parameter {path!r} of shape {shape}: axes fan_in {fan_in}, stacked {stacked}, vocab_axis "
            f"{vocab_axis} of declaration {declaration.pattern!r} must be distinct and below its rank {len(shape)}: "
            "correct the declaration. Axes are those of the whole array, stacked axes counted"
        )
    tokens = declaration.tokens
    if tokens is not None and (vocab_axis is None or tokens > shape[vocab_axis]):
        raise InputError(
            f"parameter {path!r} of shape {shape}: tokens {tokens} of declaration {declaration.pattern!r} needs a "
            "vocab_axis of at least this length: correct the declaration"
        )
    return Leaf(
        path, role, shape, tuple(fan_in), tuple(stacked), vocab_axis, tokens, _fused(path, shape, declaration, free)
    )


def _fused(path: str, shape: tuple[int, ...], declaration: Declaration, free: Sequence[int]) -> tuple[int, ...] | None:
    """The lengths of the matrices that are concatenated along the only axis of `free`; empty for one matrix."""
    parts = declaration.fused
    if parts == 1:
        return ()
    length = shape[free[0]] if len(free) == 1 else None
    if declaration in DEFAULT and length != 3 * shape[(declaration.fan_in or (0,))[0]]:
        return None  # keys and values may have fewer heads than queries
    if isinstance(parts, Integral) and length is not None and length % parts == 0:
        return (length // parts,) * parts
    if not isinstance(parts, tuple) or sum(parts) != length:
        raise InputError(
            f"parameter {path!r} of shape {shape}: fused {parts} of declaration {declaration.pattern!r} does not "
            "divide its output axis: give the number of equal matrices, or their lengths"
        )
    return parts


_IN_OUT = (DictKey("kernel"), GetAttrKey("kernel"), DictKey("w"))  # Flax Linen and NNX, Haiku
_OUT_IN = (GetAttrKey("weight"),)  # Equinox


def _last(keys: Sequence[Any]) -> Any:
    """The last key of a path; NNX variables hold their array in the attribute `value`, which is not a part of it."""
    names = keys[:-1] if len(keys) > 1 and keys[-1] == GetAttrKey("value") else keys
    return names[-1] if names else None


def _order(keys: Sequence[Any]) -> str | None:
    """The order of the axes of a matrix by the convention of its framework; None if it has none."""
    name = _last(keys)
    return "in_out" if name in _IN_OUT else "out_in" if name in _OUT_IN else None


def _conventional(
    keys: Sequence[Any], path: str, shape: tuple[int, ...], declaration: Declaration, core: Sequence[int]
) -> tuple[int, ...]:
    """The fan-in of a leaf whose declaration does not give it; `core` are its axes without the stacked axes."""
    if len(core) != 2:
        raise InputError(
            f"parameter {path!r} of shape {shape} ({declaration.role}): its fan-in is unknown; put "
            f"Declaration({re.escape(path)!r}, {declaration.role!r}, fan_in=AXES) before the other declarations, with "
            "stacked=AXES for stacked layers"
        )
    if declaration.role in ("embedding", "position", "tied") or _order(keys) == "out_in":
        return (core[1],)
    if _order(keys) == "in_out":
        return (core[0],)
    raise InputError(
        f"parameter {path!r} of shape {shape}: its name does not say whether it is [in, out] or [out, in]; give the "
        f"Declaration {declaration.pattern!r} fan_in=({core[0]},) for [in, out], fan_in=({core[1]},) for [out, in]"
    )
