"""Attention with rotary positions, grouped queries and windows.

Shapes in names as in `lvp.models.decoder`: H heads of queries, G heads of keys and values, K entries a head.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu import splash_attention as splash

from lvp.mesh_axes import MODEL, TOKENS
from lvp.models.configs import DecoderConfig
from lvp.models.layers import Matrix
from lvp.parallel.sharding import ONE_DEVICE, Placement

LANES = 128  # a TPU's vector unit; Splash's blocks are multiples


def rotary_angles(length: int, turned: int, base: float) -> np.ndarray:
    """float32 [length, turned / 2]: position t times base^(−2i / turned) (Su et al. 2021, equation 15)."""
    frequencies = float(base) ** (-np.arange(0, turned, 2) / turned)
    return (np.arange(length)[:, None] * frequencies).astype(np.float32)


def rotated(x_BTHK: jax.Array, angles_TR: np.ndarray) -> jax.Array:
    """x with the first 2R entries of every head rotated by the angles of its position; computed in float32 or wider.

    Entry i is paired with entry i + R, as in most implementations. Su et al. pair 2i with 2i + 1; this differs by a
    permutation of the entries.
    """
    half = angles_TR.shape[1]
    wide = jnp.promote_types(x_BTHK.dtype, jnp.float32)
    cos, sin = (jnp.asarray(f(angles_TR), wide)[None, :, None] for f in (np.cos, np.sin))
    first, second = x_BTHK[..., :half].astype(wide), x_BTHK[..., half : 2 * half].astype(wide)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return jnp.concatenate([turned.astype(x_BTHK.dtype), x_BTHK[..., 2 * half :]], axis=-1)


def fused_attention(
    q_BTHK: jax.Array,
    k_BTGK: jax.Array,
    v_BTGK: jax.Array,
    block: int,
    window: int | None = None,
    place: Placement = ONE_DEVICE,
) -> jax.Array:
    """`causal_attention` through cuDNN's kernel on CUDA and JAX's Splash kernel on TPU.

    `causal_attention` itself runs on other platforms, and on TPU if the number of tokens is not a multiple of 128.
    `place` is the mesh of the arrays.
    """
    sees = None if window is None else (window - 1, 0)
    cudnn = partial(jax.nn.dot_product_attention, is_causal=True, local_window_size=sees, implementation="cudnn")
    kernels = {}
    if q_BTHK.shape[1] % LANES == 0:
        kernels["tpu"] = place.per_device(partial(splash_attention, window=window), TOKENS, None, MODEL)
    try:  # all branches are traced, and without CUDA this one cannot be
        jax.eval_shape(cudnn, q_BTHK, k_BTGK, v_BTGK)
        kernels["cuda"] = cudnn
    except RuntimeError as error:
        if "not detected" not in str(error):
            raise
    masked = partial(causal_attention, block=block, window=window)
    return jax.lax.platform_dependent(q_BTHK, k_BTGK, v_BTGK, **kernels, default=masked)


def splash_attention(
    q_BTHK: jax.Array, k_BTGK: jax.Array, v_BTGK: jax.Array, window: int | None = None, interpret: bool = False
) -> jax.Array:
    """`causal_attention` through JAX's Splash kernel for TPUs; the number of tokens is a multiple of 128.

    With `interpret`, the kernel runs on any platform, slowly.
    """
    length, heads, size = q_BTHK.shape[1:]
    square = (length, length)
    mask = splash.CausalMask(square) if window is None else splash.LocalMask(square, (window - 1, 0), 0)
    block = next(b for b in (512, 256, LANES) if length % b == 0)
    kernel = splash.make_splash_mha(
        splash.MultiHeadMask([mask] * heads),
        head_shards=1,
        q_seq_shards=1,
        block_sizes=splash.BlockSizes(*(block,) * 8),  # of queries and keys, forward and backward
        interpret=interpret,
    )
    heads_first = (jnp.swapaxes(x, 1, 2) for x in (q_BTHK * size**-0.5, k_BTGK, v_BTGK))
    return jnp.swapaxes(jax.vmap(kernel)(*heads_first), 1, 2)


@partial(jax.jit, static_argnames=("block", "window"))  # layers of equal shapes are traced once
def causal_attention(
    q_BTHK: jax.Array, k_BTGK: jax.Array, v_BTGK: jax.Array, block: int, window: int | None = None
) -> jax.Array:
    """Softmax attention in which token t sees tokens max(0, t − window + 1) … t.

    Query head h uses the key and value head h · G // H. A block of queries is multiplied only by keys that at least one
    of its queries sees: with 4 blocks and no window, 5/8 of all products are computed.
    """
    length = q_BTHK.shape[1]
    window = window or length
    outs = []
    for start in range(0, length, block):
        stop, first = min(start + block, length), max(0, start - window + 1)
        behind = np.arange(start, stop)[:, None] - np.arange(first, stop)[None, :]
        mask = (behind >= 0) & (behind < window)
        q, k, v = q_BTHK[:, start:stop], k_BTGK[:, first:stop], v_BTGK[:, first:stop]
        outs.append(
            jax.lax.platform_dependent(
                *(q, k, v),
                cpu=partial(_cpu_attention, mask_TS=mask),
                default=partial(jax.nn.dot_product_attention, mask=jnp.asarray(mask)[None, None]),
            )
        )
    return jnp.concatenate(outs, axis=1) if len(outs) > 1 else outs[0]


def _cpu_attention(q_BTHK: jax.Array, k_BSGK: jax.Array, v_BSGK: jax.Array, mask_TS: np.ndarray) -> jax.Array:
    """`jax.nn.dot_product_attention` with `_softmax`. Every row of the mask has a True."""
    rows, length, heads, size = q_BTHK.shape
    wide = jnp.promote_types(q_BTHK.dtype, jnp.float32)
    q_BTGRK = q_BTHK.reshape(rows, length, k_BSGK.shape[2], -1, size)  # R query heads per key head
    logits_BGRTS = jnp.einsum("btgrk,bsgk->bgrts", q_BTGRK, k_BSGK, preferred_element_type=wide) * size**-0.5
    weights_BGRTS = _softmax(jnp.where(mask_TS, logits_BGRTS, -jnp.inf)).astype(v_BSGK.dtype)
    return jnp.einsum("bgrts,bsgk->btgrk", weights_BGRTS, v_BSGK).reshape(q_BTHK.shape)


@jax.custom_vjp
def _softmax(logits: jax.Array) -> jax.Array:
    """Softmax over the last axis. XLA's CPU back end takes a slow path for the gradient of `jax.nn.softmax`."""
    return jax.nn.softmax(logits)


def _softmax_forward(logits):
    weights = jax.nn.softmax(logits)
    return weights, weights


def _softmax_backward(weights, d_weights):
    products = jax.lax.optimization_barrier(weights * d_weights)  # keeps the sum out of the slow path
    sums = products @ jnp.ones((weights.shape[-1], 1), weights.dtype)
    return (products - weights * sums,)


_softmax.defvjp(_softmax_forward, _softmax_backward)


class Attention(nn.Module):
    """Attention. Without `kv_heads`, queries, keys and values are one matrix."""

    config: DecoderConfig
    place: Placement = ONE_DEVICE

    @nn.compact
    def __call__(self, x_ND, rows: int, capture: bool = False):
        c, dtype = self.config, jnp.dtype(self.config.dtype)
        shared = c.num_heads * c.head_size, c.num_kv_heads * c.head_size, c.num_kv_heads * c.head_size
        if c.kv_heads is None:
            parts = jnp.split(
                Matrix(3 * shared[0], dtype, c.biases, c.hidden_multiplier, name="qkv")(x_ND, capture), 3, axis=-1
            )
        else:
            names = ("query", "key", "value")
            parts = [
                Matrix(n, dtype, c.biases, c.hidden_multiplier, name=name)(x_ND, capture)
                for name, n in zip(names, shared, strict=True)
            ]
        q, k, v = (part.reshape(rows, -1, part.shape[1] // c.head_size, c.head_size) for part in parts)
        if c.positions == "rotary":
            angles_TR = rotary_angles(q.shape[1], c.turned, c.rotary_base)
            q, k = rotated(q, angles_TR), rotated(k, angles_TR)
        mix = partial(fused_attention, place=self.place) if c.attention == "fused" else causal_attention
        mixed_BTHK = mix(q, k, v, c.attention_block, c.window)
        return Matrix(c.width, dtype, c.biases, c.hidden_multiplier, name="out")(
            mixed_BTHK.reshape(x_ND.shape[0], -1), capture
        )
