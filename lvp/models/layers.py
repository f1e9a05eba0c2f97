"""The layers of a decoder except attention. Shapes in names as in `lvp.models.decoder`."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lvp.errors import InputError
from lvp.models.configs import DecoderConfig
from lvp.products import product


def sinusoidal_positions(context: int, width: int) -> np.ndarray:
    """Sinusoidal positions, float32 [context, width] (Vaswani et al. 2017, section 3.5).

    The first half of the columns is sine, the second cosine (the paper interleaves them); wavelengths go from 2π to
    10⁴ · 2π.
    """
    half = -(-width // 2)
    angle = np.arange(context)[:, None] / 10_000.0 ** (np.arange(half) / half)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)[:, :width].astype(np.float32)


def scaled(x: jax.Array, multiplier: float) -> jax.Array:
    """`x` times a constant; `x` itself for 1."""
    return x if multiplier == 1.0 else x * jnp.asarray(multiplier, x.dtype)


def entering(config: DecoderConfig, rows_BTD: jax.Array) -> jax.Array:
    """Token rows times the embedding multiplier, or divided by their RMS, before positions are added."""
    if config.normalize_rows:
        mean_square_BT1 = jnp.mean(jnp.square(rows_BTD), axis=-1, keepdims=True)
        return rows_BTD * jax.lax.rsqrt(mean_square_BT1 + config.norm_epsilon)
    return scaled(rows_BTD, config.embedding_multiplier)


class Matrix(nn.Module):
    """x [N, in] → multiplier · x · kernel (+ bias) [N, out].

    The kernel is drawn with unit variance, and `Decoder.init` scales it by role. The bias starts at zero.
    """

    out: int
    dtype: Any
    biased: bool = False
    multiplier: float = 1.0

    @nn.compact
    def __call__(self, x_NI, capture: bool = False):
        kernel = self.param("kernel", nn.initializers.normal(1.0), (x_NI.shape[-1], self.out), jnp.float32)
        if capture:
            self.sow("inputs", "kernel", x_NI, reduce_fn=lambda _, x: x)
        out_NO = scaled(product(x_NI, kernel.astype(self.dtype)), self.multiplier)
        if not self.biased:
            return out_NO
        bias = self.param("bias", nn.initializers.zeros, (self.out,), jnp.float32)
        return out_NO + bias.astype(self.dtype)[None]


class Vocabulary(nn.Module):
    """A vocabulary matrix, returned whole for the look-up or the loss."""

    name_of_matrix: str
    shape: tuple[int, int]

    @nn.compact
    def __call__(self):
        return self.param(self.name_of_matrix, nn.initializers.normal(1.0), self.shape, jnp.float32)


class LearnedPositions(nn.Module):
    """Rows 0 … T − 1 of a learned table [context, width], float32 [T, width]."""

    config: DecoderConfig

    @nn.compact
    def __call__(self, length: int, capture: bool = False):
        c = self.config
        if length > c.context:
            raise InputError(f"decoder: rows of {length} tokens, but learned positions end at context {c.context}")
        table = self.param("embedding", nn.initializers.normal(1.0), (c.context, c.width), jnp.float32)
        if capture:
            self.sow("inputs", "embedding", jnp.arange(length, dtype=jnp.int32), reduce_fn=lambda _, x: x)
        return table[:length]


def with_positions(config: DecoderConfig, x_BTD: jax.Array, capture: bool) -> jax.Array:
    """Token rows plus their positions; rotary positions add nothing."""
    length, width = x_BTD.shape[1:]
    kinds = {
        "sinusoidal": lambda: x_BTD + (config.position_amplitude * sinusoidal_positions(length, width))[None],
        "learned": lambda: x_BTD + LearnedPositions(config, name="position")(length, capture)[None],
        "rotary": lambda: x_BTD,
    }
    return kinds[config.positions]()


def norm(config: DecoderConfig, name: str) -> Callable[[jax.Array], jax.Array]:
    """The norm of a configuration as a function, with the parameters `name`. Norm "none" is the identity."""
    dtype = jnp.dtype(config.dtype)
    kinds: dict[str, Callable[[], Callable[[jax.Array], jax.Array]]] = {
        "none": lambda: lambda x: x,
        "layer": lambda: nn.LayerNorm(config.norm_epsilon, dtype=dtype, use_bias=config.norm_is_biased, name=name),
        "rms": lambda: nn.RMSNorm(config.norm_epsilon, dtype=dtype, name=name),
    }
    return kinds[config.norm]()


class MLP(nn.Module):
    """The MLP of a block, x [N, D] → [N, D]."""

    config: DecoderConfig

    @nn.compact
    def __call__(self, x_ND, capture: bool = False):
        c, dtype = self.config, jnp.dtype(self.config.dtype)
        inner = c.mlp_factor * c.width
        if c.mlp == "swiglu":
            gate_NF = nn.silu(Matrix(inner, dtype, c.biases, c.hidden_multiplier, name="gate")(x_ND, capture))
            inner_NF = gate_NF * Matrix(inner, dtype, c.biases, c.hidden_multiplier, name="up")(x_ND, capture)
        else:
            inner_NF = Matrix(inner, dtype, c.biases, c.hidden_multiplier, name="up")(x_ND, capture)
            inner_NF = nn.gelu(inner_NF) if c.gelu == "tanh" else nn.gelu(inner_NF, approximate=False)
        return Matrix(c.width, dtype, c.biases, c.hidden_multiplier, name="down")(inner_NF, capture)
