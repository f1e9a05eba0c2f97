"""The synthetic source has exactly its stated frequencies and transitions."""

import numpy as np
import pytest

from lvp.data.text import zipf
from lvp.errors import InputError

CASES = [(2, 1.0), (8, 1.0), (64, 0.0), (64, 1.0), (64, 2.0), (300, 0.8)]


def transitions(vocab: int, exponent: float) -> np.ndarray:
    """Returns P, dense [vocab, vocab], as the docstring of `zipf` defines it."""
    alpha = zipf.frequencies(vocab, exponent)
    joint = np.zeros((vocab, vocab))
    token, successor, probability = zipf.structure(vocab, exponent)
    joint[token, successor] = probability
    return (1 - zipf.COUPLING) * alpha[None, :] + zipf.COUPLING * joint / alpha[:, None]


def entropy(p: np.ndarray) -> float:
    p = p[p > 0]
    return float(-(p * np.log(p)).sum())


def bigrams(tokens: np.ndarray, vocab: int) -> np.ndarray:
    pairs = tokens[:-1].astype(np.int64) * vocab + tokens[1:]
    return np.bincount(pairs, minlength=vocab**2).reshape(vocab, vocab)


def mutual_information(counts: np.ndarray) -> float:
    p = counts / counts.sum()
    return entropy(p.sum(0)) + entropy(p.sum(1)) - entropy(p)


def test_frequencies_follow_the_formula():
    alpha = zipf.frequencies(1000, 1.0)
    assert alpha.sum() == pytest.approx(1, abs=1e-12)
    assert alpha[0] / alpha[99] == pytest.approx((100 + 2.7) / (1 + 2.7))
    np.testing.assert_allclose(zipf.frequencies(5, 0.0), 0.2)


@pytest.mark.parametrize("vocab, exponent", CASES)
def test_the_frequencies_are_exactly_stationary(vocab, exponent):
    alpha, chain = zipf.frequencies(vocab, exponent), transitions(vocab, exponent)
    assert chain.min() > 0
    np.testing.assert_allclose(chain.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(alpha @ chain, alpha, rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("vocab, exponent", CASES)
def test_the_structure_is_sparse_and_does_not_repeat_tokens(vocab, exponent):
    token, successor, probability = zipf.structure(vocab, exponent)
    assert token.size <= 2 * vocab + 1 and probability.min() > 0
    if vocab > 8:  # every arc is shorter than the turn
        assert not (token == successor).any()


@pytest.mark.parametrize("vocab, exponent", [(8, 1.0), (24, 0.5)])
def test_sampled_transitions_pass_a_chi_square_test(vocab, exponent):
    counts = bigrams(zipf.sample(400_000, vocab, exponent, "train"), vocab)
    expected = counts.sum(1, keepdims=True) * transitions(vocab, exponent)
    degrees = vocab * (vocab - 1)

    # In standard deviations of a chi-square variable. Rows are independent given their sums.
    def excess(expected):
        return (((counts - expected) ** 2 / expected).sum() - degrees) / np.sqrt(2 * degrees)

    assert abs(excess(expected)) < 4
    assert excess(counts.sum(1, keepdims=True) * zipf.frequencies(vocab, exponent)[None, :]) > 1000


@pytest.mark.parametrize("split", ["train", "valid"])
def test_sampled_frequencies_equal_the_stated_frequencies(split):
    vocab, count = 512, 500_000
    alpha = zipf.frequencies(vocab, 1.0)
    observed = np.bincount(zipf.sample(count, vocab, 1.0, split), minlength=vocab)
    # Neighbours are correlated: variances are at most (1 + p)/(1 - p) times the variances of independent draws.
    scale = np.sqrt(count * alpha * (1 - alpha) * (1 + zipf.COUPLING) / (1 - zipf.COUPLING))
    assert np.abs((observed - count * alpha) / scale).max() < 5


def test_bigrams_have_the_stated_information():
    vocab, count = 64, 500_000
    tokens = zipf.sample(count, vocab, 1.0, "train")
    stated = mutual_information(zipf.pair_frequencies(vocab, 1.0))
    assert stated > 0.5
    assert mutual_information(bigrams(tokens, vocab)) == pytest.approx(stated, abs=0.02)
    shuffled = np.random.default_rng(0).permutation(tokens)
    assert mutual_information(bigrams(shuffled, vocab)) < 0.01


def test_samples_are_prefixes_of_longer_samples():
    long, short = (zipf.sample(count, 100, 1.0, "train") for count in (5000, 700))
    assert long.dtype == np.int32 and 0 <= long.min() <= long.max() < 100
    np.testing.assert_array_equal(long[:700], short)
    assert (short != zipf.sample(700, 100, 1.0, "valid")).any()


@pytest.mark.parametrize("text", ["", "x", "-0.1", "nan", "inf", "8.1", "1,0"])
def test_bad_exponents_are_refused(text):
    with pytest.raises(InputError, match="from 0 to 8"):
        zipf.parse_exponent(text)
