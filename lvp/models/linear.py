"""The linear network of Hayou & Liu 2025, f(x) = xᵀ E W (eq. 2), and its exact infinite-batch gradients.

Plain functions on a tree that `lvp.roles` labels by default: {"embedding": {"embedding": E [m, d]}, "head": {"kernel":
W [d, m]}}. An infinite batch holds token i with probability α_i. `gradients` sums over tokens in chunks, so that memory
is E, W, their gradients and a few arrays [chunk, m]. `pair_loss` holds all [m, m] logits.
"""

from typing import Any

import jax
import jax.numpy as jnp

from lvp.errors import InputError
from lvp.losses import chunks, default_chunk


def init(
    key: jax.Array,
    width: int,
    vocab: int,
    sigma_embedding: float | jax.Array,
    sigma_output: float | jax.Array,
    dtype: Any = jnp.float32,
) -> dict:
    """E and W with iid N(0, σ²) entries; the σ are standard deviations and may be traced.

    Raises:
      InputError: `width` or `vocab` is below 1.
    """
    if width < 1 or vocab < 1:
        raise InputError(f"width and vocab must be at least 1, got {width!r} and {vocab!r}")
    key_embedding, key_output = jax.random.split(key)
    embedding = sigma_embedding * jax.random.normal(key_embedding, (vocab, width), dtype)
    return as_params(embedding, sigma_output * jax.random.normal(key_output, (width, vocab), dtype))


def as_params(embedding: jax.Array, output: jax.Array) -> dict:
    """The tree of E [m, d] and W [d, m]."""
    return {"embedding": {"embedding": embedding}, "head": {"kernel": output}}


def matrices(params: Any) -> tuple[jax.Array, jax.Array]:
    """(E [m, d], W [d, m]) of a tree: the inverse of `as_params`."""
    return params["embedding"]["embedding"], params["head"]["kernel"]


def apply(params: Any, tokens: jax.Array) -> jax.Array:
    """f(x) for one-hot x: the logits [..., m] of tokens [...]."""
    embedding, output = matrices(params)
    return embedding[tokens] @ output


def pair_loss(params: Any, pairs: jax.Array, *, normalize_rows: bool = False) -> jax.Array:
    """Σ_ij p_ij (−log softmax(E_i W)_j) in nats: the cross-entropy of an infinite batch of pairs of successive tokens.

    Without `normalize_rows`, its gradients are dE = S Wᵀ and dW = Eᵀ S with S_ij = α_i softmax(E_i W)_j − p_ij and
    α_i = Σ_j p_ij. All [m, m] logits are in memory.

    Args:
      params: tree of E [m, d] and W [d, m].
      pairs: p [m, m], in the parameters' type: the frequency of token i followed by token j, with sum 1.
      normalize_rows: divides every row of E by its root mean square.

    Raises:
      InputError: `pairs` is not [m, m].
    """
    embedding, output = matrices(params)
    if jnp.shape(pairs) != (embedding.shape[0], output.shape[1]):
        raise InputError(f"pairs must be [{embedding.shape[0]}, {output.shape[1]}], got {jnp.shape(pairs)}")
    if normalize_rows:
        embedding = embedding * jax.lax.rsqrt(jnp.mean(embedding**2, axis=1, keepdims=True))
    logits = embedding @ output
    return jnp.sum(jnp.sum(pairs, axis=1) * jax.nn.logsumexp(logits, axis=1)) - jnp.sum(pairs * logits)


def gradients(
    params: Any, frequencies: jax.Array, targets: jax.Array, loss: str = "square", *, chunk: int | None = None
) -> dict:
    """The infinite-batch gradients for one-hot targets.

    "square": dE = m⁻¹ D_α (E W − Z) Wᵀ and dW = m⁻¹ Eᵀ D_α (E W − Z), from ℓ(z, z') = ‖z − z'‖²/(2m). (The paper drops
    m⁻¹ in the limit. It has no effect on sign descent. It changes Adam through ε.) "cross_entropy": dE = D_α (P − Z) Wᵀ
    and dW = Eᵀ D_α (P − Z). Row i of P is softmax(E_i W).

    Args:
      params: tree of E [m, d] and W [d, m].
      frequencies: α [m], in the parameters' type.
      targets: [m], int: Z_i is one-hot at targets[i], the token that follows token i.
      loss: "square" or "cross_entropy".
      chunk: tokens at a time; None takes `lvp.losses.default_chunk`. It need not divide m.

    Returns:
      dE and dW in the tree of params.

    Raises:
      InputError: `loss` is unknown, shapes do not fit, `targets` are not integers, or `chunk` is below 1.
    """
    _check(params, frequencies, targets, loss)
    return _accumulate(params, frequencies, targets, _RESIDUALS[loss], chunk)


def random_signal_gradients(params: Any, frequencies: jax.Array, key: jax.Array, *, chunk: int | None = None) -> dict:
    """The infinite-batch gradients of the square loss under Assumption 2: E W − Z is iid N(0, 1).

    dE = m⁻¹ D_α V Wᵀ, dW = m⁻¹ Eᵀ D_α V, with V [m, m] iid N(0, 1), independent of E and W. Row i of V comes from `key`
    and i only, and does not depend on the chunk. The other arguments and the result are as in `gradients`.

    Raises:
      InputError: shapes do not fit, or `chunk` is below 1.
    """
    vocab = matrices(params)[1].shape[1]
    rows = jnp.arange(vocab)
    _check(params, frequencies, rows, "square")

    def signal(logits, index):
        draw = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), (vocab,), logits.dtype))
        return draw(index) / vocab

    return _accumulate(params, frequencies, rows, signal, chunk)


def _square_residual(logits, targets):
    return _minus_one_hot(logits, targets) / logits.shape[1]


def _cross_entropy_residual(logits, targets):
    return _minus_one_hot(jax.nn.softmax(logits, axis=1), targets)


def _minus_one_hot(rows, targets):
    return rows.at[jnp.arange(rows.shape[0]), targets].add(-1)


_RESIDUALS = {"square": _square_residual, "cross_entropy": _cross_entropy_residual}
LOSSES = tuple(_RESIDUALS)


def _accumulate(params, frequencies, extras, residual, chunk: int | None) -> dict:
    """dE and dW from residual(logits [C, m], extras [C]) = ∂ℓ/∂logits per token, by chunks of C tokens."""
    embedding, output = matrices(params)
    vocab = embedding.shape[0]
    if chunk is not None and chunk < 1:
        raise InputError(f"chunk must be at least 1, got {chunk!r}")
    chunk = min(vocab, default_chunk(vocab) if chunk is None else chunk)
    # Padding has frequency 0 and adds nothing.
    blocks = chunks(chunk, embedding, frequencies, extras)

    def body(d_output, block):
        embedding_c, frequencies_c, extras_c = block
        signal = frequencies_c[:, None] * residual(embedding_c @ output, extras_c)
        return d_output + embedding_c.T @ signal, signal @ output.T

    d_output, d_embedding = jax.lax.scan(body, jnp.zeros_like(output), blocks)
    return as_params(d_embedding.reshape(-1, embedding.shape[1])[:vocab], d_output)


def _check(params, frequencies, targets, loss: str) -> None:
    if loss not in LOSSES:
        raise InputError(f"loss must be one of {LOSSES}, not {loss!r}")
    embedding, output = matrices(params)
    if embedding.ndim != 2 or output.shape != embedding.shape[::-1]:
        raise InputError(f"params must be E [m, d] and W [d, m], got {embedding.shape} and {output.shape}")
    for name, array in (("frequencies", frequencies), ("targets", targets)):
        if jnp.shape(array) != embedding.shape[:1]:
            raise InputError(f"{name} must have shape [{embedding.shape[0]}] (tokens), got {jnp.shape(array)}")
    if not jnp.issubdtype(jnp.result_type(targets), jnp.integer):
        raise InputError(f"targets must be token indices, got {jnp.result_type(targets)}")
