"""Synthetic tokens: a Markov chain with Zipf–Mandelbrot frequencies. All its probabilities are known exactly.

Frequencies. Token i (from 0) has α_i ∝ (i + 1 + 2.7)^(−a), normalised over the m tokens of the vocabulary. a is the
exponent, and 2.7 is Mandelbrot's offset for English words.

Structure. The tokens are arcs of a circle of circumference 1, in a fixed random order. Token i has an arc of length
α_i. With probability 1 − p the next token is an independent draw from α. With probability p it is a *structured
successor*: a point is drawn uniformly on the present token's arc and rotated by a fixed angle, and the successor is the
token at the rotated point. A rotation preserves lengths, so α is exactly the stationary distribution: α P = α. As in
text, a frequent token has many rare tokens as structured successors, and a rare token has one or two. A model can
therefore learn more than α.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lvp.errors import InputError
from lvp.files import storage

DEFAULT_EXPONENT = 1.0
OFFSET = 2.7
COUPLING = 0.5  # p
TURN = (3 - math.sqrt(5)) / 2  # golden angle in turns: a few rotations do not come back to a token
SEED = 20_260_101
BYTES_PER_TOKEN = 4  # about the mean for an English BPE vocabulary
DEFAULT_TOKENS = {"train": 2**20, "valid": 2**17}
_STREAMS = {"train": 0, "valid": 1}
_LARGEST_EXPONENT = 8.0


def parse_exponent(text: str) -> float:
    """The exponent in `zipf:EXPONENT`, from 0 (uniform) to 8.

    Raises:
      InputError: the text is not a number from 0 to 8.
    """
    try:
        exponent = float(text)
    except ValueError:
        exponent = math.nan
    if not 0 <= exponent <= _LARGEST_EXPONENT:
        raise InputError(f"zipf:{text}: the exponent must be a number from 0 to {_LARGEST_EXPONENT:g}")
    return exponent + 0.0  # no negative zero


def fingerprint(exponent: float) -> str:
    """sha256 (hex) of the definition of the tokens: the exponent and the constants of this module."""
    return storage.digest(storage.as_json(["zipf", 1, exponent, OFFSET, COUPLING, TURN, SEED]))


def frequencies(vocab: int, exponent: float) -> np.ndarray:
    """α, float64 [vocab], descending, with sum 1 up to rounding."""
    weights = (np.arange(1, vocab + 1) + OFFSET) ** -float(exponent)
    return weights / weights.sum()


@dataclass(frozen=True)
class _Circle:
    order: np.ndarray  # [vocab], token of the k-th arc
    place: np.ndarray  # [vocab], arc of a token
    edges: np.ndarray  # [vocab + 1], start of each arc; edges[0] = 0, edges[-1] = 1

    def at(self, points: np.ndarray) -> np.ndarray:
        """The token whose arc contains each point (any real number, modulo 1)."""
        arcs = np.searchsorted(self.edges, points % 1.0, side="right") - 1
        return self.order[np.minimum(arcs, len(self.order) - 1)]

    def after(self, tokens: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """The structured successor of each token, from one uniform number in [0, 1) per token."""
        arcs = self.place[tokens]
        start = self.edges[arcs]
        return self.at(start + uniform * (self.edges[arcs + 1] - start) + TURN)


@lru_cache(maxsize=4)
def _circle(vocab: int, exponent: float) -> _Circle:
    uniform = np.random.Generator(np.random.PCG64([SEED, vocab])).random(vocab)
    order = np.argsort(uniform, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(vocab)
    edges = np.concatenate([[0.0], np.cumsum(frequencies(vocab, exponent)[order])])
    edges[-1] = 1.0
    return _Circle(order, place, edges)


def sample(count: int, vocab: int, exponent: float, split: str) -> np.ndarray:
    """The first `count` tokens of a split ("train", "valid"), int32 [count].

    A shorter sample is a prefix of a longer sample. The first token is drawn from α, so the marginal distribution at
    every position is exactly α.
    """
    circle = _circle(vocab, exponent)
    generator = np.random.Generator(np.random.PCG64([SEED, vocab, _STREAMS[split]]))
    decide, uniform = generator.random((count, 2)).T
    fresh = decide >= COUPLING
    fresh[:1] = True
    tokens = np.empty(count, np.int64)
    (front,) = np.nonzero(fresh)
    tokens[front] = circle.at(uniform[front])
    # Each iteration extends all chains of structured successors by one token. The longest has about log(count) tokens.
    while front.size:
        front = front[front + 1 < count] + 1
        front = front[~fresh[front]]
        tokens[front] = circle.after(tokens[front - 1], uniform[front])
    return tokens.astype(np.int32)


def structure(vocab: int, exponent: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The joint distribution of tokens and structured successors: (token [k], successor [k], probability [k]).

    These are the pairs with a probability above 0, each once, k ≤ 2·vocab + 1. The transition matrix is
    P(i → j) = (1 − p) α_j + p · probability(i, j)/α_i.
    """
    circle = _circle(vocab, exponent)
    borders = np.unique(np.concatenate([circle.edges, (circle.edges - TURN) % 1.0]))
    middles = (borders[:-1] + borders[1:]) / 2  # all points between two borders have the same token and successor
    pairs = circle.at(middles) * vocab + circle.at(middles + TURN)
    pairs, index = np.unique(pairs, return_inverse=True)
    return pairs // vocab, pairs % vocab, np.bincount(index, weights=np.diff(borders))


def pair_frequencies(vocab: int, exponent: float) -> np.ndarray:
    """Probability of each pair (token, successor), float64 [vocab, vocab]. Rows and columns sum to α."""
    alpha = frequencies(vocab, exponent)
    token, successor, probability = structure(vocab, exponent)
    pairs = (1 - COUPLING) * np.outer(alpha, alpha)
    pairs[token, successor] += COUPLING * probability
    return pairs
