"""Learning-rate schedules that carry their peak."""

import numbers
import operator
from typing import Any

import jax.numpy as jnp
import optax

from lvp.errors import InputError
from lvp.optim import rates as _rates


def trapezoid(
    peak: Any, total_steps: int, warmup: float = 0.0, cooldown: float = 0.5, *, warmup_steps: Any = None
) -> optax.Schedule:
    """Linear warm-up, constant, linear cool-down to zero: the schedule of Kosson et al. 2024, section 3.

    With T = `total_steps`, W = round(warmup · T) and D = round(cooldown · T), at step t from 0:

        η_t = peak · min(1, (t + 1) / W, (T − t) / D),    0 from t = T on.

    The first step moves by peak / W. Step W − 1 is the first at the peak; without warm-up, step 0 is. The peak and the
    cool-down do not depend on the warm-up.

    Args:
      peak: the largest rate, a number or scalar array (traced or not).
      total_steps: T ≥ 1.
      warmup, cooldown: fractions of T, together at most 1.
      warmup_steps: W, in place of `warmup`, a whole number or scalar array (traced or not), so that one program serves
        all lengths. It must be at most T − D; an array's value is not checked.

    Returns:
      A schedule with the attribute `.peak`, which `lion_ar` and `parametrized` read.

    Raises:
      InputError: the peak is not above zero; the total is not a whole number of at least 1; a fraction is outside
        [0, 1], or their sum is above 1; warmup_steps is outside [0, T − D].

    Example:
      >>> from lvp import optim
      >>> schedule = optim.trapezoid(0.5, total_steps=8, warmup=0.25, cooldown=0.5)
      >>> [round(float(schedule(step)), 4) for step in range(9)]
      [0.25, 0.5, 0.5, 0.5, 0.5, 0.375, 0.25, 0.125, 0.0]
    """
    _rates.check_peak(peak, "peak")
    try:
        total = operator.index(total_steps)
    except TypeError as error:
        raise InputError(f"total_steps must be a whole number, got {total_steps!r}") from error
    if total < 1:
        raise InputError(f"total_steps must be at least 1, got {total}")
    for name, fraction in (("warmup", warmup), ("cooldown", cooldown)):
        if not 0 <= fraction <= 1:
            raise InputError(f"{name} must be a fraction of total_steps in [0, 1], got {fraction!r}")
    if warmup + cooldown > 1:
        raise InputError(f"warmup + cooldown must be at most 1, got {warmup!r} + {cooldown!r}")
    fall = round(cooldown * total)
    if isinstance(warmup_steps, numbers.Real) and not 0 <= float(warmup_steps) <= total - fall:
        raise InputError(
            f"warmup_steps must lie between 0 and {total - fall}, the cool-down's start, got {warmup_steps}"
        )
    rise = round(warmup * total) if warmup_steps is None else warmup_steps

    def schedule(count):
        count = jnp.asarray(count, float)
        fraction = jnp.minimum(1.0, jnp.clip(total - count, 0.0) / max(fall, 1))
        return peak * jnp.minimum(fraction, (count + 1) / jnp.maximum(rise, 1))

    schedule.peak = peak  # type: ignore[attr-defined]  # functions take attributes
    return schedule
