"""Learning rates (numbers, arrays or schedules), and inspection of factories such as `optax.adamw`."""

import functools
import inspect
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import jax
import optax

from lvp.errors import InputError


def scaled(rate: optax.ScalarOrSchedule, factor: Any, peak: Any = None) -> optax.ScalarOrSchedule:
    """The rate times a factor. The product with a schedule is a schedule.

    The scaled schedule has the attribute `.peak` = peak · factor, which optimizers read. The peak is `peak`, else the
    `.peak` of `rate`. Without either, the scaled schedule has no `.peak`.
    """
    if not callable(rate):
        return rate * factor

    def schedule(count):
        return rate(count) * factor

    peak = getattr(rate, "peak", None) if peak is None else peak
    if peak is not None:
        schedule.peak = peak * factor  # type: ignore[attr-defined]  # functions take attributes
    return schedule


def unwrapped_arguments(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments, also if `optax.inject_hyperparams` passes them as one argument named "kwargs"."""
    return {**kwargs.get("kwargs", {}), **{name: value for name, value in kwargs.items() if name != "kwargs"}}


def own_peak(rate: optax.ScalarOrSchedule, peak_learning_rate: Any = None) -> Any:
    """The largest value of a rate over training: `peak_learning_rate`, a schedule's `.peak`, or the number itself.

    An array, traced or not, is not its own peak: it may be the value of a schedule at one step, as under
    `optax.inject_hyperparams`.

    Raises:
      InputError: the rate is a schedule or an array, and its peak is unknown; the peak is not a finite scalar above
        zero.
    """
    peak = peak_learning_rate
    if peak is None and callable(rate):
        peak = getattr(rate, "peak", None)
        if peak is None:
            raise InputError("peak_learning_rate is required: this schedule does not carry its peak as `.peak`")
    elif peak is None and not isinstance(rate, numbers.Real):
        raise InputError(
            "peak_learning_rate is required: learning_rate is an array (traced or injected), from which its largest "
            "value over training is not known"
        )
    peak = rate if peak is None else peak
    check_peak(peak)
    return peak


def check_peak(peak: Any, name: str = "peak_learning_rate") -> None:
    """Checks that a peak is a finite scalar above zero; the value of a traced array is not checked.

    Raises:
      InputError: the peak is not such a scalar; the error names the argument.
    """
    check_constant(name, peak)
    if known(peak) == 0:
        raise InputError(f"{name} must be a positive number, got {peak!r}")


def check_constant(name: str, value: Any) -> None:
    """Checks that a value is a finite, non-negative scalar; the value of a traced array is not checked.

    Raises:
      InputError: the value is not such a scalar (a schedule, for example); the error names the argument.
    """
    check(name, value)
    if callable(value):
        raise InputError(f"{name} must be a number or a scalar array, got a schedule")


def check_beta(name: str, value: Any) -> None:
    """Checks that the decay of a moving average is a scalar in [0, 1); the value of a traced array is not checked.

    Raises:
      InputError: the value is not such a scalar; the error names the argument.
    """
    check_constant(name, value)
    if not (known(value) or 0) < 1:
        raise InputError(f"{name} must lie in [0, 1), got {value!r}")


def at(rate: optax.ScalarOrSchedule, count: Any) -> Any:
    """The rate at a step counted from 0."""
    return rate(count) if callable(rate) else rate


def check(name: str, value: Any) -> None:
    """Checks that a value is a schedule, or a finite, non-negative scalar.

    The values of schedules and of traced arrays are not checked.

    Raises:
      InputError: the value is neither; the error names the argument.
    """
    if callable(value):
        return
    if not isinstance(value, numbers.Real) and not hasattr(value, "shape"):
        raise InputError(f"{name} must be a number, a scalar array or a schedule, got {value!r}")
    if getattr(value, "shape", ()) != ():
        raise InputError(f"{name} must be a scalar, got shape {value.shape}; to try several values, use jax.vmap")
    if (number := known(value)) is not None and not 0 <= number < math.inf:
        raise InputError(f"{name} must be finite and not negative, got {value!r}")


def known(value: Any) -> float | None:
    """The value of a scalar; None for a traced array, and for an array on devices of another process."""
    if isinstance(value, jax.core.Tracer) or not getattr(value, "is_fully_addressable", True):
        return None
    return float(value)


def accepts(factory: Callable, name: str) -> bool:
    """True if a factory has a parameter of this name; a catch-all `**kwargs` does not count."""
    return name in inspect.signature(factory).parameters


def default_of(factory: Callable, name: str) -> Any:
    """The default of a factory's parameter. For a partial it is the bound value. None if there is no default."""
    parameter = inspect.signature(factory).parameters.get(name)
    return None if parameter is None or parameter.default is parameter.empty else parameter.default


def unwrapped(factory: Callable) -> Callable:
    """The function inside `functools.partial`, `functools.wraps` and `optax.inject_hyperparams`, at any depth."""
    while True:
        if isinstance(factory, functools.partial):
            factory = factory.func
        elif hasattr(factory, "__wrapped__"):
            factory = factory.__wrapped__
        else:
            return factory


def name_of(factory: Callable) -> str:
    """The factory's name in error messages."""
    return getattr(unwrapped(factory), "__name__", repr(factory))


def bound(factory: Callable, name: str) -> Any:
    """The value to which a `functools.partial` binds the keyword `name`, else None."""
    while isinstance(factory, functools.partial):
        if name in factory.keywords:
            return factory.keywords[name]
        factory = factory.func
    return None


def unknown_options(factory: Callable) -> list[str]:
    """The keywords that a `functools.partial` binds but its function does not accept."""
    unknown = []
    while isinstance(factory, functools.partial):
        parameters = inspect.signature(factory.func).parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            unknown += [name for name in factory.keywords if name not in parameters]
        factory = factory.func
    return unknown
