"""Forward multipliers: a factor A on the output with init / A and rate / A leaves an Adam run unchanged."""

import functools
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

from lvp import optim, roles
from lvp.errors import InputError
from lvp.losses import next_token_loss
from lvp.models.configs import DecoderConfig, forward_multipliers
from lvp.models.decoder import decoder
from lvp.parametrization import TOKEN_ROWS, row_multiplier, table
from lvp.training.records import configuration
from tests.marking import slow

WIDTH, VOCAB, CONTEXT = 16, 40, 12
PLAIN = DecoderConfig(VOCAB, WIDTH, context=CONTEXT, head_dim=8)
TOKENS = jax.random.randint(jax.random.key(1), (4, CONTEXT + 1), 0, VOCAB)
RATES = {"embedding": 0.02, "position": 0.01, "hidden": 0.004, "output": 0.006, "vector": 0.004}
STD = 0.2


@functools.cache
def program(config, steps=8):
    """Returns a jitted function of the rates and init stds by role, which returns the losses [steps] of an Adam run."""
    model = decoder(config)

    def run(rates, stds):
        optimizer = optim.by_role(optax.adam, rates, eps=0.0)

        def loss_of(p):
            return next_token_loss(model.apply(p, TOKENS[:, :-1]), model.head(p), TOKENS[:, 1:])

        def step(carry, _):
            params, state = carry
            loss, gradient = jax.value_and_grad(loss_of)(params)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), loss

        params = jax.jit(model.init)(jax.random.key(0), stds)
        return jax.lax.scan(step, (params, optimizer.init(params)), length=steps)[1]

    return jax.jit(run)


def losses(config, rates, stds):
    return np.asarray(program(config)(rates, stds))


@pytest.mark.parametrize("role", ["embedding", slow("hidden"), slow("output")])
@pytest.mark.parametrize("factor", [3.0, *(slow(x) for x in (0.25, WIDTH**0.5))])
def test_a_multiplier_is_inverse_to_init_and_rate(role, factor):
    stds = dict.fromkeys(roles.ROLES, STD)
    expected = losses(PLAIN, RATES, stds)
    multiplied = replace(PLAIN, **{f"{role}_multiplier": factor})
    moved = losses(multiplied, RATES | {role: RATES[role] / factor}, stds | {role: STD / factor})
    np.testing.assert_allclose(moved, expected, rtol=2e-5)
    # Control: the multiplier alone changes the run.
    assert np.abs(losses(multiplied, RATES, stds) - expected).max() > 1e-3


@pytest.mark.slow
def test_a_tied_matrix_takes_both_multipliers():
    tied = replace(PLAIN, tied=True, embedding_multiplier=2.0, output_multiplier=3.0, positions="rotary")
    params = jax.jit(decoder(tied).init)(jax.random.key(0))
    matrix = params["tied_embedding"]["embedding"]
    np.testing.assert_array_equal(decoder(tied).head(params), 3.0 * matrix.T)
    plain, inputs = replace(tied, embedding_multiplier=1.0), TOKENS[:, :-1]
    doubled = {**params, "tied_embedding": {"embedding": 2.0 * matrix}}
    np.testing.assert_allclose(
        jax.jit(decoder(tied).apply)(params, inputs), jax.jit(decoder(plain).apply)(doubled, inputs), rtol=1e-6
    )


@pytest.mark.slow
def test_normalized_rows_do_not_depend_on_their_scale():
    config = replace(PLAIN, normalize_rows=True, norm_epsilon=1e-30)
    model = decoder(config)
    params = jax.jit(model.init)(jax.random.key(0))
    scaled = {**params, "embedding": {"embedding": 7.0 * params["embedding"]["embedding"]}}
    inputs = TOKENS[:, :-1]
    normalized, plain = jax.jit(model.apply), jax.jit(decoder(PLAIN).apply)
    np.testing.assert_allclose(normalized(params, inputs), normalized(scaled, inputs), rtol=1e-4, atol=1e-5)
    assert np.abs(plain(params, inputs) - plain(scaled, inputs)).max() > 1e-2


@pytest.mark.parametrize("token_rows", TOKEN_ROWS)
def test_a_table_has_the_multiplier_of_its_token_rows(token_rows):
    made = table("lvp", width=WIDTH, vocab=VOCAB, token_rows=token_rows)
    assert made["embedding"].forward_multiplier == row_multiplier(token_rows, WIDTH)
    assert {made[role].forward_multiplier for role in made if role != "embedding"} == {1.0}
    # Rates and stds equal those of plain rows.
    plain = table("lvp", width=WIDTH, vocab=VOCAB)
    assert all(made[r].lr_multiplier == plain[r].lr_multiplier and made[r].init_std == plain[r].init_std for r in made)
    config = replace(PLAIN, **forward_multipliers(made))
    assert config.normalize_rows == (token_rows == "normalized")
    assert config.embedding_multiplier == (4.0 if token_rows == "sqrt" else 1.0)


def test_describe_shows_the_multiplier():
    optimizer = optim.parametrized(optax.adam, table("lvp", width=WIDTH, vocab=VOCAB, token_rows="sqrt"), 0.1)
    params = jax.eval_shape(decoder(PLAIN).init, jax.random.key(0))
    described = optim.describe(optimizer, params)
    by_path = {row.path: row.forward_multiplier for row in described.rows}
    assert by_path["embedding/embedding"] == 4.0 and by_path["head/kernel"] == 1.0
    assert "forward ×" in str(described)


def test_default_multipliers_are_left_out_of_configurations():
    names = {"embedding_multiplier", "hidden_multiplier", "output_multiplier", "normalize_rows"}
    assert not names & configuration(PLAIN).keys()
    assert configuration(replace(PLAIN, embedding_multiplier=4.0))["embedding_multiplier"] == 4.0


def own_rule(width, vocab):
    rows = dict.fromkeys(roles.ROLES, (width**-0.5, 1.0))
    return rows | {"embedding": (1.0, 0.5, 2.0)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replace(PLAIN, normalize_rows=True, embedding_multiplier=2.0), "no effect on normalized rows"),
        (lambda: decoder(PLAIN).init(jax.random.key(0), {"embedding": 1.0, "hidden": 1.0}), "init_std has no 'output'"),
        (lambda: replace(PLAIN, hidden_multiplier=0.0), "hidden_multiplier must be a finite number above zero"),
        (lambda: replace(PLAIN, norm_epsilon=-1.0), "norm_epsilon must be a finite number above zero"),
        (lambda: replace(PLAIN, rotary_base=0.0), "rotary_base must be a finite number above zero"),
        (lambda: table("lvp", width=WIDTH, vocab=VOCAB, token_rows="sqr"), "did you mean sqrt"),
        (lambda: table(own_rule, width=WIDTH, vocab=VOCAB, token_rows="normalized"), "use token_rows 'plain'"),
        (
            lambda: forward_multipliers(
                table(lambda d, m: own_rule(d, m) | {"vector": (0.0, 1.0, 3.0)}, width=WIDTH, vocab=VOCAB)
            ),
            "role vector is not supported",
        ),
    ],
)
def test_contradictory_multipliers_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_user_rule_may_give_a_multiplier():
    made = table(own_rule, width=WIDTH, vocab=VOCAB, token_rows="sqrt")
    assert made["embedding"].forward_multiplier == 2.0 * WIDTH**0.5
    assert made["hidden"].forward_multiplier == 1.0
