"""Windows of tokens: random ones inside a compiled step, and a fixed cover for evaluation."""

import jax
import jax.numpy as jnp
import numpy as np

from lvp.errors import InputError


def random_windows(tokens: jax.Array, key: jax.Array, step: jax.Array | int, batch: int, context: int) -> jax.Array:
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


def evaluation_windows(tokens: np.ndarray, context: int, stride: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A cover of a token array by windows in which every token but the first is a target exactly once.

    tokens int [N], N ≥ 2. Window k begins at k · stride, and of every window but the first only the last `stride`
    targets count: they are predicted from at least context − stride tokens before them. None is a stride of `context`,
    by which neighbours share one token, a target in one and an input in the other.

    Returns (windows int32 [n, context + 1], weights float32 [n, context]) in numpy. weights are 1 for targets that
    count, 0 for the others and for the padding (token 0) of the last window. Raises InputError if N < 2, context < 1 or
    stride is not from 1 to context.
    """
    tokens, stride = np.asarray(tokens), context if stride is None else stride
    if tokens.size < 2 or context < 1:
        raise InputError(f"cannot score {tokens.size} tokens with a context of {context}: 2 and 1 at least")
    if not 1 <= stride <= context:
        raise InputError(f"the stride of a context of {context} must be from 1 to that, got {stride}")
    targets = tokens.size - 1
    count = 1 + max(0, -(-(targets - context) // stride))
    padded = np.zeros((count - 1) * stride + context + 1, np.int32)
    padded[: tokens.size] = tokens
    covered = np.lib.stride_tricks.sliding_window_view(padded, context + 1)[::stride].copy()
    place = stride * np.arange(count)[:, None] + np.arange(context)[None]  # of a prediction, by its input
    new = (np.arange(context) >= context - stride)[None] | (np.arange(count) == 0)[:, None]
    return covered, ((place < targets) & new).astype(np.float32)


def grouped(rows: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """Arrays [n, w] as [⌈n / rows⌉, rows, w], zeros (so: windows of weight 0) filling the last group."""
    pad = -len(arrays[0]) % rows
    return [np.pad(x, [(0, pad), (0, 0)]).reshape(-1, rows, x.shape[1]) for x in arrays]
