"""κ of a corpus' token frequencies, and the ratio of learning rates that follows from it (Hayou & Liu 2025)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lvp.errors import InputError, shown
from lvp.parametrization.rules import attenuation, check_whole, embedding_ratio


@dataclass(frozen=True)
class TokenFrequencies:
    """Token frequencies of a corpus under a tokenizer, and their κ (`lvp.parametrization.attenuation`).

    κ_i is the factor on the d² term of δ̄_W^i, the change of token i's logits by the head's first step. In the linear
    network with σ_E = σ_W, δ̄_W^i equals the embedding's δ̄_E at η_E/η_W = `embedding_ratio(width, vocab, κ_i)`
    (Theorems 1 and 4, with the exact κ). The ratio differs between tokens. The rule "interpolated" uses
    κ = Σ α_i κ_i.

    Attributes:
      tokens: number of tokens counted. vocab: m. unseen: number of vocabulary entries that do not occur.
      kappa: Σ α_i κ_i, the mean κ of the text's tokens. kappa_top: κ of the most frequent token.
        kappa_median: κ of the median token: half of the text consists of tokens at least as frequent.
    """

    tokens: int
    vocab: int
    unseen: int
    kappa: float
    kappa_top: float
    kappa_median: float

    def ratio(self, width: int, kappa: float) -> float:
        """η_E/η_W for this vocabulary (`lvp.parametrization.embedding_ratio`).

        Raises:
          InputError: width is below 1, or kappa is outside [0, 1].
        """
        return embedding_ratio(width, self.vocab, kappa)


def token_frequencies(counts: ArrayLike, vocab: int | None = None) -> TokenFrequencies:
    """Returns the κ of token counts. `lvp.theory.zipf_mandelbrot_fit` fits a law to them.

    Args:
      counts: whole numbers [n], n ≥ 2, non-negative, at least one above zero.
      vocab: the model's vocabulary m ≥ n, if it is padded beyond the tokenizer's n tokens; None is n.

    Raises:
      InputError: the counts are not such numbers; vocab is below n.
    """
    occurrences = np.asarray(counts)
    if (
        occurrences.ndim != 1
        or occurrences.size < 2
        or not np.issubdtype(occurrences.dtype, np.integer)
        or np.any(occurrences < 0)
    ):
        raise InputError(f"counts must be a list of at least 2 non-negative integers, got {shown(counts)}")
    if not occurrences.any():
        raise InputError("counts are all zero: count a text that is not empty")
    vocab = occurrences.size if vocab is None else check_whole("vocab", vocab, 2)
    if vocab < occurrences.size:
        raise InputError(
            f"vocab {vocab} is smaller than the tokenizer's {occurrences.size}; give the model's vocabulary"
        )
    ordered = np.zeros(vocab, np.int64)
    ordered[: occurrences.size] = np.sort(occurrences)[::-1]
    alpha = ordered / ordered.sum()
    kappa = attenuation(alpha)
    median = int(np.searchsorted(np.cumsum(alpha), 0.5))
    return TokenFrequencies(
        tokens=int(ordered.sum()),
        vocab=vocab,
        unseen=int(np.count_nonzero(ordered == 0)),
        kappa=min(1.0, float(alpha @ kappa)),
        kappa_top=float(kappa[0]),
        kappa_median=float(kappa[median]),
    )
