"""The Zipf–Mandelbrot law of token frequencies, α_r ∝ (r + q)^(−a) at rank r, fitted with a confidence interval.

Hayou & Liu 2025, Assumption 1, gives this name to the pure power law, q = 0. In text the law holds for middle ranks at
best, and its exponent depends on the range of ranks. A fit therefore always states its range.

The estimator:

- *Quasi-Poisson likelihood of the bins' totals*, given the range's total (the multinomial likelihood). Least squares on
  log counts would have to drop counts of zero; the likelihood uses them. The expectation of a bin is the sum over its
  ranks, so binning adds no bias. With a ≈ 1 every octave of ranks has about the same weight. Least squares over all
  ranks of 10 … 1000 would be dominated by the ranks above 500.
- *Correction for sorting.* Without `ranks`, the counts are sorted to obtain their ranks. This sorts their noise too:
  the count at rank r exceeds the law by 1/(2a) on average. (This holds for Poisson counts that are not tiny. It follows
  from the law's number of tokens above x, smoothed by noise of variance x.) Without the correction, the fitted exponent
  of 30,000 draws from a = 1 is 0.96.
- *An interval from six blocks of neighbouring bins*: a sandwich estimator over blocks. Each block's residual vector is
  multiplied by (I − its leverage)⁻¹, as if the block had been left out. The quantile is Student's t with 5 degrees of
  freedom. The bins are not independent, because tokens occur in bursts, because sorting smooths the residuals, and
  because the law is only approximate. An interval over single bins would fail to cover in two of three cases. Under iid
  draws the block interval is up to twice as wide as necessary. It is valid for the fitted range only: the exponent of
  text changes with rank, so fit several ranges.
"""

from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares
from scipy.special import stdtrit

from lvp.errors import InputError, shown

BETWEEN = (10, 1000)
BINS, LEAST_BINS, LEAST_RANKS = 24, 12, 30
BLOCKS = 6
_INF = float("inf")


@dataclass(frozen=True)
class ZipfMandelbrot:
    """A fitted law: the expected count at rank r is `scale` · (r + offset)^(−exponent).

    Attributes:
      exponent, offset: a and q.
      interval: the exponent's interval at `level`. It is (−inf, inf) if the data do not determine the exponent: the
        best offset is at a bound of the search (−0.9 times the lowest rank or ten times the highest); the best exponent
        is at a bound, ±20; the equations of the interval are singular; or sorted counts are so small or so flat that
        their noise would move the last rank by a factor of e.
      scale: in the unit of the counts.
      between: the lowest and the highest rank used.
      num_ranks: the number of ranks used.
      level: the interval's confidence level.
    """

    exponent: float
    offset: float
    interval: tuple[float, float]
    scale: float
    between: tuple[float, float]
    num_ranks: int
    level: float = 0.95

    def predict(self, rank: ArrayLike) -> np.ndarray:
        """Expected counts at ranks of any shape, inside or outside the fitted range, in the unit of the counts.

        Raises:
          InputError: r + offset is 0 or less for a rank, where the law has no value.
        """
        shifted = np.asarray(rank, np.float64) + self.offset
        if not np.all(shifted > 0):
            raise InputError(f"rank must be above {-self.offset:.6g}, the start of the fitted law, got {rank!r}")
        return self.scale * shifted**-self.exponent


def zipf_mandelbrot_fit(
    counts: ArrayLike,
    ranks: ArrayLike | None = None,
    *,
    between: tuple[float, float] = BETWEEN,
    offset: float | None = None,
    level: float = 0.95,
) -> ZipfMandelbrot:
    """Fits counts ∝ (rank + q)^(−a) on a range of ranks: quasi-likelihood on 24 bins of equal width in log rank.

    The module's docstring describes the estimator and its interval.

    Args:
      counts: [N], non-negative.
      ranks: [N], the known rank of each count, distinct and ≥ 1. The counts may then have any unit. Without ranks,
        the counts must be whole numbers and are sorted; the largest has rank 1.
      between: lowest and highest rank used, both included. Ranks that do not exist are left out; the result states the
        ranks used.
      offset: q if it is known (0 is Zipf's pure law); None fits it. If q is far above the ranks, q and a are hard to
        distinguish, and the interval is wide.
      level: the interval's confidence level.

    Returns:
      `ZipfMandelbrot`.

    Raises:
      InputError: counts are negative, not finite, not whole (without ranks) or above zero in fewer than 12 bins; ranks
        have another shape, are below 1 or not distinct; between is not 1 ≤ low < high; fewer than 30 ranks are in
        range, or fewer than 12 bins have a rank; offset is minus the lowest rank or less; level is outside (0, 1).
    """
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {level!r}")
    kept = _in_range(*_by_rank(counts, ranks), between)
    data = _Binned(*kept, _bin_starts(kept[1]), is_sorted=ranks is None)
    if np.count_nonzero(data.totals) < LEAST_BINS:
        raise InputError(
            f"counts are above zero in {np.count_nonzero(data.totals)} bins, a fit needs {LEAST_BINS}: "
            "give another range or more counts"
        )
    if offset is not None and not (isinstance(offset, Real) and -data.ranks[0] < offset < _INF):
        raise InputError(f"offset must be above minus the lowest rank, {-data.ranks[0]:g}, got {offset!r}")
    exponent, q, is_open = _fit(data, offset)
    half = _INF if is_open else _half_width(data, exponent, q, offset is None, level)
    return ZipfMandelbrot(
        exponent=exponent,
        offset=q,
        interval=(exponent - half, exponent + half),
        scale=float(data.expected(exponent, q)[1] * (data.ranks[0] + q) ** exponent),
        between=(float(data.ranks[0]), float(data.ranks[-1])),
        num_ranks=len(data.ranks),
        level=level,
    )


class _Binned(NamedTuple):
    counts: np.ndarray  # [R], by rank
    ranks: np.ndarray  # [R], ascending
    starts: np.ndarray  # [B], index of each bin's first rank
    is_sorted: bool  # the ranks come from sorting the counts

    @property
    def totals(self) -> np.ndarray:
        return np.add.reduceat(self.counts, self.starts)

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(np.append(self.starts, len(self.ranks)))

    def shape(self, a: float, q: float) -> np.ndarray:
        """The law [R], 1 at the first rank so that no power overflows."""
        return ((self.ranks + q) / (self.ranks[0] + q)) ** -a

    def excess(self, a: float) -> float:
        """The mean excess of a sorted count over the law; constant below a = 1/4, where the expansion does not hold."""
        return 0.5 / max(a, 0.25) if self.is_sorted else 0.0

    def expected(self, a: float, q: float) -> tuple[np.ndarray, float]:
        """The bins' expectations [B], with the same total as the counts, and the law's count at the first rank."""
        law = np.add.reduceat(self.shape(a, q), self.starts)
        total, excess = self.counts.sum(), self.excess(a) * self.sizes
        top = max(total - excess.sum(), 0.01 * total) / law.sum()
        return top * law + excess, top


def _by_rank(counts, ranks) -> tuple[np.ndarray, np.ndarray]:
    counts = _vector("counts", counts)
    if np.any(counts < 0):
        raise InputError(f"counts must not be negative, got {counts.min():g}")
    if ranks is None:
        if np.any(counts != np.floor(counts)):
            raise InputError(f"counts must be whole numbers if ranks is None, got {shown(counts.tolist())}: pass ranks")
        return -np.sort(-counts), np.arange(1.0, len(counts) + 1)
    ranks = _vector("ranks", ranks)
    if ranks.shape != counts.shape:
        raise InputError(f"ranks has {ranks.size} entries, counts {counts.size}: pass a rank per count")
    if np.any(ranks < 1) or len(np.unique(ranks)) != len(ranks):
        raise InputError(f"ranks must be distinct and at least 1, got {shown(ranks.tolist())}")
    order = np.argsort(ranks)
    return counts[order], ranks[order]


def _in_range(counts, ranks, between) -> tuple[np.ndarray, np.ndarray]:
    try:
        low, high = map(float, between)
    except (TypeError, ValueError) as error:
        raise InputError(f"between must be a pair of ranks, got {between!r}") from error
    if not 1 <= low < high:
        raise InputError(f"between must be two ranks, 1 ≤ low < high, got {between!r}")
    keep = (ranks >= low) & (ranks <= high)
    if np.count_nonzero(keep) < LEAST_RANKS:
        raise InputError(
            f"between ({low:g}, {high:g}) contains {np.count_nonzero(keep)} ranks, a fit needs {LEAST_RANKS}: give a "
            "wider range"
        )
    return counts[keep], ranks[keep]


def _vector(name: str, values) -> np.ndarray:
    try:
        vector = np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers ({error})") from error
    if vector.ndim != 1:
        raise InputError(f"{name} must be a list of numbers, got shape {vector.shape}")
    if not np.all(np.isfinite(vector)):
        raise InputError(f"{name} must be finite, got {shown(vector.tolist())}")
    return vector


def _bin_starts(ranks: np.ndarray) -> np.ndarray:
    """Index of the first rank of each bin [B]; bins without a rank are left out."""
    # Half a rank of margin, so that the first and the last bin are as wide as the others.
    low, high = np.log(ranks[0] - 0.5), np.log(ranks[-1] + 0.5)
    labels = np.floor((np.log(ranks) - low) / (high - low) * BINS)
    starts = np.flatnonzero(np.diff(labels, prepend=-1.0))
    if len(starts) < LEAST_BINS:
        raise InputError(f"ranks fall into {len(starts)} bins, a fit needs {LEAST_BINS}: give a wider range")
    return starts


def _fit(data: _Binned, offset: float | None) -> tuple[float, float, bool]:
    """(a, q, True if the data do not determine them): minimises the deviance of the bins' totals."""
    first, last, totals = data.ranks[0], data.ranks[-1], data.totals
    low, high = np.log(0.1 * first), np.log(first + 10 * last)  # bounds of log(q + first rank)

    def residuals(theta):
        q = offset if offset is not None else np.exp(theta[1]) - first
        expected, _ = data.expected(theta[0], q)
        log_ratio = np.log(np.maximum(totals, 1e-300) / expected)
        half_deviance = np.where(totals > 0, totals * log_ratio, 0) - (totals - expected)
        return np.sign(totals - expected) * np.sqrt(2 * np.maximum(half_deviance, 0) / totals.sum())

    start, bounds = ([1.0, np.log(first + 1)], ([-20, low], [20, high]))
    if offset is not None:
        start, bounds = start[:1], (bounds[0][:1], bounds[1][:1])
    a, *shifted = map(float, least_squares(residuals, start, bounds=bounds, xtol=1e-12, ftol=1e-14, gtol=1e-14).x)
    q = offset if offset is not None else np.exp(shifted[0]) - first
    # The noise of a count λ is √λ, and the law's count changes by λ a as the rank grows by a factor of e.
    is_open = data.is_sorted and a * np.sqrt(totals[-1] / data.sizes[-1]) < 1
    if offset is None:
        is_open |= min(shifted[0] - low, high - shifted[0]) < 1e-2
    return a, float(q), bool(is_open or abs(a) > 19.9)


def _half_width(data: _Binned, a: float, q: float, fitted_offset: bool, level: float) -> float:
    """Half the width of the exponent's interval: the sandwich over blocks of bins, times a t quantile."""
    expected, top = data.expected(a, q)
    law, shifted = top * data.shape(a, q), data.ranks + q
    excess_slope = data.excess(a) / a if a > 0.25 else 0.0  # the excess is constant up to 0.25
    slope = -np.add.reduceat(law * np.log(shifted), data.starts) - excess_slope * data.sizes
    columns = [np.add.reduceat(law, data.starts), slope]
    if fitted_offset:
        columns.append(-a * np.add.reduceat(law / shifted, data.starts))
    weight = 1 / np.sqrt(expected)
    design, residuals = np.stack(columns, axis=1) * weight[:, None], (data.totals - expected) * weight
    basis, triangle = np.linalg.qr(design / np.linalg.norm(design, axis=0))
    if np.min(np.abs(np.diag(triangle))) < 1e-6:
        return _INF
    moves = []  # changes of the exponent when each block is left out
    for block in np.array_split(np.arange(len(residuals)), BLOCKS):
        rows = basis[block]
        outside = np.eye(len(block)) - rows @ rows.T
        if np.linalg.eigvalsh(outside)[0] < 1e-9:
            return _INF
        pull = rows.T @ np.linalg.solve(outside, residuals[block])
        moves.append(np.linalg.solve(triangle, pull)[1] / np.linalg.norm(design[:, 1]))
    return float(stdtrit(BLOCKS - 1, (1 + level) / 2) * np.linalg.norm(moves))
