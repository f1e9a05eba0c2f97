"""What a text costs a model, by the word: comparable whatever the tokenizer (Hayou & Liu 2025, figure 5)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lvp.data.tokens import batches
from lvp.losses import next_token_loss
from lvp.models.decoder import Decoder


def word_perplexity(nats: float, count: int) -> float:
    """exp(nats / count); infinite where that is too large for a float."""
    return math.exp(nats / count) if nats / count < 700 else math.inf


def text_nats(
    model: Decoder, params: Any, tokens: np.ndarray, *, context: int, stride: int | None = None, rows: int = 8
) -> float:
    """−Σ log p(token | tokens before it) of all tokens but the first, in nats.

    Windows of `context` tokens that advance by `stride` (None: half of it), of each but the first the last `stride`
    predictions: a token is predicted from at least context − stride tokens before it, but at the beginning. Of a text
    that is to be scored whole, a line end goes before the first token.

    Args:
      tokens: int [N], N ≥ 2. rows: windows that go through the model together.

    Raises InputError for fewer tokens, or a stride that is not from 1 to `context`.
    """
    stride = max(1, context // 2) if stride is None else stride
    groups = batches.grouped(rows, *batches.evaluation_windows(tokens, context, stride))

    @jax.jit
    def nats(params, windows, weights):
        hidden = model.apply(params, windows[:, :-1])
        return next_token_loss(hidden, model.head(params), windows[:, 1:], weights) * jnp.sum(weights)

    # Summed on the host in float64: a long text has more tokens than float32 has digits.
    return math.fsum(float(nats(params, *group)) for group in zip(*groups, strict=True))
