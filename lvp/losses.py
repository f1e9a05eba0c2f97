"""Next-token cross-entropy without an array of [tokens, vocab] logits.

When the loss is differentiated, the loss and its gradients are computed together, for one chunk of tokens at a time and
the whole vocabulary. Each chunk takes three matrix products, as in the dense loss, because nothing is recomputed. The
residuals between forward and backward pass are the two gradients ([tokens, width] and [width, vocab]) and the losses
([tokens]).

On a mesh every device processes its own tokens and its own columns of the head. It holds [chunk, vocab / model] of a
chunk's logits. Devices that share tokens exchange, per token, the largest logit, the sum of exponentials, the target's
logit and its number of owners. They also sum the gradient of hidden.

The alternatives tokamax 0.0.12 and 0.0.17 were compared by compiling for v5e, v5p and v6e (docs/speed.md). Their Mosaic
kernels have four such products. 0.0.17 needs more memory than chunks of 2,048 tokens. 0.0.12 needs as much as chunks of
1,024 tokens, and its result is wrong if its blocks do not divide the vocabulary. Neither has a z-loss or a head split
over the vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from lvp.mesh_axes import DATA, FSDP, MODEL, TOKENS
from lvp.products import weight_gradient

# Logits per chunk. On CPU, 2^23 logits (32 MiB in float32) are a 16th of those of the dense loss for 4,096 tokens and a
# vocabulary of 32,768. Larger chunks gain little. TPUs need chunks of about 8,192 tokens to be fully used. On an H100,
# chunks of 2,048 tokens take an 18th of the dense loss's memory for 32,768 tokens.
CPU_CHUNK_LOGITS = 2**23
TPU_CHUNK, GPU_CHUNK = 8192, 2048


_compiled_for: ContextVar[str | None] = ContextVar("compiled_for", default=None)


@contextmanager
def compiling_for(platform: str) -> Iterator[None]:
    """Gives programs that are traced in the context the default chunks of a platform ("cpu", "tpu", "cuda")."""
    token = _compiled_for.set(platform)
    try:
        yield
    finally:
        _compiled_for.reset(token)


def default_chunk(vocab: int, mesh: Mesh | None = None) -> int:
    """The default number of tokens per chunk for the devices of a mesh.

    Without a mesh, for the platform of `compiling_for`, else for the default device.
    """
    platform = (_compiled_for.get() or jax.default_backend()) if mesh is None else mesh.devices.flat[0].platform
    if platform == "cpu":
        return max(256, CPU_CHUNK_LOGITS // vocab)
    return TPU_CHUNK if platform == "tpu" else GPU_CHUNK


def _wide(x) -> jnp.dtype:
    """The dtype of logits and sums: float32, or the input's dtype if that is wider."""
    return jnp.promote_types(x.dtype, jnp.float32)


def next_token_loss(
    hidden: jax.Array,
    head: jax.Array,
    targets: jax.Array,
    weights: jax.Array | None = None,
    *,
    chunk: int | None = None,
    z_loss: float = 0.0,
    mesh: Mesh | None = None,
) -> jax.Array:
    """Returns the weighted mean of −log softmax(hidden · head)[target], plus z_loss · log²(Σ exp(hidden · head)).

    Args:
      hidden: [..., width], bfloat16, float32 or float64; a row per prediction.
      head: [width, vocab], the output matrix. It is multiplied in hidden's dtype. Its gradient is summed in float32
        (float64 for float64 hidden) and returned in head's dtype.
      targets: [...], int; the target token of each row, from 0 to vocab − 1, also in rows of weight 0. Another target
        makes the loss nan.
      weights: [...], float, non-negative; None is 1 for every row. If all are zero, the loss is 0.
      chunk: tokens per chunk and device; None takes `default_chunk`. Any size works; the last chunk is padded.
      z_loss: keeps the logits' normaliser near one (Chowdhery et al. 2022, section 5: 1e-4).
      mesh: a mesh of `lvp.parallel.sharding`. data × fsdp must divide the rows, fsdp the width, and model the
        vocabulary. The head is gathered over fsdp, and its gradient is scattered over fsdp.

    Returns:
      A scalar in nats per unit of weight, float32 (float64 for float64). It is differentiable in `hidden`, `head` and
      `weights`, in reverse mode only.
    """
    hidden = hidden.reshape(-1, hidden.shape[-1])
    targets = targets.reshape(-1)
    wide = _wide(hidden)
    weights = jnp.ones(targets.shape, wide) if weights is None else weights.reshape(-1).astype(wide)
    if chunk is None:
        chunk = default_chunk(head.shape[1], mesh)
    total = jnp.sum(weights)
    scale = 1.0 / jnp.where(total > 0, total, 1.0)
    return _weighted_sum(hidden, head, targets, weights * scale, chunk, z_loss, mesh)


def dense_next_token_loss(
    hidden: jax.Array, head: jax.Array, targets: jax.Array, weights: jax.Array | None = None
) -> jax.Array:
    """`next_token_loss` through [tokens, vocab] logits, a reference for tests and benchmarks; same array arguments."""
    logits = jnp.matmul(hidden, head, preferred_element_type=_wide(hidden))
    nll = jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    weights = jnp.ones_like(nll) if weights is None else weights
    total = jnp.sum(weights)
    return jnp.sum(nll * weights) / jnp.where(total > 0, total, 1.0)


def chunks(chunk: int, *arrays: jax.Array) -> list[jax.Array]:
    """Arrays [N, ...] as [⌈N / chunk⌉, chunk, ...], to scan over.

    The last chunk is padded with zeros. The padding has no effect if one of the arrays is a factor of the result, such
    as a weight, a frequency or a residual.
    """
    pad = -arrays[0].shape[0] % chunk
    return [jnp.pad(a, [(0, pad)] + [(0, 0)] * (a.ndim - 1)).reshape(-1, chunk, *a.shape[1:]) for a in arrays]


def _chunk_nll(hidden, head, targets, z_loss: float, split: bool):
    """(logits, logsumexp, losses, target columns) of a chunk of C tokens.

    The logits [C, columns] are those of this device's columns, in float32 or wider. logsumexp [C] and losses [C] are
    over the whole vocabulary. Target columns [C] are counted from this device's first column; values out of range are
    on another device.
    """
    logits = jnp.matmul(hidden, head, preferred_element_type=_wide(hidden))
    if not split:
        # `take_along_axis` gives NaN for an index beyond the last column, and counts a negative index from the end.
        lse, at = jax.nn.logsumexp(logits, axis=-1), jnp.where(targets < 0, logits.shape[-1], targets)
        of_target = jnp.take_along_axis(logits, at[:, None], axis=-1)[:, 0]
    else:
        columns = head.shape[1]
        at = targets - jax.lax.axis_index(MODEL) * columns
        most = jax.lax.pmax(jnp.max(logits, axis=-1), MODEL)
        lse = most + jnp.log(jax.lax.psum(jnp.sum(jnp.exp(logits - most[:, None]), axis=-1), MODEL))
        at_target = jnp.take_along_axis(logits, jnp.clip(at, 0, columns - 1)[:, None], axis=-1)[:, 0]
        own = (at >= 0) & (at < columns)
        of_target, owners = jax.lax.psum((jnp.where(own, at_target, 0), own.astype(at_target.dtype)), MODEL)
        of_target = jnp.where(owners > 0, of_target, jnp.nan)  # out-of-range target: NaN, as on one device
    loss = lse - of_target
    return logits, lse, loss + z_loss * lse**2 if z_loss else loss, at


def _sum(hidden, head, targets, weights, chunk: int, z_loss: float, split: bool):
    """Σ weight · loss over the given tokens."""

    def body(total, xs):
        hidden_c, targets_c, weights_c = xs
        losses = _chunk_nll(hidden_c, head, targets_c, z_loss, split)[2]
        return total + jnp.sum(losses * weights_c), None

    chunk = min(chunk, max(targets.shape[0], 1))
    return jax.lax.scan(body, jnp.zeros((), _wide(hidden)), chunks(chunk, hidden, targets, weights))[0]


def _sum_and_gradients(hidden, head, targets, weights, chunk: int, z_loss: float, split: bool):
    """Σ weight · loss, and its gradients with respect to hidden, head and weights.

    The gradient of hidden contains the part from the given columns only.
    """
    wide = _wide(hidden)

    def body(carry, xs):
        total, d_head = carry
        hidden_c, targets_c, weights_c = xs
        logits, lse, losses, at = _chunk_nll(hidden_c, head, targets_c, z_loss, split)
        is_target = jnp.arange(head.shape[1])[None, :] == at[:, None]
        share = jnp.exp(logits - lse[:, None])
        if z_loss:
            share *= 1 + 2 * z_loss * lse[:, None]
        # With bfloat16 inputs, a float32 cotangent would make both products float32.
        d_logits = ((share - is_target) * weights_c[:, None]).astype(hidden.dtype)
        d_hidden = jnp.matmul(d_logits, head.T)
        d_head += weight_gradient(hidden_c, d_logits, wide)
        return (total + jnp.sum(losses * weights_c), d_head), (d_hidden, losses)

    tokens = hidden.shape[0]
    init = (jnp.zeros((), wide), jnp.zeros(head.shape, wide))
    parts = chunks(min(chunk, max(tokens, 1)), hidden, targets, weights)
    (total, d_head), (d_hidden, losses) = jax.lax.scan(body, init, parts)
    return total, d_hidden.reshape(-1, hidden.shape[1])[:tokens], d_head, losses.reshape(-1)[:tokens]


def _psum(x, mesh: Mesh, *axes: str):
    """The sum over these axes of the mesh. Axes of size 1 are left out: TPU's compiler fails on them in a loop."""
    axes = tuple(axis for axis in axes if mesh.shape[axis] > 1)
    return jax.lax.psum(x, axes) if axes else x


# The shardings of hidden, head, targets and weights.
_PARTS = (PartitionSpec(TOKENS, None), PartitionSpec(None, MODEL), PartitionSpec(TOKENS), PartitionSpec(TOKENS))


@partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _weighted_sum(hidden, head, targets, weights, chunk, z_loss, mesh):
    head = head.astype(hidden.dtype)
    if mesh is None:
        return _sum(hidden, head, targets, weights, chunk, z_loss, False)

    def of_device(hidden, head, targets, weights):
        return _psum(_sum(hidden, head, targets, weights, chunk, z_loss, mesh.shape[MODEL] > 1), mesh, *TOKENS)

    of_all = jax.shard_map(of_device, mesh=mesh, in_specs=_PARTS, out_specs=PartitionSpec(), check_vma=False)
    return of_all(hidden, head, targets, weights)


def _forward(hidden, head, targets, weights, chunk, z_loss, mesh):
    arrays = hidden, head.astype(hidden.dtype), targets, weights
    if mesh is None:
        total, d_hidden, d_head, losses = _sum_and_gradients(*arrays, chunk, z_loss, False)
    else:

        def of_device(hidden, head, targets, weights):
            settings = chunk, z_loss, mesh.shape[MODEL] > 1
            total, d_hidden, d_head, losses = _sum_and_gradients(hidden, head, targets, weights, *settings)
            if mesh.shape[FSDP] > 1:
                d_head = jax.lax.psum_scatter(d_head, FSDP, scatter_dimension=0, tiled=True)
            return _psum(total, mesh, *TOKENS), _psum(d_hidden, mesh, MODEL), _psum(d_head, mesh, DATA), losses

        out = PartitionSpec(), _PARTS[0], PartitionSpec(FSDP, MODEL), _PARTS[2]
        of_all = jax.shard_map(of_device, mesh=mesh, in_specs=_PARTS, out_specs=out, check_vma=False)
        total, d_hidden, d_head, losses = of_all(*arrays)
    return total, (d_hidden.astype(hidden.dtype), d_head.astype(head.dtype), losses)


def _backward(chunk, z_loss, mesh, residuals, g):
    d_hidden, d_head, losses = residuals
    return g.astype(d_hidden.dtype) * d_hidden, g.astype(d_head.dtype) * d_head, None, g * losses


_weighted_sum.defvjp(_forward, _backward)
