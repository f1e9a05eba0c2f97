"""What the theory of Hayou & Liu 2025 makes of token frequencies: κ of tokens, and the ratio of rates that follows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lvp.errors import InputError
from lvp.parametrization import attenuation, check_whole, embedding_ratio
from lvp.theory.zipf import BETWEEN, zipf_mandelbrot_fit


@dataclass(frozen=True)
class TokenFrequencies:
    """Frequencies of a corpus under a tokenizer, and their κ (`lvp.parametrization.attenuation`).

    κ_i is what is left of the d² term of what the head's first step changes for token i, so that the two halves of the
    linear network's first step are equal for it at η_E/η_W = `embedding_ratio(width, vocab, κ_i)` (Theorems 1 and 4,
    κ exact). It is another ratio for every token; "interpolated" takes that of κ = Σ α_i κ_i.

    Attributes:
      tokens: how many were counted. vocab: m. unseen: tokens of the vocabulary that do not occur.
      kappa: Σ α_i κ_i, the κ of a token drawn from the text on average. kappa_top: of the most frequent token.
        kappa_median: of the median token of the text (half of the text is of tokens at least as frequent).
      exponent, interval, offset, between: the Zipf–Mandelbrot law α ∝ (rank + offset)^(−exponent) on ranks from … to,
        with the exponent's 95 % interval; None where the text leaves them open. It describes the frequencies; κ comes
        from the frequencies themselves.
    """

    tokens: int
    vocab: int
    unseen: int
    kappa: float
    kappa_top: float
    kappa_median: float
    exponent: float | None = None
    interval: tuple[float, float] | None = None
    offset: float | None = None
    between: tuple[int, int] | None = None

    def ratio(self, width: int, kappa: float) -> float:
        """η_E/η_W at this vocabulary (`lvp.parametrization.embedding_ratio`)."""
        return embedding_ratio(width, self.vocab, kappa)


def token_frequencies(counts: ArrayLike, vocab: int | None = None) -> TokenFrequencies:
    """κ and the Zipf–Mandelbrot fit of counts of tokens.

    Args:
      counts: whole numbers [n], not negative, with at least one above zero.
      vocab: m ≥ n, where the model's vocabulary is larger than the tokenizer's (padding never occurs); n unless given.

    Raises:
      InputError: counts of another kind; a vocab below n.
    """
    occurrences = np.asarray(counts)
    if (
        occurrences.ndim != 1
        or occurrences.size < 2
        or not np.issubdtype(occurrences.dtype, np.integer)
        or np.any(occurrences < 0)
    ):
        raise InputError("counts must be whole numbers [vocab], not negative, of at least 2 tokens")
    if not occurrences.any():
        raise InputError("counts are all zero: frequencies need tokens")
    vocab = occurrences.size if vocab is None else check_whole("vocab", vocab, 2)
    if vocab < occurrences.size:
        raise InputError(f"vocab {vocab} is smaller than the tokenizer's {occurrences.size}")
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
        **_law(ordered),
    )


def _law(ordered: np.ndarray) -> dict:
    """The fit's attributes; none where there are too few ranks or they leave the exponent open."""
    seen = int(np.count_nonzero(ordered))
    try:
        fit = zipf_mandelbrot_fit(ordered, between=(BETWEEN[0], min(BETWEEN[1], seen)))
    except InputError:  # fewer ranks than a fit needs
        return {}
    if not np.isfinite(fit.interval).all():
        return {}
    between = int(fit.between[0]), int(fit.between[1])
    return {"exponent": fit.exponent, "interval": fit.interval, "offset": fit.offset, "between": between}
