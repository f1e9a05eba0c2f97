"""LionAR that holds the measured relative representation change (Kosson, Messmer & Jaggi 2024, section 6)."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lvp import optim, roles
from lvp.errors import InputError
from lvp.measures.arrays import norm, wide


def lion_ar_held(
    learning_rate: optax.ScalarOrSchedule,
    *,
    b: Any = 0.9,
    weight_decay: Any = 0.1,
    needs_inputs: bool = True,
    peak_learning_rate: Any = None,
    update_multiplier: Any = 1.0,
    declarations: Sequence[roles.Declaration] = (),
) -> optax.GradientTransformationExtraArgs:
    """Returns `optim.lion_ar` with `divide_by_amplification` between the direction and the rotation.

    The relative representation change of each matrix is then LionAR's angle, which follows the schedule.

    Args:
      needs_inputs: tells `lvp.training` to pass `inputs`, of rows of the step's batch.
      learning_rate, b, weight_decay, peak_learning_rate, update_multiplier, declarations: as in `optim.lion_ar`.

    Raises:
      InputError: as `optim.lion_ar`.
    """
    del needs_inputs
    of_turn = {"peak_learning_rate": peak_learning_rate, "update_multiplier": update_multiplier}
    return optax.chain(
        optim.scale_by_lion_a(b),
        divide_by_amplification(declarations),
        optim.rotate_by_learning_rate(learning_rate, weight_decay=weight_decay, declarations=declarations, **of_turn),
    )


def divide_by_amplification(declarations: Sequence[roles.Declaration] = ()) -> optax.GradientTransformationExtraArgs:
    """Divides each matrix's update Δw by its amplification (‖Δwᵀ X‖ / ‖wᵀ X‖) / (‖Δw‖ / ‖w‖).

    The relative change of the matrix's outputs then equals the relative size of Δw before the division.
    `update` requires the parameters and `inputs`, the X of `lvp.measures.representation_change`. Parameters without
    inputs, and updates whose amplification is 0 or infinite, are not changed.
    """

    def update(updates, state, params=None, *, inputs=None, **extra_args):
        del extra_args
        if params is None or inputs is None:
            raise InputError("params and inputs are required: pass them, tx.update(updates, state, params, inputs=X)")

        def divide(leaf, u, w):
            if leaf.path not in inputs:
                return u
            change, output = (_output_norm(leaf, matrix, inputs[leaf.path]) for matrix in (u, w))
            amplification = (change * norm([w])) / (output * norm([u]))
            usable = jnp.isfinite(amplification) & (amplification > 0)
            return (u / jnp.where(usable, amplification, 1)).astype(u.dtype)

        return jax.tree.map(divide, roles.classify(updates, extra=declarations), updates, params), state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def _output_norm(leaf: roles.Leaf, matrix: jax.Array, x: jax.Array) -> jax.Array:
    """‖wᵀ X‖ of a matrix."""
    matrix = wide(matrix)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return norm([matrix[x]])
    w, x = matrix.T if leaf.fan_in == (1,) else matrix, wide(x)
    return jnp.sqrt(jnp.sum(w * (x.T @ x @ w)))  # without a product for every token
