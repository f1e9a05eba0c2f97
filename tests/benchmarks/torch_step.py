"""The same training step in PyTorch: a loop with the usual optimisations, on CPU or on a GPU.

Activations are two-dimensional before each linear layer. Causal attention and Adam are fused. Gradients are set to None
instead of zero. One indexing operation cuts the windows. Freed memory is kept between steps.

The parameters have the same names as in `lvp.models.decoder`, and a weight is a transposed kernel. So both sides can
start from the same parameters, and their losses can be compared. Only the shapes and the norm's epsilon of the
configuration are used; the norm is LayerNorm. Parameters are float32, and products have the trainer's dtype.
"""

import ctypes
import platform
from functools import cache

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from lvp.models.configs import DecoderConfig
from lvp.models.layers import sinusoidal_positions
from lvp.training import records

CHECKED = DecoderConfig(vocab=300, width=128, context=96)  # two heads; lvp's attention has two blocks of queries


def tune(threads: int) -> None:
    """Sets the number of threads, and makes malloc keep freed memory. Call it before tensors are allocated."""
    torch.set_num_threads(threads)
    if platform.libc_ver()[0] == "glibc":
        # By default malloc maps large tensors again in each step, which causes tens of thousands of page faults.
        trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX of malloc.h
        ctypes.CDLL(None).mallopt(mmap_max, 0)
        ctypes.CDLL(None).mallopt(trim_threshold, -1)


class Attention(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.heads, self.head_dim = config.num_heads, config.head_dim
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x_ND, rows: int):
        qkv_BT3HK = self.qkv(x_ND).view(rows, -1, 3, self.heads, self.head_dim)
        q, k, v = (part.transpose(1, 2) for part in qkv_BT3HK.unbind(2))
        mixed_BHTK = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed_BHTK.transpose(1, 2).reshape(x_ND.shape))


class MLP(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.up = nn.Linear(config.width, config.mlp_factor * config.width, bias=False)
        self.down = nn.Linear(config.mlp_factor * config.width, config.width, bias=False)

    def forward(self, x_ND):
        return self.down(F.gelu(self.up(x_ND), approximate="tanh"))


def _norm(config: DecoderConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, config.norm_epsilon, bias=False)


class Block(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.norm_attention, self.attention = _norm(config), Attention(config)
        self.norm_mlp, self.mlp = _norm(config), MLP(config)

    def forward(self, x_ND, rows: int):
        x_ND = x_ND + self.attention(self.norm_attention(x_ND), rows)
        return x_ND + self.mlp(self.norm_mlp(x_ND))


class Decoder(nn.Module):
    """The decoder: tokens int64 [B, T] → logits [B·T, vocab]."""

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab, config.width)
        position_TD = torch.from_numpy(sinusoidal_positions(config.context, config.width))
        self.register_buffer("position", position_TD, persistent=False)
        self.blocks = [f"block_{i}" for i in range(config.layers)]
        for name in self.blocks:
            self.add_module(name, Block(config))
        self.norm_final = _norm(config)
        self.head = nn.Linear(config.width, config.vocab, bias=False)

    def forward(self, tokens_BT):
        x_ND = (self.embedding(tokens_BT) + self.position).flatten(0, 1)
        for name in self.blocks:
            x_ND = self.get_submodule(name)(x_ND, len(tokens_BT))
        return self.head(self.norm_final(x_ND))


class TorchTrainer:
    """Trains the decoder: step(n) trains n further steps and returns the last loss.

    Args:
      rates: learning rates of the embedding and of the other parameters.
      device: "cpu" or "cuda".
      dtype: of the products (`torch.autocast`).
    """

    def __init__(
        self,
        config: DecoderConfig,
        tokens: np.ndarray,
        batch: int,
        rates: tuple[float, float],
        seed: int = 0,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        self.generator = torch.Generator(device).manual_seed(seed)
        self.tokens, self.batch = torch.from_numpy(tokens.astype(np.int64)).to(device), batch
        self.offsets = torch.arange(config.context + 1, device=device)
        self.autocast = torch.autocast(device, dtype, enabled=dtype != torch.float32)
        self.model = Decoder(config).to(device)
        for matrix in (p for p in self.model.parameters() if p.ndim == 2):
            nn.init.normal_(matrix, std=config.width**-0.5, generator=self.generator)
        rest = [p for name, p in self.model.named_parameters() if name != "embedding.weight"]
        groups = [{"params": [self.model.embedding.weight], "lr": rates[0]}, {"params": rest, "lr": rates[1]}]
        self.optimizer = torch.optim.Adam(groups, betas=(0.9, 0.999), eps=1e-8, fused=True)

    def load(self, params) -> None:
        """Copies parameters of `lvp.models.decoder`. Raises RuntimeError if names or shapes differ."""
        leaves = ((name.rsplit(".", 1), np.asarray(leaf)) for name, leaf in records.flatten(params).items())
        state = {f"{module}.weight": leaf.T if kind == "kernel" else leaf for (module, kind), leaf in leaves}
        self.model.load_state_dict({name: torch.tensor(leaf) for name, leaf in state.items()})

    def loss_of(self, windows):
        with self.autocast:
            return F.cross_entropy(self.model(windows[:, :-1]), windows[:, 1:].flatten())

    def train(self, windows):
        """Trains one step on windows int64 [batch, context + 1] and returns the loss before the update."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(windows)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def step(self, n: int) -> float:
        for _ in range(n):
            last = len(self.tokens) - len(self.offsets)
            starts = torch.randint(0, last + 1, (self.batch, 1), generator=self.generator, device=self.tokens.device)
            loss = self.train(self.tokens[starts + self.offsets])
        return loss.item()


@cache
def our_losses(rates: tuple[float, float], steps: int):
    """(parameters, windows, losses) of lvp's program.

    The parameters are the initial ones. The windows are int64 [steps + 1, batch, context + 1]. The losses are float
    [steps + 1]; the first is before any update.
    """
    import jax

    from lvp import roles, training
    from lvp.data.tokens import batches

    setting = training.Setting(CHECKED, training.DataConfig("none"), batch=4, steps=100)
    tokens = np.random.default_rng(0).integers(0, CHECKED.vocab, 2000).astype(np.int32)
    data = jax.tree.map(jax.device_put, training.TrainingData.from_tokens(setting, tokens, tokens[:200]))
    learning_rates = dict.fromkeys(roles.ROLES, rates[1]) | {"embedding": rates[0]}
    program = training.Program(setting)
    run = program.arrays([training.Run(learning_rates, dict.fromkeys(roles.ROLES, CHECKED.width**-0.5), 0)])
    state = program.advance(np.int32(0), np.int32(0), program.blank_state(), run, data)
    params, key = jax.tree.map(np.array, state["params"]), jax.random.wrap_key_data(state["key"])
    windows = [
        batches.random_windows(data.train.tokens, key, i, setting.batch, CHECKED.context) for i in range(steps + 1)
    ]
    state = program.advance(np.int32(0), np.int32(steps + 1), state, run, data)
    return params, np.asarray(windows, np.int64), np.asarray(state["losses"][: steps + 1])


def their_losses(params, windows: np.ndarray, rates: tuple[float, float]) -> np.ndarray:
    """PyTorch's losses for initial parameters and windows from `our_losses`, float [steps + 1]."""
    trainer = TorchTrainer(CHECKED, windows.ravel(), windows.shape[1], rates)
    trainer.load(params)
    return np.array([trainer.train(torch.from_numpy(w)).item() for w in windows])


def check_sides_agree(rates: tuple[float, float], torch_rates: tuple[float, float] | None = None) -> None:
    """Raises AssertionError unless both sides have the same loss before training and after five steps of Adam."""
    params, windows, ours = our_losses(rates, 5)
    theirs = their_losses(params, windows, torch_rates or rates)
    np.testing.assert_allclose(theirs[0], ours[0], rtol=1e-5)
    np.testing.assert_allclose(theirs[5], ours[5], rtol=1e-4)
