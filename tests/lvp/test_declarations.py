"""Declarations of public models, applied to trees with the paths and shapes of these models. No framework is needed."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import optax
import pytest

from lvp import declarations, optim
from lvp.errors import InputError
from lvp.parametrization import table
from lvp.roles import VOCABULARY, Declaration, check_used, classify


def tree(shapes):
    """Returns nested dicts of shapes from "/"-joined paths."""
    params = {}
    for path, shape in shapes.items():
        *parents, name = path.split("/")
        node = params
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = jax.ShapeDtypeStruct(shape, jnp.float32)
    return params


def nanodo(d=512, heads=8, ff=2048, vocab=32101, context=1024):
    """Returns path → shape, as all functions of models here do."""
    block = {
        "CausalAttn_0/query/kernel": (d, heads, d // heads),
        "CausalAttn_0/key/kernel": (d, heads, d // heads),
        "CausalAttn_0/value/kernel": (d, heads, d // heads),
        "CausalAttn_0/attn_out_proj/kernel": (heads, d // heads, d),
        "LayerNorm_0/scale": (d,),
        "LayerNorm_1/scale": (d,),
        "Mlp_0/Dense_0/kernel": (d, ff),
        "Mlp_0/Dense_1/kernel": (ff, d),
    }
    shapes = {"embed/embedding": (vocab, d), "pos_embed/embedding": (context, d), "out_ln/scale": (d,)}
    shapes |= {f"blocks_{i}/{path}": shape for i in range(2) for path, shape in block.items()}
    return {f"params/{path}": shape for path, shape in shapes.items()}


def gpt2(d=768, vocab=50257, context=1024):
    block = {
        "ln_1/scale": (d,),
        "ln_1/bias": (d,),
        "attn/c_attn/kernel": (3 * d, d),
        "attn/c_attn/bias": (3 * d,),
        "attn/c_proj/kernel": (d, d),
        "attn/c_proj/bias": (d,),
        "ln_2/scale": (d,),
        "ln_2/bias": (d,),
        "mlp/c_fc/kernel": (4 * d, d),
        "mlp/c_fc/bias": (4 * d,),
        "mlp/c_proj/kernel": (d, 4 * d),
        "mlp/c_proj/bias": (d,),
    }
    shapes = {"wte/embedding": (vocab, d), "wpe/embedding": (context, d), "ln_f/scale": (d,), "ln_f/bias": (d,)}
    shapes |= {f"h/{i}/{path}": shape for i in range(2) for path, shape in block.items()}
    return {f"transformer/{path}": shape for path, shape in shapes.items()}


def maxtext(scan, d=4096, heads=32, kv=8, hd=128, ff=14336, vocab=128256, layers=32):
    """Llama 3 8B. With `scan`, axis 1 of each array stacks the layers."""

    def at(*shape):
        return (shape[0], layers, *shape[1:]) if scan else shape

    block = {
        "pre_self_attention_layer_norm/scale": at(d),
        "post_self_attention_layer_norm/scale": at(d),
        "self_attention/query/kernel": at(d, heads, hd),
        "self_attention/key/kernel": at(d, kv, hd),
        "self_attention/value/kernel": at(d, kv, hd),
        "self_attention/out/kernel": at(heads, hd, d),
        "mlp/wi_0/kernel": at(d, ff),
        "mlp/wi_1/kernel": at(d, ff),
        "mlp/wo/kernel": at(ff, d),
    }
    names = ["layers"] if scan else ["layers_0", "layers_1"]
    shapes = {f"decoder/{name}/{path}": shape for name in names for path, shape in block.items()}
    shapes |= {"token_embedder/embedding": (vocab, d), "decoder/decoder_norm/scale": (d,)}
    shapes |= {"decoder/logits_dense/kernel": (d, vocab)}
    return {f"params/{path}": shape for path, shape in shapes.items()}


def levanter(component, d=4096, heads=32, kv=8, hd=128, ff=14336, vocab=128256, layers=32):
    """Llama with 4 query heads per key head. `component` is the last part of a path, which haliax' NamedArray adds."""
    block = {
        "self_attn/q_proj": (kv, heads // kv, hd, d),
        "self_attn/k_proj": (kv, hd, d),
        "self_attn/v_proj": (kv, hd, d),
        "self_attn/o_proj": (d, heads, hd),
        "mlp/gate_proj": (ff, d),
        "mlp/up_proj": (ff, d),
        "mlp/down_proj": (d, ff),
        "input_layernorm": (d,),
        "post_attention_layernorm": (d,),
    }
    shapes = {f"transformer/layers/stacked/{path}": (layers, *shape) for path, shape in block.items()}
    shapes |= {"transformer/norm": (d,), "embeddings/token_embeddings": (vocab, d), "lm_head": (vocab, d)}
    return {f"{path}/weight{component}": shape for path, shape in shapes.items()}


def gemma(transposed, fused, d, heads, kv, hd, ff, vocab):
    """`fused`: queries, keys and values are one array, since every head has its own keys. `transposed`: Gemma 3."""
    block = {
        "attn/attn_vec_einsum/w": (heads, hd, d),
        "mlp/gating_einsum": (2, ff, d) if transposed else (2, d, ff),
        "mlp/linear": (ff, d),
        "pre_attention_norm/scale": (d,),
        "pre_ffw_norm/scale": (d,),
    }
    if fused:
        block |= {"attn/qkv_einsum/w": (3, heads, d, hd)}
    else:
        block |= {"attn/q_einsum/w": (heads, d, hd), "attn/kv_einsum/w": (2, kv, d, hd)}
    if transposed:
        block |= {f"attn/_{name}_norm/scale": (hd,) for name in ("query", "key")}
        block |= {f"post_{name}_norm/scale": (d,) for name in ("attention", "ffw")}
    shapes = {f"layer_{i}/{path}": shape for i in range(2) for path, shape in block.items()}
    return shapes | {"embedder/input_embedding": (vocab, d), "final_norm/scale": (d,)}


GEMMA_7B = {"d": 3072, "heads": 16, "kv": 16, "hd": 256, "ff": 24576, "vocab": 256128}
GEMMA_2B = {"d": 2048, "heads": 8, "kv": 1, "hd": 256, "ff": 16384, "vocab": 256128}
GEMMA_3_1B = {"d": 1152, "heads": 4, "kv": 1, "hd": 256, "ff": 6912, "vocab": 262144}


def haiku(d=128, heads=4, hd=32, vocab=128, context=64):
    shapes = {
        "language_model/embed/embeddings": (vocab, d),
        "language_model/positional_embeddings": (context, d),
        "language_model/linear/w": (d, vocab),
        "language_model/linear/b": (vocab,),
        "transformer/linear/w": (d, 4 * d),
        "transformer/linear/b": (4 * d,),
        "transformer/linear_1/w": (4 * d, d),
        "transformer/linear_1/b": (d,),
    }
    for name in ("layer_norm", "layer_norm_1", "layer_norm_2"):
        shapes |= {f"transformer/{name}/{kind}": (d,) for kind in ("scale", "offset")}
    for name in ("query", "key", "value"):
        shapes |= {f"transformer/multi_head_attention/{name}/w": (d, heads * hd)}
        shapes |= {f"transformer/multi_head_attention/{name}/b": (heads * hd,)}
    shapes |= {"transformer/multi_head_attention/linear/w": (heads * hd, d)}
    return shapes | {"transformer/multi_head_attention/linear/b": (d,)}


MODELS = {
    "nanodo": (declarations.NANODO, nanodo(), 512, 32101),
    "gpt2": (declarations.GPT2, gpt2(), 768, 50257),
    "maxtext": (declarations.MAXTEXT_LLAMA, maxtext(False), 4096, 128256),
    "maxtext_scanned": (declarations.MAXTEXT_LLAMA, maxtext(True), 4096, 128256),
    "levanter": (declarations.LEVANTER_LLAMA, levanter("/0"), 4096, 128256),
    "levanter_array": (declarations.LEVANTER_LLAMA, levanter("/array"), 4096, 128256),
    "gemma_2b": (declarations.GEMMA, gemma(False, False, **GEMMA_2B), 2048, 256128),
    "gemma_7b": (declarations.GEMMA, gemma(False, True, **GEMMA_7B), 3072, 256128),
    "gemma_3_1b": (declarations.GEMMA_TRANSPOSED, gemma(True, False, **GEMMA_3_1B), 1152, 262144),
    "haiku": (declarations.HAIKU_TRANSFORMER, haiku(), 128, 128),
}
models = pytest.mark.parametrize(("declared", "shapes", "width", "vocab"), MODELS.values(), ids=MODELS)
# Matrices that write into the residual stream: the output of attention and the MLP's second matrix. Others read it.
WRITERS = re.compile(
    ".*(?:attn_out_proj|attention/out|o_proj|attn_vec_einsum|attention/linear|c_proj|Dense_1|wo|down_proj|mlp/linear|"
    "transformer/linear_1)(?:/.*)?"
)


@models
def test_every_parameter_is_declared_with_the_models_width(declared, shapes, width, vocab):
    params = tree(shapes)
    leaves = jax.tree.leaves(classify(params, extra=declared))
    rule = table("lvp", width=width, vocab=vocab, token_rows="sqrt", tied=True)
    described = {row.path: row for row in optim.describe(rule, params, declarations=declared).rows}
    assert described.keys() == shapes.keys()
    for leaf in leaves:
        if leaf.role == "vector":
            assert leaf.fan_in == ()
        elif leaf.role == "hidden" and WRITERS.fullmatch(leaf.path):
            assert leaf.size(leaf.fan_out) == width, leaf.path
        else:
            assert leaf.size(leaf.fan_in) == width, leaf.path
        if leaf.role in VOCABULARY:
            assert leaf.shape[leaf.vocab_axis] == vocab
    assert {leaf.role for leaf in leaves} >= {"hidden", "vector"}


@models
def test_an_optimizer_accepts_the_declared_tree(declared, shapes, width, vocab):
    """Muon trains the hidden matrices, because it checks axes most strictly: they must exist and not overlap."""
    rule = table("lvp", width=width, vocab=vocab, tied=True)
    factories = dict.fromkeys(rule, optax.adamw) | {"hidden": optax.contrib.muon}
    tx = optim.parametrized(factories, rule, 1e-3, rates={"hidden": 0.02}, declarations=declared)
    params = tree(shapes)
    state = jax.eval_shape(tx.init, params)
    updates, _ = jax.eval_shape(tx.update, params, state, params)
    assert jax.tree.map(lambda x: x.shape, updates) == jax.tree.map(lambda x: x.shape, params)


def test_the_other_orientation_of_gemmas_gates_is_refused():
    _, shapes, width, vocab = MODELS["gemma_3_1b"]
    rule = table("lvp", width=width, vocab=vocab)
    with pytest.raises(InputError, match="gating_einsum.*fan-in 6912 and fan-out 2304, but width is 1152"):
        optim.describe(rule, tree(shapes), declarations=declarations.GEMMA)


def test_every_declaration_decides_a_published_parameter():
    shapes_by_declarations = {}
    for declared, shapes, *_ in MODELS.values():
        shapes_by_declarations.setdefault(declared, {}).update(shapes)
    for declared, shapes in shapes_by_declarations.items():
        # Without `optional`, a declaration that matches no parameter is an error.
        check_used(tree(shapes), [replace(declaration, optional=False) for declaration in declared])


def test_declarations_of_a_variant_come_first():
    untied = tree(gpt2() | {"lm_head/kernel": (768, 50257)})
    # Without its declaration the head is refused, and not treated as a hidden matrix.
    with pytest.raises(InputError, match="'lm_head/kernel'.*no declaration"):
        classify(untied, extra=declarations.GPT2)
    variant = [Declaration("transformer/wte/embedding", "embedding"), Declaration("lm_head/kernel", "output")]
    rule = table("lvp", width=768, vocab=50257)
    rows = optim.describe(rule, untied, declarations=[*variant, *declarations.GPT2]).rows
    roles = {row.path: row.role for row in rows}
    assert (roles["transformer/wte/embedding"], roles["lm_head/kernel"]) == ("embedding", "output")
