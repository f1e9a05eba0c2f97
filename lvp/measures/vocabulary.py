"""Geometry of a vocabulary matrix and of its gradient (Stollenwerk & Stollenwerk 2025)."""

from typing import Any

import jax
import jax.numpy as jnp

from lvp.measures.arrays import check_rank, check_shape, norm, ratio, scale, wide

# Some accelerators multiply float32 matrices with a third of the digits by default.
_PRECISION = jax.lax.Precision.HIGHEST


def embeddings(matrix: Any, *, initial_mean: Any) -> dict[str, jax.Array]:
    """Drift of the mean embedding, average cosine and isotropy of the embeddings e_i.

    With the mean μ = m⁻¹ Σ_i e_i and its value μ_0 at the start of training:

    - mean_drift: ‖μ − μ_0‖₂ / (m⁻¹ Σ_i ‖e_i‖₂), and mean_norm: ‖μ‖₂ / (m⁻¹ Σ_i ‖e_i‖₂). SGD on an LM head does not
      change μ; Adam does (Stollenwerk & Stollenwerk 2025).
    - average_cosine: mean of cos(e_i, e_j) over the pairs i ≠ j of the k nonzero rows, in O(m d):
      (‖Σ_i u_i‖² − k) / (k (k − 1)) with unit rows u_i. 0 if k < 2.
    - isotropy: I = min_c Z(c) / max_c Z(c), Z(c) = Σ_i exp(⟨c, e_i⟩) (Mu & Viswanath 2018, "All-but-the-Top"), c
      over the unit eigenvectors of EᵀE in place of the whole sphere. The sign of an eigenvector is arbitrary and
      Z(c) ≠ Z(−c), so both signs of every eigenvector are used, 2d vectors in total. I lies in (0, 1]; it is 1 for an
      isotropic set and for E = 0. If an eigenspace has several dimensions, the eigenvectors, and so I, depend on the
      eigensolver. The sums of exponentials are computed as logarithms, so they do not overflow. A very small I
      underflows to 0.

    Args:
      matrix: E [m, d], a row per token (transpose a head [d, m]).
      initial_mean: μ_0 [d].

    Returns:
      The four measures as scalars. mean_drift and mean_norm are 0 if their numerator is zero. mean_drift is infinite
      if all rows are zero and μ_0 is not.

    Raises:
      InputError: an argument has another shape.
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
    """‖Σ_i g_i‖₂ / Σ_i ‖g_i‖₂, the norm of the sum of a vocabulary's row gradients relative to the sum of their norms.

    It is 0 if the gradients sum to zero, as for cross-entropy and an untied LM head, with g_i = (p_i − δ_it) h
    (Stollenwerk & Stollenwerk 2025). It is 1 if all gradients have the same direction.

    Args:
      gradient: g [m, d], a row per token (transpose a head's [d, m]).

    Returns:
      A scalar; 0 if all g_i are zero.

    Raises:
      InputError: the rank is not 2, or there is no entry.
    """
    gradient = wide(gradient)
    check_rank("gradient", gradient, 2)
    return ratio(norm([jnp.sum(gradient, axis=0)]), jnp.sum(norm([gradient], (1,))))


def against_hidden(updates: Any, hidden: Any) -> jax.Array:
    """cos(Σ_i u_i, −Σ_n h_n), the cosine between the step of an LM head's mean row and the negative mean hidden state.

    The update of a row i other than the true token's is along −h (Stollenwerk & Stollenwerk 2025). The cosine is 1 if
    the mean row moves against the mean hidden state.

    Args:
      updates: u [m, d], a row per token (transpose a head's [d, m]).
      hidden: h [N, d], inputs of the head.

    Returns:
      A scalar; 0 if either sum is zero.

    Raises:
      InputError: an argument has another shape.
    """
    updates, hidden = wide(updates), wide(hidden)
    check_rank("updates", updates, 2)
    check_rank("hidden", hidden, 2)
    check_shape("hidden", hidden, (hidden.shape[0], *updates.shape[1:]), "the width of updates")
    moved, mean = jnp.sum(updates, axis=0), jnp.mean(hidden, axis=0)
    moved, mean = moved * (1 / scale([moved])), mean * (1 / scale([mean]))
    return ratio(-jnp.dot(moved, mean, precision=_PRECISION), norm([moved]) * norm([mean]))


def _average_cosine(matrix, lengths):
    used = lengths > 0
    rows = jnp.sum(used, dtype=lengths.dtype)
    units = matrix / jnp.where(used, lengths, 1)[:, None]
    total = jnp.sum(units, axis=0)
    return (jnp.sum(jnp.square(total)) - rows) / jnp.maximum(rows * (rows - 1), 1) * (rows > 1)


def _isotropy(matrix):
    # Scaling avoids overflow and does not change the eigenvectors of EᵀE.
    scaled = matrix * (1 / scale([matrix]))
    _, vectors = jnp.linalg.eigh(jnp.matmul(scaled.T, scaled, precision=_PRECISION))
    exponents = jnp.matmul(matrix, vectors, precision=_PRECISION)
    log_z = jnp.concatenate([jax.nn.logsumexp(sign * exponents, axis=0) for sign in (1, -1)])
    return jnp.exp(jnp.min(log_z) - jnp.max(log_z))
