"""The powers of several quantities (width, vocabulary) that an optimum follows together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr, stdtrit

from lvp.analysis.estimators import Optimum
from lvp.analysis.measurement import Measurement
from lvp.analysis.slopes import NAN, paule_mandel, points, positive
from lvp.errors import InputError


@dataclass(frozen=True)
class Powers:
    """The fit ln rate = intercept + Σ_k powers[k] · ln quantity_k."""

    powers: Mapping[str, float]  # nan if the points do not determine them
    intervals: Mapping[str, tuple[float, float]]  # at `level`; (-inf, inf) without degrees of freedom
    degrees_of_freedom: int  # points − unknowns; 0 if the points do not determine the powers
    intercept: float  # ln rate if all quantities are 1
    num_points: int  # points used
    level: float = 0.95  # confidence level of the intervals
    num_bounds: int = 0  # censored optima that are bounds of the fit

    def power(self, name: str) -> Measurement:
        """A power with its interval."""
        return Measurement(self.powers[name], self.intervals[name])


def powers(
    quantities: Mapping[str, Sequence[float]],
    optima: Sequence[Optimum] | tuple,
    *,
    include_flagged: bool = False,
    censored: bool = False,
    level: float = 0.95,
) -> Powers:
    """Weighted least squares of ln optimum on the logarithms of several quantities.

    `lvp.analysis.slope` is the same fit for one quantity. Each of the n points has its own variance s², and all share a
    variance τ² (Paule and Mandel). The variances of the powers are Knapp and Hartung's, with a t quantile of n − k − 1
    degrees of freedom for k quantities. The intervals extend at least one standard error of seed noise to either side.
    If a std is unknown, the fit is ordinary least squares with its t intervals.

    An optimum at the edge of its grid says on which side of its interval's end the optimum is. If such optima are
    missing because of the law, the fit without them is biased. With `censored` they are bounds, as in Tobit's model: a
    bound adds ln Φ((law − bound)/σ) to the likelihood, where σ² is τ² plus the median s². τ² is that of the fit without
    bounds.

    Args:
      quantities: name → values [N], positive.
      optima: N `Optimum`, or a pair as for `slope`.
      censored: optima whose only flags are "edge" and "noise", and whose interval has one finite end, are bounds.
      include_flagged: fit through flagged optima too. If an optimum has no std, the fit is unweighted.
      level: confidence level of the intervals.

    Raises:
      InputError: there is no quantity; lengths differ; values or rates are not finite and above zero, or stds are
        negative; level is outside (0, 1).
    """
    if not quantities:
        raise InputError("quantities is empty: pass at least one quantity")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {level!r}")
    rates, stds, reasons = points(optima, include_flagged)
    columns = [np.log(positive(name, values)) for name, values in quantities.items()]
    if any(len(column) != len(rates) for column in columns):
        raise InputError(f"{len(rates)} optima but quantities of length {', '.join(str(len(c)) for c in columns)}")
    keep = np.array([not why for why in reasons], bool)
    design, y, stds = np.stack([np.ones(len(rates)), *columns], axis=1)[keep], np.log(rates[keep]), stds[keep]
    freedom = len(y) - design.shape[1]
    if freedom < 0 or np.linalg.matrix_rank(design) < design.shape[1]:
        unknown = dict.fromkeys(quantities, NAN)
        return Powers(unknown, dict.fromkeys(quantities, (-np.inf, np.inf)), 0, NAN, len(y), level)
    weighted = bool(np.isfinite(stds).all() and stds.max() > 0)
    variances = np.maximum(stds, 1e-3 * stds.max()) ** 2 if weighted else np.ones(len(y))
    tau2 = paule_mandel(lambda v: _fit(design, y, v)[2], variances, freedom) if weighted and freedom else 0.0
    coefficients, errors, scatter = _fit(design, y, variances + tau2)
    signs, bounds, at = _bounds(optima, columns) if censored and weighted else _bounds((), columns)
    if len(bounds):
        sigma = float(np.sqrt(tau2 + np.median(variances)))
        coefficients, errors = _tobit(coefficients, design, y, variances + tau2, at, signs, bounds, sigma)
    half = np.full(len(coefficients), np.inf)
    if freedom:
        quantile, scale = float(stdtrit(freedom, (1 + level) / 2)), np.sqrt(scatter / freedom)
        half = quantile * errors * (max(scale, 1 / quantile) if weighted else scale)
    return Powers(
        powers={name: float(coefficients[k + 1]) for k, name in enumerate(quantities)},
        intervals={
            name: (float(coefficients[k + 1] - half[k + 1]), float(coefficients[k + 1] + half[k + 1]))
            for k, name in enumerate(quantities)
        },
        degrees_of_freedom=freedom,
        intercept=float(coefficients[0]),
        num_points=len(y),
        level=level,
        num_bounds=len(bounds),
    )


def _bounds(optima: Sequence[Optimum] | tuple, columns: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Of the censored optima: 1 for a lower and −1 for an upper bound, ln bound, and the rows of the design."""
    rows = np.stack([np.ones(len(columns[0])), *columns], axis=1)
    found = [(*_bound(best), row) for best, row in zip(optima, rows, strict=False) if _bound(best)[0]]
    signs, bounds = (np.array([each[i] for each in found], float) for i in (0, 1))
    return signs, bounds, np.array([each[2] for each in found]).reshape(-1, rows.shape[1])


def _bound(best: Optimum) -> tuple[float, float]:
    """The sign and the logarithm of a censored optimum's bound; (0, nan) if it is none."""
    low, high = getattr(best, "interval", (NAN, NAN))
    if "edge" not in best.flags or set(best.flags) - {"edge", "noise"}:
        return 0.0, NAN
    if low > 0 and np.isinf(high):
        return 1.0, float(np.log(low))
    return (-1.0, float(np.log(high))) if low == 0 and np.isfinite(high) else (0.0, NAN)


def _tobit(coefficients, design, y, variances, at, signs, bounds, sigma) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients with the largest likelihood of points and bounds, from a start, and their standard errors.

    Newton's steps: the likelihood is concave.
    """
    information = (design / variances[:, None]).T @ design
    for _ in range(100):
        z = signs * (at @ coefficients - bounds) / sigma
        ratio = np.exp(-(z**2) / 2 - log_ndtr(z)) / np.sqrt(2 * np.pi)  # φ(z)/Φ(z)
        score = design.T @ ((y - design @ coefficients) / variances) + at.T @ (signs * ratio) / sigma
        total = information + (at * (ratio * (ratio + z) / sigma**2)[:, None]).T @ at
        step = np.linalg.solve(total, score)
        coefficients = coefficients + step
        if np.abs(step).max() < 1e-10:
            break
    return coefficients, np.sqrt(np.diag(np.linalg.inv(total)))


def _fit(design, y, variances):
    """Weighted coefficients, their standard errors, weighted residual sum of squares."""
    roots = 1 / np.sqrt(variances)
    coefficients, *_ = np.linalg.lstsq(design * roots[:, None], y * roots, rcond=None)
    errors = np.sqrt(np.diag(np.linalg.inv((design / variances[:, None]).T @ design)))
    return coefficients, errors, float(np.sum((roots * (y - design @ coefficients)) ** 2))
