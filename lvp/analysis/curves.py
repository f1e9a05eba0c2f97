"""The optimal learning rate of a loss curve, its uncertainty, and tests of whether it is an optimum."""

import functools
import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike

from lvp.analysis.estimators import METHODS, Curve, Noise, Optimum, read
from lvp.analysis.noise import as_runs, seed_noise, shrunk_noise, two_way, usable_rates
from lvp.analysis.quadratic_fit import fit_windows
from lvp.errors import InputError


def optimum(
    rates: ArrayLike,
    losses: ArrayLike,
    *,
    method: str = "quadratic",
    window: int = 2,
    tolerance: float = 0.2,
    noise_std: float | None = None,
    num_bootstrap: int = 2000,
    seed: int = 0,
) -> Optimum:
    """Returns the optimal rate of one curve.

    There are three methods:

    - "quadratic": the vertex of the least-squares parabola loss = c₀ + c₁ ln η + c₂ (ln η)² through the window's
      points, means over seeds. The window is centred on the smallest mean, then on the point nearest to the vertex. The
      vertex is averaged over shifts of the grid within one step (a spline between points).
    - "geometric_mean": the geometric mean of the rates of all runs (seeds and rates) with a loss of at most
      (1 + tolerance) × the best run's loss. It is the shaded curve of Hayou & Liu 2025, figure 3 (tolerance 0.2).
      Losses must be positive.
    - "argmin": the rate of the smallest mean.

    The uncertainty comes from a parametric bootstrap of the whole curve. Means are drawn around the parabola inside the
    window and around the measured means outside it, with standard deviation noise/√seeds. For "geometric_mean", single
    runs are drawn. The whole search is repeated on each draw. The interval is that of the estimate, not of the curve's
    minimum. If a curve is steeper on one side, its parabola's vertex is not at its minimum. This offset is the same at
    every width if the curve's shape is the same, so it cancels in a slope. The interval of a single optimum does not
    include the offset. A note gives the minimum of a cubic fit if its third-order term exceeds the noise.

    Args:
      rates: learning rates [R], at least three, positive and increasing.
      losses: [R] or [seeds, R]; nan is a missing run, inf a diverged run. A rate with a diverged run has no mean and is
        not fitted.
      method: one of the methods above.
      window: number of points on each side of the centre.
      tolerance: relative distance to the best loss, for "geometric_mean" and for `Optimum.band`.
      noise_std: standard deviation of one run's loss, in the loss's unit. None measures it between these seeds (see
        `optima` for pooling over widths). With one seed it is unknown.
      num_bootstrap, seed: number of simulated curves, and their random seed.

    Raises:
      InputError: there are fewer than three rates, or they are not positive, finite and increasing; losses have another
        shape, are not numbers or are -inf, or are not above zero for "geometric_mean"; the method is unknown; window is
        below 1; tolerance or noise_std is negative or not finite; num_bootstrap is below 100.
    """
    curve = _curve(rates, losses, window)
    _check_settings(method, tolerance, noise_std, num_bootstrap)
    std, freedom = seed_noise([curve.near]) if noise_std is None else (float(noise_std), np.inf)
    return read(curve, Noise(std, freedom, num_bootstrap, seed), method, tolerance)


def optima(
    rates: np.ndarray | Sequence,
    losses_by_width: Sequence,
    *,
    method: str = "quadratic",
    window: int = 2,
    tolerance: float = 0.2,
    noise_std: float | None = None,
    num_bootstrap: int = 2000,
    seed: int = 0,
) -> list[Optimum]:
    """The `optimum` of every width, with seed noise pooled over the rates near the optima and over widths.

    The noise is pooled as far as the widths agree: see `lvp.analysis.noise.shrunk_noise`.

    Args:
      rates: [R] for all widths, or W grids, which may differ in length.
      losses_by_width: W arrays [seeds, R] (or [R]).
      method, window, tolerance, noise_std, num_bootstrap, seed: as in `optimum`.

    Returns:
      A list of W `Optimum`, in order.

    Raises:
      InputError: there is no width, or the number of grids is not W; a width has fewer than three rates, or they are
        not positive, finite and increasing; losses have another shape, are not numbers or are -inf, or are not above
        zero for "geometric_mean"; the method is unknown; window is below 1; tolerance or noise_std is negative or not
        finite; num_bootstrap is below 100.
    """
    _check_settings(method, tolerance, noise_std, num_bootstrap)
    if len(losses_by_width) == 0:
        raise InputError("losses_by_width is empty: give one [seeds, rates] array per width")
    per_width = any(np.ndim(grid) for grid in rates) if isinstance(rates, Sequence) else np.ndim(rates) > 1
    if per_width and len(rates) != len(losses_by_width):
        raise InputError(f"{len(rates)} grids of rates for {len(losses_by_width)} widths: pass a grid per width")
    curves = [_curve(rates[w] if per_width else rates, losses, window) for w, losses in enumerate(losses_by_width)]
    if noise_std is None:
        own = [seed_noise([curve.near]) for curve in curves]
        stds, freedoms = shrunk_noise([std for std, _ in own], [freedom for _, freedom in own])
    else:
        stds, freedoms = np.full(len(curves), float(noise_std)), np.full(len(curves), np.inf)
    settings = (window, method, tolerance, num_bootstrap)
    return [
        _read_once(tuple(curve.rates), curve.runs.tobytes(), float(std), float(freedom), (seed, w), *settings)
        for w, (curve, std, freedom) in enumerate(zip(curves, stds, freedoms, strict=True))
    ]


@functools.lru_cache(maxsize=4096)  # summary, claims and figure of a report read the same curves
def _read_once(
    rates: tuple[float, ...],
    runs: bytes,
    std: float,
    freedom: float,
    seed: tuple[int, int],
    window: int,
    method: str,
    tolerance: float,
    num_bootstrap: int,
) -> Optimum:
    """The optimum of one curve; `runs` holds the losses [seeds, R] as float64."""
    losses = np.frombuffer(runs).reshape(-1, len(rates))
    return read(_curve(rates, losses, window), Noise(std, freedom, num_bootstrap, seed), method, tolerance)


def _check_settings(method, tolerance, noise_std, num_bootstrap) -> None:
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}; there are {', '.join(METHODS)}")
    for name, value in (("tolerance", tolerance), ("noise_std", noise_std)):
        if name == "noise_std" and value is None:
            continue
        if not (isinstance(value, Real) and math.isfinite(value) and float(value) >= 0):
            raise InputError(f"{name} must be a finite number of at least 0, got {value!r}")
    if not isinstance(num_bootstrap, Integral) or num_bootstrap < 100:
        raise InputError(f"num_bootstrap must be at least 100 for a 95 % interval, got {num_bootstrap!r}")


def _curve(rates, losses, window: int) -> Curve:
    """The checked curve of one width."""
    try:
        rates = np.asarray(rates, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"rates must be numbers [rates]: {error}") from None
    if rates.ndim != 1 or rates.size < 3:
        raise InputError(f"rates must be a list of at least 3 numbers, got shape {rates.shape}")
    if not (np.isfinite(rates).all() and (rates > 0).all() and (np.diff(rates) > 0).all()):
        raise InputError(f"rates must be positive, finite and increasing, got {rates.tolist()}")
    if not isinstance(window, Integral) or window < 1:
        raise InputError(f"window must be a whole number of at least 1, got {window!r}")
    runs = as_runs(losses)
    if runs.shape[1] != rates.size:
        raise InputError(f"{rates.size} rates but losses of shape {np.shape(losses)}; the last axis is rates")
    log_rates, usable = np.log(rates), usable_rates(runs)
    means, blocks, _, _ = two_way(runs)
    return Curve(rates, log_rates, runs, usable, means, blocks, fit_windows(log_rates, usable, int(window)))
