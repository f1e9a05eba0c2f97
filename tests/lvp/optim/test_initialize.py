"""Parameters drawn with the stds of a rule."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim, parametrization
from lvp.errors import InputError
from lvp.roles import Declaration

WIDTH, VOCAB = 64, 512
OURS = [Declaration("tokens", "embedding"), Declaration("w", "hidden"), Declaration("out", "output")]
PARAMS = {
    "tokens": jnp.ones((VOCAB, WIDTH)),
    "w": jnp.ones((WIDTH, 4 * WIDTH), jnp.bfloat16),
    "out": jnp.ones((WIDTH, VOCAB)),
    "norm": {"scale": jnp.full(WIDTH, 3.0)},
}


@pytest.mark.parametrize("rule", ["sp", "mup", "lvp"])
def test_matrices_have_the_std_of_their_role_and_vectors_are_unchanged(rule):
    tx = optim.parametrized(
        optax.adamw, rule, width=WIDTH, vocab=VOCAB, learning_rate=1e-3, weight_decay=0.1, declarations=OURS
    )
    drawn = optim.initialize(tx, PARAMS, jax.random.key(0))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), drawn) == jax.tree.map(lambda x: (x.shape, x.dtype), PARAMS)
    table = parametrization.table(rule, width=WIDTH, vocab=VOCAB)
    for name, role in (("tokens", "embedding"), ("w", "hidden"), ("out", "output")):
        x = np.asarray(drawn[name], np.float64)
        assert abs(x.std() / table[role].init_std - 1) < 5 / np.sqrt(2 * x.size)  # five standard errors
        assert abs(x.mean()) < 5 * table[role].init_std / np.sqrt(x.size)
    np.testing.assert_array_equal(drawn["norm"]["scale"], PARAMS["norm"]["scale"])
    # every matrix has its own key
    assert np.abs(np.corrcoef(drawn["tokens"].ravel(), drawn["out"].ravel())[0, 1]) < 0.05


def test_a_table_is_accepted_and_other_types_are_refused():
    table = parametrization.table("lvp", width=WIDTH, vocab=VOCAB)
    assert set(optim.initialize(table, PARAMS, jax.random.key(0), declarations=OURS)) == set(PARAMS)
    with pytest.raises(InputError, match="initialize takes a Table"):
        optim.initialize(optax.adamw(1e-3), PARAMS, jax.random.key(0))


def test_all_undeclared_paths_are_named_with_the_declaration_to_add():
    with pytest.raises(InputError) as caught:
        optim.initialize(parametrization.table("lvp", width=WIDTH, vocab=VOCAB), PARAMS, jax.random.key(0))
    said = str(caught.value)
    assert said.startswith("parameter 'out' of shape (64, 512): no declaration matches its path (nor those of")
    assert "'tokens', 'w'" in said and "Declaration('out', ROLE)" in said and "embedding, position" in said


def test_describe_reports_a_model_of_another_width():
    right, wrong = (
        optim.describe(parametrization.table("lvp", width=width, vocab=VOCAB), PARAMS, declarations=OURS)
        for width in (WIDTH, 32)
    )
    assert "is it the right one" not in str(right)
    assert "tokens has width 64, the rule 32" in str(wrong) and "out has width 64" in str(wrong)
