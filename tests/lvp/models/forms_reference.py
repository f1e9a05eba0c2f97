"""Makes forms_reference.npz: the logits of Hugging Face transformers' Mistral and StableLM with random weights.

    python -m tests.lvp.models.forms_reference

This command needs PyTorch and transformers. It makes the models from their configurations and downloads nothing. The
file contains only logits, computed in float64. The tests draw the same weights and tokens from the seed, as in
`tests.lvp.models.gpt2_reference`. Together the two models have all features of the "1B" of Hayou & Liu 2025, except
LayerNorm without biases.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lvp.models.configs import DecoderConfig

FILE = Path(__file__).with_suffix(".npz")
SHAPE = {"vocab": 61, "width": 48, "layers": 2, "context": 16, "mlp_factor": 2}
BOTH = {"positions": "rotary", "mlp": "swiglu", "norm_epsilon": 1e-5, "attention_block": 5, "kv_heads": 2}
# Together: heads wider than the residual stream, rows longer than the window, partly rotated heads, norms with biases.
FORMS = {
    "mistral": DecoderConfig(**SHAPE, **BOTH, norm="rms", heads=4, head_dim=16, window=5),
    "stablelm": DecoderConfig(**SHAPE, **BOTH, norm="layer", norm_biases=True, head_dim=8, rotary_dim=4),
}


def shapes(form: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the name in transformers and the shape of every parameter. A matrix is [out, in]."""
    config = FORMS[form]
    norm = ("weight", "bias") if config.norm_is_biased else ("weight",)
    modules = {"out": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
    modules |= {name: f"self_attn.{name[0]}_proj" for name in ("query", "key", "value")}
    yield "model.embed_tokens.weight", (config.vocab, config.width)
    for i in range(config.layers):
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield from ((f"model.layers.{i}.{name}.{kind}", (config.width,)) for kind in norm)
        for name, (inputs, outputs) in config.block_matrices.items():
            yield f"model.layers.{i}.{modules[name]}.weight", (outputs, inputs)
    yield from ((f"model.norm.{kind}", (config.width,)) for kind in norm)
    yield "lm_head.weight", (config.vocab, config.width)


def weights(form: str) -> dict[str, np.ndarray]:
    """Returns name → float32 weights. No norm has its initial value. Matrices are large, so that softmax and SiLU are
    far from linear. The embedding is small, so that the epsilon of the norms changes the logits."""
    rng = np.random.RandomState(0)
    arrays = {}
    for name, dims in shapes(form):
        draw = rng.standard_normal(dims).astype(np.float32)
        if name == "model.embed_tokens.weight":
            arrays[name] = draw * np.float32(0.05)
        elif len(dims) == 2:
            arrays[name] = draw * np.float32(1.4 / np.sqrt(dims[1]))
        else:
            arrays[name] = draw * np.float32(0.3) + np.float32(name.endswith("weight"))
    return arrays


def tokens() -> np.ndarray:
    """Returns two rows of random tokens, int32 [2, context]."""
    return np.random.RandomState(1).randint(0, SHAPE["vocab"], (2, SHAPE["context"])).astype(np.int32)


def logits(form: str) -> np.ndarray:
    """Returns the logits of transformers' model with `weights` at `tokens`, float64 [2, context, vocab]."""
    import torch
    import transformers

    config = FORMS[form]
    common = dict(
        vocab_size=config.vocab,
        hidden_size=config.width,
        intermediate_size=config.mlp_factor * config.width,
        num_hidden_layers=config.layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        max_position_embeddings=config.context,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="eager",
    )
    rope = {"rope_type": "default", "rope_theta": config.rotary_base}
    if form == "mistral":
        own = dict(
            head_dim=config.head_dim,
            sliding_window=config.window,
            rms_norm_eps=config.norm_epsilon,
            rope_parameters=rope,
        )
        model = transformers.MistralForCausalLM(transformers.MistralConfig(**common, **own))
    else:
        rope |= {"partial_rotary_factor": config.turned / config.head_dim}
        own = dict(use_qkv_bias=False, layer_norm_eps=config.norm_epsilon, rope_parameters=rope)
        model = transformers.StableLmForCausalLM(transformers.StableLmConfig(**common, **own))
    model = model.double().eval()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights(form).items()})
    with torch.no_grad():
        return model(torch.from_numpy(tokens()).long(), use_cache=False).logits.numpy()


def main() -> None:
    import torch
    import transformers

    versions = [f"{module.__name__} {module.__version__}" for module in (transformers, torch, np)]
    all_logits = {form: logits(form).astype(np.float32) for form in FORMS}
    np.savez_compressed(FILE, versions=np.array(versions), **all_logits)
    print(f"{FILE.name}: {FILE.stat().st_size} bytes, by {', '.join(versions)}")


if __name__ == "__main__":
    main()
