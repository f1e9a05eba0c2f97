"""The power of width that an optimum follows: slope of ln optimum over ln width, with its interval."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import chdtrc, stdtrit

from lvp.analysis.estimators import Optimum
from lvp.analysis.measurement import Measurement
from lvp.errors import InputError

NAN, INF = float("nan"), float("inf")
CUBIC_ERRORS = 1.5  # standard errors above which another power of the cubics' minima widens the interval


@dataclass(frozen=True)
class Slope:
    """The fit ln rate = intercept + slope · ln width."""

    slope: float  # nan with fewer than two points
    interval: tuple[float, float]  # at `level`; (-inf, inf) with fewer than three points
    std: float  # standard error of the slope, lack of fit included; nan with fewer than three points
    degrees_of_freedom: int  # points − 2; 0 with fewer than two points
    intercept: float  # ln rate at width 1
    num_points: int  # points used
    excluded: tuple[tuple[float, str], ...] = ()  # (width, reason)
    lack_of_fit: float = NAN  # p-value of this scatter under seed noise alone; nan if the seed noise is unknown
    tau: float = NAN  # std of ln optimum about the line in excess of seed noise; nan if the seed noise is unknown
    level: float = 0.95  # confidence level of the interval
    centre: float = NAN  # ln width with the smallest std of the line
    centre_std: float = NAN  # std of the line there
    cubic_shift: float = 0.0  # slope through cubics' minima minus `slope`, if the interval contains theirs

    @property
    def measurement(self) -> Measurement:
        """The slope with its interval, which is unknown with fewer than three points."""
        return Measurement(self.slope, self.interval if np.isfinite(self.interval).all() else None)

    def line(self, widths: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Fitted rates [N] at `widths` [N], and the lower and upper ends [N] of the line's band at `level`.

        The band is that of the parabolas' vertices: it does not allow for `cubic_shift`.
        """
        logs = np.log(np.asarray(widths, dtype=float))
        middle = self.intercept + self.slope * logs
        half = np.full(logs.shape, INF)
        if self.degrees_of_freedom > 0:
            quantile = stdtrit(self.degrees_of_freedom, (1 + self.level) / 2)
            half = quantile * np.hypot(self.centre_std, (logs - self.centre) * self.std)
        with np.errstate(over="ignore"):
            return np.exp(middle), np.exp(middle - half), np.exp(middle + half)


def slope(
    widths: ArrayLike,
    optima: Sequence[Optimum] | tuple,
    *,
    include_flagged: bool = False,
    level: float = 0.95,
) -> Slope:
    """Weighted least squares of ln optimum on ln width, with an interval that includes lack of fit.

    Each optimum has its seed-noise variance s². All optima share a variance τ² about the line, which covers the
    position of the grid, changes of the curve's shape with width, and deviations from a power law. τ² is Paule and
    Mandel's: the value at which the weighted residual sum of squares equals its expectation. The slope's variance
    is Knapp and Hartung's: it is scaled by the residual sum of squares over n − 2 degrees of freedom, and uses a t
    quantile with n − 2 degrees of freedom. The interval therefore depends on the scatter of the optima about the
    line more than on the scale of s². With few widths the quantile is large (4.3 for four widths). The interval
    extends at least one standard error of seed noise to either side, also if the points lie on a line by chance.

    If a std is unknown (for example with one seed), the fit is ordinary least squares with its t interval.

    A parabola's vertex is not at the minimum of an asymmetric curve. If the asymmetry changes with width, the slope is
    biased. If the minima of cubics (`Optimum.cubic_shift`) have another power of width, beyond the noise, the interval
    also contains the interval of the slope through them.

    Args:
      widths: [W], positive and distinct, in any unit.
      optima: W Optimum; or a pair (rates [W], stds of ln rates [W] or None), nan for a width without a rate.
      include_flagged: fit through flagged optima too. If an optimum has no std, the fit is unweighted.
      level: confidence level of the interval.

    Raises:
      InputError: lengths differ; widths are not finite, above zero and distinct; rates are not finite and above zero;
        stds are negative; level is outside (0, 1).
    """
    widths = positive("widths", widths)
    if len(set(widths.tolist())) != len(widths):
        raise InputError(f"widths must be distinct, got {widths.tolist()}")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, got {level!r}")
    rates, stds, reasons = points(optima, include_flagged)
    if len(rates) != len(widths):
        raise InputError(f"{len(widths)} widths but {len(rates)} optima: pass an optimum per width")
    excluded = tuple((float(w), why) for w, why in zip(widths, reasons, strict=True) if why)
    keep = np.array([not why for why in reasons])
    x, y, stds = np.log(widths[keep]), np.log(rates[keep]), stds[keep]
    num = len(x)
    if num < 2:
        return Slope(NAN, (-INF, INF), NAN, 0, NAN, num, excluded, level=level)
    weighted = bool(np.isfinite(stds).all() and stds.max() > 0)
    variances = np.maximum(stds, 1e-3 * stds.max()) ** 2 if weighted else np.ones(num)
    if num == 2:
        line = np.polyfit(x, y, 1)
        return Slope(line[0], (-INF, INF), NAN, 0, line[1], num, excluded, level=level, centre=x.mean())
    fit = _fit(x, y, variances, weighted, excluded, level)
    if not weighted or not isinstance(optima[0], Optimum):
        return fit
    shifts = np.array([best.cubic_shift for best, kept in zip(optima, keep, strict=True) if kept])
    return _with_cubics(fit, x, y, variances, *shifts.T)


def _with_cubics(fit: Slope, x, y, variances, shifts, errors) -> Slope:
    """The fit, whose interval also contains that through the minima of cubics if they have another power of width.

    Widths without a stable minimum of the cubic are left out. Three widths have one degree of freedom, which cannot
    tell another power from scatter.
    """
    x, y, variances, shifts, errors = (each[errors > 0] for each in (x, y, variances, shifts, errors))
    freedom = len(x) - 2
    if freedom < 2:
        return fit
    trend, error, scatter = _line(x, shifts, errors**2)[2:]
    if abs(trend) <= CUBIC_ERRORS * error * max(1.0, np.sqrt(scatter / freedom)):
        return fit
    cubic = _fit(x, y + shifts, variances + errors**2, True, fit.excluded, fit.level)
    low, high = fit.interval
    interval = min(low, cubic.interval[0]), max(high, cubic.interval[1])
    return replace(fit, interval=interval, cubic_shift=float(cubic.slope - fit.slope))


def scatter_about(power: float, widths: Sequence[float], optima: Sequence[Optimum]) -> float:
    """The p-value of the scatter of ln optimum about a line of this power of the width, under seed noise alone.

    The line's height is fitted. NaN with fewer than two unflagged optima, or if their seed noise is unknown.
    """
    used = [
        (np.log(best.rate) - power * np.log(width), best.log_rate_std)
        for width, best in zip(widths, optima, strict=True)
        if best.resolved
    ]
    heights, stds = np.array(used, float).reshape(-1, 2).T
    if len(used) < 2 or not (np.isfinite(stds).all() and (stds > 0).all()):
        return NAN
    residuals = (heights - np.average(heights, weights=stds**-2.0)) / stds
    return float(chdtrc(len(used) - 1, np.sum(residuals**2)))


def without_each(widths: Sequence[float], optima: Sequence[Optimum]) -> dict[float, Slope]:
    """Width → the slope without it, for each width whose optimum has no flag."""
    used = [i for i, best in enumerate(optima) if best.resolved]
    kept = {i: [j for j in used if j != i] for i in used}
    return {widths[i]: slope([widths[j] for j in rest], [optima[j] for j in rest]) for i, rest in kept.items() if rest}


def positive(name: str, values: ArrayLike) -> np.ndarray:
    """Returns values as an array [N] of finite floats above zero.

    Raises:
      InputError: there are no values, or they are not a list of such numbers; the error contains `name`.
    """
    try:
        values = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from None
    if values.ndim != 1 or values.size == 0 or not (np.isfinite(values).all() and (values > 0).all()):
        raise InputError(f"{name} must be a list of positive finite numbers, got {values.tolist()}")
    return values


def points(optima: Sequence[Optimum] | tuple, include_flagged: bool) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Rates [W], stds of their logarithms [W] (nan: unknown), and the reason to exclude each rate ("": included).

    Raises:
      InputError: the optima are neither a list of `Optimum` nor a pair of lists of the same length; a rate is not
        finite and above zero (nan: missing), or a std is negative.
    """
    if isinstance(optima, tuple) and len(optima) == 2 and not any(isinstance(o, Optimum) for o in optima):
        rates, stds = optima
        rates = np.asarray(rates, dtype=float)
        stds = np.full(rates.shape, NAN) if stds is None else np.asarray(stds, dtype=float)
        if rates.ndim != 1 or stds.shape != rates.shape:
            raise InputError(
                f"rates and stds must be lists of the same length, got shapes {rates.shape} and {stds.shape}"
            )
        if (rates <= 0).any() or np.isinf(rates).any() or (stds < 0).any():
            raise InputError(
                f"rates must be positive and finite, and stds not negative, got {rates.tolist()} and {stds.tolist()}; "
                "use nan for a missing value"
            )
        return rates, stds, ["no rate" if np.isnan(rate) else "" for rate in rates]
    try:
        rates = np.array([o.rate for o in optima], dtype=float)
        stds = np.array([o.log_rate_std for o in optima], dtype=float)
        flags = [() if include_flagged else o.flags for o in optima]
    except (AttributeError, TypeError):
        raise InputError("optima must be a list of Optimum or a pair (rates, stds of ln rates)") from None
    reasons = ["no rate" if np.isnan(r) else ", ".join(f) for r, f in zip(rates, flags, strict=True)]
    return rates, stds, reasons


def _fit(x, y, variances, weighted, excluded, level) -> Slope:
    """The fit of three or more points; `variances` [n] are known if weighted, else all 1."""
    num = len(x)
    freedom = num - 2
    scatter = _line(x, y, variances)[-1]
    tau2 = paule_mandel(lambda v: _line(x, y, v)[-1], variances, freedom) if weighted else 0.0
    centre, middle, steepness, error, final = _line(x, y, variances + tau2)
    quantile, scale = float(stdtrit(freedom, (1 + level) / 2)), np.sqrt(final / freedom)
    if weighted:  # at least one standard error of seed noise (this applies only if τ² = 0)
        scale = max(scale, 1 / quantile)
    std = error * scale
    return Slope(
        slope=float(steepness),
        interval=(float(steepness - quantile * std), float(steepness + quantile * std)),
        std=float(std),
        degrees_of_freedom=freedom,
        intercept=float(middle - steepness * centre),
        num_points=num,
        excluded=excluded,
        lack_of_fit=float(chdtrc(freedom, scatter)) if weighted else NAN,
        tau=float(np.sqrt(tau2)) if weighted else NAN,
        level=level,
        centre=float(centre),
        centre_std=float(scale / np.sqrt(np.sum(1 / (variances + tau2)))),
    )


def paule_mandel(scatter: Callable, variances: np.ndarray, freedom: int) -> float:
    """τ² at which `scatter(variances + τ²)`, a weighted residual sum of squares, equals its expectation `freedom`.

    It is 0 if the sum is below its expectation without τ² (Paule and Mandel 1982).
    """
    if scatter(variances) <= freedom:
        return 0.0
    # Above scatter(1)/freedom the scatter is below its expectation, up to rounding errors.
    high = 2 * scatter(np.ones_like(variances)) / freedom
    while scatter(variances + high) > freedom:
        high *= 2
    return brentq(lambda t: scatter(variances + t) - freedom, 0, high, xtol=1e-14)


def _line(x, y, variances):
    """Weighted line: mean x, mean y, slope, its standard error, weighted residual sum of squares."""
    weights = 1 / variances
    centre, middle = np.average(x, weights=weights), np.average(y, weights=weights)
    spread = np.sum(weights * (x - centre) ** 2)
    steepness = np.sum(weights * (x - centre) * (y - middle)) / spread
    residuals = y - middle - steepness * (x - centre)
    return centre, middle, steepness, 1 / np.sqrt(spread), np.sum(weights * residuals**2)
