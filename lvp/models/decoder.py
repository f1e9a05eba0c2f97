"""A decoder-only Transformer: embedding, pre-norm blocks of attention and MLP, a head of its own or the embedding's.

One decoder, whose forms are configurations of it; `gpt2` is GPT-2's. The rest of the code sees `init` and `apply`
alone. Shapes in names: B rows, T tokens a row, N = B·T, D width, M vocabulary, H heads, K head dimension, F inner width
of the MLP. Every matrix product is two-dimensional, [N, in] by [in, out]: XLA's CPU back end takes a slow path for the
weight gradient of a three-dimensional one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lvp import roles
from lvp.errors import InputError

NORMS = ("none", "layer", "rms")
POSITIONS = ("sinusoidal", "learned")
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class DecoderConfig:
    """Shapes and switches of a decoder; everything that changes the compiled program.

    `head_dim` None follows `default_head_dim`. `mlp_factor`: inner width of the MLP over the width.
    `norm_epsilon` is added to the variance. `attention_block`: queries per call of the attention kernel. `tied`: one
    matrix is embedding and head, with the role of the head (`lvp.roles.DEFAULT` says why).
    `positions`: what is added to the tokens' rows. "sinusoidal": a fixed encoding, defined at any length, with entries
    in [−1, 1] times `position_amplitude`. "learned": the rows of a matrix [context, width] with the role position, to
    which that factor does not apply; a row of tokens longer than `context` is then an InputError.
    `biases`: every matrix of the blocks has one, and every LayerNorm; the head has none, nor do the other norms (RMS
    normalisation has no offset, and "none" no parameters).

    Raises InputError naming the field: a size below 1, an unknown choice, a head dimension that does not divide the
    width, a `position_amplitude` where nothing is scaled by it.
    """

    vocab: int
    width: int
    layers: int = 2
    context: int = 256
    head_dim: int | None = None
    mlp_factor: int = 4
    norm: str = "layer"
    norm_epsilon: float = 1e-6
    position_amplitude: float = 1.0
    dtype: str = "float32"
    attention_block: int = 64
    tied: bool = False
    positions: str = "sinusoidal"
    biases: bool = False

    def __post_init__(self):
        for name in ("vocab", "width", "layers", "context", "mlp_factor", "attention_block"):
            if getattr(self, name) < 1:
                raise InputError(f"decoder: {name} must be at least 1, got {getattr(self, name)}")
        for name, allowed in (("norm", NORMS), ("positions", POSITIONS), ("dtype", DTYPES)):
            if getattr(self, name) not in allowed:
                raise InputError(f"decoder: {name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", default_head_dim(self.width))
        elif self.head_dim < 1 or self.width % self.head_dim:
            raise InputError(f"decoder: head_dim {self.head_dim} does not divide width {self.width}")
        if self.positions != "sinusoidal" and self.position_amplitude != 1.0:
            raise InputError(
                f"decoder: position_amplitude {self.position_amplitude} scales sinusoidal positions only; "
                f"{self.positions} ones take no factor"
            )

    @property
    def heads(self) -> int:
        return self.width // self.head_dim

    @property
    def block_weights(self) -> int:
        """Weights of the matrices of one block: 4 D² of attention and 2 · mlp_factor · D² of the MLP."""
        return (4 + 2 * self.mlp_factor) * self.width**2

    @property
    def num_params(self) -> int:
        """Hand count: two vocabulary matrices or one, the learned positions, and per block its matrices, their biases
        (one an output: 3 D and D of attention, mlp_factor · D and D of the MLP) and two norms; a final norm."""
        vocabulary = (1 if self.tied else 2) * self.vocab * self.width
        positions = {"sinusoidal": 0, "learned": self.context * self.width}[self.positions]
        norm = {"none": 0, "layer": 1 + self.biases, "rms": 1}[self.norm] * self.width
        biases = self.biases * (5 + self.mlp_factor) * self.width
        return vocabulary + positions + self.layers * (self.block_weights + biases + 2 * norm) + norm

    def flops_per_token(self) -> float:
        """Model FLOPs of a training step per token: 6 per weight of every matrix product, the head included and
        look-ups, gains and biases not, and 6 · T · D a block for the causal half of attention's two products."""
        multiplied = self.vocab * self.width + self.layers * self.block_weights
        return 6.0 * multiplied + 6.0 * self.layers * self.context * self.width


GPT2_FORM = {"norm": "layer", "norm_epsilon": 1e-5, "positions": "learned", "biases": True, "tied": True}


def gpt2(vocab: int = 50257, **changes: Any) -> DecoderConfig:
    """GPT-2 124M (Radford et al. 2019, section 2.3; 124,439,808 parameters), with `changes` to its fields.

    Its form (`GPT2_FORM`): learned positions, biases, LayerNorm before attention and MLP and at the end, with epsilon
    1e-5, GeLU by its tanh approximation, a tied head. Its shape: 12 blocks of width 768, 12 heads of 64, 1024 tokens of
    context; the larger ones are `gpt2(width=1024, layers=24)`, `gpt2(width=1280, layers=36)` and `gpt2(width=1600,
    layers=48)`. `vocab` is that of GPT-2's tokenizer, not padded (nanoGPT pads it to a multiple of 64: `gpt2(50304)`).

    The forward pass alone: there is no dropout, and no initial scale of its own for the two matrices of a block that
    write into the residual stream (GPT-2 divides it by √(2 · layers)), since `Decoder.init` has one for a role.
    """
    shape = {"width": 768, "layers": 12, "context": 1024, "head_dim": 64}
    return DecoderConfig(vocab, **(shape | GPT2_FORM | changes))


def default_head_dim(width: int) -> int:
    """64 where it divides the width (the papers' value), else the largest divisor below 64 that is a multiple of 8."""
    for head_dim in range(64, 7, -8):
        if width % head_dim == 0:
            return head_dim
    raise InputError(f"width {width} has no head dimension: no multiple of 8 up to 64 divides it (set head_dim)")


def sinusoidal_positions(context: int, width: int) -> np.ndarray:
    """float32 [context, width]: sine in the first half of the columns, cosine in the second, wavelengths from 2π to
    10⁴ · 2π (Vaswani et al. 2017, section 3.5, whose interleaving is a permutation of these columns)."""
    half = -(-width // 2)
    angle = np.arange(context)[:, None] / 10_000.0 ** (np.arange(half) / half)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)[:, :width].astype(np.float32)


class Matrix(nn.Module):
    """x [N, in] → x · kernel (+ bias) [N, out]; unit normal (`Decoder.init` scales by role), the bias at zero."""

    out: int
    dtype: Any
    biased: bool = False

    @nn.compact
    def __call__(self, x_NI, capture: bool = False):
        kernel = self.param("kernel", nn.initializers.normal(1.0), (x_NI.shape[-1], self.out), jnp.float32)
        if capture:
            self.sow("inputs", "kernel", x_NI, reduce_fn=lambda _, x: x)
        out_NO = x_NI @ kernel.astype(self.dtype)
        if not self.biased:
            return out_NO
        bias = self.param("bias", nn.initializers.zeros, (self.out,), jnp.float32)
        return out_NO + bias.astype(self.dtype)[None]


class Vocabulary(nn.Module):
    """Holds one vocabulary matrix under the field's usual name, so that a look-up or a loss can use it."""

    name_of_matrix: str
    shape: tuple[int, int]

    @nn.compact
    def __call__(self):
        return self.param(self.name_of_matrix, nn.initializers.normal(1.0), self.shape, jnp.float32)


class LearnedPositions(nn.Module):
    """The rows float32 [T, width] of positions 0 … T − 1, of a table [context, width] at unit normal."""

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


def _with_positions(config: DecoderConfig, x_BTD, capture: bool):
    """The tokens' rows with what their positions add to them."""
    length, width = x_BTD.shape[1:]
    kinds = {
        "sinusoidal": lambda: x_BTD + (config.position_amplitude * sinusoidal_positions(length, width))[None],
        "learned": lambda: x_BTD + LearnedPositions(config, name="position")(length, capture)[None],
    }
    return kinds[config.positions]()


def _norm(config: DecoderConfig, name: str):
    dtype = jnp.dtype(config.dtype)
    kinds = {
        "none": lambda: lambda x: x,
        "layer": lambda: nn.LayerNorm(config.norm_epsilon, dtype=dtype, use_bias=config.biases, name=name),
        "rms": lambda: nn.RMSNorm(config.norm_epsilon, dtype=dtype, name=name),
    }
    return kinds[config.norm]()


def causal_attention(q_BTHK, k_BTHK, v_BTHK, block: int):
    """Softmax attention in which token t sees tokens 0 … t. Queries go in blocks, each against the keys up to its
    own end, so that the upper triangle is not computed: at 4 blocks, 5/8 of the products."""
    context = q_BTHK.shape[1]
    outs = []
    for start in range(0, context, block):
        stop = min(start + block, context)
        mask = np.arange(stop)[None, :] <= np.arange(start, stop)[:, None]
        outs.append(
            jax.nn.dot_product_attention(
                q_BTHK[:, start:stop], k_BTHK[:, :stop], v_BTHK[:, :stop], mask=jnp.asarray(mask)[None, None]
            )
        )
    return jnp.concatenate(outs, axis=1) if len(outs) > 1 else outs[0]


class Attention(nn.Module):
    config: DecoderConfig

    @nn.compact
    def __call__(self, x_ND, rows: int, capture: bool = False):
        c, dtype = self.config, jnp.dtype(self.config.dtype)
        qkv = Matrix(3 * c.width, dtype, c.biases, name="qkv")(x_ND, capture)
        q, k, v = (part.reshape(rows, -1, c.heads, c.head_dim) for part in jnp.split(qkv, 3, axis=-1))
        mixed_BTHK = causal_attention(q, k, v, c.attention_block)
        return Matrix(c.width, dtype, c.biases, name="out")(mixed_BTHK.reshape(-1, c.width), capture)


class MLP(nn.Module):
    config: DecoderConfig

    @nn.compact
    def __call__(self, x_ND, capture: bool = False):
        c, dtype = self.config, jnp.dtype(self.config.dtype)
        inner_NF = nn.gelu(Matrix(c.mlp_factor * c.width, dtype, c.biases, name="up")(x_ND, capture))
        return Matrix(c.width, dtype, c.biases, name="down")(inner_NF, capture)


class Block(nn.Module):
    config: DecoderConfig

    @nn.compact
    def __call__(self, x_ND, rows: int, capture: bool = False):
        c = self.config
        x_ND = x_ND + Attention(c, name="attention")(_norm(c, "norm_attention")(x_ND), rows, capture)
        return x_ND + MLP(c, name="mlp")(_norm(c, "norm_mlp")(x_ND), capture)


class DecoderModule(nn.Module):
    config: DecoderConfig

    @nn.compact
    def __call__(self, tokens_BT, capture: bool = False):
        c, dtype = self.config, jnp.dtype(self.config.dtype)
        rows, context = tokens_BT.shape
        name = "tied_embedding" if c.tied else "embedding"
        embedding_MD = Vocabulary("embedding", (c.vocab, c.width), name=name)()
        if not c.tied:
            Vocabulary("kernel", (c.width, c.vocab), name="head")()  # used by the loss, which never holds the logits
        x_BTD = _with_positions(c, embedding_MD[tokens_BT], capture)
        x_ND = x_BTD.reshape(-1, c.width).astype(dtype)
        for i in range(c.layers):
            x_ND = Block(c, name=f"block_{i}")(x_ND, rows, capture)
        x_ND = _norm(c, "norm_final")(x_ND)
        return x_ND.reshape(rows, context, c.width)


class Decoder(NamedTuple):
    """What the rest of the code sees of a model.

    init(key, init_std=None) → params: a nested dict of float32 arrays. `init_std` maps a role to a standard
      deviation (numbers or traced arrays); None is width^(−1/2) for every matrix (paper A, section 4.1), learned
      positions included. Vectors are not scaled: gains start at one, biases at zero.
    apply(params, tokens_BT, capture=False) → hidden_BTD in the compute dtype, after the last norm. With capture,
      (hidden, inputs): inputs maps the path of every matrix to what was multiplied by it ([N, in]; for the
      embedding, the tokens; for learned positions, the indices int32 [T] of the rows taken; for a tied matrix what
      it is multiplied by as the head). InputError where learned positions are fewer than the tokens of a row.
    head(params) → [D, M], the output matrix, for `lvp.losses`.
    """

    config: DecoderConfig
    init: Callable
    apply: Callable
    head: Callable


def decoder(config: DecoderConfig) -> Decoder:
    """Builds the functions of `Decoder` for a configuration."""
    module = DecoderModule(config)

    def init(key, init_std: Mapping[str, Any] | None = None):
        std = init_std or dict.fromkeys(roles.ROLES, config.width**-0.5)
        params = module.init(key, jnp.zeros((1, 1), jnp.int32))["params"]
        return jax.tree.map(
            lambda leaf, role: leaf if role == "vector" else leaf * std[role], params, roles.labels(params)
        )

    def apply(params, tokens_BT, capture: bool = False):
        if not capture:
            return module.apply({"params": params}, tokens_BT)
        hidden, extra = module.apply({"params": params}, tokens_BT, True, mutable=["inputs"])
        inputs = {
            jax.tree_util.keystr(path, simple=True, separator="/"): x
            for path, x in jax.tree_util.tree_leaves_with_path(extra["inputs"])
        }
        if not config.tied:
            inputs["embedding/embedding"] = tokens_BT
        inputs["tied_embedding/embedding" if config.tied else "head/kernel"] = hidden.reshape(-1, config.width)
        return hidden, inputs

    def head(params):
        return params["tied_embedding"]["embedding"].T if config.tied else params["head"]["kernel"]

    return Decoder(config, init, apply, head)
