"""The geometry of a vocabulary matrix, and of the gradient of one (Stollenwerk & Stollenwerk 2025)."""

from typing import Any

import jax
import jax.numpy as jnp

from lvp.measures.arrays import check_rank, check_shape, norm, ratio, scale, wide

# Some accelerators multiply float32 matrices at a third of its digits unless told otherwise.
_PRECISION = jax.lax.Precision.HIGHEST


def embeddings(matrix: Any, *, initial_mean: Any) -> dict[str, jax.Array]:
    """How far the embeddings e_i have drifted from the origin and how evenly they fill their space.

    With μ = m⁻¹ Σ_i e_i and μ_0 the same at the start of training:

    - mean_drift: ‖μ − μ_0‖₂ / (m⁻¹ Σ_i ‖e_i‖₂), and mean_norm: ‖μ‖₂ / (m⁻¹ Σ_i ‖e_i‖₂). SGD on an LM head leaves μ
      where it was; Adam does not (Stollenwerk & Stollenwerk 2025).
    - average_cosine: mean of cos(e_i, e_j) over the pairs i ≠ j of the k rows that are not zero, in O(m d):
      (‖Σ_i u_i‖² − k) / (k (k − 1)) with unit rows u_i. 0 where k < 2.
    - isotropy: I = min_c Z(c) / max_c Z(c), Z(c) = Σ_i exp(⟨c, e_i⟩) (Mu & Viswanath 2018, "All-but-the-Top"), c
      over the unit eigenvectors of EᵀE in place of the whole sphere. The sign of an eigenvector is arbitrary and
      Z(c) ≠ Z(−c), so both signs of every eigenvector are taken, 2d vectors in all. In (0, 1], 1 for an isotropic
      set (and for E = 0). Not defined further: within an eigenspace of several dimensions the eigenvectors, and
      with them I, are what the eigensolver makes them. Sums of exponentials are kept as their logarithms, so nothing
      overflows; below the smallest float, I is 0.

    Args:
      matrix: E [m, d], a row per token (transpose a head [d, m]). initial_mean: μ_0 [d].

    Returns:
      The four as scalars. mean_drift and mean_norm are 0 where their numerator is zero, whatever the rows; mean_drift
      is infinite where the rows alone are zero.

    Raises:
      InputError: shapes other than these.
    """
    matrix, initial_mean = wide(matrix), wide(initial_mean)
    check_rank("matrix", matrix, 2)
    check_shape("initial_mean", initial_mean, matrix.shape[1:], "a row of matrix")
    mean, lengths = jnp.mean(matrix, axis=0), norm([matrix], (1,))
    average = jnp.mean(lengths)
    return {
        "mean_drift": ratio(norm([mean - initial_mean]), average),
        "mean_norm": ratio(norm([mean]), average),
        "average_cosine": _average_cosine(matrix, lengths),
        "isotropy": _isotropy(matrix),
    }


def gradient_sum(gradient: Any) -> jax.Array:
    """‖Σ_i g_i‖₂ / Σ_i ‖g_i‖₂: how little the gradients of a vocabulary's rows cancel.

    From 0 (they sum to zero: every gradient of cross-entropy with respect to an LM head that is not tied, where
    g_i = (p_i − δ_it) h, Stollenwerk & Stollenwerk 2025) to 1 (all point the same way).

    Args:
      gradient: g [m, d], a row per token (transpose a head's [d, m]).

    Returns:
      A scalar; 0 where all g_i are zero.

    Raises:
      InputError: another rank than 2.
    """
    gradient = wide(gradient)
    check_rank("gradient", gradient, 2)
    return ratio(norm([jnp.sum(gradient, axis=0)]), jnp.sum(norm([gradient], (1,))))


def _average_cosine(matrix, lengths):
    used = lengths > 0
    rows = jnp.sum(used, dtype=lengths.dtype)
    units = matrix / jnp.where(used, lengths, 1)[:, None]
    total = jnp.sum(units, axis=0)
    return (jnp.sum(jnp.square(total)) - rows) / jnp.maximum(rows * (rows - 1), 1) * (rows > 1)


def _isotropy(matrix):
    # The eigenvectors of EᵀE are those of any multiple of it.
    scaled = matrix * (1 / scale([matrix]))
    _, vectors = jnp.linalg.eigh(jnp.matmul(scaled.T, scaled, precision=_PRECISION))
    exponents = jnp.matmul(matrix, vectors, precision=_PRECISION)
    log_z = jnp.concatenate([jax.nn.logsumexp(sign * exponents, axis=0) for sign in (1, -1)])
    return jnp.exp(jnp.min(log_z) - jnp.max(log_z))
