"""Windows of tokens: random ones inside a compiled step, and a fixed cover for evaluation."""

import jax
import jax.numpy as jnp
import numpy as np

from lvp.errors import InputError


def windows(tokens: jax.Array, key: jax.Array, step: jax.Array | int, batch: int, context: int) -> jax.Array:
    """Uniformly random windows of a token array, int32 [batch, context + 1], a pure function of (key, step).

    tokens int32 [N], N > context; key a PRNG key, step any integer and both traced, so that a run resumed at
    a step draws what it would have drawn; batch and context are constants. A window is `context` inputs and
    the token after the last: inputs [:, :-1], targets [:, 1:]. Every start from 0 to N − context − 1 is
    equally likely, with replacement. Raises InputError when tracing if N ≤ context.
    """
    (length,) = tokens.shape
    if length <= context:
        raise InputError(f"{length} tokens are too few for a context of {context}: at least {context + 1}")
    starts = jax.random.randint(jax.random.fold_in(key, step), (batch, 1), 0, length - context)
    positions = starts + jnp.arange(context + 1, dtype=starts.dtype)[None, :]
    return tokens.at[positions].get(mode="promise_in_bounds")


def evaluation_windows(tokens: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray]:
    """A cover of a token array by windows in which every token but the first is a target exactly once.

    tokens int [N], N ≥ 2. Returns (windows int32 [n, context + 1], weights float32 [n, context]) in numpy
    with n = ⌈(N − 1)/context⌉: window k begins at k·context, so neighbours share one token, a target in one
    and an input in the other. weights are 1 for targets of the text, 0 for the padding (token 0) of the last
    window. Raises InputError if N < 2 or context < 1.
    """
    tokens = np.asarray(tokens)
    if tokens.size < 2 or context < 1:
        raise InputError(f"cannot score {tokens.size} tokens with a context of {context}: 2 and 1 at least")
    targets = tokens.size - 1
    count = -(-targets // context)
    padded = np.zeros(count * context + 1, np.int32)
    padded[: tokens.size] = tokens
    covered = np.lib.stride_tricks.sliding_window_view(padded, context + 1)[::context].copy()
    weights = (np.arange(count * context) < targets).astype(np.float32).reshape(count, context)
    return covered, weights
