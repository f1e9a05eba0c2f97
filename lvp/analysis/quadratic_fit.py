"""Minima of sampled curves: vertices of quadratics fitted to windows of points, for many curves at a time.

The fit to a window is linear in the losses. Every window's least squares is therefore a small matrix, computed once
per grid, and thousands of simulated curves take one matrix product. The measured and the simulated optima use the
same code, so the bootstrap repeats the whole procedure, including jumps of the window.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicSpline

NUM_SHIFTS = 6  # number of shifts of the grid within one step


@dataclass(frozen=True)
class Located:
    """Minima of B curves: arrays [B]. Log rates are natural."""

    best: np.ndarray  # index of the smallest loss
    centre: np.ndarray  # index of the fitted window's centre
    log_rate: np.ndarray  # of the vertex, or of the best point if no vertex is inside the window
    loss: np.ndarray  # fitted at the vertex of the centre's window, or of the best point
    curvature: np.ndarray  # loss per (log rate)²; nan if the window has fewer than three points
    off: np.ndarray  # 0: vertex in its window; -1, 1: vertex below, above it, or best point first, last; 2: not convex


class Windows:
    """The windows of one grid.

    Args:
      log_rates: natural logarithms [R], increasing.
      usable: mask [R] of the points with a finite loss.
      window: number of points on each side of a window's centre; fewer at the grid's ends. Unusable points are
        skipped.
    """

    def __init__(self, log_rates: np.ndarray, usable: np.ndarray, window: int):
        num = len(log_rates)
        self.log_rates, self.usable, self.window = log_rates, usable, window
        self.first, self.last = int(np.argmax(usable)), num - 1 - int(np.argmax(usable[::-1]))
        self.maps = np.full((num, 3, num), np.nan)  # losses → coefficients of 1, t, t²; t from the centre
        self.low, self.high = np.zeros(num), np.zeros(num)
        for centre in range(num):
            points = self.points(centre)
            points = points[usable[points]]
            if len(points) < 3:
                continue
            t = log_rates[points] - log_rates[centre]
            unit = np.abs(t).max()  # the fit is done in units of the window's half-width, for conditioning
            design = np.stack([np.ones_like(t), t / unit, (t / unit) ** 2], axis=1)
            self.maps[centre] = 0.0
            self.maps[centre][:, points] = np.linalg.pinv(design) / np.array([1.0, unit, unit**2])[:, None]
            self.low[centre], self.high[centre] = t.min(), t.max()
        self.shifts, self.shifted = self._shifted()

    def _shifted(self) -> tuple[np.ndarray, np.ndarray]:
        """Shifts within one step, and the windows' maps [shifts, R, 3, R] for the curve moved left by each shift.

        Between its points the curve is a cubic spline, which is linear in the losses. The spline passes through the
        window and one more point on each side. Farther points with large losses would make it oscillate.
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
        """Minima of curves [B, R]; values at unusable points are not read.

        If the curve is not a parabola, the fitted vertex is not at the minimum. The error depends on the position of
        the grid points relative to the minimum. It changes with width as the optimum does, and so biases the slope.
        The vertex is therefore averaged over shifts of the grid. This reduces the dependence on the grid by a factor
        of ten and the noise by a tenth. The average is exact for a parabola.
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
        """Coefficients [3, B, P] of curves [B, R] at centres [B, P], with maps [P, R, 3, R]."""
        num, rates = curves.shape
        filled = np.where(self.usable, curves, 0.0)
        every = (filled @ maps.reshape(-1, rates).T).reshape(num, len(maps), rates, 3)
        return np.moveaxis(every[np.arange(num)[:, None], np.arange(len(maps)), centre], -1, 0)

    def _vertex(self, parabolas, centre):
        """Vertex relative to the centre (nan: none inside the window), loss there, curvature, `off`."""
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


@lru_cache(maxsize=256)
def _windows(log_rates: tuple, usable: tuple, window: int) -> Windows:
    return Windows(np.array(log_rates), np.array(usable), window)


def fit_windows(log_rates: np.ndarray, usable: np.ndarray, window: int) -> Windows:
    """`Windows` of a grid, cached because the widths of a sweep share a grid."""
    return _windows(tuple(log_rates.tolist()), tuple(usable.tolist()), window)


@lru_cache(maxsize=256)
def _threshold(log_rates: tuple, usable: tuple, window: int, counts: tuple, freedom: int, level: float) -> float:
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

    A window around the smallest of R noisy points is convex by selection. A t quantile for a fixed window would
    therefore call flat curves curved far too often. The simulation applies the same search to R points of noise.

    Args:
      counts: number of runs in each mean [R].
      freedom: degrees of freedom of the noise (inf: known).
      level: the probability.
    """
    key = tuple(grid.log_rates.tolist()), tuple(grid.usable.tolist()), grid.window
    return _threshold(*key, tuple(int(c) for c in counts), int(np.clip(freedom, 1, 10_000)), level)
