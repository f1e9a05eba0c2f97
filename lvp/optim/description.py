"""Effective settings of every parameter of a model under a table or a parametrized optimizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lvp import roles
from lvp.errors import InputError
from lvp.optim import rates as _rates
from lvp.optim.parametrized import OPTIONS, Parametrized, described_under
from lvp.parametrization import Table, aligned


@dataclass(frozen=True)
class ParameterDescription:
    """The effective settings of one parameter.

    An optimizer of relative updates has an `update_multiplier`. Its learning rate η and `weight_decay` λ set the angle
    of its updates, which is proportional to √(2ηλ). The multiplier multiplies this angle. A parameter with neurons
    keeps its norm, so its `decay_per_step` is 0.
    """

    path: str  # "/"-joined
    shape: tuple[int, ...]  # of the array
    role: str  # the declaration's
    fan_in: int  # number of weights of a neuron; 1 for vectors
    init_std: float  # of the role's row; vectors are not drawn: gains start at 1, biases at 0
    learning_rate: float  # with the role's factor, except for relative updates
    weight_decay: float  # the factory's argument: λ, or λ over the peak of the rate for independent decay
    decay_per_step: float  # fraction by which the parameter shrinks per step, 0 where a mask excludes it
    update_multiplier: float | None  # factor on relative updates; None for other optimizers
    forward_multiplier: float = 1.0  # constant by which the model multiplies the parameter's output (tied: its rows)
    head_multiplier: float = 1.0  # constant by which the model multiplies the logits of a tied matrix
    b1: float | None = None  # β₁; None for a table or a factory without the parameter `b1`
    b2: float | None = None  # β₂, as b1
    eps: float | None = None  # ε, as b1


@dataclass(frozen=True)
class Description:
    """The settings of all parameters; `str` returns a table."""

    rows: tuple[ParameterDescription, ...]  # a row per parameter, in the order of the tree
    note: str  # the table's first line

    def __str__(self) -> str:
        relative = any(row.update_multiplier is not None for row in self.rows)
        multiplied = any(row.forward_multiplier != 1.0 for row in self.rows)
        tied = any(row.role == "tied" for row in self.rows)
        shown = [
            (name, symbol)
            for name, symbol in OPTIONS.items()
            if any(getattr(row, name) is not None for row in self.rows)
        ]
        head = ("parameter", "shape", "role", "fan-in", "init std", "learning rate")
        lines: list[tuple[str, ...]] = [
            head
            + (("update ×", "λ of the angle") if relative else ("λ", "decay per step"))
            + ("forward ×",) * multiplied
            + ("logits ×",) * tied
            + tuple(symbol for _, symbol in shown)
        ]
        for row in self.rows:
            std = f"{row.init_std:.6g}" if row.role != "vector" else "(vector)"
            fan_in = str(row.fan_in) if row.role != "vector" else "–"
            shape = "×".join(map(str, row.shape)) or "scalar"
            last: tuple[float | None, ...] = (
                (row.update_multiplier, row.weight_decay) if relative else (row.weight_decay, row.decay_per_step)
            )
            last += (row.forward_multiplier,) * multiplied
            last += (row.head_multiplier if row.role == "tied" else None,) * tied
            last += tuple(getattr(row, name) for name, _ in shown)
            lines.append(
                (
                    row.path,
                    shape,
                    row.role,
                    fan_in,
                    std,
                    f"{row.learning_rate:.6g}",
                    *("–" if x is None else f"{x:.6g}" for x in last),
                )
            )
        return "\n".join([self.note, *aligned(lines)])


def describe(
    rule: Table | Parametrized, params: Any, *, declarations: Sequence[roles.Declaration] | None = None
) -> Description:
    """Returns every parameter's init std, learning rate, decay, β and ε.

    A schedule with the attribute `peak` is described at its peak, any other schedule at its largest value of the steps
    0, 1, 2, 4, … 2²⁰, so that a warm-up from 0 does not hide the rates. `Description.note` says which. The settings are
    what the factories are given. What a function of your own does with them is not known.

    Args:
      rule: a result of `parametrized`, or a `Table` of `lvp.parametrization`. For a table, the "learning rate" is the
        multiplier of the rate that the table's heading names, and the decay is 1 or 0 times λ.
      params: pytree of arrays or of anything with a shape, such as `jax.ShapeDtypeStruct`.
      declarations: `lvp.roles.Declaration`s that come before the defaults; None takes those of `rule`.

    Returns:
      A `Description`; `print` shows it as a table.

    Raises:
      InputError: the rule is neither of the two (a chain, for example); a rate, decay, β or ε is traced; a parameter
        has no role or unknown axes, or its role has no row; a matrix does not have the table's width or vocabulary; a
        declaration decides no parameter's role. Errors of parameters name the path.

    Example:
      >>> import jax
      >>> import optax
      >>> from lvp import optim
      >>> params = {"embedding": {"embedding": jax.ShapeDtypeStruct((8192, 256), "float32")}}
      >>> tx = optim.parametrized(optax.adamw, "lvp", 3e-3, width=256, vocab=8192, weight_decay=0.1)
      >>> row = optim.describe(tx, params).rows[0]
      >>> row.path, row.role, round(row.init_std, 6), round(row.learning_rate, 6), row.weight_decay
      ('embedding/embedding', 'embedding', 0.0625, 0.048, 0.1)
    """
    table, described = described_under(rule, params, declarations)
    if isinstance(rule, Table):
        note = f"{rule.rule}: × {rule.learning_rate}"
        settings: Mapping[str, Mapping[str, Any]] = {
            r.role: {"learning_rate": r.lr_multiplier, "weight_decay": float(r.decay)} for r in rule.rows
        }
        options: Mapping[str, Mapping[str, Any]] = {role: {} for role in settings}
        masks: Mapping[str, Any] = dict.fromkeys(settings)
    else:
        settings, options, masks = rule.settings, rule.options, rule.masks
        note = f"{table.rule}: width {table.width}, vocab {table.vocab}{_when(settings)}"
    found = {leaf.role for leaf in jax.tree.leaves(described)}
    if {"embedding", "hidden"} <= found and not {"output", "tied"} & found:
        note += "; no parameter is output: declare an embedding that is also the head as tied"
    values = {role: {name: _number(name, x) for name, x in own.items()} for role, own in settings.items()}
    known = {
        role: {name: None if x is None else _number(name, x) for name, x in own.items()}
        for role, own in options.items()
    }
    decaying = {role: _decaying(mask, params) for role, mask in masks.items()}
    rows = []
    for index, leaf in enumerate(jax.tree.leaves(described)):
        own, row = values[leaf.role], table[leaf.role]
        rate, multiplier = own["learning_rate"], own.get("update_multiplier")
        decay = own.get("weight_decay", 0.0) if decaying[leaf.role][index] else 0.0
        rows.append(
            ParameterDescription(
                path=leaf.path,
                shape=leaf.shape,
                role=leaf.role,
                fan_in=leaf.size(leaf.fan_in),
                init_std=row.init_std,
                learning_rate=rate,
                weight_decay=decay,
                decay_per_step=0.0 if multiplier is not None and leaf.fan_in else rate * decay,
                update_multiplier=multiplier,
                forward_multiplier=row.forward_multiplier,
                head_multiplier=row.head_multiplier,
                **known[leaf.role],
            )
        )
    return Description(tuple(rows), note)


def _decaying(mask: Any, params: Any) -> list[bool]:
    """True for every parameter to which a mask of optax lets the decay apply."""
    mask = True if mask is None else mask(params) if callable(mask) else mask
    return [bool(one) for one in jax.tree.leaves(jax.tree.broadcast(mask, params))]


def _when(settings: Mapping[str, Mapping[str, Any]]) -> str:
    schedules = [own["learning_rate"] for own in settings.values() if callable(own["learning_rate"])]
    if not schedules:
        return ""
    if all(hasattr(schedule, "peak") for schedule in schedules):
        return ", at the peak"
    return ", schedules without a peak at the largest value of steps 0, 1, 2, 4, … 2^20"


def _number(name: str, value: Any) -> float:
    if callable(value):
        value = (
            value.peak
            if hasattr(value, "peak")
            else jnp.max(jax.vmap(value)(jnp.asarray([0, *(2**k for k in range(21))])))
        )
    if isinstance(value, jax.core.Tracer):
        raise InputError(f"{name} is traced, but describe needs a number: call describe outside jit and vmap")
    _rates.check(name, value)
    return float(value)
