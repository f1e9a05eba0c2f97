"""Meshes, and the shardings of a model on them.

Axes of a mesh: `data` splits rows; `fsdp` splits rows, parameters and optimizer state; `model` splits the vocabulary
and the outputs of hidden matrices (the inputs of matrices that write into the residual stream).
Any axis may have size 1.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from lvp import roles
from lvp.errors import InputError, unknown
from lvp.mesh_axes import AXES, FSDP, MODEL, TOKENS

# Mesh axis by role and kind of parameter axis. Hidden matrices that write into the residual stream (WRITES) swap fan-in
# and other axes: their inputs, split over `model`, then stay on their devices. Stacked axes are never split.
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
    """Sizes of all axes of a mesh on `devices` devices, from "fsdp=4,model=2" or a mapping.

    Axes that are not named have size 1, except fsdp, which takes the remaining devices.

    Raises:
      InputError: an axis is unknown or repeated, a size is not a positive whole number, or the product is not
        `devices`.
    """
    named = named_sizes(text)
    product_of_named = math.prod(named.values())
    if FSDP not in named and devices % product_of_named == 0:
        named[FSDP] = devices // product_of_named
    sizes = {name: named.get(name, 1) for name in AXES}
    if math.prod(sizes.values()) != devices:
        product = " × ".join(f"{name} {size}" for name, size in sizes.items())
        raise InputError(f"mesh: {product} needs {math.prod(sizes.values())} devices, but there are {devices}")
    return sizes


def named_sizes(text: str | Mapping[str, int]) -> dict[str, int]:
    """The sizes named in "fsdp=4,model=2" or a mapping.

    Raises:
      InputError: an axis is unknown or repeated, or a size is not a positive whole number.
    """
    sizes = dict(text) if isinstance(text, Mapping) else _parsed(text)
    for name, size in sizes.items():
        if name not in AXES:
            raise unknown("axis of the mesh", name, AXES)
        if not isinstance(size, int) or size < 1:
            raise InputError(f"mesh: {name} must be a whole number above 0, got {size!r}")
    return sizes


def _parsed(text: str) -> dict[str, int]:
    sizes: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, size = (p.strip() for p in part.partition("="))
        if name in sizes:
            raise InputError(f"mesh: {name} is given twice")
        sizes[name] = int(size) if size.isdecimal() else size
    return sizes


def make_mesh(sizes: Mapping[str, int], devices: Sequence[Any] | None = None) -> Mesh:
    """The mesh of these sizes [data, fsdp, model] over `devices` (None: all), with neighbours along the last axes.

    The axes are Auto: the compiler chooses shardings that are not given.
    """
    shape = tuple(sizes[name] for name in AXES)
    if devices is None:
        return jax.make_mesh(shape, AXES, axis_types=(AxisType.Auto,) * 3)
    return Mesh(np.asarray(devices).reshape(shape), AXES, axis_types=(AxisType.Auto,) * 3)


def spec_of(leaf: roles.Leaf) -> PartitionSpec:
    """The PartitionSpec of a parameter, by TABLE."""
    row = TABLE["hidden, writes" if leaf.role == "hidden" and leaf.path.endswith(WRITES) else leaf.role]
    if leaf.role == "vector":
        return PartitionSpec()
    places, free = [], set(leaf.layer_axes)
    for axis in range(len(leaf.shape)):
        kind = "fan_in" if axis in leaf.fan_in else "vocab" if axis == leaf.vocab_axis else "other"
        place = row[kind] if axis in free else None
        places.append(None if place in places else place)  # only the first axis of a kind is split
    return PartitionSpec(*places)


def specs(params: Any) -> Any:
    """The PartitionSpec of every parameter, in the structure of `params` (arrays or their shapes)."""
    return jax.tree.map(spec_of, roles.classify(params))


def state_specs(state: Any, params: Any) -> Any:
    """The PartitionSpec of every leaf of a training state.

    A leaf with the path ending and the rank of a parameter (a moment of the optimizer, the parameter itself) has the
    parameter's spec along axes of the same size. Other leaves are replicated.
    """
    by_path = {leaf.path: leaf for leaf in jax.tree.leaves(roles.classify(params))}

    def spec_at(keys, x) -> PartitionSpec:
        parts = roles.path_of(keys).split("/")
        leaf = next((by_path[p] for i in range(len(parts)) if (p := "/".join(parts[i:])) in by_path), None)
        if leaf is None or len(leaf.shape) != len(x.shape):
            return PartitionSpec()
        places = (*spec_of(leaf), *(None,) * len(leaf.shape))
        return PartitionSpec(
            *(p if here == there else None for p, here, there in zip(places, x.shape, leaf.shape, strict=False))
        )

    return jax.tree_util.tree_map_with_path(spec_at, state)


def shardings(mesh: Mesh, tree: Any) -> Any:
    """The NamedShardings on `mesh` of a tree of PartitionSpecs."""
    return jax.tree.map(lambda spec: NamedSharding(mesh, spec), tree, is_leaf=lambda x: isinstance(x, PartitionSpec))


class Placement(NamedTuple):
    """A mesh (None: one device) and the placement of arrays on it."""

    mesh: Mesh | None = None

    def __call__(self, x: jax.Array, *axes: Any) -> jax.Array:
        """x with its first axes split over these mesh axes; x itself without a mesh."""
        if self.mesh is None:
            return x
        return jax.lax.with_sharding_constraint(x, NamedSharding(self.mesh, PartitionSpec(*axes)))

    def per_device(self, function: Callable, *axes: Any) -> Callable:
        """`function`, applied on every device to its part of arrays that are split over these mesh axes.

        The parts of the result are placed likewise. The compiler cannot split a Pallas kernel itself.
        """
        if self.mesh is None:
            return function
        spec = PartitionSpec(*axes)
        return jax.shard_map(function, mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False)


ONE_DEVICE = Placement()


def check_fits(sizes: Mapping[str, int], *, rows: int, params: Any, heads: Mapping[str, int]) -> None:
    """Checks that a mesh divides the rows of a micro-batch, the split axes of the parameters, and the heads.

    Args:
      sizes: axis of the mesh → its size.
      rows: of a micro-batch.
      params: arrays or their shapes.
      heads: name → number of heads.

    Raises:
      InputError: the mesh does not divide one of them. The error names the sizes and, for a vocabulary, the next larger
        one that fits.
    """
    tokens = math.prod(sizes[name] for name in TOKENS)
    if rows % tokens:
        raise InputError(
            f"mesh: data × fsdp = {tokens} does not divide the {rows} rows of a (micro-)batch: change mesh or batch"
        )
    for name, count in heads.items():
        if count % sizes[MODEL]:
            raise InputError(f"mesh: model = {sizes[MODEL]} does not divide the {count} {name}: give another size")
    for leaf in jax.tree.leaves(roles.classify(params)):
        for axis, place in enumerate(spec_of(leaf)):
            if place is None or leaf.shape[axis] % sizes[place] == 0:
                continue
            size, message = leaf.shape[axis], f"mesh: {place} = {sizes[place]} does not divide"
            if axis == leaf.vocab_axis:
                padded = -(-size // sizes[place]) * sizes[place]
                raise InputError(f"{message} the vocabulary of {size}; a model with vocab {padded} would fit")
            raise InputError(f"{message} axis {axis} ({size}) of {leaf.path}: give another size")
