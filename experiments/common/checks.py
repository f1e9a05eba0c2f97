"""Checks of the values in configurations."""

from collections.abc import Collection, Sequence
from typing import Any

from lvp.errors import InputError
from lvp.training import check_positive

_MOST_POINTS = 10_000  # each measured step takes memory in a run's state and space in its record


def sorted_values(config: Any, name: str, *, least: int = 1, positive: bool = False) -> None:
    """Sorts the tuple in the field `name` of a configuration.

    Raises:
      InputError: there are fewer than `least` values, a value occurs twice, or, with `positive`, a value is NaN,
        infinite, 0 or below.
    """
    values = getattr(config, name)
    if not values:
        raise InputError(f"{name} is empty: it needs at least one value")
    if len(set(values)) < len(values):
        raise InputError(f"{name} holds a value twice: {', '.join(map(str, values))}; remove the repetition")
    if positive:
        for value in values:
            check_positive(name, value)
    if len(values) < least:
        raise InputError(f"{name} needs at least {least} values, got {len(values)}")
    object.__setattr__(config, name, tuple(sorted(values)))


def check_seeds(config: Any, name: str, *, least: int = 1) -> None:
    """Sorts the seeds in the field `name` of a configuration.

    Raises:
      InputError: there are fewer than `least` seeds, a seed occurs twice, or a seed is outside 0 to 2^32 − 1.
    """
    sorted_values(config, name, least=least)
    if any(seed < 0 or seed >= 2**32 for seed in getattr(config, name)):
        raise InputError(f"{name} must be whole numbers from 0 to 2^32 − 1, got {getattr(config, name)}")


def check_count(config: Any, name: str, *, least: int = 1, most: int | None = None) -> None:
    """Checks the number in the field `name` of a configuration.

    Raises:
      InputError: the number is below `least` or above `most`.
    """
    value = getattr(config, name)
    if value < least:
        raise InputError(f"{name} must be at least {least}, got {value}")
    if most is not None and value > most:
        raise InputError(f"{name} must be at most {most}, got {value}")


def check_points(config: Any, most: int = _MOST_POINTS) -> None:
    """Checks the field `points` of a configuration, the number of measured steps.

    Raises:
      InputError: the number is below 2, above `most` or above 10,000.
    """
    check_count(config, "points", least=2, most=min(most, _MOST_POINTS))


def check_names(field: str, given: Sequence[str], known: Collection[str]) -> None:
    """Checks the names in a field.

    Raises:
      InputError: there is no name, a name is unknown, or a name occurs twice.
    """
    for name in given:
        if name not in known:
            raise InputError(f"{field} must hold only {', '.join(known)}; got {name!r}")
    if not given or len(set(given)) < len(given):
        raise InputError(f"{field} must hold at least one name, and none twice; got {', '.join(given) or 'none'}")


def check_schedule(warmup: float, cooldown: float) -> None:
    """Checks the lengths of warm-up and cool-down, which are fractions of the steps.

    Raises:
      InputError: a fraction is negative or NaN, or their sum is above 1.
    """
    if not (warmup >= 0 and cooldown >= 0 and warmup + cooldown <= 1):  # nan is refused too
        raise InputError(
            f"warmup and cooldown must be fractions of the steps with a sum of at most 1, got {warmup:g} and "
            f"{cooldown:g}"
        )
