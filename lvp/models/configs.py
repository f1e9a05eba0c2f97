"""What a decoder is: sizes, switches and what follows from them; and the published ones by name."""

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
}


# Left out of a lane's configuration at its default, so that hashes of older lanes stay valid.
OMITTED = {"omit_default": True}


@dataclass(frozen=True)
class DecoderConfig:
    """Shapes and switches of a decoder; everything that changes the compiled program.

    `head_dim` None follows `default_head_dim`. `heads` None: as many as fill the width. `kv_heads`: heads of keys and
    values, each shared by as many heads of queries as there are to one (grouped-query attention, Ainslie et al. 2023);
    None: one for each. `window`: a token sees itself and the window − 1 tokens before it (None: all). `mlp`: "gelu", or
    "swiglu" (Shazeer 2020: silu(x · gate) ⊙ (x · up), so three matrices); `mlp_factor`: its inner width over the width.
    `norm_epsilon` is added to the variance. `attention_block`: queries per call of the attention kernel. `tied`: one
    matrix is embedding and head, with the role of the head (`lvp.roles.DEFAULT` says why).
    `positions`: "sinusoidal": a fixed encoding added to the tokens' rows, defined at any length, with entries in
    [−1, 1] times `position_amplitude`. "learned": the rows of a matrix [context, width] with the role position, to
    which that factor does not apply; a row of tokens longer than `context` is then an InputError. "rotary" (Su et al.
    2021): nothing is added; the first `rotary_dim` (None: all) of the entries of a head turn with the position.
    `biases`: every matrix of the blocks has one, and every LayerNorm unless `norm_biases` says otherwise; the head has
    none, nor do the other norms (RMS normalisation has no offset, and "none" no parameters).
    `embedding_multiplier`, `hidden_multiplier`, `output_multiplier`: constant factors on the token rows, on the output
    of every matrix of the blocks and on the logits (the forward multipliers of `lvp.parametrization.Row`). A tied
    matrix takes the first as embedding and the last as head. `normalize_rows`: token rows are divided by their RMS (of
    mean square plus `norm_epsilon`) before positions are added. They then take no multiplier.
    `scan`: the blocks are one block of stacked parameters, compiled once however many there are. `remat`: what the
    backward pass computes again rather than keeps: nothing, all but products with weights, or whole blocks.

    Raises InputError naming the field: a size below 1, an unknown choice, heads that do not fit, a setting of positions
    that are not chosen.
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
    heads: int | None = None
    kv_heads: int | None = None
    window: int | None = None
    mlp: str = "gelu"
    rotary_dim: int | None = None
    rotary_base: float = 10_000.0
    norm_biases: bool | None = None
    scan: bool = False
    remat: str = "none"
    embedding_multiplier: float = field(default=1.0, metadata=OMITTED)
    hidden_multiplier: float = field(default=1.0, metadata=OMITTED)
    output_multiplier: float = field(default=1.0, metadata=OMITTED)
    normalize_rows: bool = field(default=False, metadata=OMITTED)

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
            raise InputError(f"decoder: head_dim {self.head_dim} does not divide width {self.width} (or set heads)")
        if self.num_heads % self.num_kv_heads:
            raise InputError(f"decoder: kv_heads {self.kv_heads} does not divide the {self.num_heads} heads")
        self._check_positions()
        self._check_multipliers()

    def _check_multipliers(self):
        for name in ("embedding_multiplier", "hidden_multiplier", "output_multiplier"):
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
                f"{self.positions} ones take no factor"
            )
        if self.positions != "rotary" and self.rotary_dim is not None:
            raise InputError(f"decoder: rotary_dim {self.rotary_dim} is of rotary positions, not of {self.positions}")
        if self.positions == "rotary" and (self.turned % 2 or self.turned > self.head_size):
            raise InputError(f"decoder: rotary_dim {self.turned} must be even and at most head_dim {self.head_size}")

    @property
    def head_size(self) -> int:
        """`head_dim`, which is None only until the configuration is made."""
        return self.head_dim or default_head_dim(self.width)

    @property
    def num_heads(self) -> int:
        return self.heads or self.width // self.head_size

    @property
    def num_kv_heads(self) -> int:
        return self.kv_heads or self.num_heads

    @property
    def turned(self) -> int:
        """Entries of a head that rotary positions turn."""
        return self.rotary_dim or self.head_size

    @property
    def block_matrices(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of the matrices of a block."""
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
        """Weights of the matrices of one block."""
        return sum(inputs * outputs for inputs, outputs in self.block_matrices.values())

    @property
    def norm_is_biased(self) -> bool:
        return self.norm == "layer" and (self.biases if self.norm_biases is None else self.norm_biases)

    @property
    def num_params(self) -> int:
        """Hand count: two vocabulary matrices or one, the learned positions, and per block its matrices, their biases
        (one an output) and two norms; a final norm."""
        vocabulary = (1 if self.tied else 2) * self.vocab * self.width
        positions = self.context * self.width if self.positions == "learned" else 0
        norm = {"none": 0, "layer": 1 + self.norm_is_biased, "rms": 1}[self.norm] * self.width
        biases = self.biases * sum(outputs for _, outputs in self.block_matrices.values())
        return vocabulary + positions + self.layers * (self.block_weights + biases + 2 * norm) + norm

    @property
    def keys_seen(self) -> float:
        """By a token, on average over a row, to within half a key: T/2, or w (1 − w / 2T) with a window of w."""
        window = min(self.window or self.context, self.context)
        return window * (1 - window / (2 * self.context))

    def flops_per_token(self) -> float:
        """Model FLOPs of a training step per token: 6 per weight of every matrix product, the head included and
        look-ups, gains and biases not, and of attention's two products 12 per head's entry and key that is seen.
        Nothing that is computed again counts."""
        multiplied = self.vocab * self.width + self.layers * self.block_weights
        return 6.0 * multiplied + 12.0 * self.layers * self.keys_seen * self.num_heads * self.head_size


def forward_multipliers(table: Table) -> dict[str, Any]:
    """The fields of `DecoderConfig` that give a decoder the forward multipliers of a table.

    Raises:
      InputError: a multiplier other than 1 for positions or vectors, which the decoder does not have.
    """
    for role in ("position", "vector"):
        if table[role].forward_multiplier != 1.0:
            raise InputError(
                f"decoder: forward multiplier {table[role].forward_multiplier:g} of role {role} is not supported; "
                "use 1 (position_amplitude scales sinusoidal positions)"
            )
    factors = {f"{role}_multiplier": table[role].forward_multiplier for role in ("embedding", "hidden", "output")}
    return factors | {"normalize_rows": table.token_rows == "normalized"}


def default_head_dim(width: int) -> int:
    """64 where it divides the width (the papers' value), else the largest divisor below 64 that is a multiple of 8."""
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


def gpt2(vocab: int = 50257, **changes: Any) -> DecoderConfig:
    """GPT-2 124M (Radford et al. 2019, section 2.3; 124,439,808 parameters), with `changes` to its fields.

    Its form (`GPT2_FORM`): learned positions, biases, LayerNorm before attention and MLP and at the end, with epsilon
    1e-5, GeLU by its tanh approximation, a tied head. Its shape: 12 blocks of width 768, 12 heads of 64, 1024 tokens of
    context; the larger ones are `gpt2(width=1024, layers=24)`, `gpt2(width=1280, layers=36)` and `gpt2(width=1600,
    layers=48)`. `vocab` is that of GPT-2's tokenizer, not padded (nanoGPT pads it to a multiple of 64: `gpt2(50304)`).

    The forward pass alone: there is no dropout, and no initial scale of its own for the two matrices of a block that
    write into the residual stream (GPT-2 divides it by √(2 · layers)), since `Decoder.init` has one for a role.
    """
    shape: dict[str, Any] = {"width": 768, "layers": 12, "context": 1024, "head_dim": 64}
    return DecoderConfig(vocab, **(shape | GPT2_FORM | changes))


def hayou_liu_1b(vocab: int = 32064, **changes: Any) -> DecoderConfig:
    """The "1B" of Hayou & Liu 2025 (Table 3; 1.84 B parameters as printed), with `changes` to its fields.

    24 blocks of width 2048: 32 heads of 128 on 8 of keys and values, all of a head turned by its position, a window of
    2048 of 4096 tokens, SwiGLU of inner width 8192, LayerNorm. Not stated there: biases (none here), the norms' epsilon
    (1e-5), the base of the rotation (10⁴). Ours are bfloat16 arithmetic, blocks that are scanned and computed again in
    the backward pass, and the queries per call of the attention kernel.
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
