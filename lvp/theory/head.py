"""Closed form of an LM head's gradient, and its updates by SGD and Adam (Stollenwerk & Stollenwerk 2025)."""

import numpy as np
from numpy.typing import ArrayLike

from lvp.errors import InputError, shown


def head_updates(
    hidden: ArrayLike, probabilities: ArrayLike, target: int, *, second_moment: ArrayLike | None = None
) -> np.ndarray:
    """The update u_i = −η_i g_i of every output embedding after one token, with g_i = (p_i − δ_it) h.

    SGD has the same η_i = 1 for every token, so Σ_i u_i = 0. Adam has η_i = 1/√v̂_i, so Σ_i u_i is in general zero only
    if all v̂_i are equal.

    Args:
      hidden: h [d].
      probabilities: p [m], the model's prediction for the next token.
      target: t, the observed token.
      second_moment: v̂ [m], a value per token; None for SGD.

    Returns:
      u [m, d], for a learning rate of 1.

    Raises:
      InputError: probabilities are negative or do not sum to 1; target is out of range; second_moment is not positive
        or has another length.
    """
    hidden, probabilities = np.asarray(hidden, float), np.asarray(probabilities, float)
    if probabilities.ndim != 1 or (probabilities < 0).any() or abs(probabilities.sum() - 1) > 1e-6:
        raise InputError(
            f"probabilities must be [vocab], non-negative, with sum 1, got {shown(probabilities.tolist())}: "
            "pass softmax(logits)"
        )
    if not 0 <= target < len(probabilities):
        raise InputError(f"target must lie in 0 to {len(probabilities) - 1}, got {target}")
    gradient = (probabilities - (np.arange(len(probabilities)) == target))[:, None] * hidden
    if second_moment is None:
        return -gradient
    second_moment = np.asarray(second_moment, float)
    if second_moment.shape != probabilities.shape or not (second_moment > 0).all():
        raise InputError(
            f"second_moment must be positive, of shape {probabilities.shape}; got shape {second_moment.shape} with "
            f"least entry {np.min(second_moment, initial=np.inf):g}"
        )
    return -gradient / np.sqrt(second_moment)[:, None]
