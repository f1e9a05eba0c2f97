"""Learning rates as numbers, arrays or schedules, and what a factory takes."""

import functools
import inspect
import math
import numbers
from collections.abc import Callable
from typing import Any

import optax

from lvp.errors import InputError


def scaled(rate: optax.ScalarOrSchedule, factor: Any, peak: Any = None) -> optax.ScalarOrSchedule:
    """`rate` times `factor`: a product, or a schedule of products.

    A scaled schedule carries `.peak` = peak · factor where the peak is known (from `peak`, else from the
    schedule's own `.peak`), so that optimizers which need the peak of *their* rate can read it.
    """
    if not callable(rate):
        return rate * factor

    def schedule(count):
        return rate(count) * factor

    peak = getattr(rate, "peak", None) if peak is None else peak
    if peak is not None:
        schedule.peak = peak * factor  # type: ignore[attr-defined]  # functions take attributes
    return schedule


def peak_of(rate: optax.ScalarOrSchedule, peak_learning_rate: Any = None) -> Any:
    """The largest value of a rate over training: what was given, a schedule's `.peak`, or the scalar itself.

    Raises:
      InputError: a schedule whose peak is not known.
    """
    if peak_learning_rate is not None:
        return peak_learning_rate
    if not callable(rate):
        return rate
    peak = getattr(rate, "peak", None)
    if peak is None:
        raise InputError("peak_learning_rate is required: this schedule does not carry its peak as `.peak`")
    return peak


def own_peak(rate: optax.ScalarOrSchedule, peak_learning_rate: Any = None) -> Any:
    """As `peak_of`, for optimizers whose step depends on the peak at every step: an array is not its own peak, since
    it may be one step's value of a schedule (`optax.inject_hyperparams`) or of a sweep.

    Raises:
      InputError: a schedule or an array whose peak is not known; a peak that is not a positive scalar.
    """
    if peak_learning_rate is None and not callable(rate) and not isinstance(rate, numbers.Real):
        raise InputError(
            "peak_learning_rate is required: learning_rate is an array (traced or injected), whose largest value "
            "over training cannot be read from it"
        )
    peak = peak_of(rate, peak_learning_rate)
    check_peak(peak)
    return peak


def check_peak(peak: Any) -> None:
    """A scalar above zero, as far as that can be seen.

    Raises:
      InputError, naming `peak_learning_rate`.
    """
    check("peak_learning_rate", peak)
    if callable(peak) or (isinstance(peak, numbers.Real) and peak == 0):
        raise InputError(f"the peak learning rate must be a positive number, got {peak!r}")


def check_beta(name: str, value: Any) -> None:
    """A decay rate of a moving average: in [0, 1) where it is a Python or NumPy number, else any scalar array.

    Raises:
      InputError, naming the argument.
    """
    check(name, value)
    if callable(value) or (isinstance(value, numbers.Real) and not value < 1):
        raise InputError(f"{name} must lie in [0, 1), got {value!r}")


def at(rate: optax.ScalarOrSchedule, count: Any) -> Any:
    """The rate at a step counted from 0."""
    return rate(count) if callable(rate) else rate


def check(name: str, value: Any) -> None:
    """A schedule, a scalar array (traced or not) or a Python number that is finite and not negative.

    Only Python and NumPy numbers are checked for their value: that of a jax array may not exist yet.

    Raises:
      InputError, naming the argument.
    """
    if callable(value):
        return
    if not isinstance(value, numbers.Real) and not hasattr(value, "shape"):
        raise InputError(f"{name} must be a number, a scalar array or a schedule, got {value!r}")
    if getattr(value, "shape", ()) != ():
        raise InputError(f"{name} must be a scalar, got shape {value.shape}; to try several use jax.vmap")
    if isinstance(value, numbers.Real) and not (math.isfinite(value) and float(value) >= 0):
        raise InputError(f"{name} must be finite and not negative, got {value!r}")


def accepts(factory: Callable, name: str) -> bool:
    """Whether a factory has a parameter of this name (a catch-all `**kwargs` does not count)."""
    return name in inspect.signature(factory).parameters


def unwrapped(factory: Callable) -> Callable:
    """The function under any `functools.partial`, `functools.wraps` and `optax.inject_hyperparams`."""
    while True:
        if isinstance(factory, functools.partial):
            factory = factory.func
        elif hasattr(factory, "__wrapped__"):
            factory = factory.__wrapped__
        else:
            return factory


def name_of(factory: Callable) -> str:
    """What to call a factory in a message."""
    return getattr(unwrapped(factory), "__name__", repr(factory))


def bound(factory: Callable, name: str) -> bool:
    """Whether a `functools.partial` already fixes the keyword `name`."""
    while isinstance(factory, functools.partial):
        if name in factory.keywords:
            return True
        factory = factory.func
    return False
