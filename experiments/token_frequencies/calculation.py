"""The calculation of one run of `token_frequencies`."""

import numpy as np

from lvp import theory

CURVE_POINTS = 80


def calculate(arguments, run, dataset) -> dict:
    """The fit of frequency over rank, and the mean squares of lemma 1 and theorem 2."""
    alpha = np.sort(dataset.frequencies())[::-1]
    tokens = dataset.num_tokens
    counts = np.rint(alpha * tokens).astype(np.int64)
    low, high = arguments["ranks"]
    fit = theory.zipf_mandelbrot_fit(counts, between=(low, min(high, int((counts > 0).sum()))))
    ranks = np.unique(np.rint(np.geomspace(1, alpha.size, CURVE_POINTS)).astype(int))
    inside = [bool(fit.between[0] <= r <= fit.between[1]) for r in ranks]
    mean_square = float(np.mean(alpha**2))
    return {
        "tokens": tokens,
        "unseen": int((counts == 0).sum()),
        "exponent": fit.exponent,
        "exponent_low": _finite_or_none(fit.interval[0]),
        "exponent_high": _finite_or_none(fit.interval[1]),
        "offset": fit.offset,
        "fitted_from": int(fit.between[0]),
        "fitted_to": int(fit.between[1]),
        "top_frequency": float(alpha[0]),
        "mean_square": mean_square,
        "mean_square_of_top": mean_square / float(alpha[0]) ** 2,
        "peak_ratio": float(alpha[0]) ** 2 / mean_square,
        "shown_ranks": ranks.tolist(),
        "shown_frequencies": alpha[ranks - 1].tolist(),
        "shown_fit": [float(fit.predict(r)) / tokens if used else None for r, used in zip(ranks, inside, strict=True)],
    }


def _finite_or_none(end: float) -> float | None:
    """An end of an interval; None for an open end, which JSON does not have."""
    return float(end) if np.isfinite(end) else None
