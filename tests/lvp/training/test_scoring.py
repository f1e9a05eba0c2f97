"""The likelihood of a text under models with a known likelihood, for any windows; and word counts."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp.data.tokens.scored import WordCounts
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import Decoder, decoder
from lvp.training.scoring import text_nats, word_perplexity

VOCAB = 7
TOKENS = np.random.default_rng(0).integers(0, VOCAB, 83).astype(np.int32)
CHAIN = np.random.default_rng(1).dirichlet(np.ones(VOCAB), VOCAB).astype(np.float32)  # p(next | token)


def toy(apply):
    return Decoder(None, None, apply, lambda params: jnp.log(params))


MARKOV = toy(lambda params, tokens: jax.nn.one_hot(tokens, VOCAB))


@pytest.mark.parametrize(("context", "stride"), [(8, None), (8, 8), (8, 3), (8, 1), (83, 40), (200, 7), (1, 1)])
@pytest.mark.parametrize("rows", [1, 4])
def test_a_markov_chains_likelihood_is_exact_for_any_windows(context, stride, rows):
    known = -np.log(CHAIN.astype(np.float64)[TOKENS[:-1], TOKENS[1:]]).sum()
    nats = text_nats(MARKOV, CHAIN, TOKENS, context=context, stride=stride, rows=rows)
    assert nats == pytest.approx(known, rel=1e-6)


@pytest.mark.parametrize(("context", "stride"), [(8, 4), (8, 1), (8, 8), (6, 5)])
def test_tokens_are_predicted_from_enough_context(context, stride):
    """In this model a prediction costs log(1 + the number of tokens it sees beyond one), so the costs show how much
    each prediction saw."""

    def apply(params, tokens):
        seen = jnp.arange(tokens.shape[1], dtype=jnp.float32)
        # With two classes, the target's logit is lower by this, so that −log p = log(2 + seen).
        return jnp.broadcast_to(jnp.log1p(seen)[None, :, None], (*tokens.shape, 1))

    model = Decoder(None, None, apply, lambda params: jnp.array([[0.0, 1.0]]))
    tokens = np.zeros(40, np.int32)
    nats = text_nats(model, None, tokens, context=context, stride=stride)
    seen = [*range(context)]
    while len(seen) < 39:
        seen += range(context - stride, context)
    assert nats == pytest.approx(sum(math.log(2 + s) for s in seen[:39]), rel=1e-5)


@pytest.mark.slow
def test_a_text_within_the_context_is_scored_in_one_window():
    model = decoder(DecoderConfig(vocab=VOCAB, width=16, layers=1, context=82, head_dim=8))
    params = jax.jit(model.init)(jax.random.key(0))
    logits = model.apply(params, TOKENS[None, :-1]) @ model.head(params)
    whole = -jnp.take_along_axis(jax.nn.log_softmax(logits[0]), TOKENS[1:, None], axis=-1).sum()
    assert text_nats(model, params, TOKENS, context=82, rows=1) == pytest.approx(float(whole), rel=1e-5)


def test_a_uniform_models_word_perplexity_is_exact():
    """Two tokens per word cost 2 log 7: perplexity 49."""
    nats = text_nats(MARKOV, np.full((VOCAB, VOCAB), 1 / VOCAB, np.float32), TOKENS[:81], context=10)
    assert word_perplexity(nats, 40) == pytest.approx(VOCAB**2, rel=1e-5)
    assert word_perplexity(1e6, 1) == math.inf


def test_words_and_line_ends():
    assert WordCounts.from_text(b" \n = A <unk> = \n\n one  two \n") == (10, 6)
    assert WordCounts.from_text("ein Wort äöü".encode()) == (3, 3)


def test_wikitext2_has_the_published_counts(wikitext2):
    assert WordCounts.from_text((wikitext2 / "test.txt").read_bytes()) == (245_569, 241_211)


def test_a_stride_beyond_the_context_is_refused():
    with pytest.raises(InputError, match="stride must be from 1 to the context, 8, got 9"):
        text_nats(MARKOV, CHAIN, TOKENS, context=8, stride=9)
