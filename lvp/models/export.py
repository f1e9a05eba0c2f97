"""Trained decoders as models of Hugging Face transformers.

| decoder | model of transformers |
| --- | --- |
| learned or sinusoidal positions, LayerNorm, GELU | GPT-2 |
| rotary positions, SwiGLU | Llama; Mistral with a window |
| rotary positions, SwiGLU, LayerNorm with biases or partly turned heads | StableLM |

Everything that these models lack and that is a linear map is multiplied into the weights:

- Forward multipliers, and the branch multiplier. Normalized token rows are stored normalized.
- LayerNorm without biases in Llama and Mistral, which have RMSNorm. LayerNorm subtracts the mean of its input and then
  divides by the RMS. The residual stream enters the model only through norms, so the mean is subtracted from everything
  that is added to the stream: token rows and the outputs of attention and MLP (Ashkboos et al. 2024, section 3.2).
- A tied matrix becomes two if embedding and head differ after this.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lvp.errors import InputError
from lvp.files import write_whole
from lvp.models.configs import DecoderConfig
from lvp.models.layers import sinusoidal_positions
from lvp.models.weights import read

Arrays = dict[str, np.ndarray]
# Fields that this module reads, or that do not change the result. Other fields must have their defaults.
KNOWN = {
    *("vocab", "width", "layers", "context", "head_dim", "heads", "kv_heads", "window", "mlp", "mlp_factor", "tied"),
    *("norm", "norm_epsilon", "norm_biases", "biases", "positions", "position_amplitude", "rotary_dim", "rotary_base"),
    *("embedding_multiplier", "hidden_multiplier", "output_multiplier", "branch_multiplier", "normalize_rows"),
    *("dtype", "attention", "attention_block", "scan", "remat", "gelu", "residual_init", "down_init"),
}
ACTIVATIONS = {"tanh": "gelu_new", "exact": "gelu"}  # `DecoderConfig.gelu` → its name in transformers
ROTARY = {
    "attention/query": "self_attn.q_proj",
    "attention/key": "self_attn.k_proj",
    "attention/value": "self_attn.v_proj",
    "attention/out": "self_attn.o_proj",
    "mlp/gate": "mlp.gate_proj",
    "mlp/up": "mlp.up_proj",
    "mlp/down": "mlp.down_proj",
    "norm_attention": "input_layernorm",
    "norm_mlp": "post_attention_layernorm",
}
GPT2 = {
    "attention/qkv": "attn.c_attn",
    "attention/out": "attn.c_proj",
    "mlp/up": "mlp.c_fc",
    "mlp/down": "mlp.c_proj",
    "norm_attention": "ln_1",
    "norm_mlp": "ln_2",
}


def export(place: str | Path, out: str | Path) -> str:
    """Writes the weights at a place to a directory for transformers' `from_pretrained`, and returns the architecture.

    The directory holds `config.json` and `model.safetensors` in float32, and no tokenizer.

    Args:
      place: as for `lvp.models.load`.
      out: a new or empty directory.

    Raises:
      InputError: the place has no weights of a finished decoder, transformers has no such model, or `out` is not empty.
    """
    from safetensors.numpy import save  # an extra

    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is not an empty directory; name a new one")
    weights = read(place)
    settings, arrays = form(weights.config, weights.params)
    out.mkdir(parents=True, exist_ok=True)
    content = save({name: np.ascontiguousarray(x, np.float32) for name, x in arrays.items()}, {"format": "pt"})
    write_whole(out / "model.safetensors", content)
    write_whole(out / "config.json", json.dumps(settings, indent=1, sort_keys=True) + "\n")
    return settings["architectures"][0]


def form(config: DecoderConfig, params: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """(content of config.json, name → array) of a decoder in transformers.

    Raises:
      InputError: transformers has no model of this form. The error names the field.
    """
    for field in dataclasses.fields(config):
        if field.name not in KNOWN and getattr(config, field.name) != field.default:
            _refused(config, "every model", **{field.name: field.default})
    folded = _folded(config, params)
    if config.positions == "rotary":
        return _rotary(config, folded)
    return _gpt2(config, folded)


def _folded(config: DecoderConfig, params: Mapping[str, Any]) -> Arrays:
    """Path → array of the decoder with all multipliers in its weights.

    Blocks have numbers. Query, key and value are separate matrices. The vocabulary's matrices are `embedding` [M, D]
    and `head` [D, M].
    """
    blocks = range(config.layers)
    each = [params[f"block_{i}"] for i in blocks] if not config.scan else [_part(params["blocks"], i) for i in blocks]
    arrays: Arrays = {}
    for i, block in enumerate(each):
        arrays |= {f"block_{i}/{path}": x for path, x in _block(config, _flat(block)).items()}
    tied = params.get("tied_embedding", {}).get("embedding")
    rows = np.asarray(params["embedding"]["embedding"] if tied is None else tied)
    head = np.asarray(params["head"]["kernel"] if tied is None else tied.T)
    if config.normalize_rows:
        rows = rows / np.sqrt(np.mean(np.square(rows), axis=-1, keepdims=True) + np.float32(config.norm_epsilon))
    arrays |= {"embedding": rows * np.float32(config.embedding_multiplier)}
    arrays |= {"head": head * np.float32(config.output_multiplier)}
    arrays |= {f"norm_final/{name}": np.asarray(x) for name, x in params.get("norm_final", {}).items()}
    if config.positions == "learned":
        arrays["position"] = np.asarray(params["position"]["embedding"])
    elif config.positions == "sinusoidal":
        table = sinusoidal_positions(config.context, config.width)
        arrays["position"] = np.float32(config.position_amplitude) * table
    return arrays


def _block(config: DecoderConfig, block: Arrays) -> Arrays:
    """The arrays of a block with its multipliers."""
    sizes = config.num_heads * config.head_size, config.num_kv_heads * config.head_size
    for kind in ("kernel", "bias"):
        if (joined := block.pop(f"attention/qkv/{kind}", None)) is not None:
            parts = np.split(joined, [sizes[0], sizes[0] + sizes[1]], axis=-1)
            block |= {f"attention/{name}/{kind}": x for name, x in zip(("query", "key", "value"), parts, strict=True)}
    factors = {path: 1.0 for path in block}
    for path in block:
        factors[path] *= config.hidden_multiplier if path.endswith("/kernel") else 1.0
        factors[path] *= config.branch_multiplier if "/out/" in path or "/down/" in path else 1.0
    return {path: x * np.float32(factors[path]) for path, x in block.items()}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Arrays:
    flat: Arrays = {}
    for name, x in tree.items():
        flat |= _flat(x, f"{prefix}{name}/") if isinstance(x, Mapping) else {f"{prefix}{name}": np.asarray(x)}
    return flat


def _part(tree: Mapping[str, Any], index: int) -> dict[str, Any]:
    return {name: _part(x, index) if isinstance(x, Mapping) else np.asarray(x)[index] for name, x in tree.items()}


def _refused(config: DecoderConfig, model: str, **wanted: Any) -> None:
    """Checks that the decoder is like a model of transformers.

    Raises:
      InputError: a field of the decoder differs from the wanted value.
    """
    for name, value in wanted.items():
        if getattr(config, name) != value:
            raise InputError(
                f"transformers has no model with {name} {getattr(config, name)!r} and {config.positions} positions: "
                f"{model} has {value!r}; load the weights with lvp.models.load"
            )


def _windowed(config: DecoderConfig) -> bool:
    return config.window is not None and config.window < config.context


def _gpt2(config: DecoderConfig, arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    _refused(config, "GPT-2", norm="layer", num_kv_heads=config.num_heads, window=None)
    _refused(config, "GPT-2", head_size=config.width // config.num_heads)
    if config.mlp != "gelu":
        _refused(config, "GPT-2", mlp="gelu")
    d, zeros = config.width, lambda size: np.zeros(size, np.float32)
    found = {"transformer.wte.weight": arrays["embedding"], "transformer.wpe.weight": arrays["position"]}
    for i in range(config.layers):
        own = {p.partition("/")[2]: x for p, x in arrays.items() if p.startswith(f"block_{i}/")}
        for kind in ("kernel", "bias"):
            parts = [own.get(f"attention/{name}/{kind}") for name in ("query", "key", "value")]
            if parts[0] is not None:
                own[f"attention/qkv/{kind}"] = np.concatenate(parts, axis=-1)  # type: ignore[arg-type]
        for path, name in GPT2.items():
            weight = own.get(f"{path}/kernel", own.get(f"{path}/scale"))
            assert weight is not None  # every block has these
            found[f"transformer.h.{i}.{name}.weight"] = weight
            found[f"transformer.h.{i}.{name}.bias"] = own.get(f"{path}/bias", zeros(weight.shape[-1]))
    found["transformer.ln_f.weight"] = arrays["norm_final/scale"]
    found["transformer.ln_f.bias"] = arrays.get("norm_final/bias", zeros(d))
    tied = _add_head(found, arrays["head"], arrays["embedding"])
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab,
        "n_positions": config.context,
        "n_embd": d,
        "n_layer": config.layers,
        "n_head": config.num_heads,
        "n_inner": config.mlp_factor * d,
        "activation_function": ACTIVATIONS[config.gelu],
        "layer_norm_epsilon": config.norm_epsilon,
        **_common(tied),
    }, found


def _rotary(config: DecoderConfig, arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    stable = config.norm_is_biased or config.turned != config.head_size
    kind = "StableLm" if stable else "Mistral" if _windowed(config) else "Llama"
    _refused(config, kind, mlp="swiglu")
    if config.norm == "none" or stable:
        _refused(config, kind, norm="layer" if stable else "rms")
    if kind != "Llama":
        _refused(config, kind, biases=False)
    if stable and _windowed(config):
        _refused(config, kind, window=None)
    if config.norm == "layer" and not stable:
        arrays = _centred(arrays)
    bias_of_norms = {"bias": np.zeros(config.width, np.float32)} if stable else {}
    found = {"model.embed_tokens.weight": arrays["embedding"]}
    for path, x in arrays.items():
        module, _, leaf = path.rpartition("/")
        block, _, module = module.partition("/")
        if block == "norm_final":
            found[f"model.norm.{'bias' if leaf == 'bias' else 'weight'}"] = x
        elif block.startswith("block_"):
            name = f"model.layers.{block.removeprefix('block_')}.{ROTARY[module]}"
            found[f"{name}.{'bias' if leaf == 'bias' else 'weight'}"] = x.T if leaf == "kernel" else x
    for name in [name for name in found if "norm" in name and name.endswith(".weight")]:
        for leaf, x in bias_of_norms.items():
            found.setdefault(name.removesuffix("weight") + leaf, x)
    tied = _add_head(found, arrays["head"], arrays["embedding"])
    return _rotary_settings(config, kind) | _common(tied), found


def _centred(arrays: Arrays) -> Arrays:
    """The arrays with a residual stream of mean zero, on which RMSNorm is LayerNorm."""

    def adds(path: str) -> bool:
        return path == "embedding" or "/out/" in path or "/down/" in path

    centred = {path: x - x.mean(axis=-1, keepdims=True, dtype=np.float64) for path, x in arrays.items() if adds(path)}
    return arrays | {path: x.astype(np.float32) for path, x in centred.items()}


def _rotary_settings(config: DecoderConfig, kind: str) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rotary_base}
    own: dict[str, Any] = {"rms_norm_eps": config.norm_epsilon, "head_dim": config.head_size}
    if kind == "StableLm":
        factor = config.turned / config.head_size
        rope |= {"partial_rotary_factor": factor}
        own = {"layer_norm_eps": config.norm_epsilon, "use_qkv_bias": False, "partial_rotary_factor": factor}
        _refused(config, kind, head_size=config.width // config.num_heads)
    elif kind == "Mistral":
        own["sliding_window"] = config.window
    else:
        own |= {"attention_bias": config.biases, "mlp_bias": config.biases}
    return own | {
        "architectures": [f"{kind}ForCausalLM"],
        "model_type": kind.lower(),
        "vocab_size": config.vocab,
        "hidden_size": config.width,
        "intermediate_size": config.mlp_factor * config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "max_position_embeddings": config.context,
        "hidden_act": "silu",
        "rope_theta": config.rotary_base,  # read by transformers 4
        "rope_parameters": rope,  # read by transformers 5
    }


def _add_head(found: Arrays, head: np.ndarray, embedding: np.ndarray) -> bool:
    """Adds the head [D, M] unless it equals the embedding. Returns whether one matrix is both."""
    if np.array_equal(head.T, embedding):
        return True
    found["lm_head.weight"] = head.T
    return False


def _common(tied: bool) -> dict[str, Any]:
    """Settings of every model. The tokens of begin and end belong to a tokenizer, which is not known here."""
    return {"tie_word_embeddings": tied, "dtype": "float32", "bos_token_id": None, "eos_token_id": None}
