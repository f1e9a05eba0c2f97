"""Roles of parameters: embedding, position, hidden, output or vector.

Initialisation, learning rate, decay, neurons of rotational optimizers and sharding depend on the role. Declarations map
a leaf's "/"-joined path to its role and axes. A leaf without a declaration, or with contradictory declarations, raises
an error that names it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from lvp.errors import InputError

ROLES = ("embedding", "position", "hidden", "output", "vector")


def _is_axes(axes: Any) -> bool:
    if not isinstance(axes, tuple) or len(set(axes)) != len(axes):
        return False
    return all(isinstance(axis, int) and not isinstance(axis, bool) and axis >= 0 for axis in axes)


@dataclass(frozen=True)
class Declaration:
    """The role and axes of all leaves whose path matches a pattern.

    Attributes:
      pattern: regular expression that must match the *whole* "/"-joined path ("block_0/mlp/up/kernel"; list
        items are their index, dataclass and NamedTuple fields their name; a bare array has the path "").
      role: one of ROLES.
      fan_in: axes over which one neuron sums. None is the convention for a leaf of rank 2 without its stacked axes: the
        last axis for embedding and position (a row is a neuron), the first for hidden and output (a column is a
        neuron, Flax's [in, out]). It is required for other ranks. Vectors have no fan-in.
      stacked: axes that stack layers ("blocks/…" of a scanned model).
      vocab_axis: the token axis. None is, for embedding and output, the only axis that is neither stacked nor fan-in
        (None if there are several).
      rank: the rank (or ranks) of the leaves to which the declaration applies; None is any rank. The same path can
        have a declaration per rank: `attention/out/kernel` is [heads · hd, d] or [heads, hd, d].

    Raises:
      InputError: an unknown role; a pattern that does not compile; axes that are not a tuple of distinct non-negative
        integers.
    """

    pattern: str
    role: str
    fan_in: tuple[int, ...] | None = None
    stacked: tuple[int, ...] = ()
    vocab_axis: int | None = None
    rank: int | tuple[int, ...] | None = None

    def __post_init__(self):
        if self.role not in ROLES:
            raise InputError(f"declaration {self.pattern!r}: role must be one of {ROLES}, not {self.role!r}")
        try:
            re.compile(self.pattern)
        except (re.error, TypeError) as error:
            raise InputError(f"declaration {self.pattern!r}: not a regular expression ({error})") from error
        vocab = () if self.vocab_axis is None else (self.vocab_axis,)
        for name, axes in (("fan_in", self.fan_in), ("stacked", self.stacked), ("vocab_axis", vocab)):
            if axes is not None and not _is_axes(axes):
                raise InputError(
                    f"declaration {self.pattern!r}: {name} must be distinct axes counted from 0, got {axes!r}"
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
    role: str  # one of ROLES
    shape: tuple[int, ...]  # of the array
    fan_in: tuple[int, ...]  # axes over which a neuron sums; empty for vectors
    stacked: tuple[int, ...]  # axes that stack layers; possibly empty
    vocab_axis: int | None  # the token axis

    @property
    def layer_axes(self) -> tuple[int, ...]:
        """The axes of one layer: all axes that do not stack layers."""
        return tuple(axis for axis in range(len(self.shape)) if axis not in self.stacked)


_ROOT = r"(?:params/)?"
_BLOCK = _ROOT + r"(?:block_\d+|blocks/\d+)/"
_SCANNED = _ROOT + r"blocks/"
# Any parents, except names that usually stack layers: their first axis would be the layer.
_UNSTACKED = r"(?:(?!(?:blocks|layers)/(?!\d+/))[^/]+/)*"

DEFAULT: tuple[Declaration, ...] = (
    Declaration(r"(?:.*/)?(?:bias|scale|gain)", "vector"),
    Declaration(_ROOT + "embedding/embedding", "embedding", fan_in=(1,), vocab_axis=0, rank=2),
    Declaration(_ROOT + "position/embedding", "position", fan_in=(1,), rank=2),
    Declaration(_ROOT + "tied_embedding/embedding", "output", fan_in=(1,), vocab_axis=0, rank=2),
    Declaration(_ROOT + "head/kernel", "output", fan_in=(0,), vocab_axis=1, rank=2),
    Declaration(_BLOCK + "mlp/(?:up|gate|down)/kernel", "hidden", fan_in=(0,), rank=2),
    Declaration(_BLOCK + "attention/qkv/kernel", "hidden", fan_in=(0,), rank=2),
    Declaration(_UNSTACKED + "attention/(?:query|key|value)/kernel", "hidden", fan_in=(0,), rank=(2, 3)),
    Declaration(_UNSTACKED + "attention/out/kernel", "hidden", fan_in=(0,), rank=2),
    Declaration(_UNSTACKED + "attention/out/kernel", "hidden", fan_in=(0, 1), rank=3),
    Declaration(_SCANNED + "mlp/(?:up|gate|down)/kernel", "hidden", fan_in=(1,), stacked=(0,), rank=3),
    Declaration(_SCANNED + "attention/qkv/kernel", "hidden", fan_in=(1,), stacked=(0,), rank=3),
    Declaration(_SCANNED + "attention/(?:query|key|value)/kernel", "hidden", fan_in=(1,), stacked=(0,), rank=(3, 4)),
    Declaration(_SCANNED + "attention/out/kernel", "hidden", fan_in=(1,), stacked=(0,), rank=3),
    Declaration(_SCANNED + "attention/out/kernel", "hidden", fan_in=(1, 2), stacked=(0,), rank=4),
)
"""The parameters of `lvp.models.decoder`, unscanned and scanned, and Flax's separate attention kernels. The tree may be
nested in `params/`.

The papers do not cover two cases:
- *Tied* (`tied_embedding/embedding`, [m, d]): the shared matrix takes the **output** row, which has the smaller rate of
  the two in the tables. The head's gradient changes every row at every step. The lookup's gradient changes only the
  rows of the batch's tokens. The head's bound on the rate is therefore the stricter one.
- *Learned positions* (`position/embedding`, [T, d]) have a separate role with the **embedding**'s row in every table.
  Both are lookup tables whose rows are added to the same residual stream, so the size and the change of a row have the
  same bounds.
"""


def classify(
    params: Any,
    declarations: Sequence[Declaration] = DEFAULT,
    extra: Sequence[Declaration] = (),
    overrides: Sequence[Declaration] = (),
) -> Any:
    """Returns role and axes of every parameter.

    Under the defaults, a leaf called `bias`, `scale` or `gain` is a vector at any rank (it has rank 2 in stacked
    blocks).

    Args:
      params: any pytree of arrays (or of anything with a `shape`: `jax.ShapeDtypeStruct`, tracers).
      declarations: declarations for the leaves that `extra` does not cover.
      extra: declarations that take precedence over `declarations`, usually the user's.
      overrides: declarations that take precedence over `extra`, usually for a single call.

    Returns:
      A pytree of `Leaf` with the structure of `params`.

    Raises:
      InputError: a leaf without a declaration; two declarations of the same precedence with different role or axes; a
        leaf of rank 3 or more without a declared fan-in; a leaf without a declared axis. The error names the path.
    """
    for declaration in (*declarations, *extra, *overrides):
        if not isinstance(declaration, Declaration):
            raise InputError(f"declarations must be lvp.roles.Declaration, got {declaration!r}")
    leaves, treedef = jax.tree_util.tree_flatten_with_path(params)
    levels = (overrides, extra, declarations)
    named = [(jax.tree_util.keystr(keys, simple=True, separator="/"), leaf) for keys, leaf in leaves]
    shapes = {path: tuple(getattr(leaf, "shape", ())) for path, leaf in named}
    if missing := [path for path in shapes if not any(d.names(path) for level in levels for d in level)]:
        raise InputError(_undeclared(missing, shapes[missing[0]]))
    return jax.tree_util.tree_unflatten(treedef, [_covered(path, shapes[path], levels) for path, _ in named])


def labels(params: Any, declarations: Sequence[Declaration] = DEFAULT, extra: Sequence[Declaration] = ()) -> Any:
    """The role (a string) of every parameter, in the structure of `params`. Arguments and errors as in `classify`."""
    return jax.tree.map(lambda leaf: leaf.role, classify(params, declarations, extra))


def _covered(path: str, shape: tuple[int, ...], levels: Sequence[Sequence[Declaration]]) -> Leaf:
    """The leaf as declared by the level of highest precedence that covers it."""
    for level in levels:
        matching = [d for d in level if d.names(path) and d.admits(len(shape))]
        leaves = [_leaf(path, shape, declaration) for declaration in matching]
        for leaf, declaration in zip(leaves[1:], matching[1:], strict=True):
            if leaf != leaves[0]:
                raise InputError(
                    f"parameter {path!r} of shape {shape}: declarations {matching[0].pattern!r} "
                    f"({leaves[0].role}) and {declaration.pattern!r} ({leaf.role}) disagree in role or axes"
                )
        if leaves:
            return leaves[0]
    by_name = [d.pattern for level in levels for d in level if d.names(path)]
    why = f"{by_name[0]!r} is not for rank {len(shape)}"
    raise InputError(f"parameter {path!r} of shape {shape}: {why}; add a lvp.roles.Declaration for it")


def _undeclared(paths: Sequence[str], shape: tuple[int, ...]) -> str:
    """The error message for paths without a declaration; `shape` is that of the first path."""
    first, *others = paths
    shown = ", ".join(map(repr, others[:5])) + (f" and {len(others) - 5} more" if others[5:] else "")
    also = f" (nor those of {shown})" if others else ""
    return (
        f"parameter {first!r} of shape {shape}: no declaration matches its path{also}; pass "
        f"declarations=[lvp.roles.Declaration({re.escape(first)!r}, ROLE), …], ROLE one of {', '.join(ROLES)}"
    )


def _leaf(path: str, shape: tuple[int, ...], declaration: Declaration) -> Leaf:
    role, stacked = declaration.role, declaration.stacked
    core = [axis for axis in range(len(shape)) if axis not in stacked]
    fan_in = declaration.fan_in
    if fan_in is None and role == "vector":
        fan_in = ()
    elif fan_in is None:
        if len(core) != 2:
            raise InputError(
                f"parameter {path!r} of shape {shape}: {role} without declared axes; "
                f"give the Declaration {declaration.pattern!r} its fan_in (and stacked) axes"
            )
        fan_in = (core[1] if role in ("embedding", "position") else core[0],)
    vocab_axis = declaration.vocab_axis
    free = [axis for axis in core if axis not in fan_in]
    if vocab_axis is None and role in ("embedding", "output") and len(free) == 1:
        vocab_axis = free[0]
    axes = (*fan_in, *stacked, *(() if vocab_axis is None else (vocab_axis,)))
    if any(axis >= len(shape) for axis in axes) or len(set(axes)) != len(axes):
        raise InputError(
            f"parameter {path!r} of shape {shape}: axes fan_in {fan_in}, stacked {stacked}, vocab_axis "
            f"{vocab_axis} of {declaration.pattern!r} must be distinct and below its rank {len(shape)}"
        )
    return Leaf(path, role, shape, tuple(fan_in), tuple(stacked), vocab_axis)
