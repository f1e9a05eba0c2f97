"""Seed noise of a sweep: residual noise after removing rate means and seed effects.

Seeds are blocks. A seed has the same initial weights and the same windows of text at every rate of a width, so
its effect is similar at all rates. This effect moves the whole curve up or down and does not move its optimum. The
effect is removed before the noise is measured: loss[s, r] = curve[r] + block[s] + noise[s, r].
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components
from scipy.special import polygamma, stdtrit

from lvp.errors import InputError


def as_runs(losses: ArrayLike) -> np.ndarray:
    """Losses as floats [seeds, rates]; a curve [rates] is one seed. nan is missing, inf is diverged.

    Raises:
      InputError: the losses are not numbers, are empty, have another rank, or are -inf.
    """
    try:
        runs = np.asarray(losses, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"losses must be numbers [rates] or [seeds, rates]: {error}") from None
    runs = runs[None] if runs.ndim == 1 else runs
    if runs.ndim != 2 or runs.size == 0:
        raise InputError(f"losses must be [rates] or [seeds, rates] and not empty, got shape {runs.shape}")
    if np.isneginf(runs).any():
        raise InputError("losses has -inf: use nan for a missing run and inf for a diverged run")
    return runs


def usable_rates(runs: np.ndarray) -> np.ndarray:
    """Mask [R] of the rates with a mean loss: at least one run finished and none diverged."""
    return ~np.isinf(runs).any(axis=0) & np.isfinite(runs).any(axis=0)


def two_way(runs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Least squares of loss = rate mean + seed block over the usable rates of one width.

    With missing runs, a plain mean would include the effects of the seeds present; this fit does not. Runs connect
    seeds with rates. Seeds and rates that no chain of runs connects, as in a sweep that has just begun, are fitted
    separately: the blocks of each connected part sum to 0. The block of a seed without runs is 0.

    Args:
      runs: [S, R], the result of `as_runs`.

    Returns:
      Rate means [R] (nan at unusable rates), seed blocks [S] (with sum 0), residuals [S, R] (nan without a run),
      residual degrees of freedom (runs − parameters).
    """
    num_seeds, num_rates = runs.shape
    usable = usable_rates(runs)
    means, blocks = np.full(num_rates, np.nan), np.zeros(num_seeds)
    residuals = np.full(runs.shape, np.nan)
    used = runs[:, usable]
    if not usable.any():
        return means, blocks, residuals, 0
    if np.isfinite(used).all():  # balanced: the least squares are means of rows and columns
        means[usable] = used.mean(axis=0)
        blocks = used.mean(axis=1) - used.mean()
        residuals[:, usable] = used - means[usable] - blocks[:, None]
        return means, blocks, residuals, (num_seeds - 1) * (used.shape[1] - 1)
    freedom = 0
    for seeds, rates in _connected(np.isfinite(runs) & usable):
        part = runs[np.ix_(seeds, rates)]
        seed, rate = np.nonzero(np.isfinite(part))
        # Seed columns are contrasts against the last seed, so that the blocks sum to zero.
        contrasts = np.vstack([np.eye(seeds.size - 1), -np.ones(seeds.size - 1)])
        design, values = np.hstack([np.eye(rates.size)[rate], contrasts[seed]]), part[seed, rate]
        solution, *_ = np.linalg.lstsq(design, values, rcond=None)
        means[rates], blocks[seeds] = solution[: rates.size], contrasts @ solution[rates.size :]
        residuals[seeds[seed], rates[rate]] = values - design @ solution
        freedom += values.size - design.shape[1]
    return means, blocks, residuals, freedom


def _connected(present: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """The seeds and rates of every connected part of [seeds, rates], where runs are the connections."""
    num_seeds = len(present)
    edges = np.block([[np.zeros((num_seeds, num_seeds)), present], [present.T, np.zeros((present.shape[1],) * 2)]])
    count, part = connected_components(edges, directed=False)
    parts = [(np.flatnonzero(part[:num_seeds] == i), np.flatnonzero(part[num_seeds:] == i)) for i in range(count)]
    return [(seeds, rates) for seeds, rates in parts if seeds.size and rates.size]


def t_interval(values: ArrayLike, *, centre: float | None = None, level: float = 0.95) -> tuple[float, float] | None:
    """Returns Student's interval of a mean over seeds.

    Args:
      values: [N], a value per seed.
      centre: the centre of the interval; None is the mean.
      level: the interval's confidence level, between 0 and 1.

    Returns:
      (low, high) in the values' unit. None for fewer than two values or if a value is not finite: a diverged seed is
      not left out.
    """
    values = np.asarray(values, float)
    if values.size < 2 or not np.isfinite(values).all():
        return None
    centre = values.mean() if centre is None else centre
    half = stdtrit(values.size - 1, (1 + level) / 2) * values.std(ddof=1) / np.sqrt(values.size)
    return float(centre - half), float(centre + half)


def seed_noise(losses_by_width: Sequence) -> tuple[float, int]:
    """Standard deviation of one run's loss about its curve, pooled over rates and widths.

    Args:
      losses_by_width: an array [seeds, rates] per width (nan missing, inf diverged), in the loss's unit. Rates with a
        diverged run are left out.

    Returns:
      (std, degrees of freedom); (nan, 0) if no width has two seeds at two rates.

    Raises:
      InputError: an array is not [seeds, rates], is empty, is not of numbers, or has -inf.
    """
    fits = [two_way(as_runs(losses)) for losses in losses_by_width]
    squares = sum(float(np.nansum(residuals**2)) for _, _, residuals, _ in fits)
    freedom = sum(freedom for *_, freedom in fits)
    return (float(np.sqrt(squares / freedom)), freedom) if freedom else (float("nan"), 0)


def shrunk_noise(stds: ArrayLike, freedoms: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Each width's noise, shrunk towards the common noise as far as the widths agree (Smyth 2004, limma).

    A width that has memorised its text has a lower loss and less noise than other widths, so a common value would be
    wrong for all widths. Each width's own estimate has few degrees of freedom and is imprecise. The prior's degrees of
    freedom come from the spread of log variances in excess of chance. Without excess, or with fewer than three known
    widths, the result is plain pooling.

    Args:
      stds, freedoms: each width's noise [W] and its degrees of freedom [W]; nan and 0 if unknown.

    Returns:
      Stds [W] and degrees of freedom [W] after shrinkage (nan and 0 if no width's noise is known).
    """
    stds, freedoms = np.asarray(stds, float), np.asarray(freedoms, float)
    known = (freedoms > 0) & np.isfinite(stds)
    if not known.any():
        return np.full(stds.shape, np.nan), np.zeros(stds.shape)
    nu, variances = freedoms[known], stds[known] ** 2
    pooled, total = float(np.average(variances, weights=nu)), float(nu.sum())
    flat = np.full(stds.shape, np.sqrt(pooled)), np.full(stds.shape, total)
    if known.sum() < 3 or not (variances > 0).all():  # too few widths to estimate a spread
        return flat
    logs = np.log(variances) - polygamma(0, nu / 2) + np.log(nu / 2)
    excess = float(np.var(logs, ddof=1) - np.mean(polygamma(1, nu / 2)))
    if excess <= 0:
        return flat
    prior_nu = 2 * _inverse_trigamma(excess)
    prior = np.exp(np.mean(logs) + polygamma(0, prior_nu / 2) - np.log(prior_nu / 2))
    own = np.where(known, freedoms, 0.0)
    shrunk = (prior_nu * prior + own * np.where(known, stds, 0.0) ** 2) / (prior_nu + own)
    return np.sqrt(shrunk), np.minimum(prior_nu + own, total)


def _inverse_trigamma(value: float) -> float:
    """x > 0 with trigamma(x) = value, by bisection of ln x (trigamma decreases from inf to 0)."""
    low, high = -15.0, 15.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if polygamma(1, np.exp(middle)) > value else (low, middle)
    return float(np.exp((low + high) / 2))
