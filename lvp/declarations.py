"""Declarations of public models, for `declarations=` of `lvp.optim.parametrized`.

Each constant covers the parameters of one public model, in addition to `lvp.roles.DEFAULT` (biases, scales and gains
are vectors). Paths and axes are those of the named source. A tied embedding has the role `tied`: its model multiplies
the logits by the row's head multiplier (docs/tied.md). For a variant of a model, put declarations of your own before a
constant: the first match decides.
"""

import functools

from lvp.roles import Declaration

_declared = functools.partial(Declaration, optional=True)

NANODO = (
    _declared("params/embed/embedding", "tied"),
    _declared("params/pos_embed/embedding", "position"),
    _declared(r"params/blocks_\d+/CausalAttn_0/attn_out_proj/kernel", "hidden", fan_in=(0, 1)),
    _declared(r"params/blocks_\d+/.*/kernel", "hidden", fan_in=(0,)),
)
"""google-deepmind/nanodo, `nanodo/model.py`; tied."""

GPT2 = (
    _declared("(?:params/)?transformer/wte/embedding", "tied"),
    _declared("(?:params/)?transformer/wpe/embedding", "position"),
    _declared(r"(?:params/)?transformer/h/\d+/attn/c_attn/kernel", "hidden", fan_in=(1,), fused=3),
    _declared(r"(?:params/)?transformer/h/\d+/.*/kernel", "hidden", fan_in=(1,)),
)
"""huggingface/transformers, `models/gpt2/modeling_flax_gpt2.py` (`FlaxGPT2LMHeadModel`); tied. Its kernels are
[out, in], unlike those of Flax."""

MAXTEXT_LLAMA = (
    _declared("params/token_embedder/embedding", "embedding"),
    _declared("params/decoder/logits_dense/kernel", "output"),
    _declared(r"params/decoder/layers_\d+/self_attention/out/kernel", "hidden", fan_in=(0, 1)),
    _declared(r"params/decoder/layers_\d+/.*/kernel", "hidden", fan_in=(0,)),
    _declared("params/decoder/layers/self_attention/out/kernel", "hidden", fan_in=(0, 2), stacked=(1,)),
    _declared("params/decoder/layers/.*/kernel", "hidden", fan_in=(0,), stacked=(1,)),
)
"""AI-Hypercomputer/maxtext, `layers/llama2.py`; untied. With `scan_layers`, axis 1 stacks the layers (`param_scan_axis`
1, the default)."""

_NAMED = r"weight(?:/\w+)?"  # haliax' NamedArray adds a component to the path
LEVANTER_LLAMA = (
    _declared(f"embeddings/token_embeddings/{_NAMED}", "embedding"),
    _declared(f"lm_head/{_NAMED}", "output", fan_in=(1,)),
    _declared(f"transformer/.*norm/{_NAMED}", "vector"),
    _declared(f"transformer/layers/stacked/self_attn/q_proj/{_NAMED}", "hidden", fan_in=(4,), stacked=(0,)),
    _declared(f"transformer/layers/stacked/self_attn/[kv]_proj/{_NAMED}", "hidden", fan_in=(3,), stacked=(0,)),
    _declared(f"transformer/layers/stacked/self_attn/o_proj/{_NAMED}", "hidden", fan_in=(2, 3), stacked=(0,)),
    _declared(f"transformer/layers/stacked/mlp/.*/{_NAMED}", "hidden", fan_in=(2,), stacked=(0,)),
)
"""stanford-crfm/levanter, `models/llama.py` with `scan_layers` (the default); untied. Weights are [out, in]."""


def _gemma(gating_fan_in: int) -> tuple[Declaration, ...]:
    attention = r"(?:params/)?layer_\d+/attn/"
    mlp = r"(?:params/)?layer_\d+/mlp/"
    return (
        _declared("(?:params/)?embedder/input_embedding", "tied"),
        _declared(attention + "attn_vec_einsum/w", "hidden", fan_in=(0, 1)),
        _declared(attention + "q_einsum/w", "hidden", fan_in=(1,)),
        _declared(attention + "(?:kv|qkv)_einsum/w", "hidden", fan_in=(2,), stacked=(0,)),
        _declared(mlp + "gating_einsum", "hidden", fan_in=(gating_fan_in,)),
        _declared(mlp + "linear", "hidden", fan_in=(0,)),
    )


GEMMA = _gemma(1)
"""google-deepmind/gemma, `gm/nn/_modules.py` with `transpose_gating_einsum` False (Gemma 1); tied. The model multiplies
rows by √d: give `token_rows="sqrt"`. Muon takes the two gating matrices of a block for one."""

GEMMA_TRANSPOSED = _gemma(2)
"""`GEMMA` with `transpose_gating_einsum` True (Gemma 2 9B, Gemma 3)."""

HAIKU_TRANSFORMER = (
    _declared("language_model/embed/embeddings", "embedding"),
    _declared("language_model/positional_embeddings", "position"),
    _declared("language_model/linear/w", "output"),
    _declared("transformer/.*/w", "hidden"),
    _declared(".*/(?:b|offset)", "vector"),
)
"""google-deepmind/dm-haiku, `examples/transformer/model.py`; untied."""
