"""Minima of many sampled curves at once: a parabola is fitted to a window of points, and its vertex is the minimum.

The coefficients of a least-squares fit are linear in the losses. The fit to a window is therefore a small matrix, which
is computed once per grid. One matrix product then fits thousands of simulated curves. The measured and the simulated
optima use the same code, so the bootstrap also repeats the choice of the window.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

NUM_SHIFTS = 6  # shifts of the grid over which a vertex is averaged; they cover one step of the grid


@dataclass(frozen=True)
class Located:
    """Minima of B curves, as arrays [B]. Logarithms are natural."""

    best: np.ndarray  # index of the smallest loss
    centre: np.ndarray  # index of the fitted window's centre
    log_rate: np.ndarray  # at the vertex; at the best point if the window contains no vertex
    loss: np.ndarray  # of the parabola at its vertex; of the best point if the window contains no vertex
    curvature: np.ndarray  # coefficient of (log rate)²; nan if the window has fewer than three points
    # 0: the vertex is inside the window. -1: the vertex is below the window, or the best point is the first point.
    # 1: the vertex is above the window, or the best point is the last point. 2: the parabola is unknown or not convex.
    off: np.ndarray


class Windows:
    """The windows of one grid, and the matrices that fit a parabola to each window.

    Args:
      log_rates: natural logarithms [R], increasing.
      usable: mask [R] of the points with a finite loss.
      window: number of points on each side of a window's centre; fewer at the grid's ends. A window leaves out its
        unusable points.
    """

    def __init__(self, log_rates: np.ndarray, usable: np.ndarray, window: int):
        num = len(log_rates)
        self.log_rates, self.usable, self.window = log_rates, usable, window
        self.first, self.last = int(np.argmax(usable)), num - 1 - int(np.argmax(usable[::-1]))
        self.maps = np.full((num, 3, num), np.nan)  # losses → coefficients of 1, t, t²; t = log rate − centre
        self.low, self.high = np.zeros(num), np.zeros(num)
        for centre in range(num):
            points = self.points(centre)
            points = points[usable[points]]
            if len(points) < 3:
                continue
            t = log_rates[points] - log_rates[centre]
            unit = np.abs(t).max()  # scales t to [-1, 1], for a well-conditioned fit
            design = np.stack([np.ones_like(t), t / unit, (t / unit) ** 2], axis=1)
            self.maps[centre] = 0.0
            self.maps[centre][:, points] = np.linalg.pinv(design) / np.array([1.0, unit, unit**2])[:, None]
            self.low[centre], self.high[centre] = t.min(), t.max()
        self.shifts, self.shifted = self._shifted()

    def _shifted(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the shifts and the maps [shifts, R, 3, R], which fit the curve after a move to the left by a shift.

        The values of the moved curve are those of a cubic spline, which is linear in the losses. The spline passes
        through the window's points and one more point on each side. Points farther away can have large losses, which
        would make the spline oscillate.
        """
        num = len(self.log_rates)
        shifts = ((np.arange(NUM_SHIFTS) + 0.5) / NUM_SHIFTS - 0.5) * np.median(np.diff(self.log_rates))
        maps = np.full((NUM_SHIFTS, *self.maps.shape), np.nan)
        for centre in np.flatnonzero(np.isfinite(self.maps).all(axis=(1, 2))).tolist():
            points = np.arange(max(0, centre - self.window - 1), min(num, centre + self.window + 2))
            points = points[self.usable[points]]
            spline = CubicSpline(self.log_rates[points], np.eye(len(points)))
            moved = np.zeros((NUM_SHIFTS, num, num))
            moved[:, :, points] = spline(self.log_rates + shifts[:, None])
            # The map has zero weight outside the window, so the spline's values there have no effect.
            maps[:, centre] = self.maps[centre] @ moved
        return shifts, maps

    def points(self, centre: int) -> np.ndarray:
        """Indices of all grid points in the window around `centre`, usable or not."""
        return np.arange(max(0, centre - self.window), min(len(self.log_rates), centre + self.window + 1))

    def locate(self, curves: np.ndarray) -> Located:
        """Minima of curves [B, R], averaged over shifts of the grid. Values at unusable points are not read.

        If the curve is not a parabola, the fitted vertex is not at the minimum. The error depends on the position of
        the grid points relative to the minimum. This position changes with width, so the error biases the slope of the
        optimum over width. The vertex is therefore averaged over shifts of the grid. The average depends ten times less
        on the grid, and its noise is a tenth smaller. For a parabola the average is exact.
        """
        located = self.search(curves)
        near = located.log_rate[:, None] - self.shifts
        centre = self._nearest(near)
        offset, *_ = self._vertex(self._parabolas(self.shifted, curves, centre), centre)
        vertices = self.log_rates[centre] + offset + self.shifts
        inside = (located.off == 0) & np.isfinite(vertices).all(axis=1)
        return replace(located, log_rate=np.where(inside, vertices.mean(axis=1), located.log_rate))

    def search(self, curves: np.ndarray) -> Located:
        """Minima of curves [B, R] by one window per curve, without shifts of the grid.

        The first window is centred on the smallest loss. In a flat curve, noise moves that point by a step or more.
        The second window is therefore centred on the point nearest to the first vertex.
        """
        curves = np.where(self.usable, curves, np.inf)
        best = curves.argmin(axis=1)
        maps = self.maps[None]
        offset = self._vertex(self._parabolas(maps, curves, best[:, None]), best[:, None])[0][:, 0]
        has_vertex = np.isfinite(offset)
        centre = np.where(has_vertex, self._nearest(self.log_rates[best] + np.where(has_vertex, offset, 0)), best)
        fit = self._vertex(self._parabolas(maps, curves, centre[:, None]), centre[:, None])
        offset, loss, curvature, off = (part[:, 0] for part in fit)
        off = np.where(best == self.first, -1, np.where(best == self.last, 1, off))
        has_vertex = np.isfinite(offset)
        return Located(
            best=best,
            centre=centre,
            log_rate=np.where(has_vertex, self.log_rates[centre] + offset, self.log_rates[best]),
            loss=np.where(has_vertex, loss, curves[np.arange(len(curves)), best]),
            curvature=curvature,
            off=off,
        )

    def _nearest(self, log_rates: np.ndarray) -> np.ndarray:
        """Indices of the usable points nearest to `log_rates`, of any shape."""
        distance = np.abs(log_rates[..., None] - self.log_rates)
        return np.where(self.usable, distance, np.inf).argmin(axis=-1)

    def _parabolas(self, maps, curves, centre) -> np.ndarray:
        """Coefficients [3, B, P] of the parabolas of curves [B, R], for P maps [P, R, 3, R] with centres [B, P]."""
        filled = np.where(self.usable, curves, 0.0)
        return np.einsum("bpkr,br->kbp", maps[np.arange(len(maps)), centre], filled)

    def _vertex(self, parabolas, centre):
        """Vertex minus centre (nan if it is outside the window), loss at the vertex, curvature, `Located.off`."""
        level, slope, curvature = parabolas
        convex = curvature > 0
        offset = np.where(convex, -slope / np.where(convex, 2 * curvature, 1.0), np.nan)
        below, above = offset < self.low[centre], offset > self.high[centre]
        off = np.where(below, -1, np.where(above, 1, np.where(convex, 0, 2)))
        offset = np.where(off == 0, offset, np.nan)
        return offset, level + slope * offset / 2, curvature, off

    def curvature_error(self, centre: int, errors: np.ndarray) -> float:
        """Standard error of the curvature at `centre`, given the losses' standard errors [R]."""
        return float(np.sqrt(np.sum((self.maps[centre][2] * np.where(self.usable, errors, 0.0)) ** 2)))


class Minima(NamedTuple):
    """A cubic and a parabola fitted to the same points of B curves."""

    cubic: np.ndarray  # [4, B], coefficients of 1, t, t², t³
    minimum: np.ndarray  # [B], t of the cubic's minimum; nan without a minimum between the first and the last point
    vertex: np.ndarray  # [B], t of the parabola's vertex; nan if it is not convex
    curvature: np.ndarray  # [B], of the parabola


def minima(t: np.ndarray, curves: np.ndarray) -> Minima:
    """`Minima` of curves [B, P] at t [P], increasing, with at least four points."""
    cubic, parabola = (np.linalg.pinv(np.vander(t, n, increasing=True)) @ curves.T for n in (4, 3))
    _, b, c, d = cubic
    with np.errstate(invalid="ignore", divide="ignore"):
        root = c + np.sqrt(c * c - 3 * b * d)  # the slope b + 2 c t + 3 d t² rises through 0 at −b / root
        low = np.where(root > 0, -b / root, np.nan)
        low = np.where((low >= t[0]) & (low <= t[-1]), low, np.nan)
        vertex = np.where(parabola[2] > 0, -parabola[1] / (2 * parabola[2]), np.nan)
    return Minima(cubic, low, vertex, parabola[2])


@lru_cache(maxsize=256)
def _windows(log_rates: tuple, usable: tuple, window: int) -> Windows:
    return Windows(np.array(log_rates), np.array(usable), window)


def fit_windows(log_rates: np.ndarray, usable: np.ndarray, window: int) -> Windows:
    """`Windows` of a grid, cached because the widths of a sweep share a grid."""
    return _windows(tuple(log_rates.tolist()), tuple(usable.tolist()), window)


@lru_cache(maxsize=256)
def _threshold(log_rates: tuple, usable: tuple, window: int, counts: tuple, freedom: int, level: float) -> float:
    """`curvature_threshold` of hashable arguments, cached. Each simulated curve is noise without a minimum."""
    grid = _windows(log_rates, usable, window)
    rng = np.random.default_rng(0)
    num = 20_000
    errors = 1 / np.sqrt(np.maximum(counts, 1))
    flat = grid.search(rng.standard_normal((num, len(counts))) * errors)
    unit = np.array([grid.curvature_error(centre, errors) for centre in range(len(counts))])
    scale = np.sqrt(rng.chisquare(freedom, num) / freedom)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = flat.curvature / (unit[flat.centre] * scale)
    ratio = np.where(flat.off == 0, ratio, -np.inf)
    return float(np.quantile(ratio, 1 - level, method="higher"))


def curvature_threshold(grid: Windows, counts: np.ndarray, freedom: float, level: float) -> float:
    """The curvature, in standard errors, that a flat curve exceeds with probability `level`, by simulation.

    Around the smallest of R noisy points, even a flat curve looks convex. A t quantile, which is right for a window
    chosen in advance, would be far too low. The simulation therefore applies `Windows.search` to R points of noise.

    Args:
      grid: the windows of the grid.
      counts: number of runs in each mean [R].
      freedom: degrees of freedom of the estimated noise; inf if the noise is known.
      level: the probability.
    """
    key = tuple(grid.log_rates.tolist()), tuple(grid.usable.tolist()), grid.window
    return _threshold(*key, tuple(int(c) for c in counts), int(np.clip(freedom, 1, 10_000)), level)
