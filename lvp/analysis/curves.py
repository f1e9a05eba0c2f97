"""The optimal learning rate of a curve of losses, how well it is known, and whether it is one at all."""

import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike

from lvp.analysis.estimators import METHODS, Curve, Noise, Optimum, read
from lvp.analysis.noise import as_lanes, seed_noise, shrunk_noise, two_way, usable_rates
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
    """The optimal rate of one curve.

    Methods:
      "quadratic": vertex of the least-squares parabola loss = c₀ + c₁ ln η + c₂ (ln η)² through the window's
        points, means over seeds. The window stands around the smallest mean, then around the point nearest to
        the vertex; the vertex is averaged over positions of the grid within a step (a spline between points).
      "geometric_mean": of the rates of all lanes (seeds and rates) whose loss is at most (1 + tolerance) ×
        the best lane's: the shaded curve of Hayou & Liu 2025, figure 3 (tolerance 0.2). Needs positive
        losses.
      "argmin": the rate of the smallest mean.

    The uncertainty is a parametric bootstrap of the whole curve: means drawn around the parabola inside the
    window and around the measured means outside it, with the seed noise/√seeds, and the whole search done
    again on each. It is of the method's own target. A curve steeper on one side has the vertex of its
    parabola off its minimum, by the same amount at every width if its shape is the same: that cancels in a
    slope, but the interval of a single optimum does not cover it. Out of the noise, a note says so.

    Args:
      rates: learning rates [R], increasing.
      losses: [R] or [seeds, R]; nan is a missing lane, inf a diverged one. A rate with a diverged lane has
        no mean and is not fitted.
      window: points on each side of the centre.
      noise_std: standard deviation of one lane's loss, in the loss's unit, where it is known; by default it
        is measured between these seeds (see `optima` for pooling over widths). With one seed there is none.
      num_bootstrap, seed: simulated curves and their random seed.

    Raises: InputError on rates or losses that cannot be used.
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
    """`optimum` of every width, with seed noise pooled over the rates near the optima and over widths.

    Pooled as far as the widths agree: see `lvp.analysis.noise.shrunk_noise`.

    Args:
      rates: [R] for all widths, or one grid per width [W, R].
      losses_by_width: W arrays [seeds, R] (or [R]). The other arguments are `optimum`'s.

    Returns: one Optimum per width, in order.
    """
    _check_settings(method, tolerance, noise_std, num_bootstrap)
    if len(losses_by_width) == 0:
        raise InputError("losses_by_width is empty: give one [seeds, rates] array per width")
    shared = np.ndim(rates) < 2
    if not shared and len(rates) != len(losses_by_width):
        raise InputError(f"{len(rates)} grids of rates for {len(losses_by_width)} widths")
    curves = [_curve(rates if shared else rates[w], losses, window) for w, losses in enumerate(losses_by_width)]
    if noise_std is None:
        own = [seed_noise([curve.near]) for curve in curves]
        stds, freedoms = shrunk_noise([std for std, _ in own], [freedom for _, freedom in own])
    else:
        stds, freedoms = np.full(len(curves), float(noise_std)), np.full(len(curves), np.inf)
    readings = []
    for w, (curve, std, freedom) in enumerate(zip(curves, stds, freedoms, strict=True)):
        readings.append(read(curve, Noise(std, freedom, num_bootstrap, [seed, w]), method, tolerance))
    return readings


def _check_settings(method, tolerance, noise_std, num_bootstrap) -> None:
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}; there are {', '.join(METHODS)}")
    for name, value in (("tolerance", tolerance), ("noise_std", noise_std)):
        if name == "noise_std" and value is None:
            continue
        if not (isinstance(value, Real) and math.isfinite(value) and float(value) >= 0):
            raise InputError(f"{name} must be a finite number from 0 up, got {value!r}")
    if not isinstance(num_bootstrap, Integral) or num_bootstrap < 100:
        raise InputError(f"num_bootstrap must be 100 or more for a 95 % interval, got {num_bootstrap!r}")


def _curve(rates, losses, window: int) -> Curve:
    """The checked curve of one width."""
    try:
        rates = np.asarray(rates, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"rates must be numbers [rates]: {error}") from None
    if rates.ndim != 1 or rates.size < 3:
        raise InputError(f"rates must be a list of at least 3, got shape {rates.shape}")
    if not (np.isfinite(rates).all() and (rates > 0).all() and (np.diff(rates) > 0).all()):
        raise InputError(f"rates must be positive, finite and increasing, got {rates.tolist()}")
    if not isinstance(window, Integral) or window < 1:
        raise InputError(f"window must be a whole number of points from 1 up, got {window!r}")
    lanes = as_lanes(losses)
    if lanes.shape[1] != rates.size:
        raise InputError(f"{rates.size} rates but losses of shape {np.shape(losses)}; the last axis is rates")
    log_rates, usable = np.log(rates), usable_rates(lanes)
    means, blocks, _, _ = two_way(lanes)
    return Curve(rates, log_rates, lanes, usable, means, blocks, fit_windows(log_rates, usable, int(window)))
