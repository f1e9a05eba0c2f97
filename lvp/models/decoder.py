"""A decoder-only Transformer: embedding, pre-norm blocks of attention and MLP, and an untied or tied head.

`lvp.models.configs` has its configurations. Other modules use only `decoder`, `Decoder` and `first_input`. Shapes
in names: B rows, T tokens per row, N = B·T, D width, M vocabulary, H heads, K head dimension, F inner width of the MLP.
Every product with weights is two-dimensional, [N, in] by [in, out]: XLA's CPU back end is slow for the weight gradient
of a three-dimensional product.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from lvp import roles
from lvp.errors import InputError
from lvp.mesh_axes import MODEL, TOKENS
from lvp.models.attention import Attention
from lvp.models.configs import DecoderConfig
from lvp.models.layers import MLP, Vocabulary, entering, norm, scaled, with_positions
from lvp.parallel.sharding import ONE_DEVICE, Placement

REMAT = {"dots": jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims, "block": None}


class Block(nn.Module):
    """A block. It returns (residual stream [N, D] after attention and MLP, None), the pair that `nn.scan` expects."""

    config: DecoderConfig
    rows: int
    capture: bool
    place: Placement

    @nn.compact
    def __call__(self, x_ND, _=None):
        c = self.config
        x_ND = self.place(x_ND, TOKENS)
        mixed_ND = Attention(c, self.place, name="attention")(norm(c, "norm_attention")(x_ND), self.rows, self.capture)
        x_ND = x_ND + scaled(mixed_ND, c.branch_multiplier)
        inner_ND = MLP(c, name="mlp")(norm(c, "norm_mlp")(x_ND), self.capture)
        x_ND = x_ND + scaled(inner_ND, c.branch_multiplier)
        return self.place(x_ND, TOKENS), None


def _blocks(config: DecoderConfig, x_ND, rows: int, capture: bool, place: Placement):
    """The residual stream after all blocks."""
    kind = Block
    if config.remat != "none":
        kind = nn.remat(Block, policy=REMAT[config.remat], prevent_cse=not config.scan)
    if config.scan:
        axes: dict[Any, int] = {"params": 0, "inputs": 0}
        stacked = nn.scan(kind, variable_axes=axes, split_rngs={"params": True}, length=config.layers)
        return stacked(config, rows, capture, place, name="blocks")(x_ND, None)[0]
    for i in range(config.layers):
        x_ND, _ = kind(config, rows, capture, place, name=f"block_{i}")(x_ND)
    return x_ND


class DecoderModule(nn.Module):
    """The Flax module of a decoder: tokens [B, T] → hidden [B, T, D] after the last norm."""

    config: DecoderConfig
    place: Placement

    @nn.compact
    def __call__(self, tokens_BT, capture: bool = False):
        c, dtype = self.config, jnp.dtype(self.config.dtype)
        rows, context = tokens_BT.shape
        name = "tied_embedding" if c.tied else "embedding"
        embedding_MD = Vocabulary("embedding", (c.vocab, c.width), name=name)()
        if not c.tied:
            Vocabulary(
                "kernel", (c.width, c.vocab), name="head"
            )()  # only declared here: the loss multiplies by it, by chunks
        rows_BTD = self.place(embedding_MD, MODEL)[tokens_BT]
        rows_BTD = entering(c, self.place(rows_BTD, TOKENS))
        x_BTD = with_positions(c, rows_BTD, capture)
        if capture:
            for name, value_BTD in (("rows", rows_BTD), ("added", x_BTD - rows_BTD)):
                self.sow("first_input", name, value_BTD, reduce_fn=lambda _, value: value)
        x_ND = x_BTD.reshape(-1, c.width).astype(dtype)
        x_ND = norm(c, "norm_final")(_blocks(c, x_ND, rows, capture, self.place))
        return x_ND.reshape(rows, context, c.width)


class Decoder(NamedTuple):
    """The functions of a decoder.

    - `init(key, init_std=None)` → params, a nested dict of arrays in `param_dtype`. `init_std` maps each matrix role to
      a standard deviation (a number or a traced array). None means width^(−1/2) for every matrix, learned positions
      included (Hayou & Liu 2025, section 4.1). Gains start at one and biases at zero.
    - `apply(params, tokens_BT, capture=False)` → hidden_BTD in the compute dtype, after the last norm. With capture, it
      returns (hidden, inputs). `inputs` maps the path of each matrix to its input: [N, in] (with `scan`, in blocks
      [layers, N, in]), the tokens for the embedding, the row indices int32 [T] for learned positions, and the head's
      input for a tied matrix.
    - `head(params)` → [D, M], the output matrix times its forward multiplier, for `lvp.losses`.

    Raises:
      InputError: `init_std` lacks the role of a matrix (`init`), or a row has more tokens than learned positions
        (`apply`).
    """

    config: DecoderConfig
    init: Callable
    apply: Callable
    head: Callable


def decoder(config: DecoderConfig, place: Placement = ONE_DEVICE) -> Decoder:
    """The `Decoder` of a configuration. `place` is the mesh of its parameters and batches."""
    module = DecoderModule(config, place)

    def init(key, init_std: Mapping[str, Any] | None = None):
        std = dict.fromkeys(roles.ROLES, config.width**-0.5) if init_std is None else init_std
        params = module.init(key, jnp.zeros((1, 1), jnp.int32))["params"]
        if missing := set(jax.tree.leaves(roles.labels(params))) - {"vector", *std}:
            raise InputError(f"init_std has no {min(missing)!r}: give a std for each role of a matrix")

        def scaled_leaf(path, leaf, role):
            if role != "vector":
                factor = config.init_factor(jax.tree_util.keystr(path, simple=True, separator="/"))
                leaf = leaf * (std[role] if factor == 1.0 else std[role] * factor)
            return leaf.astype(config.param_dtype)

        return jax.tree_util.tree_map_with_path(scaled_leaf, params, roles.labels(params))

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
        matrix_DM = params["tied_embedding"]["embedding"].T if config.tied else params["head"]["kernel"]
        return scaled(matrix_DM, config.output_multiplier)

    return Decoder(config, init, apply, head)


def first_input(config: DecoderConfig, params: Any, tokens_BT: Any) -> tuple[jax.Array, jax.Array]:
    """(rows_BTD, added_BTD): the token rows before positions are added, and the positions added to them.

    Args:
      params: as `Decoder.init` returns them.
      tokens_BT: token indices.
    """
    module = DecoderModule(config, ONE_DEVICE)
    _, extra = module.apply({"params": params}, tokens_BT, True, mutable=["first_input"])
    return extra["first_input"]["rows"], extra["first_input"]["added"]
