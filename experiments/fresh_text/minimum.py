"""The minimum of a sampled curve by a cubic, whose vertex follows curves that are steeper on one side.

A parabola's vertex is not at the minimum of such a curve. If the asymmetry changes with width, this biases the exponent
(docs/statistics.md). A cubic removes the bias to third order. What is left is unknown, so the distance from the cubic's
minimum to the parabola's vertex is part of the interval.
"""

from typing import NamedTuple

import numpy as np

from lvp.analysis import Optimum
from lvp.analysis.measurement import NORMAL_QUANTILE, Measurement
from lvp.analysis.noise import two_way, usable_rates
from lvp.analysis.quadratic_fit import minima

POINTS = 5  # of the fit: the best point and the nearest others
_DRAWS = 1000
_WANDER = 0.05  # largest part of simulated curves without a minimum inside the points
_TWICE = float(np.log(2.0))
_NOTHING = Measurement(np.nan, None)


class _Fits(NamedTuple):
    """Cubics through B curves: arrays [B]. Log ratios are natural."""

    low: np.ndarray  # ln ratio of the minimum; NaN without a minimum inside the points
    loss: np.ndarray  # there
    vertex: np.ndarray  # ln ratio of the parabola's vertex through the same points; NaN if it is not convex
    curvature: np.ndarray  # of the parabola
    centre: np.ndarray  # ln ratio in the middle of the points
    cubic: np.ndarray  # [4, B], coefficients of the powers of ln ratio minus `centre`

    def cost(self, at: np.ndarray) -> np.ndarray:
        """The loss at ln ratios [B] over the loss at the minimum, minus 1."""
        return _value(self.cubic, at - self.centre) / self.loss - 1


class _Curve(NamedTuple):
    """The fit of a curve, and those of simulated curves."""

    x: np.ndarray  # [R], ln of the trained ratios
    fit: _Fits  # B = 1
    draws: _Fits

    def cost(self, step: float) -> Measurement:
        """The cost of the best ratio times exp(step); NaN outside the trained ratios."""
        costs = []
        for fits in (self.fit, self.draws):
            at = fits.low + step
            costs.append(np.where((at >= self.x[0]) & (at <= self.x[-1]), fits.cost(at), np.nan))
        return _with_interval(*costs)


class Minimum(NamedTuple):
    """The minimum of a curve, and the cost of twice and of half the ratio, relative to the loss."""

    optimum: Optimum  # of ratios; the std and the interval include the shift from parabola to cubic
    twice: Measurement  # NaN if twice the ratio is outside the trained ratios
    half: Measurement  # as twice
    curve: _Curve | None = None  # None without a minimum


def minimum(ratios: np.ndarray, losses: np.ndarray, *, seed: int = 0) -> Minimum:
    """The minimum of one curve, with intervals from simulated curves that repeat the whole search.

    Flags are those of `Optimum`: "missing" with fewer than five ratios that all seeds finished, "edge" if the best
    ratio is the first or last, "noise" if the cubic or more than 5 % of the simulated cubics have no minimum.

    Args:
      ratios: [R], increasing, at equal factors.
      losses: [seeds, R]; nan is a missing run, inf a diverged run. Ratios with either are left out.
      seed: of the simulated noise.
    """
    kept = usable_rates(losses) & np.isfinite(losses).all(axis=0)
    x, runs = np.log(np.asarray(ratios, float)[kept]), losses[:, kept]
    if len(x) < POINTS:
        best = float(np.exp(x[np.argmin(runs.mean(axis=0))])) if len(x) else np.nan
        return Minimum(Optimum(best, np.nan, (np.nan, np.nan), np.nan, "cubic", ("missing",)), _NOTHING, _NOTHING)
    means, _, residuals, freedom = two_way(runs)
    noise = float(np.sqrt(np.sum(residuals**2) / freedom)) if freedom else np.nan
    fit = _fits(x, means[None])
    best = int(np.argmin(means))
    flags = ["edge"] if best in (0, len(x) - 1) else []
    if np.isnan(fit.low[0]):
        flags += [] if flags else ["noise"]
        interval = (0.0 if best == 0 else np.nan, np.inf if best == len(x) - 1 else np.nan)
        optimum = Optimum(float(np.exp(x[best])), np.nan, interval, float(means[best]), "cubic", tuple(flags))
        return Minimum(optimum, _NOTHING, _NOTHING)
    curve = _Curve(x, fit, _simulated(x, means, noise / np.sqrt(len(runs)), freedom, seed))
    if not np.isfinite(noise) or np.isnan(curve.draws.low).mean() > _WANDER:
        flags.append("noise")
    return Minimum(_optimum(fit, curve.draws, noise, freedom, flags), curve.cost(_TWICE), curve.cost(-_TWICE), curve)


def costs_of_moving(small: Minimum, large: Minimum, factor: float) -> np.ndarray:
    """The cost of the best ratio of `small` times a factor on the curve of `large`, relative to the least loss.

    Returns:
      The estimate, the estimate from the parabola's vertex of `small`, and the costs of simulated curves. NaN if one of
      the minima has a flag, or if the moved ratio is more than half a step outside the trained ratios.
    """
    unknown = np.full(2 + _DRAWS, np.nan)
    if small.curve is None or large.curve is None or not (small.optimum.resolved and large.optimum.resolved):
        return unknown
    of_small, of_large, step = small.curve, large.curve, np.log(factor)
    x, at = of_large.x, of_small.fit.low + step
    half_step = (x[1] - x[0]) / 2
    if not x[0] - half_step <= at[0] <= x[-1] + half_step:
        return unknown
    # The simulated curves of all widths have the same random numbers. In reverse they are independent.
    draws = of_large.draws.cost(of_small.draws.low[::-1] + step)
    return np.concatenate([of_large.fit.cost(at), of_large.fit.cost(of_small.fit.vertex + step), draws])


def measured(costs: np.ndarray) -> Measurement:
    """The estimate of `costs_of_moving`, or of a difference of two, with an interval that contains both estimates."""
    return _with_interval(costs[:2], costs[2:])


def _simulated(x: np.ndarray, means: np.ndarray, error: float, freedom: int, seed: int) -> _Fits:
    """The fits of curves with noise around the cubic inside the window and around the means outside."""
    base, points = means.copy(), _starts(means) + np.arange(POINTS)
    t = x[points] - x[points].mean()
    base[points] = np.polynomial.Polynomial.fit(t, means[points], 3)(t)
    rng = np.random.default_rng(seed)
    scales = np.sqrt(freedom / rng.chisquare(max(1, freedom), _DRAWS))  # the noise is an estimate
    return _fits(x, base + error * scales[:, None] * rng.standard_normal((_DRAWS, len(x))))


def _optimum(fit: _Fits, draws: _Fits, noise: float, freedom: int, flags: list[str]) -> Optimum:
    low, vertex = float(fit.low[0]), float(fit.vertex[0])
    shift = abs(vertex - low) if np.isfinite(vertex) else 0.0
    centred = draws.low - np.nanmedian(draws.low)
    ends = low + np.nanquantile(centred, [0.025, 0.975])
    if np.isfinite(vertex):
        ends = np.array([min(ends[0], vertex), max(ends[1], vertex)])
    return Optimum(
        rate=float(np.exp(low)),
        log_rate_std=float(np.hypot(np.nanstd(draws.low), shift / NORMAL_QUANTILE)),
        interval=(float(np.exp(ends[0])), float(np.exp(ends[1]))),
        loss=float(fit.loss[0]),
        method="cubic",
        flags=tuple(flags),
        notes=(f"shift from parabola to cubic: {low - vertex:.2f} in ln ratio",),
        curvature=float(fit.curvature[0]),
        noise_std=noise,
        degrees_of_freedom=float(freedom),
    )


def _with_interval(estimates: np.ndarray, draws: np.ndarray) -> Measurement:
    """The first estimate, with the interval of the draws, which is made to contain all estimates."""
    if np.isnan(estimates[0]) or np.isnan(draws).all():
        return _NOTHING
    low, high = np.nanquantile(draws, [0.025, 0.975])
    ends = np.nanmin([*estimates, low]), np.nanmax([*estimates, high])
    return Measurement(float(estimates[0]), (float(ends[0]), float(ends[1])))


def _starts(curves: np.ndarray) -> np.ndarray:
    """The first index of the window of each curve [..., R]: the best point and the nearest others, `POINTS` in all."""
    return np.clip(curves.argmin(axis=-1) - POINTS // 2, 0, curves.shape[-1] - POINTS)


def _fits(x: np.ndarray, curves: np.ndarray) -> _Fits:
    """The cubics through the windows of curves [B, R]."""
    fitted = np.full((9, len(curves)), np.nan)  # the fields of `_Fits`
    starts = _starts(curves)
    for start in np.unique(starts):
        of_window = starts == start
        points = np.arange(start, start + POINTS)
        centre = x[points].mean()
        cubic, low, vertex, curvature = minima(x[points] - centre, curves[of_window][:, points])
        loss = _value(cubic, low)
        fields = [low + centre, loss, vertex + centre, curvature, np.full_like(low, centre), *cubic]
        fitted[:, of_window] = fields
    low, loss, vertex, curvature, centre = fitted[:5]
    return _Fits(low, loss, vertex, curvature, centre, fitted[5:])


def _value(cubic: np.ndarray, t: np.ndarray) -> np.ndarray:
    return cubic[0] + t * (cubic[1] + t * (cubic[2] + t * cubic[3]))
