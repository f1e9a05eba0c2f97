"""Parameters drawn with the stds of a rule."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim, parametrization
from lvp.errors import InputError
from lvp.roles import Declaration

WIDTH, VOCAB = 64, 512
OURS = [
    Declaration("tokens", "embedding"),
    Declaration("w", "hidden"),
    Declaration("out", "output", fan_in=(0,)),
]
PARAMS = {
    "tokens": jnp.ones((VOCAB, WIDTH)),
    "w": jnp.ones((WIDTH, 4 * WIDTH), jnp.bfloat16),
    "out": jnp.ones((WIDTH, VOCAB)),
    "norm": {"scale": jnp.full(WIDTH, 3.0)},
}


@pytest.mark.parametrize("rule", ["sp", "mup", "lvp"])
def test_matrices_have_the_std_of_their_role(rule):
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


def test_the_drawn_parameters_may_be_donated():
    tx = optim.parametrized(optax.adamw, "lvp", width=WIDTH, vocab=VOCAB, learning_rate=1e-3, declarations=OURS)
    for seed in range(2):
        drawn = optim.initialize(tx, PARAMS, jax.random.key(seed))
        jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)(drawn)
    assert float(PARAMS["norm"]["scale"][0]) == 3.0


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_dtypes_are_rounded_draws_of_float32(dtype):
    table = parametrization.table("lvp", width=WIDTH, vocab=VOCAB)
    narrow, wide = (
        optim.initialize(table, {"head": {"kernel": jnp.zeros((WIDTH, VOCAB), kind)}}, jax.random.key(0))["head"][
            "kernel"
        ]
        for kind in (dtype, jnp.float32)
    )
    np.testing.assert_allclose(narrow.astype(jnp.float32), wide, rtol=float(jnp.finfo(dtype).eps), atol=1e-6)
    assert len(np.unique(narrow.astype(jnp.float32))) > 2000
    own = jax.random.normal(jax.random.key(0), wide.shape, dtype).astype(jnp.float32)
    assert len(np.unique(own)) < 1100  # control: a draw in the narrow dtype


def test_what_cannot_be_drawn_is_named():
    table = parametrization.table("lvp", width=WIDTH, vocab=VOCAB)
    for x, said in (
        (jax.ShapeDtypeStruct((WIDTH,), jnp.float32), "'head/scale' has a shape and no values"),
        (jnp.zeros((WIDTH, VOCAB), jnp.int8), "'head/kernel' .output. must have a floating dtype, got int8"),
    ):
        with pytest.raises(InputError, match=said):
            optim.initialize(table, {"head": {"kernel" if x.ndim == 2 else "scale": x}}, jax.random.key(0))


def test_a_table_is_accepted_and_other_types_are_refused():
    table = parametrization.table("lvp", width=WIDTH, vocab=VOCAB)
    assert set(optim.initialize(table, PARAMS, jax.random.key(0), declarations=OURS)) == set(PARAMS)
    with pytest.raises(InputError, match="rule must be a Table"):
        optim.initialize(optax.adamw(1e-3), PARAMS, jax.random.key(0))


def test_undeclared_paths_are_named_with_a_declaration():
    with pytest.raises(InputError) as caught:
        optim.initialize(parametrization.table("lvp", width=WIDTH, vocab=VOCAB), PARAMS, jax.random.key(0))
    said = str(caught.value)
    assert said.startswith("parameter 'out' of shape (64, 512): no declaration matches its path (nor the paths")
    assert "'tokens', 'w'" in said and "Declaration('out', ROLE)" in said and "embedding, position" in said


def test_a_model_of_another_width_is_refused():
    """By every entry point, and at any role: embedding, hidden and output."""
    table = parametrization.table("lvp", width=32, vocab=VOCAB)
    tx = optim.parametrized(optax.adamw, table, learning_rate=1e-3, declarations=OURS)
    for call in (
        lambda: optim.describe(table, PARAMS, declarations=OURS),
        lambda: optim.initialize(table, PARAMS, jax.random.key(0), declarations=OURS),
        lambda: tx.init(PARAMS),
    ):
        with pytest.raises(InputError, match=r"'out' of shape \(64, 512\) \(output\): fan-in 64, but width is 32"):
            call()
    for name, message in (("tokens", "fan-in 64, but"), ("w", "fan-in 64 and fan-out 256, but width is 32")):
        only = [declaration for declaration in OURS if declaration.pattern == name]
        with pytest.raises(InputError, match=f"'{name}'.*{message}"):
            optim.describe(table, {name: PARAMS[name]}, declarations=only)


@pytest.mark.parametrize("rows", [VOCAB - 1, 2 * VOCAB])
def test_a_model_of_another_vocabulary_is_refused(rows):
    """By every entry point. A padded vocabulary declares its tokens in use. Other tables are no vocabulary."""
    table = parametrization.table("lvp", width=WIDTH, vocab=VOCAB)
    params = {"tokens": jnp.ones((rows, WIDTH)), "out": jnp.ones((WIDTH, rows))}
    declared = [OURS[0], OURS[2]]

    def calls(declared):
        tx = optim.parametrized(optax.adamw, table, learning_rate=1e-3, declarations=declared)
        yield lambda: optim.describe(table, params, declarations=declared)
        yield lambda: optim.initialize(table, params, jax.random.key(0), declarations=declared)
        yield lambda: tx.init(params)

    for call in calls(declared):
        with pytest.raises(InputError, match=f"'out'.*{rows} tokens, but vocab is {VOCAB}.*'tokens'.*tokens") as error:
            call()
        assert "\n" not in str(error.value)
    if rows > VOCAB:
        for call in calls([replace(declaration, tokens=VOCAB) for declaration in declared]):
            call()
    segments = {"tokens": jnp.ones((VOCAB, WIDTH)), "segments": jnp.ones((2, WIDTH))}
    optim.describe(table, segments, declarations=[OURS[0], Declaration("segments", "position")])
    optim.describe(parametrization.uniform(width=WIDTH, vocab=3), params, declarations=declared)  # no sizes


def test_a_wrong_orientation_of_the_head_is_a_wrong_width():
    transposed = [*OURS[:2], Declaration("out", "output", fan_in=(1,))]
    table = parametrization.table("lvp", width=WIDTH, vocab=VOCAB)
    with pytest.raises(InputError, match="'out'.*fan-in 512, but width is 64.*fan_in"):
        optim.describe(table, PARAMS, declarations=transposed)
    optim.describe(parametrization.uniform(width=3, vocab=VOCAB), PARAMS, declarations=OURS)  # does not use the width


def test_describe_shows_the_fan_in():
    table = parametrization.table("lvp", width=WIDTH, vocab=VOCAB)
    params = {**PARAMS, "w": jnp.ones((4 * WIDTH, WIDTH))}
    described = optim.describe(table, params, declarations=OURS)
    assert {row.path: row.fan_in for row in described.rows} == {"tokens": 64, "w": 256, "out": 64, "norm/scale": 1}
    shown = {line.split()[0]: line.split()[3] for line in str(described).splitlines()[2:]}
    assert shown == {"tokens": "64", "w": "256", "out": "64", "norm/scale": "–"}
