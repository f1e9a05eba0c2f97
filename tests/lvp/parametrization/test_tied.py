"""The row of a tied matrix: closed forms, bounds, and the training that it describes."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import declarations, optim
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig, forward_multipliers
from lvp.models.decoder import decoder
from lvp.parametrization import RULES, Shape, table
from lvp.parametrization.recommend import recommend
from lvp.parametrization.scaling import scale
from lvp.roles import ROLES, Declaration
from lvp.training import Run

WIDTH, VOCAB = 256, 8192
CLOSED_FORMS = {
    "sp": -0.5,
    "lvp": 0,
    "interpolated": 0,
    "mup": -1,
    "completep": -1,
    "umup": -1,
    "sp_embedding_width": -0.5,
}


@pytest.mark.parametrize("rule, power", CLOSED_FORMS.items())
def test_the_logits_factor_is_a_power_of_the_width(rule, power):
    row = table(rule, width=WIDTH, vocab=VOCAB, tied=True)["tied"]
    assert row.head_multiplier == pytest.approx(WIDTH**power, rel=1e-12)


@pytest.mark.parametrize("rule", [*RULES, "nanochat"])
@pytest.mark.parametrize(
    "sizes", [{}, {"base_width": 64}, {"base_width": 64, "ratios": 1}, {"ratios": {"embedding": 90}}]
)
def test_rows_and_head_start_as_the_rule_says(rule, sizes):
    made = table(rule, width=WIDTH, vocab=VOCAB, tied=True, **sizes)
    tied, embedding, head = made["tied"], made["embedding"], made["output"]
    assert (tied.init_std, tied.lr_multiplier) == (embedding.init_std, embedding.lr_multiplier)
    assert tied.forward_multiplier == embedding.forward_multiplier
    assert tied.head_multiplier * tied.init_std == pytest.approx(head.forward_multiplier * head.init_std, rel=1e-12)


def test_a_head_that_starts_at_zero_has_no_other_factor():
    def zero_head(width, vocab):
        return dict.fromkeys(("position", "hidden", "vector"), (1.0, 1.0)) | {
            "embedding": (1.0, 4.0),
            "output": (0.0, 1.0),
        }

    assert table(zero_head, width=WIDTH, vocab=VOCAB, tied=True)["tied"].head_multiplier == 1.0


def tree(width=64):
    block = {"attn": {"c_attn": {"kernel": jnp.zeros((3 * width, width))}}}
    wte, wpe = (jnp.zeros((length, width)) for length in (512, 32))
    return {"transformer": {"wte": {"embedding": wte}, "wpe": {"embedding": wpe}, "h": {"0": block}}}


@pytest.mark.parametrize("rule", RULES)
def test_tokens_and_positions_enter_the_first_block_alike(rule):
    tx = optim.parametrized(optax.adamw, rule, 1e-3, width=64, vocab=512, declarations=declarations.GPT2)
    drawn = optim.initialize(tx, tree(), jax.random.key(0))["transformer"]
    rows, positions = (float(jnp.std(drawn[name]["embedding"])) for name in ("wte", "wpe"))
    assert rows == pytest.approx(positions, rel=0.05)
    (described,) = [row for row in optim.describe(tx, tree()).rows if row.role == "tied"]
    assert described.head_multiplier == tx.table["tied"].head_multiplier
    assert f"{described.head_multiplier:.6g}" in str(optim.describe(tx, tree()))


def test_a_table_without_the_row_is_refused_with_the_remedy():
    for rule in (table("lvp", width=64, vocab=512), scale(Shape(32, 512), Shape(64, 512), "lvp").table):
        with pytest.raises(InputError, match=r"tied=True"):
            optim.parametrized(optax.adamw, rule, 1e-3, declarations=declarations.GPT2)


def test_the_shared_readout_of_mup():
    """One std of the base model for both uses. The logits have mup's factor, 1 over the width ratio."""
    made = scale(Shape(64, 512), Shape(256, 512), "mup", ratios=1, tied=True, init_std={"tied": 0.02}).table["tied"]
    assert (made.init_std, made.head_multiplier, made.lr_multiplier) == pytest.approx((0.02, 0.25, 1.0))
    with pytest.raises(InputError, match="unknown role of init_std 'tied'"):
        scale(Shape(64, 512), Shape(256, 512), "mup", init_std={"tied": 0.02})
    with pytest.raises(InputError, match="init_std of output must be a finite number above zero"):
        scale(Shape(64, 512), Shape(256, 512), "mup", tied=True, init_std={"output": 0.0})
    with pytest.raises(InputError, match="init_std has tied and output, which are one matrix: remove output"):
        scale(Shape(64, 512), Shape(256, 512), "mup", tied=True, init_std={"tied": 0.02, "output": 0.0})
    with pytest.raises(InputError, match="init_std of tied must be a finite number above zero"):
        scale(Shape(64, 512), Shape(256, 512), "mup", tied=True, init_std={"tied": 0.0})
    assert scale(Shape(64, 512), Shape(256, 512), "mup", init_std={"output": 0.0}).table["output"].init_std == 0


@pytest.mark.parametrize("given", [{"rates": {"embedding": 0.1}}, {"weight_decay": {"output": 0.1, "hidden": 0.1}}])
def test_a_tied_model_refuses_settings_of_embedding_or_head(given):
    """It would act on no parameter."""
    params = {"wte": {"embedding": jnp.zeros((VOCAB, WIDTH))}}
    build = functools.partial(optim.parametrized, optax.adamw, "lvp", 1e-3, width=WIDTH, vocab=VOCAB)
    tied = [Declaration("wte/embedding", "tied")]
    with pytest.raises(InputError, match="rates or weight_decay names '(embedding|output)', but .* name 'tied'"):
        build(declarations=tied, **given).init(params)
    build(declarations=tied, rates={"tied": 0.1}, weight_decay={"tied": 0.1}).init(params)
    build(declarations=[Declaration("wte/embedding", "embedding")], **given).init(params)  # control
    moved = scale(Shape(64, VOCAB), Shape(WIDTH, VOCAB), "lvp", tied=True)
    optim.transfer(optax.adamw, moved, 1e-3, weight_decay=0.1, declarations=tied).init(params)


def test_the_embeddings_factory_trains_a_tied_matrix():
    factories = dict.fromkeys(ROLES, optax.adamw) | {"embedding": functools.partial(optax.adamw, b1=0.5)}
    tx = optim.parametrized(factories, "lvp", 1e-3, width=64, vocab=512, declarations=declarations.GPT2)
    assert tx.options["tied"]["b1"] == 0.5
    own = factories | {"tied": functools.partial(optax.adamw, b1=0.7)}
    tx = optim.parametrized(own, "lvp", 1e-3, width=64, vocab=512, declarations=declarations.GPT2)
    assert tx.options["tied"]["b1"] == 0.7


def test_a_model_without_a_head_is_noted():
    """An embedding that is also the head would start the logits too large under μP."""
    untied = {"wte": "embedding", "w": "hidden", "head": "output"}
    bare, tied = {"wte": "embedding", "w": "hidden"}, {"wte": "tied", "w": "hidden"}
    params = {"wte": jnp.zeros((512, 64)), "w": jnp.zeros((64, 64)), "head": jnp.zeros((64, 512))}
    note = "declare an embedding that is also the head as tied"
    for names, noted in ((untied, False), (bare, True), (tied, False)):
        declared = [Declaration(name, role, fan_in=(1,) if name == "wte" else (0,)) for name, role in names.items()]
        tx = optim.parametrized(optax.adamw, "mup", 1e-3, width=64, vocab=512, declarations=declared)
        assert (note in str(optim.describe(tx, {name: params[name] for name in names}))) is noted


@pytest.mark.parametrize("rule", ("lvp", "mup", "completep"))
def test_transfer_moves_the_row_as_a_table_at_the_base_width(rule):
    moved = scale(Shape(64, 512), Shape(WIDTH, VOCAB), rule, tied=True)
    row, same = (
        moved.table["tied"],
        table(rule, width=WIDTH, vocab=VOCAB, base_width=64, base_vocab=512, tied=True)["tied"],
    )
    assert (row.lr_multiplier, row.head_multiplier) == pytest.approx((same.lr_multiplier, same.head_multiplier))
    assert moved["tied"].rate == pytest.approx(moved["embedding"].rate)
    advice = recommend(Shape(WIDTH, VOCAB), 1e-3, base=Shape(64, 512), rule=rule, tied=True)
    tied = advice["tied"]
    assert (tied.learning_rate / 1e-3, tied.head_multiplier) == pytest.approx((row.lr_multiplier, row.head_multiplier))
    assert "embedding" not in [each.role for each in advice.roles]
    assert tied.head_multiplier == 1 or f"logits × {tied.head_multiplier:.4g}" in str(advice)


def losses(config, run, steps=4):
    """The losses of Adam on a tied decoder, with the role `output` for its matrix."""
    model, tokens = decoder(config), jax.random.randint(jax.random.key(1), (4, 17), 0, config.vocab)
    tx = optim.by_role(lambda learning_rate: optax.adam(learning_rate, eps=0.0), run.learning_rates)

    def loss(params):
        logits = model.apply(params, tokens[:, :-1]) @ model.head(params)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    params, seen = model.init(jax.random.key(0), run.init_std), []
    state = tx.init(params)
    for _ in range(steps):
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = tx.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        seen.append(float(value))
    return seen


@pytest.mark.slow
def test_the_matrix_and_both_factors_may_be_rescaled_together():
    """(a, b, σ, η) and (a / c, b / c, c σ, c η) are the same training, so that the logits need no factor."""
    made = table("mup", width=32, vocab=64, tied=True)
    config = DecoderConfig(
        64, 32, layers=1, context=16, head_dim=8, tied=True, positions="learned", **forward_multipliers(made)
    )
    run = Run.under(made, 0.2 / 32, 0)
    b = config.output_multiplier
    assert b == pytest.approx(1 / 32)
    rescaled = {"embedding_multiplier": config.embedding_multiplier / b, "output_multiplier": 1.0}
    moved = Run.under(
        made,
        0.2 / 32,
        0,
        rates={"output": run.learning_rates["output"] * b},
        stds={"output": run.init_std["output"] * b},
    )
    one, other = losses(config, run), losses(replace(config, **rescaled), moved)
    np.testing.assert_allclose(one, other, rtol=2e-5)
    assert abs(one[-1] - losses(replace(config, output_multiplier=1.0), run)[-1]) > 1e-3  # negative control
