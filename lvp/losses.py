"""Next-token cross-entropy that never holds [tokens, vocab] logits.

The loss and its gradients are computed together, chunk of tokens by chunk of tokens, each against the whole
vocabulary: three matrix products a chunk, as many as the dense loss has, because nothing is recomputed. What is
kept between forward and backward is the two gradients themselves ([tokens, width] and [width, vocab]).
"""

from functools import partial

import jax
import jax.numpy as jnp

# Logits per chunk. On CPU 2^23 (32 MiB of float32) is a 16th of what the dense loss holds of 4,096 tokens at a
# vocabulary of 32,768, and larger chunks gain little; accelerators want chunks near 8,192 tokens to fill the device.
CPU_CHUNK_LOGITS = 2**23
ACCELERATOR_CHUNK = 8192


def default_chunk(vocab: int) -> int:
    """Tokens per chunk for the default device."""
    return max(256, CPU_CHUNK_LOGITS // vocab) if jax.default_backend() == "cpu" else ACCELERATOR_CHUNK


def _wide(x) -> jnp.dtype:
    """What logits and sums are held in: float32, or the input's type where that is wider."""
    return jnp.promote_types(x.dtype, jnp.float32)


def next_token_loss(hidden, head, targets, weights=None, *, chunk: int | None = None) -> jax.Array:
    """Weighted mean of −log softmax(hidden · head)[target].

    Args:
      hidden: [..., width], bfloat16, float32 or float64; the rows that predict.
      head: [width, vocab], the output matrix.
      targets: [...], int; the token each row should predict. Rows of weight 0 may hold any valid index.
      weights: [...], float, non-negative; None is one everywhere. All zero gives a loss of 0.
      chunk: tokens per chunk; None takes `default_chunk`. Any size works, the last chunk is padded.

    Returns:
      Scalar in nats per unit of weight, float32 (float64 of float64). Differentiable in `hidden`, `head` and `weights`.
    """
    hidden = hidden.reshape(-1, hidden.shape[-1])
    targets = targets.reshape(-1)
    wide = _wide(hidden)
    weights = jnp.ones(targets.shape, wide) if weights is None else weights.reshape(-1).astype(wide)
    if chunk is None:
        chunk = default_chunk(head.shape[1])
    total = jnp.sum(weights)
    scale = 1.0 / jnp.where(total > 0, total, 1.0)
    return _weighted_sum(hidden, head, targets, weights * scale, min(chunk, max(targets.shape[0], 1)))


def dense_next_token_loss(hidden, head, targets, weights=None) -> jax.Array:
    """The same loss through [tokens, vocab] logits: the reference for tests and benchmarks. Arguments as above."""
    logits = jnp.matmul(hidden, head, preferred_element_type=_wide(hidden))
    nll = jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    weights = jnp.ones_like(nll) if weights is None else weights
    total = jnp.sum(weights)
    return jnp.sum(nll * weights) / jnp.where(total > 0, total, 1.0)


def chunks(chunk: int, *arrays) -> list[jax.Array]:
    """Arrays [N, ...] as [⌈N / chunk⌉, chunk, ...], to scan over.

    Padded with zeros: a weight, a frequency or a residual among the arrays makes what is added at the end count for
    nothing.
    """
    pad = -arrays[0].shape[0] % chunk
    return [jnp.pad(a, [(0, pad)] + [(0, 0)] * (a.ndim - 1)).reshape(-1, chunk, *a.shape[1:]) for a in arrays]


def _chunk_nll(hidden, head, targets):
    """Per token: logits [C, vocab] in float32 or wider, their logsumexp [C], −log p(target) [C]."""
    logits = jnp.matmul(hidden, head, preferred_element_type=_wide(hidden))
    lse = jax.nn.logsumexp(logits, axis=-1)
    return logits, lse, lse - jnp.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]


@partial(jax.custom_vjp, nondiff_argnums=(4,))
def _weighted_sum(hidden, head, targets, weights, chunk):
    def body(total, xs):
        hidden_c, targets_c, weights_c = xs
        _, _, nll = _chunk_nll(hidden_c, head, targets_c)
        return total + jnp.sum(nll * weights_c), None

    return jax.lax.scan(body, jnp.zeros((), _wide(hidden)), chunks(chunk, hidden, targets, weights))[0]


def _forward(hidden, head, targets, weights, chunk):
    wide = _wide(hidden)

    def body(carry, xs):
        total, d_head = carry
        hidden_c, targets_c, weights_c = xs
        logits, lse, nll = _chunk_nll(hidden_c, head, targets_c)
        is_target = jnp.arange(head.shape[1])[None, :] == targets_c[:, None]
        d_logits = (jnp.exp(logits - lse[:, None]) - is_target) * weights_c[:, None]
        # Under bfloat16 a float32 cotangent would turn both products into float32 ones.
        d_logits = d_logits.astype(hidden.dtype)
        d_hidden = jnp.matmul(d_logits, head.T)
        d_head += jnp.matmul(hidden_c.T, d_logits, preferred_element_type=wide)
        return (total + jnp.sum(nll * weights_c), d_head), (d_hidden, nll)

    init = (jnp.zeros((), wide), jnp.zeros(head.shape, wide))
    (total, d_head), (d_hidden, nll) = jax.lax.scan(body, init, chunks(chunk, hidden, targets, weights))
    tokens = hidden.shape[0]
    d_hidden = d_hidden.reshape(-1, hidden.shape[1])[:tokens]
    return total, (d_hidden.astype(hidden.dtype), d_head.astype(head.dtype), nll.reshape(-1)[:tokens])


def _backward(chunk, residuals, g):
    d_hidden, d_head, nll = residuals
    return g.astype(d_hidden.dtype) * d_hidden, g.astype(d_head.dtype) * d_head, None, g * nll


_weighted_sum.defvjp(_forward, _backward)
