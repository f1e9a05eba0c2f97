"""Configurations of a decoder, and the published models by name."""

import math
from dataclasses import dataclass, field
from typing import Any

from lvp.errors import InputError
from lvp.parametrization import Table

CHOICES = {
    "norm": ("none", "layer", "rms"),
    "positions": ("sinusoidal", "learned", "rotary"),
    "mlp": ("gelu", "swiglu"),
    "remat": ("none", "dots", "block"),
    "dtype": ("float32", "bfloat16"),
    "param_dtype": ("float32", "bfloat16"),
    "attention": ("masked", "fused"),
    "gelu": ("tanh", "exact"),
    "down_init": ("width", "fan_in"),
}


# A field with this mark is not recorded at its default, so that hashes of older runs stay valid. The default of every
# newer field must reproduce older runs (`lvp.training.records.in_current_form`).
OMITTED = {"omit_default": True}


@dataclass(frozen=True)
class DecoderConfig:
    """Shapes and switches of a decoder: everything that changes the compiled program.

    Raises:
      InputError: a size is below 1, a choice is unknown, heads do not fit, a field needs another norm, dtype or kind of
        positions, or a multiplier is not finite and above zero. The error names the field.
    """

    vocab: int  # number of tokens, with padding if there is any
    width: int  # of the residual stream
    layers: int = 2  # number of blocks
    context: int = 256  # tokens per row
    head_dim: int | None = None  # None: `default_head_dim`
    mlp_factor: int = 4  # inner width of the MLP over the width
    norm: str = "layer"  # "none", "layer" or "rms"
    norm_epsilon: float = 1e-6  # added to the variance
    position_amplitude: float = 1.0  # factor on sinusoidal positions, whose entries lie in [−1, 1]
    dtype: str = "float32"  # of the computation
    attention_block: int = 64  # queries per call of the attention kernel
    tied: bool = False  # one matrix is embedding and head, with the head's role (`lvp.roles.DEFAULT` says why)
    # "sinusoidal": a fixed encoding added to the token rows, at any length. "learned": a matrix [context, width] with
    # the role position is added; longer rows of tokens raise InputError. "rotary" (Su et al. 2021): nothing is added,
    # and the entries of a head turn with the position.
    positions: str = "sinusoidal"
    biases: bool = False  # of every matrix of the blocks and of LayerNorm; the head and other norms have none
    heads: int | None = None  # of queries; None: as many as fill the width
    kv_heads: int | None = (
        None  # of keys and values, shared by equal groups of heads (Ainslie et al. 2023); None: heads
    )
    window: int | None = None  # a token sees itself and the window − 1 tokens before it; None: all
    mlp: str = "gelu"  # or "swiglu" (Shazeer 2020): silu(x · gate) ⊙ (x · up), with three matrices
    rotary_dim: int | None = None  # first entries of a head that rotary positions turn; None: all
    rotary_base: float = 10_000.0  # base of the rotary wavelengths
    norm_biases: bool | None = None  # of LayerNorm; None: as `biases`
    scan: bool = False  # the blocks are one block of stacked parameters, compiled once
    remat: str = "none"  # recomputed in the backward pass: nothing, all but products with weights, or whole blocks
    # Forward multipliers of `lvp.parametrization.Row`, on the token rows, on the output of every matrix of the blocks
    # and on the logits. A tied matrix takes the first as embedding and the last as head.
    embedding_multiplier: float = field(default=1.0, metadata=OMITTED)
    hidden_multiplier: float = field(default=1.0, metadata=OMITTED)
    output_multiplier: float = field(default=1.0, metadata=OMITTED)
    # Factor on the output of every attention and MLP before it is added to the residual stream.
    branch_multiplier: float = field(default=1.0, metadata=OMITTED)
    # "masked": products with blocks of `attention_block` queries. "fused": the device's fused kernel where JAX has one
    # (cuDNN's on CUDA, Splash on TPU; in bfloat16), else as "masked". The results differ only by rounding.
    attention: str = field(default="masked", metadata=OMITTED)
    # Token rows are divided by their RMS (with `norm_epsilon`) before positions are added, and take no multiplier.
    normalize_rows: bool = field(default=False, metadata=OMITTED)
    param_dtype: str = field(default="float32", metadata=OMITTED)  # of the parameters; drawn in float32, then rounded
    gelu: str = field(default="tanh", metadata=OMITTED)  # "tanh" (GPT-2) or "exact" (nanoGPT); of mlp "gelu"
    # Init std of mlp/down, whose fan-in is mlp_factor · width: that of the role, or divided by √mlp_factor ("fan_in").
    down_init: str = field(default="width", metadata=OMITTED)
    # The init stds of attention/out and mlp/down are divided by √(2 · layers) (Radford et al. 2019, section 2.3).
    residual_init: bool = field(default=False, metadata=OMITTED)

    def __post_init__(self):
        sizes = ("vocab", "width", "layers", "context", "mlp_factor", "attention_block")
        optional = ("head_dim", "heads", "kv_heads", "window", "rotary_dim")
        for name in (*sizes, *(n for n in optional if getattr(self, n) is not None)):
            if getattr(self, name) < 1:
                raise InputError(f"decoder: {name} must be at least 1, got {getattr(self, name)}")
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InputError(f"decoder: {name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", default_head_dim(self.width))
        elif self.heads is None and self.width % self.head_dim:
            raise InputError(
                f"decoder: head_dim {self.head_dim} does not divide width {self.width}: choose a divisor, or set heads"
            )
        if self.num_heads % self.num_kv_heads:
            raise InputError(
                f"decoder: kv_heads {self.kv_heads} does not divide the {self.num_heads} heads: choose a divisor"
            )
        if self.attention == "fused" and self.dtype != "bfloat16":
            raise InputError(f"decoder: attention 'fused' needs dtype 'bfloat16', got {self.dtype!r}")
        if self.norm_biases and self.norm != "layer":
            raise InputError(f"decoder: norm_biases needs norm 'layer', got {self.norm!r}")
        self._check_positions()
        self._check_multipliers()

    def _check_multipliers(self):
        multipliers = ("embedding_multiplier", "hidden_multiplier", "output_multiplier", "branch_multiplier")
        for name in (*multipliers, "norm_epsilon", "rotary_base"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"decoder: {name} must be a finite number above zero, got {getattr(self, name)}")
        if self.normalize_rows and self.embedding_multiplier != 1.0:
            raise InputError(
                f"decoder: embedding_multiplier {self.embedding_multiplier:g} has no effect on normalized rows; "
                "leave it at 1"
            )

    def _check_positions(self):
        if self.positions != "sinusoidal" and self.position_amplitude != 1.0:
            raise InputError(
                f"decoder: position_amplitude {self.position_amplitude} scales sinusoidal positions only; "
                f"{self.positions} positions take no factor"
            )
        if self.positions != "rotary" and self.rotary_dim is not None:
            raise InputError(f"decoder: rotary_dim {self.rotary_dim} needs positions 'rotary', got {self.positions!r}")
        if self.positions == "rotary" and (self.turned % 2 or self.turned > self.head_size):
            raise InputError(f"decoder: rotary_dim {self.turned} must be even and at most head_dim {self.head_size}")

    @property
    def head_size(self) -> int:
        """`head_dim` as an int; the field is None only during construction."""
        return self.head_dim or default_head_dim(self.width)

    @property
    def num_heads(self) -> int:
        return self.heads or self.width // self.head_size

    @property
    def num_kv_heads(self) -> int:
        return self.kv_heads or self.num_heads

    @property
    def turned(self) -> int:
        """The number of entries of a head that rotary positions turn."""
        return self.rotary_dim or self.head_size

    @property
    def block_matrices(self) -> dict[str, tuple[int, int]]:
        """Name → (inputs, outputs) of the matrices of a block.

        Query, key and value are three entries, even if the model stores them in one array.
        """
        q, kv, inner = self.num_heads * self.head_size, self.num_kv_heads * self.head_size, self.mlp_factor * self.width
        gate = {"gate": (self.width, inner)} if self.mlp == "swiglu" else {}
        attention = {
            "query": (self.width, q),
            "key": (self.width, kv),
            "value": (self.width, kv),
            "out": (q, self.width),
        }
        return attention | gate | {"up": (self.width, inner), "down": (inner, self.width)}

    @property
    def block_weights(self) -> int:
        """The number of weights of the matrices of one block."""
        return sum(inputs * outputs for inputs, outputs in self.block_matrices.values())

    @property
    def norm_is_biased(self) -> bool:
        return self.norm == "layer" and (self.biases if self.norm_biases is None else self.norm_biases)

    def init_factor(self, path: str) -> float:
        """The factor on the role's init std for the parameter at a path such as "block_0/mlp/down/kernel"."""
        residual = self.residual_init and path.endswith(("attention/out/kernel", "mlp/down/kernel"))
        down = self.down_init == "fan_in" and path.endswith("mlp/down/kernel")
        return ((2 * self.layers) ** -0.5 if residual else 1.0) * (self.mlp_factor**-0.5 if down else 1.0)

    @property
    def num_params(self) -> int:
        """The number of parameters, counted by hand.

        One or two vocabulary matrices, learned positions, and a final norm. Per block: matrices, biases (one per
        output) and two norms.
        """
        vocabulary = (1 if self.tied else 2) * self.vocab * self.width
        positions = self.context * self.width if self.positions == "learned" else 0
        norm = {"none": 0, "layer": 1 + self.norm_is_biased, "rms": 1}[self.norm] * self.width
        biases = self.biases * sum(outputs for _, outputs in self.block_matrices.values())
        return vocabulary + positions + self.layers * (self.block_weights + biases + 2 * norm) + norm

    @property
    def keys_seen(self) -> float:
        """Mean number of keys that a token sees, to within half a key: T/2, or w (1 − w / 2T) with a window w."""
        window = min(self.window or self.context, self.context)
        return window * (1 - window / (2 * self.context))

    def flops_per_token(self) -> float:
        """Model FLOPs of a training step per token.

        6 per weight of every matrix product, head included; look-ups, gains and biases do not count. Attention adds 12
        per visible key and entry of a head. Recomputation does not count.
        """
        multiplied = self.vocab * self.width + self.layers * self.block_weights
        return 6.0 * multiplied + 12.0 * self.layers * self.keys_seen * self.num_heads * self.head_size


def forward_multipliers(table: Table) -> dict[str, Any]:
    """The fields of `DecoderConfig` for the forward multipliers, branch multiplier and token rows of a table.

    Raises:
      InputError: the multiplier of positions or vectors is not 1. The decoder has none for them.
    """
    for role in ("position", "vector"):
        if table[role].forward_multiplier != 1.0:
            raise InputError(
                f"decoder: forward multiplier {table[role].forward_multiplier:g} of role {role} is not supported; "
                "use 1 (position_amplitude scales sinusoidal positions)"
            )
    factors = {f"{role}_multiplier": table[role].forward_multiplier for role in ("embedding", "hidden", "output")}
    if "tied" in tuple(table):
        factors["output_multiplier"] = table["tied"].head_multiplier
    rows = {"normalize_rows": table.token_rows == "normalized"}
    return factors | {"branch_multiplier": table.branch_multiplier} | rows


def default_head_dim(width: int) -> int:
    """64 (the papers' value) if it divides the width, else the largest divisor below 64 that is a multiple of 8.

    Raises:
      InputError: no multiple of 8 up to 64 divides the width.
    """
    for head_dim in range(64, 7, -8):
        if width % head_dim == 0:
            return head_dim
    raise InputError(f"width {width} has no head dimension: no multiple of 8 up to 64 divides it (set head_dim)")


GPT2_FORM: dict[str, Any] = {
    "norm": "layer",
    "norm_epsilon": 1e-5,
    "positions": "learned",
    "biases": True,
    "tied": True,
}
# GPT-2 as nanoGPT's `model.py` trains it: `bias = False`, `nn.GELU()`, and c_proj's std of 0.02 / √(2 · n_layer).
NANOGPT_FORM: dict[str, Any] = GPT2_FORM | {"biases": False, "gelu": "exact", "residual_init": True}


def gpt2(vocab: int = 50257, **changes: Any) -> DecoderConfig:
    """GPT-2 124M (Radford et al. 2019, section 2.3; 124,439,808 parameters), with `changes` to its fields.

    Form (`GPT2_FORM`): learned positions, biases, LayerNorm before attention and MLP and at the end, with epsilon 1e-5,
    tanh-approximated GeLU, a tied head. Shape: 12 blocks of width 768, 12 heads of 64, context 1024. The larger models
    are `gpt2(width=1024, layers=24)`, `gpt2(width=1280, layers=36)` and `gpt2(width=1600, layers=48)`. `vocab` is that
    of GPT-2's tokenizer, without padding (nanoGPT pads it to a multiple of 64: `gpt2(50304)`).

    There is no dropout. `residual_init=True` gives the matrices that write into the residual stream GPT-2's init std.
    """
    shape: dict[str, Any] = {"width": 768, "layers": 12, "context": 1024, "head_dim": 64}
    return DecoderConfig(vocab, **(shape | GPT2_FORM | changes))


def hayou_liu_1b(vocab: int = 32064, **changes: Any) -> DecoderConfig:
    """The "1B" of Hayou & Liu 2025 (Table 3; 1.84 B parameters as printed), with `changes` to its fields.

    24 blocks of width 2048: 32 query heads and 8 key and value heads of 128 entries, rotary positions on whole heads, a
    window of 2048 in a context of 4096, SwiGLU of inner width 8192, LayerNorm. The paper states neither biases (none
    here) nor the norms' epsilon (here 1e-5) nor the rotary base (here 10⁴). Our choices are bfloat16, scanned and
    rematerialised blocks, and the block size of attention.
    """
    shape = {"width": 2048, "layers": 24, "context": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "window": 2048}
    form: dict[str, Any] = {
        "positions": "rotary",
        "mlp": "swiglu",
        "mlp_factor": 4,
        "norm": "layer",
        "norm_epsilon": 1e-5,
    }
    compiled: dict[str, Any] = {"dtype": "bfloat16", "scan": True, "remat": "block", "attention_block": 512}
    return DecoderConfig(vocab, **(form | compiled | shape | changes))
