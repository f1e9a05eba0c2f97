"""Makes gpt2_reference.npz beside this file: outputs of Hugging Face transformers' GPT-2 with random weights.

    python -m tests.lvp.models.gpt2_reference

This command needs PyTorch and transformers. It makes the model from its configuration and downloads nothing. The tests
need neither package: both sides draw weights and tokens from a seed, and the file contains only outputs and versions.
Weights are float32 and the reference's arithmetic is float64, so a difference is an error of the tested side.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

FILE = Path(__file__).with_suffix(".npz")


class Shape(NamedTuple):
    """Sizes of a GPT-2, and the number of rows of `context` tokens that it is given."""

    vocab: int
    context: int
    width: int
    layers: int
    heads: int
    rows: int


SMALL = Shape(vocab=61, context=16, width=48, layers=2, heads=3, rows=2)
FULL = Shape(vocab=50257, context=1024, width=768, layers=12, heads=12, rows=1)
# The logits of FULL are kept for these tokens at these positions.
POSITIONS, VOCABULARY = (0, 1, 63, 64, 511, 1023), (0, 1, 100, 1000, 10000, 25000, 50000, 50256)
# The inputs of the matrices of SMALL are kept at this many last positions.
LAST = 4


def shapes(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the name in transformers and the shape of every parameter. A matrix is [in, out], as in this library."""
    d = shape.width
    yield "wte.weight", (shape.vocab, d)
    yield "wpe.weight", (shape.context, d)
    for i in range(shape.layers):
        for norm in ("ln_1", "ln_2"):
            yield from ((f"h.{i}.{norm}.{kind}", (d,)) for kind in ("weight", "bias"))
        matrices = {"attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d), "mlp.c_fc": (d, 4 * d), "mlp.c_proj": (4 * d, d)}
        for name, (inputs, outputs) in matrices.items():
            yield f"h.{i}.{name}.weight", (inputs, outputs)
            yield f"h.{i}.{name}.bias", (outputs,)
    yield from ((f"ln_f.{kind}", (d,)) for kind in ("weight", "bias"))


def weights(shape: Shape) -> dict[str, np.ndarray]:
    """Returns float32 weights. None has its initial value: gains are about 1 and biases about 0, with a std of 0.3.
    Matrices are so large that attention scores have a standard deviation of about 2 and the inputs of GeLU of about
    1.5, so neither is near linear. The embedding is so small that the epsilon of the norms matters."""
    rng = np.random.RandomState(0)  # the only generator of NumPy whose stream never changes
    arrays = {}
    for name, dims in shapes(shape):
        draw = rng.standard_normal(dims).astype(np.float32)
        if name in ("wte.weight", "wpe.weight"):
            arrays[name] = draw * np.float32(0.5 / np.sqrt(shape.width))
        elif len(dims) == 2:
            arrays[name] = draw * np.float32(1.4 / np.sqrt(shape.width))
        else:
            arrays[name] = draw * np.float32(0.3) + np.float32(name.endswith("weight"))
    return arrays


def tokens(shape: Shape) -> np.ndarray:
    """Returns tokens, int32 [rows, context]."""
    return np.random.RandomState(1).randint(0, shape.vocab, (shape.rows, shape.context)).astype(np.int32)


def reference(shape: Shape):
    """Returns transformers' model with these weights, in float64. Everything but its shape is at GPT-2's defaults."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=shape.vocab,
        n_positions=shape.context,
        n_embd=shape.width,
        n_layer=shape.layers,
        n_head=shape.heads,
        bos_token_id=None,  # needed for generation only, and outside a small vocabulary
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config).double().eval()
    state = {f"transformer.{name}": torch.from_numpy(array) for name, array in weights(shape).items()}
    wrong = model.load_state_dict(state, strict=False)
    # The head is the embedding.
    assert wrong.missing_keys == ["lm_head.weight"] and not wrong.unexpected_keys, wrong
    assert model.lm_head.weight is model.transformer.wte.weight
    return model


def outputs(shape: Shape) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the logits [rows, context, vocab], and by name the input of every matrix of the blocks [rows, context,
    in]."""
    import torch

    model, inputs = reference(shape), {}
    for name, module in model.transformer.h.named_modules():
        if name.endswith(("c_attn", "c_proj", "c_fc")):
            module.register_forward_pre_hook(lambda _, x, name=name: inputs.update({f"h.{name}": x[0].numpy()}))
    with torch.no_grad():
        return model(torch.from_numpy(tokens(shape)).long()).logits.numpy(), inputs


def main() -> None:
    import torch
    import transformers

    logits, inputs = outputs(SMALL)
    kept = {f"small/inputs/{name}": x[:, -LAST:] for name, x in inputs.items()} | {"small/logits": logits}
    logits = outputs(FULL)[0][0, list(POSITIONS)]
    most = logits.max(-1)
    kept["full/logits"] = logits[:, list(VOCABULARY)]
    kept["full/logsumexp"] = most + np.log(np.exp(logits - most[:, None]).sum(-1))
    kept = {name: x.astype(np.float32) for name, x in kept.items()}
    versions = [f"{module.__name__} {module.__version__}" for module in (transformers, torch, np)]
    np.savez_compressed(FILE, versions=np.array(versions), **kept)
    print(f"{FILE.name}: {FILE.stat().st_size} bytes, by {', '.join(versions)}")


if __name__ == "__main__":
    main()
