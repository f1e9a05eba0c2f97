"""Initial parameters under a rule."""

from collections.abc import Sequence
from typing import Any

import jax

from lvp import roles
from lvp.errors import InputError
from lvp.optim.by_role import describe_tree
from lvp.optim.parametrized import Parametrized, check_has_row, check_width
from lvp.parametrization import Table


def initialize(
    rule: Table | Parametrized, params: Any, key: jax.Array, *, declarations: Sequence[roles.Declaration] | None = None
) -> Any:
    """Draws every matrix of `params` from a normal distribution with mean 0 and its role's standard deviation.

    Gains, biases and other vectors are not changed. The std is that of the role's row. It does not depend on the
    matrix' own fan-in. Under the rules of Hayou & Liu 2025 (tables 1 and 2) it is a power of the width.

    Args:
      rule: a result of `parametrized`, or a `Table` of `lvp.parametrization`.
      params: pytree of arrays; shapes and dtypes are kept.
      key: a `jax.random.key`; each matrix gets its own key from it.
      declarations: `lvp.roles.Declaration`s that come before the defaults; None takes those of `rule`.

    Returns:
      A pytree like `params`.

    Raises:
      InputError: another kind of rule; a parameter without a role, or whose role has no row; a matrix that does not
        have the table's width; a declaration that decides no parameter's role. The error names the path.
    """
    if not isinstance(rule, Table | Parametrized):
        raise InputError(f"rule must be a Table or a result of optim.parametrized, got {type(rule).__name__}")
    if isinstance(rule, Parametrized) and declarations is None:
        declarations = rule.declarations
    table = rule.table if isinstance(rule, Parametrized) else rule
    leaves, treedef = jax.tree.flatten(describe_tree(params, declarations or ()))
    for leaf in leaves:
        check_has_row(table, leaf.role, f"of parameter {leaf.path!r}")
        check_width(leaf, table)
    keys = jax.tree.unflatten(treedef, list(jax.random.split(key, len(leaves))))

    def drawn(leaf: roles.Leaf, x: jax.Array, key: jax.Array) -> jax.Array:
        if leaf.role == "vector":
            return x
        return jax.nn.initializers.normal(table[leaf.role].init_std)(key, x.shape, x.dtype)

    return jax.tree.map(drawn, jax.tree.unflatten(treedef, leaves), params, keys)
