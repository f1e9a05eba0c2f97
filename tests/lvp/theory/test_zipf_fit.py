"""The Zipf–Mandelbrot fit: exact laws, coverage on several kinds of synthetic draws, and cases that must stay open."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from lvp.data.text import zipf
from lvp.errors import InputError
from lvp.theory import ZipfMandelbrot, zipf_mandelbrot_fit


def law(m: int, exponent: float, offset: float) -> np.ndarray:
    weights = (np.arange(1.0, m + 1) + offset) ** -exponent
    return weights / weights.sum()


@pytest.mark.parametrize("between", [(10, 1000), (1, 50), (200, 5000)])
@pytest.mark.parametrize(("exponent", "offset"), [(1.0, 2.7), (0.6, 0.0), (2.0, 30.0), (1.2, -0.9)])
def test_an_exact_law_is_recovered(exponent, offset, between):
    ranks, alpha = np.arange(1, 5001), law(5000, exponent, offset)
    fit = zipf_mandelbrot_fit(alpha, ranks, between=between)
    assert fit.exponent == pytest.approx(exponent, rel=1e-4) and fit.offset == pytest.approx(offset, abs=0.02)
    known = zipf_mandelbrot_fit(alpha, ranks, between=between, offset=offset)
    assert known.exponent == pytest.approx(exponent, rel=1e-7) and known.offset == offset
    np.testing.assert_allclose(known.predict(ranks), alpha, rtol=1e-6)
    assert known.interval[1] - known.interval[0] < 1e-5
    assert (fit.between, fit.num_ranks) == (tuple(map(float, between)), between[1] - between[0] + 1)


def test_only_ranks_in_the_range_matter():
    """Frequencies below rank 10 and above rank 1000 are arbitrary."""
    ranks, counts = np.arange(1, 5001), law(5000, 1.0, 0.0)
    bent = np.where((ranks < 10) | (ranks > 1000), 7.0, counts)
    fit, bent_fit = (zipf_mandelbrot_fit(c, ranks, offset=0.0) for c in (counts, bent))
    assert fit == bent_fit and fit.exponent == pytest.approx(1.0, rel=1e-7)
    assert zipf_mandelbrot_fit(bent, ranks, between=(1, 5000), offset=0.0).exponent < 0.5
    # Missing ranks are not an error.
    assert zipf_mandelbrot_fit(counts[:300], ranks[:300]).between == (10.0, 300.0)


def test_ranks_may_have_gaps_and_any_order_and_counts_any_unit():
    rng = np.random.default_rng(0)
    ranks = rng.permutation(np.sort(rng.choice(np.arange(1, 3001), 900, replace=False)))
    counts = rng.poisson(1e6 * law(3000, 1.1, 1.0)[ranks - 1])
    order = np.argsort(ranks)
    fit = zipf_mandelbrot_fit(counts, ranks, offset=1.0)
    reordered = zipf_mandelbrot_fit(counts[order] / 1e6, ranks[order], offset=1.0)
    assert fit.exponent == pytest.approx(1.1, abs=0.01) and fit.exponent == pytest.approx(reordered.exponent, abs=1e-9)
    assert fit.interval == pytest.approx(reordered.interval, abs=1e-9) and fit.scale == pytest.approx(
        1e6 * reordered.scale
    )


def poisson(rng, alpha, size):
    return rng.poisson(size * alpha)


def bursty(rng, alpha, size):
    """The frequency of every token has its own factor (standard deviation 0.3), as words have in a corpus."""
    return rng.poisson(size * alpha * rng.gamma(1 / 0.09, 0.09, len(alpha)))


# name: (vocabulary, exponent, offset, size, offset given to the fit, draw, whether the ranks are given)
COVERAGE = {
    "corpus": (8192, 1.0, 2.7, 10**6, None, poisson, False),
    "ranks known": (8192, 1.0, 2.7, 10**6, None, poisson, True),
    "small corpus": (8192, 1.0, 2.7, 30_000, None, poisson, False),
    "pure power": (2000, 1.2, 0.0, 200_000, 0.0, poisson, False),
    "bursts, ranks known": (8192, 0.9, 10.0, 10**6, None, bursty, True),
    "bursts": (8192, 0.9, 10.0, 10**6, None, bursty, False),
}


def fits(name: str, num: int, **overrides) -> list[ZipfMandelbrot]:
    m, exponent, offset, size, given, draw, known = COVERAGE[name]
    rng, ranks = np.random.default_rng(7), np.arange(1, m + 1)
    alpha = law(m, exponent, offset)
    settings = {"ranks": ranks if known else None, "offset": given, **overrides}
    return [zipf_mandelbrot_fit(draw(rng, alpha, size), **settings) for _ in range(num)]


def hits(results, exponent) -> int:
    return sum(fit.interval[0] <= exponent <= fit.interval[1] for fit in results)


@pytest.mark.slow
@pytest.mark.parametrize("name", COVERAGE)
def test_coverage_is_at_least_95_percent(name):
    num, exponent = 200, COVERAGE[name][1]
    results = fits(name, num)
    estimates = np.array([fit.exponent for fit in results])
    assert hits(results, exponent) >= binom.ppf(0.001, num, 0.95)
    assert abs(estimates.mean() - exponent) < 3 * estimates.std() / math.sqrt(num)
    # The intervals are also narrow enough to be useful.
    half = np.median([fit.interval[1] - fit.interval[0] for fit in results]) / 2
    assert half < 3 * 1.96 * estimates.std()


def test_without_the_correction_for_sorting_the_fit_is_biased():
    """The same counts, sorted and with ranks declared as known."""
    rng, alpha = np.random.default_rng(8), law(8192, 1.0, 2.7)
    naive = []
    for _ in range(60):
        counts = -np.sort(-rng.poisson(30_000 * alpha))
        naive.append(zipf_mandelbrot_fit(counts, np.arange(1, 8193)))
    estimates = np.array([fit.exponent for fit in naive])
    assert estimates.mean() < 0.97 and hits(naive, 1.0) < 50


def test_intervals_over_single_bins_or_ranks_would_be_too_short():
    """Reason for blocks: on bursts sorted by count, residuals of neighbours are correlated."""
    alpha, rng, ranks = law(8192, 0.9, 10.0), np.random.default_rng(9), np.arange(10, 1001)
    correlations, short = [], 0
    for _ in range(60):
        counts = bursty(rng, alpha, 10**6)
        fit = zipf_mandelbrot_fit(counts, offset=10.0)
        residuals = np.log(-np.sort(-counts)[9:1000] / fit.predict(ranks))
        bins = [np.mean(r) for r in np.array_split(residuals[np.argsort(ranks)], 33)]
        correlations.append(np.corrcoef(bins[:-1], bins[1:])[0, 1])
        x = np.log(ranks + 10)
        (slope, _), covariance = np.polyfit(x, residuals, 1, cov=True)
        short += abs(0.9 - (fit.exponent - slope)) > 1.96 * math.sqrt(covariance[0, 0])
    assert np.median(correlations) > 0.3 and short > 30


def test_the_librarys_zipf_corpus():
    counts = np.bincount(zipf.sample(2**19, 2048, 1.0, "train"), minlength=2048)
    fit = zipf_mandelbrot_fit(counts, between=(5, 1000), offset=zipf.OFFSET)
    assert fit.interval[0] < 1.0 < fit.interval[1] and fit.interval[1] - fit.interval[0] < 0.05
    # With the wrong offset the exponent is off, and the interval accounts for the lack of fit.
    wrong = zipf_mandelbrot_fit(counts, between=(5, 1000), offset=0.0)
    assert wrong.exponent < 0.96 and wrong.interval[1] - wrong.interval[0] > 4 * (fit.interval[1] - fit.interval[0])


def test_unresolvable_exponents_are_left_open():
    rng = np.random.default_rng(1)
    everything = (-math.inf, math.inf)
    # Flat counts: the ranks of sorted counts have no meaning.
    flat = rng.poisson(100, 2000)
    assert zipf_mandelbrot_fit(flat, offset=0.0).interval == everything
    told = zipf_mandelbrot_fit(flat, np.arange(1, 2001), offset=0.0)
    assert told.interval[0] < 0 < told.interval[1] < 0.1
    # An exponential law is the limit of a large offset and a large exponent.
    ranks = np.arange(1, 1001)
    assert zipf_mandelbrot_fit(np.exp(-ranks / 100), ranks).interval == everything
    # Too few tokens: rank 1000 is seen less than once.
    assert zipf_mandelbrot_fit(rng.poisson(2000 * law(8192, 1.0, 2.7))).interval == everything


def test_predicted_counts():
    fit = ZipfMandelbrot(1.0, -3.0, (0.9, 1.1), 12.0, (10.0, 1000.0), 991)
    assert fit.predict(6) == 4.0 and fit.predict([[4, 5]]).tolist() == [[12.0, 6.0]]
    for rank in (3, [10, 2], math.nan):
        with pytest.raises(InputError, match="rank"):
            fit.predict(rank)


GOOD = np.arange(2000, 0, -1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counts": GOOD[:38]}, "29 ranks"),
        ({"between": (10, 38)}, "29 ranks"),
        ({"between": (1900, 1990)}, None),
        ({"between": (1000, 10)}, "between"),
        ({"between": (0, 10)}, "between"),
        ({"between": 10}, "between"),
        ({"counts": -GOOD}, "counts"),
        ({"counts": GOOD / 7}, "counts"),
        ({"counts": [math.nan] * 2000}, "counts"),
        ({"counts": GOOD.reshape(2, -1)}, "counts"),
        ({"counts": "many"}, "counts"),
        ({"counts": np.where(GOOD > 1980, 5, 0)}, "counts"),
        ({"ranks": np.arange(5)}, "ranks"),
        ({"ranks": np.arange(2000)}, "ranks"),
        ({"ranks": np.ones(2000)}, "ranks"),
        ({"ranks": np.r_[1:21, 10**6 : 10**6 + 1980], "between": (1, 10**7)}, "ranks"),
        ({"offset": -10.0}, "offset"),
        ({"offset": math.nan}, "offset"),
        ({"level": 1.0}, "level"),
    ],
)
def test_bad_arguments(arguments, message):
    arguments = {"counts": GOOD, **arguments}
    if message is None:
        zipf_mandelbrot_fit(**arguments)
        return
    with pytest.raises(InputError, match=message):
        zipf_mandelbrot_fit(**arguments)


@pytest.mark.slow
@pytest.mark.parametrize(("vocab", "by_rank"), [(8192, 0.88), (32768, 0.95)])
def test_wikitext2_has_no_single_exponent(wikitext2, vocab, by_rank):
    """Least squares over all ranks 10 … 1000, which is dominated by ranks above 500, gives the commonly quoted
    exponent."""
    from lvp.data.tokens.tokenizers import Tokenizer

    text = (wikitext2 / "train.txt").read_bytes()
    counts = np.bincount(Tokenizer.train(text, vocab).encode(text), minlength=vocab)
    ranks = np.arange(10, 1001)
    assert -np.polyfit(np.log(ranks), np.log(-np.sort(-counts)[9:1000]), 1)[0] == pytest.approx(by_rank, abs=0.03)
    whole, low, high = (
        zipf_mandelbrot_fit(counts, between=b, offset=0.0) for b in ((10, 1000), (10, 100), (100, 1000))
    )
    assert low.interval[0] > high.interval[1]  # steeper below rank 100: no single exponent fits
    assert whole.interval[0] < by_rank < whole.interval[1] and whole.interval[1] - whole.interval[0] > 0.4
