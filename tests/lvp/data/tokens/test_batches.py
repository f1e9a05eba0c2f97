"""Token windows are slices of the text and a pure function of key and step. Evaluation scores every token once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvp.data.tokens.batches import evaluation_windows, random_windows
from lvp.errors import InputError

TOKENS = jnp.arange(1000, dtype=jnp.int32) * 3
KEY = jax.random.key(7)


def draw(key, step):
    return random_windows(TOKENS, key, step, batch=16, context=9)


def test_every_window_is_a_contiguous_piece_of_the_tokens():
    drawn = np.asarray(jax.vmap(draw, (None, 0))(KEY, jnp.arange(50)))
    assert drawn.shape == (50, 16, 10) and drawn.dtype == np.int32
    assert (np.diff(drawn, axis=-1) == 3).all() and drawn.min() >= 0 and drawn.max() <= 2997


def test_windows_depend_only_on_key_and_step():
    eager = [draw(KEY, step) for step in range(6)]
    again = [jax.jit(draw)(KEY, step) for step in reversed(range(6))][::-1]
    _, scanned = jax.lax.scan(lambda carry, step: (carry, draw(KEY, step)), 0, jnp.arange(6))
    mapped = jax.vmap(draw, (None, 0))(KEY, jnp.arange(6))
    raw = draw(jax.random.PRNGKey(7), 3)  # legacy keys are accepted
    for step in range(6):
        for other in (again[step], scanned[step], mapped[step]):
            np.testing.assert_array_equal(eager[step], other)
    np.testing.assert_array_equal(eager[3], raw)
    assert len({np.asarray(x).tobytes() for x in [*eager, draw(jax.random.key(8), 0)]}) == 7


def test_runs_with_their_own_keys_draw_the_same_windows_alone():
    keys = jax.random.split(KEY, 3)
    together = jax.vmap(draw, (0, None))(keys, 5)
    for run in range(3):
        np.testing.assert_array_equal(together[run], draw(keys[run], 5))


def test_starts_are_uniform_over_all_valid_starts():
    tokens = jnp.arange(12, dtype=jnp.int32)
    starts = jax.vmap(lambda step: random_windows(tokens, KEY, step, 100, 4)[:, 0])(jnp.arange(80))
    counts = np.bincount(np.asarray(starts).ravel(), minlength=8)
    assert counts.size == 8  # starts 0 … 7: the last window ends with the last token
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000)


def test_a_text_of_one_window_is_enough():
    np.testing.assert_array_equal(random_windows(TOKENS[:6], KEY, 0, 2, 5), np.stack([TOKENS[:6]] * 2))
    with pytest.raises(InputError, match="at least 7"):
        jax.jit(random_windows, static_argnums=(3, 4))(TOKENS[:6], KEY, 0, 2, 6)


@given(st.integers(2, 300), st.integers(1, 40))
@settings(deadline=None)
def test_evaluation_scores_every_token_except_the_first_once(length, context):
    tokens = np.arange(1, length + 1)  # all distinct, and none equal to the padding
    covered, weights = evaluation_windows(tokens, context)
    assert covered.dtype == np.int32 and weights.dtype == np.float32
    assert covered.shape == (weights.shape[0], context + 1) and weights.shape[1] == context
    scored = weights == 1
    assert ((weights == 0) | scored).all()
    np.testing.assert_array_equal(covered[:, 1:][scored], tokens[1:])
    np.testing.assert_array_equal(covered[:, :-1][scored], tokens[:-1])  # each token follows its predecessor
    assert not covered[:, 1:][~scored].any() and (~scored).sum() < context


@given(st.integers(2, 300), st.integers(1, 40), st.data())
@settings(deadline=None)
def test_with_a_stride_every_token_is_scored_once(length, context, draw):
    stride, tokens = draw.draw(st.integers(1, context)), np.arange(1, length + 1)
    covered, weights = evaluation_windows(tokens, context, stride)
    scored = weights == 1
    np.testing.assert_array_equal(covered[:, 1:][scored], tokens[1:])
    np.testing.assert_array_equal(covered[:, :-1][scored], tokens[:-1])
    np.testing.assert_array_equal(covered[:, 0], 1 + stride * np.arange(len(covered)))
    before = np.nonzero(scored[1:])[1]  # number of tokens of the window before the input of a prediction
    assert (before >= context - stride).all()


@pytest.mark.parametrize("length, context", [(0, 4), (1, 4), (10, 0)])
def test_an_empty_evaluation_is_refused(length, context):
    with pytest.raises(InputError):
        evaluation_windows(np.zeros(length, np.int32), context)
