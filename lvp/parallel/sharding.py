"""Meshes, and where the parts of a model lie on them.

Axes of a mesh: `data` (copies that see different rows), `fsdp` (rows too, and parameters and optimizer state are split
over it, gathered where they are used) and `model` (columns of matrices and of the vocabulary). Any may be 1.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from lvp import roles
from lvp.errors import InputError, unknown

DATA, FSDP, MODEL = AXES = ("data", "fsdp", "model")
TOKENS = (DATA, FSDP)  # over which rows are split

# The axis of the mesh by what an axis of a parameter is: a role's fan-in, the vocabulary, its other axes. A hidden
# matrix that writes into the residual stream (WRITES) has it the other way round, so that what its heads or inner
# entries hold, split over `model`, need not move. Axes that stack layers are never split.
TABLE: Mapping[str, Mapping[str, str | None]] = {
    "embedding": {"fan_in": FSDP, "vocab": MODEL, "other": None},
    "position": {"fan_in": FSDP, "vocab": None, "other": None},
    "hidden": {"fan_in": FSDP, "vocab": None, "other": MODEL},
    "hidden, writes": {"fan_in": MODEL, "vocab": None, "other": FSDP},
    "output": {"fan_in": FSDP, "vocab": MODEL, "other": None},
    "vector": {"fan_in": None, "vocab": None, "other": None},
}
WRITES = ("attention/out/kernel", "mlp/down/kernel")


def mesh_sizes(text: str | Mapping[str, int], devices: int) -> dict[str, int]:
    """Sizes of all axes of a mesh of so many devices from "fsdp=4,model=2" (or a mapping). Axes that are not named are
    1; fsdp, if it is not named, takes the devices that are left.

    Raises InputError: an unknown axis, no whole number above 0, sizes whose product is not `devices`.
    """
    given = named_sizes(text)
    named = math.prod(given.values())
    if FSDP not in given and devices % named == 0:
        given[FSDP] = devices // named
    sizes = {name: given.get(name, 1) for name in AXES}
    if math.prod(sizes.values()) != devices:
        product = " × ".join(f"{name} {size}" for name, size in sizes.items())
        raise InputError(f"mesh: {product} is {math.prod(sizes.values())} devices, not the {devices} there are")
    return sizes


def named_sizes(text: str | Mapping[str, int]) -> dict[str, int]:
    """The sizes that "fsdp=4,model=2" (or a mapping) names; InputError as of `mesh_sizes`, but for their product."""
    given = dict(text) if isinstance(text, Mapping) else _parsed(text)
    for name, size in given.items():
        if name not in AXES:
            raise unknown("axis of the mesh", name, AXES)
        if not isinstance(size, int) or size < 1:
            raise InputError(f"mesh: {name} must be a whole number above 0, got {size!r}")
    return given


def _parsed(text: str) -> dict[str, int]:
    sizes: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, size = (p.strip() for p in part.partition("="))
        if name in sizes:
            raise InputError(f"mesh: {name} is given twice")
        sizes[name] = int(size) if size.isdecimal() else size
    return sizes


def make_mesh(sizes: Mapping[str, int], devices: Sequence[Any] | None = None) -> Mesh:
    """The mesh of these sizes [data, fsdp, model] over `devices` (None: all), neighbours along the last axes. Its axes
    are Auto: the compiler places what is not placed explicitly."""
    shape = tuple(sizes[name] for name in AXES)
    if devices is None:
        return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * 3)
    return Mesh(np.asarray(devices).reshape(shape), AXES, axis_types=(AxisType.Auto,) * 3)


def spec_of(leaf: roles.Leaf) -> PartitionSpec:
    """Where the axes of a parameter lie, by TABLE."""
    row = TABLE["hidden, writes" if leaf.role == "hidden" and leaf.path.endswith(WRITES) else leaf.role]
    if leaf.role == "vector":
        return PartitionSpec()
    places, free = [], set(leaf.layer_axes)
    for axis in range(len(leaf.shape)):
        kind = "fan_in" if axis in leaf.fan_in else "vocab" if axis == leaf.vocab_axis else "other"
        place = row[kind] if axis in free else None
        places.append(None if place in places else place)  # of several axes of a kind the first
    return PartitionSpec(*places)


def specs(params: Any) -> Any:
    """The PartitionSpec of every parameter, in the structure of `params` (arrays or their shapes)."""
    return jax.tree.map(spec_of, roles.classify(params))


def state_specs(state: Any, params: Any) -> Any:
    """The PartitionSpec of every leaf of a state that holds things like parameters, anywhere: the moments of an
    optimizer, the parameters themselves. A leaf belongs to the parameter whose path ends its own; it lies as that does
    along axes of the same size. What belongs to none is on every device."""
    by_path = {leaf.path: leaf for leaf in jax.tree.leaves(roles.classify(params))}

    def spec_at(keys, x) -> PartitionSpec:
        parts = jax.tree_util.keystr(keys, simple=True, separator="/").split("/")
        leaf = next((by_path[p] for i in range(len(parts)) if (p := "/".join(parts[i:])) in by_path), None)
        if leaf is None or len(leaf.shape) != len(x.shape):
            return PartitionSpec()
        places = (*spec_of(leaf), *(None,) * len(leaf.shape))
        return PartitionSpec(
            *(p if here == there else None for p, here, there in zip(places, x.shape, leaf.shape, strict=False))
        )

    return jax.tree_util.tree_map_with_path(spec_at, state)


def shardings(mesh: Mesh, tree: Any) -> Any:
    """NamedShardings on `mesh` of a tree of PartitionSpecs."""
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), tree, is_leaf=lambda x: isinstance(x, PartitionSpec))


def placer(mesh: Mesh | None) -> Callable:
    """place(x, *axes) → x, its first axes split over these of the mesh, the others whole. Without a mesh x as it is."""
    if mesh is None:
        return lambda x, *axes: x
    return lambda x, *axes: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec(*axes)))


def check_fits(sizes: Mapping[str, int], *, rows: int, params: Any, heads: Mapping[str, int]) -> None:
    """InputError, naming sizes, where a mesh does not divide the rows of a micro-batch, the axes of a parameter that
    are split, or the heads (name → count) that `model` splits; with the next vocabulary that it would."""
    tokens = math.prod(sizes[name] for name in TOKENS)
    if rows % tokens:
        raise InputError(f"mesh: data × fsdp = {tokens} does not divide the {rows} rows of a (micro-)batch")
    for name, count in heads.items():
        if count % sizes[MODEL]:
            raise InputError(f"mesh: model = {sizes[MODEL]} does not divide the {count} {name}")
    for leaf in jax.tree.leaves(roles.classify(params)):
        for axis, place in enumerate(spec_of(leaf)):
            if place is None or leaf.shape[axis] % sizes[place] == 0:
                continue
            size, message = leaf.shape[axis], f"mesh: {place} = {sizes[place]} does not divide"
            if axis == leaf.vocab_axis:
                padded = -(-size // sizes[place]) * sizes[place]
                raise InputError(f"{message} the vocabulary of {size}; a model with vocab {padded} would fit")
            raise InputError(f"{message} axis {axis} ({size}) of {leaf.path}")
