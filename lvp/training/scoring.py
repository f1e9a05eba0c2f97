"""Perplexity per word, which is comparable across tokenizers (Hayou & Liu 2025, figure 5)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lvp.data.tokens import batches
from lvp.losses import next_token_loss
from lvp.models.decoder import Decoder


def word_perplexity(nats: float, count: int) -> float:
    """exp(nats / count), the perplexity per word of a text of `count` words; inf if nats / count is 700 or more."""
    return math.exp(nats / count) if nats / count < 700 else math.inf


def text_nats(
    model: Decoder, params: Any, tokens: np.ndarray, *, context: int, stride: int | None = None, rows: int = 8
) -> float:
    """−Σ log p(token | previous tokens) over all tokens but the first, in nats.

    Windows of `context` tokens advance by `stride`. The first window scores all its predictions. Every other window
    scores its last `stride` predictions, and each of them sees at least context − stride tokens. To score the first
    token too, put a line end before it.

    Args:
      tokens: int [N], N ≥ 2.
      stride: from 1 to `context`; None is half of `context`.
      rows: windows per forward pass.

    Raises:
      InputError: there are fewer than two tokens, `context` is below 1, or `stride` is out of range.
    """
    stride = max(1, context // 2) if stride is None else stride
    groups = batches.grouped(rows, *batches.evaluation_windows(tokens, context, stride))

    @jax.jit
    def nats(params, windows, weights):
        hidden = model.apply(params, windows[:, :-1])
        return next_token_loss(hidden, model.head(params), windows[:, 1:], weights) * jnp.sum(weights)

    # Summed on the host in float64: float32 is too coarse for a long text.
    return math.fsum(float(nats(params, *group)) for group in zip(*groups, strict=True))
