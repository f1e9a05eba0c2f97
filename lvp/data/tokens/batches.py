"""Windows of tokens: random windows inside a compiled step, and fixed windows for evaluation."""

import jax
import jax.numpy as jnp
import numpy as np

from lvp.errors import InputError


def random_windows(tokens: jax.Array, key: jax.Array, step: jax.Array | int, batch: int, context: int) -> jax.Array:
    """Uniformly random windows of a token array, int32 [batch, context + 1], a pure function of (key, step).

    A resumed run draws the same windows. A window is `context` inputs and the token after the last: inputs [:, :-1],
    targets [:, 1:]. Every start from 0 to N − context − 1 is equally likely, with replacement.

    Args:
      tokens: int32 [N], N > context; may be traced.
      key: a PRNG key; may be traced.
      step: any integer; may be traced.
      batch: number of windows, a constant.
      context: number of inputs of a window, a constant.

    Raises:
      InputError: N ≤ context, when the function is traced.
    """
    (length,) = tokens.shape
    if length <= context:
        raise InputError(f"{length} tokens are too few for a context of {context}: give at least {context + 1} tokens")
    starts = jax.random.randint(jax.random.fold_in(key, step), (batch, 1), 0, length - context)
    positions = starts + jnp.arange(context + 1, dtype=starts.dtype)[None, :]
    return tokens.at[positions].get(mode="promise_in_bounds")


def evaluation_windows(tokens: np.ndarray, context: int, stride: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Windows that cover a token array, so that every token but the first is a target exactly once.

    Window k begins at k · stride. In every window but the first, only the last `stride` targets count: at least
    context − stride tokens before them are visible.

    Args:
      tokens: int [N], N ≥ 2.
      context: number of inputs of a window, at least 1.
      stride: from 1 to `context`. None is `context`: neighbouring windows then share one token, a target in the first
        and an input in the second.

    Returns:
      NumPy arrays (windows int32 [n, context + 1], weights float32 [n, context]). Weights are 1 for targets that count,
      and 0 for the others and for the padding (token 0) of the last window.

    Raises:
      InputError: N < 2, context < 1, or stride is not from 1 to context.
    """
    tokens, stride = np.asarray(tokens), context if stride is None else stride
    if tokens.size < 2 or context < 1:
        raise InputError(
            f"cannot score {tokens.size} tokens with a context of {context}; at least 2 tokens and context 1 are needed"
        )
    if not 1 <= stride <= context:
        raise InputError(f"stride must be from 1 to the context, {context}, got {stride}")
    targets = tokens.size - 1
    count = 1 + max(0, -(-(targets - context) // stride))
    padded = np.zeros((count - 1) * stride + context + 1, np.int32)
    padded[: tokens.size] = tokens
    covered = np.lib.stride_tricks.sliding_window_view(padded, context + 1)[::stride].copy()
    place = stride * np.arange(count)[:, None] + np.arange(context)[None]  # position of each prediction's input
    new = (np.arange(context) >= context - stride)[None] | (np.arange(count) == 0)[:, None]
    return covered, ((place < targets) & new).astype(np.float32)


def grouped(rows: int, *arrays: np.ndarray) -> list[np.ndarray]:
    """Arrays [n, w] as [⌈n / rows⌉, rows, w]; the last group is filled with zeros (windows of weight 0)."""
    pad = -len(arrays[0]) % rows
    return [np.pad(x, [(0, pad), (0, 0)]).reshape(-1, rows, x.shape[1]) for x in arrays]
