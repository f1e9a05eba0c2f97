"""The plain implementation: the same decoder and training loop in the style of a tutorial.

It has three-dimensional activations, the full attention matrix, [tokens, vocab] logits, one dispatch per step, and a
Python number as learning rate. Its parameters have the names and shapes of `lvp.models.decoder`'s, so that the losses
of both can be compared.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from lvp.models.configs import DecoderConfig
from lvp.models.layers import sinusoidal_positions


class PlainAttention(nn.Module):
    config: DecoderConfig

    @nn.compact
    def __call__(self, x):
        c = self.config
        q, k, v = jnp.split(nn.Dense(3 * c.width, use_bias=False, dtype=c.dtype, name="qkv")(x), 3, axis=-1)
        q, k, v = (a.reshape(*a.shape[:2], c.num_heads, c.head_dim) for a in (q, k, v))
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        return nn.Dense(c.width, use_bias=False, dtype=c.dtype, name="out")(mixed.reshape(x.shape))


class PlainMLP(nn.Module):
    config: DecoderConfig

    @nn.compact
    def __call__(self, x):
        c = self.config
        x = nn.gelu(nn.Dense(c.mlp_factor * c.width, use_bias=False, dtype=c.dtype, name="up")(x))
        return nn.Dense(c.width, use_bias=False, dtype=c.dtype, name="down")(x)


class PlainBlock(nn.Module):
    config: DecoderConfig

    @nn.compact
    def __call__(self, x):
        x = x + PlainAttention(self.config, name="attention")(nn.LayerNorm(use_bias=False, name="norm_attention")(x))
        return x + PlainMLP(self.config, name="mlp")(nn.LayerNorm(use_bias=False, name="norm_mlp")(x))


class PlainDecoder(nn.Module):
    config: DecoderConfig

    @nn.compact
    def __call__(self, tokens):
        c = self.config
        x = nn.Embed(c.vocab, c.width, name="embedding")(tokens) + sinusoidal_positions(tokens.shape[1], c.width)
        for i in range(c.layers):
            x = PlainBlock(c, name=f"block_{i}")(x)
        x = nn.LayerNorm(use_bias=False, name="norm_final")(x)
        return nn.Dense(c.vocab, use_bias=False, dtype=c.dtype, name="head")(x).astype(jnp.float32)


class PlainTrainer:
    """Trains the plain decoder: step(n) trains n further steps and returns the last loss."""

    def __init__(self, config: DecoderConfig, tokens: np.ndarray, batch: int, rate: float, hidden_rate: float, seed=0):
        model = PlainDecoder(config)
        self.tokens, self.rng = tokens, np.random.default_rng(seed)
        self.batch, self.context = batch, config.context

        @jax.jit  # otherwise each operation is compiled alone
        def init():
            params = model.init(jax.random.key(seed), jnp.zeros((1, config.context), jnp.int32))["params"]
            draw = lambda p: jax.random.normal(jax.random.key(p.size), p.shape) * config.width**-0.5  # noqa: E731
            return jax.tree.map(lambda p: draw(p) if p.ndim == 2 else p, params)

        self.params = init()
        labels = {k: "embedding" if k == "embedding" else "rest" for k in self.params}
        tx = optax.multi_transform({"embedding": optax.adam(rate), "rest": optax.adam(hidden_rate)}, labels)
        self.state = jax.jit(tx.init)(self.params)

        def loss_of(params, windows):
            logits = model.apply({"params": params}, windows[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:]).mean()

        @jax.jit
        def step(params, state, windows):
            loss, grads = jax.value_and_grad(loss_of)(params, windows)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state, loss

        self.loss_of, self._step = loss_of, step

    def step(self, n: int) -> float:
        for _ in range(n):
            starts = self.rng.integers(0, len(self.tokens) - self.context, self.batch)
            windows = np.stack([self.tokens[s : s + self.context + 1] for s in starts])
            self.params, self.state, loss = self._step(self.params, self.state, windows)
        return float(loss)
