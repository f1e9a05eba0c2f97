"""A measured number with its 95 % interval."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lvp.analysis.noise import t_interval

NORMAL_QUANTILE = 1.96  # half width of a 95 % interval, in standard errors


class Measurement(NamedTuple):
    """A number and its 95 % interval."""

    value: float  # nan if unknown, inf if a run diverged
    interval: tuple[float, float] | None  # None if unknown; an open end is ±inf

    @classmethod
    def over_seeds(cls, values: Sequence[float] | np.ndarray, *, centre: float | None = None) -> "Measurement":
        """The mean of independent values, with Student's t interval.

        Args:
          values: [N], one value per seed. The interval is unknown for fewer than two values and for a value that is not
            finite: a diverged seed is not left out.
          centre: the value and the centre of the interval; None: the mean.
        """
        if centre is None:
            centre = float(np.mean(values)) if len(values) else math.nan
        return cls(centre, t_interval(values, centre=centre))

    @classmethod
    def plus_minus(cls, value: float, half: float) -> "Measurement":
        """The value with an interval of half width `half`; `NORMAL_QUANTILE` standard errors give 95 %."""
        return cls(float(value), (float(value - half), float(value + half)))

    @classmethod
    def p_value(cls, value: float, limit: float) -> "Measurement":
        """A p-value, exactly known if it is at most `limit`. A larger one decides nothing and has no interval."""
        return cls(float(value), (float(value), float(value)) if value <= limit else None)

    @classmethod
    def correlation(cls, first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> "Measurement":
        """Pearson's correlation of independent pairs, with Fisher's interval; unknown for fewer than four pairs."""
        pairs = np.array([first, second], float)
        if pairs.shape[1] < 4 or not np.isfinite(pairs).all() or not pairs.std(axis=1).all():
            return cls(math.nan, None)
        value = float(np.corrcoef(pairs)[0, 1])
        with np.errstate(divide="ignore"):  # a correlation of 1 has the interval [1, 1]
            angle = np.arctanh(value)
        ends = np.tanh(angle + np.array([-1, 1]) * NORMAL_QUANTILE / math.sqrt(pairs.shape[1] - 3))
        return cls(value, (float(ends[0]), float(ends[1])))

    def exp(self) -> "Measurement":
        """The exponential of a measured logarithm."""
        ends = self.interval and (float(np.exp(self.interval[0])), float(np.exp(self.interval[1])))
        return Measurement(float(np.exp(self.value)), ends)

    def widened(self, below: float, above: float) -> "Measurement":
        """The measurement with a lower end that is lower by `below` and an upper end that is higher by `above`."""
        return Measurement(self.value, self.interval and (self.interval[0] - below, self.interval[1] + above))

    def containing(self, other: "Measurement") -> "Measurement":
        """The value with the smallest interval that contains both intervals; unknown if one of them is unknown."""
        if not (self.interval and other.interval):
            return Measurement(self.value, None)
        (low, high), (other_low, other_high) = self.interval, other.interval
        return Measurement(self.value, (min(low, other_low), max(high, other_high)))

    def text(self, spec: str = ".3g") -> str:
        """`value [low, high]` with numbers in the format `spec`; "–" for an unknown value.

        The value stands alone without an interval, or with one that is open at both ends.
        """
        if math.isnan(self.value):
            return "–"
        known = self.interval if self.interval and not all(map(math.isinf, self.interval)) else ()
        # 12 digits first: 0.04525, computed as 0.04524999… or 0.04525000…, is the same text on every processor.
        middle, *ends = (format(float(f"{x:.12g}"), spec) for x in (self.value, *known))
        return f"{middle} [{', '.join(ends)}]" if ends else middle

    def in_words(self) -> str:
        """`text` with two decimals and the minus sign of prose."""
        return self.text("z.2f").replace("-", "−")

    def percent(self) -> str:
        """`text` in percent with one decimal."""
        interval = self.interval and (100 * self.interval[0], 100 * self.interval[1])
        return Measurement(100 * self.value, interval).text("z.1f")  # z: no negative zero
