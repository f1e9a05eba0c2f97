"""What every parameter of a model ends up with under a table or a parametrized optimizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from lvp import roles
from lvp.errors import InputError
from lvp.optim import rates as _rates
from lvp.optim.parametrized import Parametrized
from lvp.parametrization import Table, aligned


@dataclass(frozen=True)
class ParameterDescription:
    """One parameter: its path, shape and role; what to draw it with (0 for vectors: gains start at 1, biases at 0);
    its learning rate; the fraction by which it shrinks per step. Of an optimizer of relative updates
    (`update_multiplier`, else None) the rate is the one that sets the angle with `weight_decay`, nothing shrinks, and
    the multiplier stands outside the root. `forward_multiplier`: the constant by which the model multiplies the
    parameter's output."""

    path: str
    shape: tuple[int, ...]
    role: str
    init_std: float
    learning_rate: float
    weight_decay: float
    decay_per_step: float
    update_multiplier: float | None
    forward_multiplier: float = 1.0


@dataclass(frozen=True)
class Description:
    """`rows`: one `ParameterDescription` per parameter, in the order of the tree. `str` of it is a table; `note` is
    its first line, and further ones where embedding or output matrices are not of the rule's width."""

    rows: tuple[ParameterDescription, ...]
    note: str

    def __str__(self) -> str:
        relative = any(row.update_multiplier is not None for row in self.rows)
        multiplied = any(row.forward_multiplier != 1.0 for row in self.rows)
        head = ("parameter", "shape", "role", "init std", "learning rate")
        lines: list[tuple[str, ...]] = [
            head
            + (("update ×", "λ of the angle") if relative else ("λ", "decay per step"))
            + ("forward ×",) * multiplied
        ]
        for row in self.rows:
            std = f"{row.init_std:.6g}" if row.role != "vector" else "(vector)"
            shape = "×".join(map(str, row.shape)) or "scalar"
            last: tuple[float | None, ...] = (
                (row.update_multiplier, row.weight_decay) if relative else (row.weight_decay, row.decay_per_step)
            )
            last += (row.forward_multiplier,) * multiplied
            lines.append((row.path, shape, row.role, std, f"{row.learning_rate:.6g}", *(f"{x:.6g}" for x in last)))
        return "\n".join([self.note, *aligned(lines)])


def describe(
    rule: Table | Parametrized, params: Any, *, declarations: Sequence[roles.Declaration] | None = None
) -> Description:
    """The effective init std, learning rate and decay of every parameter: `print(optim.describe(tx, params))`.

    Args:
      rule: what `parametrized` returned, or a `Table` of `lvp.parametrization`, whose "learning rate" is then the
        multiplier of the rate that its own heading names, and whose decay is 1 or 0 times λ.
      params: pytree of arrays or of anything with a shape (`jax.ShapeDtypeStruct`: nothing need be allocated).
      declarations: `lvp.roles.Declaration`s that take precedence over the defaults; None uses a parametrized optimizer's own.

    Schedules are described at their peak where they carry one, else at step 0; `note` says which.

    Raises:
      InputError: another kind of rule; rates that are traced; a parameter without role, by its path.
    """
    if isinstance(rule, Table):
        table, note = rule, f"{rule.rule}: × {rule.learning_rate}"
        settings: Mapping[str, Mapping[str, Any]] = {
            r.role: {"learning_rate": r.lr_multiplier, "weight_decay": float(r.decay)} for r in rule.rows
        }
    elif isinstance(rule, Parametrized):
        table, settings = rule.table, rule.settings
        declarations = rule.declarations if declarations is None else declarations
        note = f"{table.rule}: width {table.width}, vocab {table.vocab}{_when(settings)}"
    else:
        raise InputError(f"describe takes a Table or what optim.parametrized returned, not {type(rule).__name__}")
    values = {role: {name: _number(name, x) for name, x in own.items()} for role, own in settings.items()}
    rows = []
    for leaf in jax.tree.leaves(roles.classify(params, extra=declarations or ())):
        own = values[leaf.role]
        rate, decay, multiplier = own["learning_rate"], own.get("weight_decay", 0.0), own.get("update_multiplier")
        shrinks = 0.0 if multiplier is not None and leaf.fan_in else rate * decay
        row = table[leaf.role]
        rows.append(
            ParameterDescription(
                leaf.path,
                leaf.shape,
                leaf.role,
                row.init_std,
                rate,
                decay,
                shrinks,
                multiplier,
                row.forward_multiplier,
            )
        )
        note += _not_of(leaf, table)
    return Description(tuple(rows), note)


def _not_of(leaf: roles.Leaf, table: Table) -> str:
    """A line that says so where an embedding or output matrix is not of the rule's width."""
    widths = [leaf.shape[axis] for axis in leaf.layer_axes if axis != leaf.vocab_axis]
    if leaf.role not in ("embedding", "output") or leaf.vocab_axis is None or widths == [table.width]:
        return ""
    return f"\nnote: {leaf.path} has width {'×'.join(map(str, widths))}, the rule {table.width}: is it the right one?"


def _when(settings: Mapping[str, Mapping[str, Any]]) -> str:
    rates = [own["learning_rate"] for own in settings.values()]
    if not any(callable(rate) for rate in rates):
        return ""
    return ", at the peak" if all(hasattr(rate, "peak") for rate in rates) else ", at step 0 (no peak is known)"


def _number(name: str, value: Any) -> float:
    if callable(value):
        value = value.peak if hasattr(value, "peak") else value(0)
    if isinstance(value, jax.core.Tracer):
        raise InputError(f"describe needs numbers, and {name} is traced: call it outside jit and vmap")
    _rates.check(name, value)
    return float(value)
