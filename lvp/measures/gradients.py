"""Agreement of gradients between micro-batches and with the momentum (Kosson, Messmer & Jaggi 2024)."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lvp import roles
from lvp.errors import InputError
from lvp.measures.arrays import wide
from lvp.optim import snr_of_squares


def _square_sums(tree: Any, declarations: Sequence[roles.Declaration]) -> Any:
    """The tree of ‖x‖² of every parameter; for a parameter that stacks layers, an array over its stacked axes."""

    def square_sum(leaf, x):
        return jnp.sum(jnp.square(wide(x)), axis=leaf.layer_axes)

    return jax.tree.map(square_sum, roles.classify(tree, extra=declarations), tree)


def neuron_squares(tree: Any, declarations: Sequence[roles.Declaration] = ()) -> Any:
    """Returns ‖x‖² of every neuron. Its mean over micro-batches is the argument `mean_squares` of `snr`.

    Args:
      tree: pytree of arrays like the parameters, such as gradients.
      declarations: `lvp.roles.Declaration`s that come before the defaults.

    Returns:
      A pytree like `tree`. Axes over which a neuron sums have length 1. A gain or bias vector is treated as a single
      neuron.

    Raises:
      InputError: a parameter has no role or unknown axes; the error names its path.
    """

    def of_neurons(leaf, x):
        return jnp.sum(jnp.square(wide(x)), axis=leaf.fan_in or leaf.layer_axes, keepdims=True)

    return jax.tree.map(of_neurons, roles.classify(tree, extra=declarations), tree)


def snr(
    gradients: Any,
    mean_squares: Any,
    micro_batches: int,
    micro_batch_size: int,
    declarations: Sequence[roles.Declaration] = (),
) -> dict:
    """The gradient's signal-to-noise ratio per sequence, φ = ‖ḡ‖²/E‖g̃_b‖² (section 6), per matrix and per role.

    The estimator is `lvp.optim.snr_of_squares`.

    Args:
      gradients: pytree, the mean over micro-batches.
      mean_squares: the mean over micro-batches of their `neuron_squares`.
      micro_batches: K ≥ 2.
      micro_batch_size: b, sequences.
      declarations: `lvp.roles.Declaration`s that come before the defaults.

    Returns:
      {"matrices": {path: measures}, "roles": {role: measures}}, nested like the result of `lvp.measures.updates`. The
      measures are "snr", the joint φ of the matrix or role, and "neuron_snr", the median over its neurons of each
      neuron's φ. Estimates can be negative.

    Raises:
      InputError: there are fewer than two micro-batches, or a parameter has no role or unknown axes.
    """
    sizes, described = (micro_batches, micro_batch_size), roles.classify(gradients, extra=declarations)
    squares = neuron_squares(gradients, declarations)
    sums = {
        name: jax.tree.map(lambda leaf, x: jnp.sum(x, axis=leaf.layer_axes), described, tree)
        for name, tree in (("of_mean", squares), ("mean", mean_squares))
    }
    whole = _grouped(gradients, sums, lambda s: {"snr": snr_of_squares(s["of_mean"], s["mean"], *sizes)}, declarations)
    by_neuron = jax.tree.map(lambda of_mean, mean: snr_of_squares(of_mean, mean, *sizes), squares, mean_squares)
    pairs = list(zip(jax.tree.leaves(described), jax.tree.leaves(by_neuron), strict=True))
    for leaf, x in pairs:
        if leaf.path in whole["matrices"]:
            whole["matrices"][leaf.path]["neuron_snr"] = jnp.median(x, axis=leaf.layer_axes)
    for role, measured in whole["roles"].items():
        neurons = [jnp.ravel(x) for leaf, x in pairs if leaf.role == role]
        measured["neuron_snr"] = jnp.median(jnp.concatenate(neurons))
    return whole


def first_moments(opt_state: Any) -> dict[str, jax.Array]:
    """Path → the moving average m of every parameter's gradient, from optax's `ScaleByAdamState` or `ScaleByLionState`.

    These states may be nested in any chain. Empty for other optimizers.
    """
    kinds = (optax.ScaleByAdamState, optax.ScaleByLionState)
    moments: dict[str, jax.Array] = {}
    for state in jax.tree.leaves(opt_state, is_leaf=lambda x: isinstance(x, kinds)):
        if isinstance(state, kinds):
            leaves = jax.tree_util.tree_leaves_with_path(state.mu)  # `by_role` has a state per role
            moments |= {roles.path_of(path): x for path, x in leaves}
    return moments


def alignment(
    gradients: Any, momentum: Mapping[str, jax.Array], decay: Any, declarations: Sequence[roles.Declaration] = ()
) -> dict:
    """Alignment of a step's gradient g with the momentum m before it, m ← β m + (1 − β) g (section 6.2, figure 4).

    Args:
      gradients: pytree.
      momentum: path → m of every parameter, from `first_moments` before the step.
      decay: β, number or scalar array.
      declarations: `lvp.roles.Declaration`s that come before the defaults.

    Returns:
      {"matrices": {path: measures}, "roles": {role: measures}}, nested like the result of `lvp.measures.updates`. The
      measures are "alignment": cos(g, m), 0 if either is zero; and "cancelled": −⟨β m, (1 − β) g⟩ / ‖(1 − β) g‖², the
      fraction of the gradient's contribution that the projection of the momentum cancels. Adam's preconditioning is
      left out.

    Raises:
      InputError: a parameter has no momentum, no role or unknown axes.
    """
    described = roles.classify(gradients, extra=declarations)
    missing = [leaf.path for leaf in jax.tree.leaves(described) if leaf.path not in momentum]
    if missing:
        raise InputError(f"momentum has no leaf {missing[0]!r}: pass the first moments of all parameters")
    held = jax.tree.map(lambda leaf: momentum[leaf.path], described)
    products = jax.tree.map(
        lambda leaf, g, m: jnp.sum(wide(g) * wide(m), axis=leaf.layer_axes),
        described,
        gradients,
        held,
    )
    sums = {"product": products, "g": _square_sums(gradients, declarations), "m": _square_sums(held, declarations)}

    def measures(s):
        lengths = jnp.sqrt(s["g"]) * jnp.sqrt(s["m"])
        share = decay / (1 - decay)
        return {
            "alignment": s["product"] / jnp.where(lengths == 0, 1, lengths),
            "cancelled": -share * s["product"] / jnp.where(s["g"] == 0, 1, s["g"]),
        }

    return _grouped(gradients, sums, measures, declarations)


def _grouped(tree: Any, sums: Mapping[str, Any], measures, declarations: Sequence[roles.Declaration]) -> dict:
    """The `measures` of each matrix' sums, and of the sums added up per role; vectors are included by role only."""
    described = jax.tree.leaves(roles.classify(tree, extra=declarations))
    columns = {name: jax.tree.leaves(values) for name, values in sums.items()}
    rows = [{name: values[i] for name, values in columns.items()} for i in range(len(described))]
    members = {
        role: [row for leaf, row in zip(described, rows, strict=True) if leaf.role == role]
        for role in (*roles.ROLES, *(leaf.role for leaf in described))
    }
    totals = {
        role: {n: sum(jnp.sum(row[n]) for row in rows_of_role) for n in columns}
        for role, rows_of_role in members.items()
        if rows_of_role
    }
    return {
        "matrices": {
            leaf.path: measures(row) for leaf, row in zip(described, rows, strict=True) if leaf.role != "vector"
        },
        "roles": {role: measures(total) for role, total in totals.items()},
    }
