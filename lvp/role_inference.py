"""Role and axes of parameters from their shapes at two widths, for `lvp.roles.infer`.

A name decides only what the shapes leave open. What neither decides is a problem, and not a guess.
"""

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import NamedTuple

from lvp.errors import InputError

Length = tuple[int, int]  # of one axis at the two widths

_VECTOR = re.compile(r"(?:.*_)?(?:bias|scale|gain|offset)", re.IGNORECASE)
_NORM = re.compile(r"norm|(?:^|[/_])ln(?:[/_\d]|$)", re.IGNORECASE)
_POSITION = re.compile(r"(?:^|[/_])pos(?!t)|position|wpe", re.IGNORECASE)
_EMBEDDING = re.compile(r"(?<!un)embed|wte|token", re.IGNORECASE)
_KEY_OR_VALUE = re.compile(r"(?:key|value|kv|k|v)(?:_proj|_einsum)?|w[kv]", re.IGNORECASE)
_EXPERTS = re.compile("experts", re.IGNORECASE)
_ADAPTER = re.compile("lora|adapter", re.IGNORECASE)

_NO_GROWTH = "no axis grows, so that it is a vector, or a matrix of fixed size"
_ONE_GROWTH = "one axis grows, as in a router, LoRA, positions and stacked vectors"
_ORDER = "name and bias do not tell [in, out] from [out, in]"
_HEADS = "heads, stacked layers and experts have these shapes"
_TOKENS = "the names do not tell embedding, output and tied"


@dataclass(frozen=True)
class Parameter:
    """A parameter at two widths."""

    path: str  # "/"-joined
    key: Hashable  # the last key of the path
    lengths: tuple[Length, ...]  # of every axis
    order: str | None = None  # "in_out" or "out_in", by the convention of the framework; None if it has none
    declared: str | None = None  # the role that the user declares

    @property
    def growing(self) -> tuple[int, ...]:
        """The axes whose length depends on the width."""
        return tuple(axis for axis, (first, second) in enumerate(self.lengths) if first != second)

    @property
    def named_vector(self) -> bool:
        """True if the name is that of a bias, a gain or a norm."""
        return bool(_VECTOR.fullmatch(self.end(1)) or _NORM.search(self.name))

    @property
    def name(self) -> str:
        """The component of the path that describes the parameter: the module's, if the last is a framework's."""
        return self.path.split("/")[-2 if self.order and "/" in self.path else -1]

    def end(self, components: int) -> str:
        """The last components of the path."""
        return "/".join(self.path.split("/")[-components:])


class Role(NamedTuple):
    """The role and axes of a parameter, as in `lvp.roles.Declaration`."""

    role: str
    fan_in: tuple[int, ...] | None = None
    stacked: tuple[int, ...] = ()
    vocab_axis: int | None = None


def roles_of(parameters: Sequence[Parameter], vocab: int) -> dict[str, Role | str]:
    """Returns path → role and axes, or the reason why they are undecided, of the parameters without a declared role.

    Raises:
      InputError: no axis grows; an axis grows and another shrinks; no matrix has `vocab` tokens; matrices with `vocab`
        tokens have different widths; `vocab` equals the width.
    """
    _check_growth(parameters)
    tables = [parameter for parameter in parameters if _has_tokens(parameter, vocab)]
    width = _width(tables, vocab)
    waiting = [parameter for parameter in parameters if parameter.declared is None]
    stacked = _stacked_axes(waiting, width)
    decided: dict[str, Role | str] = {}
    for parameter in waiting:
        decided[parameter.path] = _simple(parameter, stacked[parameter.path], width)
    decided |= _tables([p for p in tables if p.declared or not stacked[p.path]], vocab)
    return decided | _matrices([p for p in waiting if decided[p.path] == _ORDER], parameters, stacked, width)


def _check_growth(parameters: Sequence[Parameter]) -> None:
    changes: dict[bool, str] = {}
    for parameter in parameters:
        for axis in parameter.growing:
            first, second = parameter.lengths[axis]
            changes.setdefault(first < second, f"axis {axis} of {parameter.path!r} is {first} and {second}")
    if not changes:
        raise InputError("shapes and other have equal shapes, so that no axis grows: give the shapes at two widths")
    if len(changes) == 2:
        raise InputError(f"shapes and other contradict: {changes[True]}, but {changes[False]}; change only the width")


def _has_tokens(parameter: Parameter, vocab: int) -> bool:
    """True for matrices of tokens by width: those that the user declares, and those that look so."""
    if parameter.lengths.count((vocab, vocab)) != 1 or len(parameter.growing) != 1:
        return False
    if parameter.declared is not None:
        return parameter.declared in ("embedding", "output", "tied")
    named = _VECTOR.fullmatch(parameter.end(1)) or _POSITION.search(parameter.end(3))
    return len(parameter.lengths) == 2 and not named


def _width(tables: Sequence[Parameter], vocab: int) -> Length:
    widths = {table.lengths[table.growing[0]]: table.path for table in tables}
    if not widths:
        raise InputError(
            f"vocab {vocab}: no parameter has one axis of this length and one axis that grows; give the length of the "
            "token axis in both trees, with its padding"
        )
    if len(widths) > 1:
        listed = " and ".join(f"{path!r} with widths {width}" for width, path in widths.items())
        raise InputError(f"vocab {vocab}: {listed} have axes of this length; declare those that have no token axis")
    (width,) = widths
    if vocab in width:
        raise InputError(f"vocab {vocab} equals the width in one of shapes and other: choose other widths")
    return width


def _stacked_axes(parameters: Sequence[Parameter], width: Length) -> dict[str, tuple[int, ...]]:
    """Returns path → axes that stack layers or experts.

    An axis stacks the layers of a module if all parameters of the module have it, with one length that does not grow,
    and if the module has matrices and a norm or a bias [layers, width]. Heads alone have no such vector.
    """
    modules = defaultdict(list)
    for parameter in parameters:
        for slash in re.finditer("^|/", parameter.path):
            modules[parameter.path[: slash.end()]].append(parameter)
    found: defaultdict[str, set[int]] = defaultdict(set)
    for inside in modules.values():
        fixed = [{(axis, n) for axis, (n, other) in enumerate(p.lengths) if n == other} for p in inside]
        shared = set.intersection(*fixed)
        has_vector = any(
            p.named_vector and fixed_axes <= shared and [p.lengths[axis] for axis in p.growing] == [width]
            for p, fixed_axes in zip(inside, fixed, strict=True)
        )
        if shared and has_vector and any(len(p.growing) > 1 for p in inside):
            for parameter in inside:
                found[parameter.path] |= {axis for axis, _ in shared}
    for parameter in parameters:
        if len(parameter.growing) > 1 and _EXPERTS.search(parameter.end(3)):
            found[parameter.path] |= set(range(len(parameter.lengths))) - set(parameter.growing)
    return {parameter.path: tuple(sorted(found[parameter.path])) for parameter in parameters}


def _simple(parameter: Parameter, stacked: tuple[int, ...], width: Length) -> Role | str:
    """The role of a parameter with at most one axis that grows; else the reason `_ORDER`."""
    growing = parameter.growing
    if len(parameter.lengths) <= 1 or _VECTOR.fullmatch(parameter.end(1)):
        return Role("vector")
    if len(growing) > 1:
        return _ORDER
    if parameter.named_vector:
        return Role("vector")
    if [parameter.lengths[axis] for axis in growing] == [width]:
        if _POSITION.search(parameter.end(3)):
            return Role("position", growing, stacked)
        if _KEY_OR_VALUE.fullmatch(parameter.name) and not _ADAPTER.search(parameter.path):
            return Role("hidden", growing, stacked)
    return _ONE_GROWTH if growing else _NO_GROWTH


def _tables(tables: Sequence[Parameter], vocab: int) -> dict[str, Role | str]:
    """Returns path → role of the matrices of tokens that the user does not declare."""
    waiting = [table for table in tables if table.declared is None]
    by_row = [table for table in waiting if table.lengths[0] == (vocab, vocab)]
    names: dict[str, str] = {}
    if len(tables) == 1 and by_row:
        names[by_row[0].path] = "tied"
    elif len(tables) == 2 and len(waiting) == 1:
        (declared,) = (table.declared for table in tables if table.declared)
        other = {"embedding": "output", "output": "embedding"}.get(str(declared))
        names |= {waiting[0].path: other} if other else {}
    elif len(tables) == 2:
        common = len(commonprefix([table.path.split("/") for table in tables]))
        named = [table for table in by_row if _EMBEDDING.search("/".join(table.path.split("/")[common:]))]
        if len(named) == 1:
            names = {table.path: "embedding" if table in named else "output" for table in tables}
    return {
        table.path: Role(names[table.path], table.growing, vocab_axis=table.lengths.index((vocab, vocab)))
        if table.path in names
        else _TOKENS
        for table in waiting
    }


class _Split(NamedTuple):
    """The axes of a matrix on both sides of the boundary between fan-in and fan-out, in the order of the array."""

    left: tuple[int, ...]
    right: tuple[int, ...]
    order: str | None = None  # by the bias; None if it does not tell


def _matrices(
    matrices: Sequence[Parameter],
    parameters: Sequence[Parameter],
    stacked: dict[str, tuple[int, ...]],
    width: Length,
) -> dict[str, Role | str]:
    """Returns path → fan-in of hidden matrices.

    A bias has the lengths of the outputs, and so tells the order of a matrix that is not square. Matrices of the same
    name have this order too, in place of the convention of the framework.
    """
    of_path = {parameter.path: parameter for parameter in parameters}
    splits: dict[str, _Split | None] = {}
    orders: defaultdict[Hashable, set[str | None]] = defaultdict(set)
    for matrix in matrices:
        module = matrix.path[: matrix.path.rfind("/") + 1]
        bias = of_path.get(module + "bias") or of_path.get(module + "b")
        splits[matrix.path] = split = _split(matrix, stacked, bias, width)
        if split and split.order:
            orders[matrix.key].add(split.order)
    by_bias = {path for path, split in splits.items() if split and split.order}
    fans: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    decided: dict[str, Role | str] = {}
    for matrix in matrices:
        split = splits[matrix.path]
        if split is None:
            decided[matrix.path] = _HEADS
            continue
        known = {split.order} if split.order else orders[matrix.key] or {matrix.order}
        if known == {"in_out"}:
            fans[matrix.path] = split.left, split.right
        elif known == {"out_in"}:
            fans[matrix.path] = split.right, split.left
        else:
            decided[matrix.path] = _ORDER
    # Without a bias, [heads, size, width] could be [experts, in, out]: another matrix must have these heads as outputs.
    heads = {_size(of_path[path], fan_out) for path, (_, fan_out) in fans.items() if len(fan_out) > 1}
    for path, (fan_in, _) in fans.items():
        alone = len(fan_in) > 1 and path not in by_bias and _size(of_path[path], fan_in) not in heads
        decided[path] = _HEADS if alone else Role("hidden", fan_in, stacked[path])
    return decided


def _size(parameter: Parameter, axes: tuple[int, ...]) -> Length:
    first, second = zip(*(parameter.lengths[axis] for axis in axes), strict=True)
    return math.prod(first), math.prod(second)


def _split(
    matrix: Parameter, stacked: dict[str, tuple[int, ...]], bias: Parameter | None, width: Length
) -> _Split | None:
    """The split of a matrix, from its bias, its rank, or an outer axis as long as the width; None if unknown."""
    axes = tuple(axis for axis in range(len(matrix.lengths)) if axis not in stacked[matrix.path])
    lengths = [matrix.lengths[axis] for axis in axes]
    if bias is not None:
        of_bias = [n for axis, n in enumerate(bias.lengths) if axis not in stacked.get(bias.path, ())]
        outputs = len(of_bias)
        if 0 < outputs < len(axes):
            last, first = lengths[-outputs:] == of_bias, lengths[:outputs] == of_bias
            if last and not first:
                return _Split(axes[:-outputs], axes[-outputs:], "in_out")
            if first and not last:
                return _Split(axes[:outputs], axes[outputs:], "out_in")
    at_ends = [lengths[0] == width, lengths[-1] == width]
    if len(axes) > 2 and at_ends[0] == at_ends[1]:
        return None
    boundary = 1 if len(axes) == 2 or at_ends[0] else -1
    return _Split(axes[:boundary], axes[boundary:])
