"""The gradient of an LM head in closed form, and the updates optimizers make of it (Stollenwerk & Stollenwerk 2025)."""

import numpy as np
from numpy.typing import ArrayLike

from lvp.errors import InputError


def head_updates(
    hidden: ArrayLike, probabilities: ArrayLike, target: int, *, second_moment: ArrayLike | None = None
) -> np.ndarray:
    """u_i = −η_i g_i of every output embedding after one token, with g_i = (p_i − δ_it) h.

    SGD has one η_i for all (here 1), so that Σ_i u_i = 0; Adam has η_i = 1/√v̂_i, and the sum vanishes only if all v̂_i
    are equal.

    Args:
      hidden: h [d]. probabilities: p [m], the model's, of the next token. target: t, the token that came.
      second_moment: v̂ [m], per token; None is SGD.

    Returns:
      u [m, d], for a learning rate of one.

    Raises:
      InputError: probabilities that are negative or do not sum to one, a target outside them, second moments that are
        not positive or of another length.
    """
    hidden, probabilities = np.asarray(hidden, float), np.asarray(probabilities, float)
    if probabilities.ndim != 1 or (probabilities < 0).any() or abs(probabilities.sum() - 1) > 1e-6:
        raise InputError("probabilities must be [vocab], not negative, and sum to one")
    if not 0 <= target < len(probabilities):
        raise InputError(f"target must be one of {len(probabilities)} tokens, got {target}")
    gradient = (probabilities - (np.arange(len(probabilities)) == target))[:, None] * hidden
    if second_moment is None:
        return -gradient
    second_moment = np.asarray(second_moment, float)
    if second_moment.shape != probabilities.shape or not (second_moment > 0).all():
        raise InputError("second_moment must be positive, one for every token")
    return -gradient / np.sqrt(second_moment)[:, None]
