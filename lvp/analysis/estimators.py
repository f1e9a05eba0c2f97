"""Three estimators of a curve's optimal rate, each with its uncertainty and flags."""

from dataclasses import dataclass

import numpy as np

from lvp.analysis.quadratic_fit import Located, Windows, curvature_threshold, minima
from lvp.errors import InputError

FLAT_LEVEL = 0.01  # probability that a flat curve passes as curved
WANDER_LIMIT = 0.05  # above this share of simulated curves without an optimum inside the grid, "noise" is flagged
COVERAGE = 0.95
NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Optimum:
    """The optimum of one width's curve, in the unit of the given losses and rates. Logarithms are natural.

    A flagged optimum should not be used for a slope. Flags: "edge" (the smallest loss is at the first or last rate with
    a loss, or the fitted vertex is outside its window; for "geometric_mean", the band contains the first or last rate),
    "noise" (noise on a flat curve can give this curvature, the fit is not convex, or more than 5 % of simulated curves
    have no optimum inside the grid), "missing" and "diverged" (runs among the points used are missing or diverged).
    Notes are information that does not exclude the optimum.
    """

    rate: float  # nan if no rate has a loss
    log_rate_std: float  # standard deviation of ln rate; nan if unknown
    interval: tuple[float, float]  # 95 %, in rates; 0 or inf on an open side, nan if unknown
    loss: float  # at the optimum: fitted ("quadratic"), interpolated ("geometric_mean") or measured ("argmin")
    method: str  # the estimator's name
    flags: tuple[str, ...] = ()  # reasons to exclude the optimum
    notes: tuple[str, ...] = ()  # further information
    curvature: float = NAN  # coefficient of (ln rate)² in the window's fit, in the loss's unit
    band: tuple[float, float] = (NAN, NAN)  # smallest and largest rate with a run within the tolerance of the best
    noise_std: float = NAN  # standard deviation of one run's loss, measured or given; nan if unknown
    degrees_of_freedom: float = 0.0  # of noise_std; inf if noise_std was given
    # ln rate at a cubic's minimum minus that at the parabola's vertex, and its standard error; (0, 0) if unknown
    cubic_shift: tuple[float, float] = (0.0, 0.0)

    @property
    def resolved(self) -> bool:
        """True if there is an optimum without flags."""
        return not self.flags and bool(np.isfinite(self.rate))


@dataclass(frozen=True)
class Curve:
    """One width's runs, and the quantities that do not depend on the estimator."""

    rates: np.ndarray  # [R]
    log_rates: np.ndarray  # [R]
    runs: np.ndarray  # [S, R]; nan missing, inf diverged
    usable: np.ndarray  # [R]: at least one run finished and none diverged
    means: np.ndarray  # [R], nan where not usable
    blocks: np.ndarray  # [S], each seed's shift of the whole curve
    grid: Windows  # the fit windows of these rates

    @property
    def counts(self) -> np.ndarray:
        """Number of finished runs in each mean [R]."""
        return np.isfinite(self.runs).sum(axis=0)

    @property
    def near(self) -> np.ndarray:
        """Runs up to one point beyond the first window, from which the noise is measured.

        Losses scatter more near divergence. That scatter is far from the optimum and does not move it.
        """
        best = int(np.argmin(np.where(self.usable, self.means, np.inf)))
        reach = self.grid.window + 1
        return self.runs[:, max(0, best - reach) : best + reach + 1]

    def smooth(self, centre: int) -> np.ndarray:
        """Means [R], with the window's fit in place of the measured means inside the window; else 0 if not usable.

        The measured means already contain noise. Curves simulated around them would contain it twice, and the
        distribution of their best point would be wrong.
        """
        base = np.where(self.usable, self.means, 0.0)
        level, slope, curvature = self.grid.maps[centre] @ base
        if np.isfinite(level):
            points = self.grid.points(centre)
            t = self.log_rates[points] - self.log_rates[centre]
            base[points] = level + slope * t + curvature * t * t
        return base


class Noise:
    """Seed noise of one run's loss, and draws of it for simulated curves.

    Args:
      std: standard deviation of one run's loss; nan if unknown.
      freedom: degrees of freedom of std; inf if std was given.
      num: number of curves to simulate. Each curve has its own std, drawn by chi square, because std is an estimate.
      seed: of the random draws, as for numpy's `default_rng`.
    """

    def __init__(self, std: float, freedom: float, num: int, seed):
        self.std, self.freedom = float(std), float(freedom)
        self.rng = np.random.default_rng(seed)
        self.scales = np.ones(num)
        if 0 < freedom < INF:
            self.scales = np.sqrt(freedom / self.rng.chisquare(freedom, num))

    @property
    def known(self) -> bool:
        """True if the standard deviation is known."""
        return bool(np.isfinite(self.std))

    def draws(self, shape: tuple[int, ...]) -> np.ndarray:
        """Noise [num, *shape]."""
        scales = self.scales.reshape((-1,) + (1,) * len(shape))
        return self.std * scales * self.rng.standard_normal((len(scales), *shape))


@dataclass(frozen=True)
class Reading:
    """An estimator's result for a curve and for its simulations."""

    rate: float  # the estimate
    loss: float  # the loss at `rate`
    off: int  # as in Located; 3: the geometric mean's band contains the first and the last rate
    points: np.ndarray  # indices of the grid points used
    simulated: np.ndarray | None  # log rates of the simulated curves; None if the noise is unknown
    grid_std: float = 0.0  # standard deviation from the unknown position between two rates
    cubic_shift: tuple[float, float] = (0.0, 0.0)  # as in Optimum


@dataclass(frozen=True)
class Search:
    """The minimum of the measured curve and the minima of the simulated curves (None: noise unknown)."""

    located: Located  # of the measured curve
    draws: Located | None  # of the simulated curves
    shift: float  # added to the simulated log rates to centre their noise on the measured log rate
    flat: bool  # True for the flag "noise" of Optimum

    @property
    def centre(self) -> int:
        """Index of the centre of the measured curve's window."""
        return int(self.located.centre[0])


def read(curve: Curve, noise: Noise, method: str, tolerance: float) -> Optimum:
    """The optimum of a curve by the named method of `METHODS`."""
    if not curve.usable.any():
        flags, notes = _flags(curve, np.arange(len(curve.log_rates)))
        return Optimum(NAN, NAN, (NAN, NAN), NAN, method, flags, notes, noise_std=noise.std)
    search = _search(curve, noise)
    reading = METHODS[method](curve, noise, search, tolerance)
    std, interval = _spread(curve, reading, noise)
    flags, notes = _flags(curve, reading.points, reading.off in (-1, 1, 3), search.flat)
    if not noise.known:
        notes += ("seed noise unknown: curvature untested",)
    elif abs(reading.cubic_shift[0]) > 2 * reading.cubic_shift[1]:
        low = reading.rate * np.exp(reading.cubic_shift[0])
        notes += (f"asymmetric: a cubic through the same points has its minimum at {low:.3g}",)
    return Optimum(
        rate=float(reading.rate),
        log_rate_std=std,
        interval=interval,
        loss=float(reading.loss),
        method=method,
        flags=flags,
        notes=notes,
        curvature=float(search.located.curvature[0]),
        band=_band(curve, tolerance),
        noise_std=noise.std,
        degrees_of_freedom=float(noise.freedom),
        cubic_shift=reading.cubic_shift,
    )


def quadratic(curve: Curve, noise: Noise, search: Search, tolerance: float) -> Reading:
    """Vertex of the least-squares parabola in ln η through the window's means."""
    located, draws = search.located, search.draws
    points = curve.grid.points(search.centre)
    simulated = None if draws is None else draws.log_rate + search.shift
    rate, off = _rate(curve, located.log_rate[0]), int(located.off[0])
    shift = (0.0, 0.0) if off else _cubic(curve, noise, search.centre, located.log_rate[0])
    return Reading(rate, located.loss[0], off, points, simulated, cubic_shift=shift)


def argmin(curve: Curve, noise: Noise, search: Search, tolerance: float) -> Reading:
    """The rate of the smallest mean, with an uncertainty of half a step to either side."""
    best = int(search.located.best[0])
    off = -1 if best == curve.grid.first else 1 if best == curve.grid.last else 0
    simulated = None if search.draws is None else curve.log_rates[search.draws.best]
    points = curve.grid.points(best)
    return Reading(curve.rates[best], curve.means[best], off, points, simulated, _step(curve, best) / 12**0.5)


def geometric_mean(curve: Curve, noise: Noise, search: Search, tolerance: float) -> Reading:
    """Geometric mean of the rates of all runs with loss ≤ (1 + tolerance) × the best run's.

    Each end of the band lies between two rates and contributes half of its step to the uncertainty.

    Raises:
      InputError: a loss is not above zero.
    """
    if curve.runs[np.isfinite(curve.runs)].min() <= 0:
        raise InputError("losses must be above 0 for method geometric_mean: use quadratic or argmin")
    log_rate, low, high = (x.item() for x in _within(curve, curve.runs, tolerance))
    ends = low == 0, high == len(curve.log_rates) - 1
    off = {(False, False): 0, (True, False): -1, (False, True): 1, (True, True): 3}[ends]
    simulated = None
    if search.draws is not None:
        order = np.argsort(curve.blocks)  # the result must not depend on the order of the seeds
        base = curve.smooth(search.centre) + curve.blocks[order, None]
        base = np.where(curve.usable, base, curve.runs[order])  # measured runs at rates with a diverged run
        base = np.where(np.isfinite(curve.runs[order]), base, np.inf)
        simulated, *_ = _within(curve, base + noise.draws(base.shape), tolerance)
    loss = np.interp(log_rate, curve.log_rates[curve.usable], curve.means[curve.usable])
    points = np.arange(max(0, low - 1), min(high + 1, len(curve.log_rates) - 1) + 1)
    grid_std = np.hypot(_step(curve, low), _step(curve, high)) / 2 / 12**0.5
    return Reading(_rate(curve, log_rate), loss, off, points, simulated, grid_std)


METHODS = {"quadratic": quadratic, "geometric_mean": geometric_mean, "argmin": argmin}


def _search(curve: Curve, noise: Noise) -> Search:
    grid = curve.grid
    located = grid.locate(curve.means[None])
    if not noise.known:
        return Search(located, None, NAN, located.off[0] == 2)
    centre, per_mean = int(located.centre[0]), np.sqrt(np.maximum(curve.counts, 1))
    base = curve.smooth(centre)
    draws = grid.locate(base + noise.draws(curve.log_rates.shape) / per_mean)
    shift = located.log_rate[0] - grid.locate(base[None]).log_rate[0]
    if np.isnan(located.curvature[0]):  # fewer than three points: nothing to test
        return Search(located, draws, shift, located.off[0] == 2)
    error = grid.curvature_error(centre, noise.std / per_mean)
    threshold = curvature_threshold(grid, curve.counts, noise.freedom, FLAT_LEVEL)
    wanders = located.off[0] == 0 and (draws.off != 0).mean() > WANDER_LIMIT
    return Search(located, draws, shift, bool(not located.curvature[0] > threshold * error or wanders))


def _spread(curve: Curve, reading: Reading, noise: Noise) -> tuple[float, tuple[float, float]]:
    """Standard deviation of the log rate, and the interval in rates; open on the side of an edge."""
    if reading.simulated is None:
        return NAN, (NAN, NAN)
    off, draws = reading.off, reading.simulated
    place = 12**0.5 * (noise.rng.random(draws.shape) - 0.5)  # position within the grid's step: uniform with std 1
    low, high = np.quantile(draws + reading.grid_std * place, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    ends = 0.0 if off in (-1, 2, 3) else _rate(curve, low), INF if off > 0 else _rate(curve, high)
    # The interval includes each curve's own scale, as Student's t does; the std uses the estimated noise.
    std = np.std((draws - np.median(draws)) / noise.scales)
    return (NAN if off else float(np.hypot(std, reading.grid_std))), ends


def _rate(curve: Curve, log_rate: float) -> float:
    """exp(log_rate), and exactly the grid's rate at a point of the grid: processors round exp differently."""
    at = np.flatnonzero(curve.log_rates == log_rate)
    return float(curve.rates[at[0]] if at.size else np.exp(log_rate))


def _flags(curve: Curve, points: np.ndarray, edge: bool = False, noise: bool = False) -> tuple[tuple, tuple]:
    """Flags and notes of an optimum that rests on the grid points `points`."""
    inside = np.zeros(len(curve.log_rates), bool)
    inside[points] = True
    diverged, missing = np.isinf(curve.runs).any(axis=0), np.isnan(curve.runs).any(axis=0)
    flags = {
        "edge": edge,
        "noise": noise,
        "missing": (missing & inside).any(),
        "diverged": (diverged & inside).any(),
    }
    notes = {
        f"rates with diverged runs away from the optimum: {(diverged & ~inside).sum()}": diverged & ~inside,
        f"rates with missing runs away from the optimum: {(missing & ~inside).sum()}": missing & ~inside,
    }
    return tuple(k for k, v in flags.items() if v), tuple(k for k, v in notes.items() if np.any(v))


def _within(curve: Curve, runs: np.ndarray, tolerance: float):
    """For runs [..., S, R] within the tolerance of the best run: mean log rate, index of the first and last rate."""
    finite = np.where(np.isfinite(runs), runs, np.inf)
    best = finite.min(axis=(-2, -1), keepdims=True)
    per_rate = (finite <= best + tolerance * np.abs(best)).sum(axis=-2)  # simulated losses can be below 0
    mean = per_rate @ curve.log_rates / per_rate.sum(axis=-1)
    within = per_rate > 0
    return mean, within.argmax(axis=-1), within.shape[-1] - 1 - within[..., ::-1].argmax(axis=-1)


def _band(curve: Curve, tolerance: float) -> tuple[float, float]:
    """Smallest and largest rate within the tolerance; nan if a loss is not positive (no relative distance)."""
    if curve.runs[np.isfinite(curve.runs)].min() <= 0:
        return NAN, NAN
    _, low, high = _within(curve, curve.runs, tolerance)
    return float(curve.rates[low]), float(curve.rates[high])


def _step(curve: Curve, index: int) -> float:
    """Width in log rate of the interval that is nearer to this rate than to its neighbours."""
    gaps = np.diff(curve.log_rates)
    return float((gaps[max(index - 1, 0)] + gaps[min(index, len(gaps) - 1)]) / 2)


def _cubic(curve: Curve, noise: Noise, centre: int, log_rate: float) -> tuple[float, float]:
    """ln rate at a cubic's minimum minus `log_rate`, and its standard error.

    The error is that of the difference from a parabola's vertex. Both curves are fitted to the window's means.
    (0, 0) if the noise is unknown, or if the window has fewer than five points or no stable minimum of the cubic.
    """
    points = curve.grid.points(centre)
    points = points[curve.usable[points]]
    if len(points) < 5 or not noise.known:
        return 0.0, 0.0
    t = curve.log_rates[points] - curve.log_rates[centre]
    errors = noise.std / np.sqrt(curve.counts[points])
    losses = curve.means[points] + np.vstack([np.zeros(len(t)), np.diag(errors)])  # measured; each point moved
    fits = minima(t, losses)
    shifts = fits.minimum - fits.vertex
    if not np.isfinite(shifts).all():
        return 0.0, 0.0
    shift = curve.log_rates[centre] + fits.minimum[0] - log_rate
    return float(shift), float(np.linalg.norm(shifts[1:] - shifts[0]))
