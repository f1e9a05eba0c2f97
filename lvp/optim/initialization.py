"""Initial parameters under a rule."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lvp import roles
from lvp.errors import InputError
from lvp.optim.parametrized import Parametrized, described_under
from lvp.parametrization import Table


def initialize(
    rule: Table | Parametrized, params: Any, key: jax.Array, *, declarations: Sequence[roles.Declaration] | None = None
) -> Any:
    """Draws every matrix of `params` from a normal distribution with mean 0 and its role's standard deviation.

    Gains, biases and other vectors are not changed. The std is that of the role's row. It does not depend on the
    matrix' own fan-in. Under the rules of Hayou & Liu 2025 (tables 1 and 2) it is a power of the width. Values are
    drawn in float32 or wider and rounded. Every device draws its own part of a sharded matrix.

    Args:
      rule: a result of `parametrized`, or a `Table` of `lvp.parametrization`.
      params: pytree of arrays; shapes, dtypes, shardings and boxes of metadata are kept. A matrix may be a
        `jax.ShapeDtypeStruct`; one with a sharding is drawn on its devices.
      key: a `jax.random.key`; each matrix gets its own key from it.
      declarations: `lvp.roles.Declaration`s that come before the defaults; None takes those of `rule`.

    Returns:
      A pytree like `params`.

    Raises:
      InputError: the rule is neither of the two (a chain, for example); a parameter has no role or unknown axes, or its
        role has no row; a matrix does not have the table's width or vocabulary, holds integers, or is split by
        `jax.shard_map`; a vector has no values (`jax.ShapeDtypeStruct`); a declaration decides no parameter's role.
        Errors of parameters name the path.

    Example:
      >>> import jax
      >>> from lvp import optim, parametrization
      >>> table = parametrization.table("lvp", width=16, vocab=8192)
      >>> params = {"embedding": {"embedding": jax.ShapeDtypeStruct((8192, 16), "float32")}}
      >>> rows = optim.initialize(table, params, jax.random.key(0))["embedding"]["embedding"]
      >>> rows.shape, round(float(rows.std()), 2)  # the std is 1 / √16
      ((8192, 16), 0.25)
    """
    table, described = described_under(rule, params, declarations)
    leaves, treedef = jax.tree.flatten(described)
    roles.check_whole(leaves, jax.tree.leaves(params))
    keys = jax.tree.unflatten(treedef, list(jax.random.split(key, len(leaves))))

    def drawn(leaf: roles.Leaf, x: jax.Array, key: jax.Array) -> jax.Array:
        if leaf.role == "vector":
            if isinstance(x, jax.ShapeDtypeStruct):
                raise InputError(
                    f"parameter {leaf.path!r} has a shape and no values, which a vector keeps: initialize the model "
                    "first, or call initialize inside of jax.eval_shape"
                )
            return x.copy() if isinstance(x, jax.Array) else x  # the caller may donate the result and keep `params`
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise InputError(f"parameter {leaf.path!r} ({leaf.role}) must have a floating dtype, got {x.dtype}")
        return _normal_like(x, key, table[leaf.role].init_std)

    return jax.tree.map(drawn, described, params, keys)


def _normal_like(x: Any, key: jax.Array, std: float) -> jax.Array:
    """Normal values with the shape, dtype and sharding of x."""
    if isinstance(x, jax.core.Tracer):
        values, sharding = _normal(key, std, x.shape, x.dtype), jax.typeof(x).sharding
        return jax.sharding.reshard(values, sharding) if any(sharding.spec) else values  # only explicit axes are typed
    sharding = getattr(x, "sharding", None) if getattr(x, "committed", True) else None
    return jax.jit(_normal, static_argnums=(2, 3), out_shardings=sharding)(key, std, x.shape, x.dtype)


def _normal(key: jax.Array, std: Any, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Normal values that are drawn in float32 or wider: a uniform draw in bfloat16 has 128 values."""
    return (std * jax.random.normal(key, shape, jnp.promote_types(dtype, jnp.float32))).astype(dtype)
