"""Exported decoders: the weights under transformers' names, and equal logits in transformers where it is installed."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from lvp.errors import InputError
from lvp.files import checkpoints
from lvp.models import load
from lvp.models.configs import NANOGPT_FORM, DecoderConfig, gpt2
from lvp.models.decoder import decoder
from lvp.models.export import export, form
from tests.lvp.models import forms_reference, gpt2_reference, test_forms, test_gpt2

SIZES = {"vocab": 61, "width": 48, "layers": 2, "context": 16, "head_dim": 16, "attention_block": 8}
MULTIPLIED = {"embedding_multiplier": 3.0, "hidden_multiplier": 1.5, "output_multiplier": 2.0, "branch_multiplier": 0.7}
ROTARY = DecoderConfig(**SIZES, positions="rotary", mlp="swiglu", kv_heads=1, norm_epsilon=1e-5)
PLAIN = DecoderConfig(**SIZES)
CONFIGS = {
    "GPT-2": (gpt2(**SIZES), "GPT2"),
    "nanoGPT": (gpt2(**SIZES, **NANOGPT_FORM), "GPT2"),
    "GPT-2 with multipliers": (replace(gpt2(**SIZES), **MULTIPLIED), "GPT2"),
    "sinusoidal positions": (replace(PLAIN, position_amplitude=0.3, **MULTIPLIED), "GPT2"),
    "normalized rows": (replace(PLAIN, normalize_rows=True, tied=True), "GPT2"),
    "RMSNorm": (replace(ROTARY, norm="rms", biases=True), "Llama"),
    "LayerNorm": (replace(ROTARY, **MULTIPLIED), "Llama"),
    "LayerNorm and a window, scanned": (replace(ROTARY, window=5, scan=True, **MULTIPLIED), "Mistral"),
    "tied": (replace(ROTARY, norm="rms", tied=True, window=5), "Mistral"),
    "biased norms": (replace(ROTARY, norm_biases=True, rotary_dim=8), "StableLm"),
}


def drawn(config):
    """The parameters of a decoder, none of which has its initial value."""
    params = jax.jit(decoder(config).init)(jax.random.key(0))
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(0)
    return tree.unflatten([np.asarray(x) + rng.normal(0, 0.2, x.shape).astype(np.float32) for x in leaves])


def save(path, config, steps=3):
    """Saves random weights as a finished run keeps them."""
    params, setting = drawn(config), {"model": vars(config), "steps": steps}
    checkpoints.save(path, 3, {"params": params}, "0" * 16, config={"cell": setting})
    return params


def test_reference_weights_come_back_under_their_names():
    """`ours` maps transformers' weights to lvp's; the logits of these are compared with transformers elsewhere."""
    settings, arrays = form(test_gpt2.configured(gpt2_reference.SMALL), test_gpt2.ours(gpt2_reference.SMALL))
    expected = {f"transformer.{name}": x for name, x in gpt2_reference.weights(gpt2_reference.SMALL).items()}
    assert settings["tie_word_embeddings"] and arrays.keys() == expected.keys()
    for name, config in forms_reference.FORMS.items():
        settings, more = form(config, test_forms.ours(name))
        assert settings["model_type"] == name and not settings["tie_word_embeddings"]
        assert more.keys() == forms_reference.weights(name).keys()
        arrays, expected = (
            arrays | {f"{name} {k}": x for k, x in more.items()},
            expected | {f"{name} {k}": x for k, x in forms_reference.weights(name).items()},
        )
    for key, x in expected.items():
        np.testing.assert_array_equal(arrays[key], x, err_msg=key)


@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_gives_the_same_logits(name, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config, architecture = CONFIGS[name]
    save(tmp_path / "weights", config)
    made = export(tmp_path / "weights", tmp_path / "out")
    assert made.startswith(architecture)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", attn_implementation="eager")
    tokens = np.random.default_rng(1).integers(0, config.vocab, (2, config.context)).astype(np.int32)
    with torch.no_grad():
        logits = theirs(torch.from_numpy(tokens).long(), use_cache=False).logits.numpy()
    assert type(theirs).__name__ == made and logits.dtype == np.float32
    model, params = load(tmp_path / "weights")
    with jax.default_matmul_precision("highest"):
        ours = np.asarray(jax.jit(model.apply)(params, tokens) @ model.head(params))
    assert ours.std() > 0.3
    np.testing.assert_allclose(logits, ours, atol=1e-5 * max(1, np.abs(ours).max()), rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (replace(PLAIN, norm="rms"), "norm 'rms'"),
        (replace(PLAIN, window=4), "window 4"),
        (replace(PLAIN, kv_heads=1), "num_kv_heads 1"),
        (replace(ROTARY, mlp="gelu"), "mlp 'gelu'"),
        (replace(ROTARY, norm="none"), "norm 'none'"),
        (replace(ROTARY, norm_biases=True, window=5), "window 5"),
        (replace(ROTARY, norm="rms", rotary_dim=8), "norm 'rms'"),
        (replace(ROTARY, norm="rms", biases=True, window=5), "biases True"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_form_that_transformers_lacks_is_one_line(config, field):
    shapes = jax.eval_shape(decoder(config).init, jax.random.key(0))
    with pytest.raises(InputError, match=f"^transformers has no model with {field} and .* lvp.models.load$"):
        form(config, jax.tree.map(lambda x: np.full(x.shape, 0.2, x.dtype), shapes))


def test_a_directory_with_files_is_refused(tmp_path):
    pytest.importorskip("safetensors")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is not an empty directory"):
        export(tmp_path / "weights", tmp_path)


def test_an_unfinished_run_is_refused(tmp_path):
    save(tmp_path / "weights", PLAIN, steps=4)
    with pytest.raises(InputError, match="the run has 3 of 4 steps; continue it to its end"):
        load(tmp_path / "weights")
