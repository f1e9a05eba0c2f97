"""A coordinate check as text, JSON types and figure."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series, in_words
from lvp.coordinates.quantities import QUANTITIES
from lvp.parametrization import aligned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lvp.coordinates.growth import Coordinates, Growth


def text(coordinates: "Coordinates") -> str:
    """The table of activations (lines) and quantities (columns), the expected deviations, and the alarms."""
    lines = [("power of width, 95 % interval", *(_column(coordinates, words) for words in QUANTITIES.values()))]
    for name in coordinates.activations:
        growths = [coordinates[name, quantity] for quantity in QUANTITIES]
        lines.append((name, *(f"{_power(growth)} {_word(growth)}" for growth in growths)))
    widths = ", ".join(map(str, coordinates.widths))
    heading = [coordinates.title] if coordinates.title else []
    heading.append(f"mean absolute entries over widths {widths}; seeds {coordinates.seeds}, steps {coordinates.steps}")
    blocks = ["\n".join([*heading, *aligned(lines)])]
    if excused := _excused(coordinates):
        blocks.append("\n".join(["*: not flat, as the rule predicts:", *excused]))
    blocks.append(_conclusion(coordinates))
    blocks += ["\n".join(coordinates.notes)] if coordinates.notes else []
    return "\n\n".join(blocks)


def _column(coordinates: "Coordinates", words: str) -> str:
    steps = f"{coordinates.steps} step" + "s" * (coordinates.steps > 1)
    return {"after training": f"after {steps}", "change": f"change in {steps}"}.get(words, words)


def _power(growth: "Growth") -> str:
    return "" if growth.verdict in ("zero", "diverged") else in_words(growth.fit)


def _word(growth: "Growth") -> str:
    excused = growth.verdict in ("grows", "vanishes") and not growth.alarm
    return growth.verdict + ("*" if excused else "!" if growth.alarm else "")


def _excused(coordinates: "Coordinates") -> list[str]:
    reasons: dict[str, list[str]] = {}
    for growth in coordinates.growths:
        if growth.expected is not None and growth.verdict in ("grows", "vanishes") and not growth.alarm:
            reasons.setdefault(growth.expected.why, []).append(f"{growth.activation} {QUANTITIES[growth.quantity]}")
    return [f"  {', '.join(names)}: {why}" for why, names in reasons.items()]


def _conclusion(coordinates: "Coordinates") -> str:
    verdicts = [growth.verdict for growth in coordinates.growths]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(sorted(verdicts)))
    if not coordinates.alarms:
        return f"No alarm ({counts})."
    words = [f"{g.activation} {QUANTITIES[g.quantity]} {_verb(g)}" for g in coordinates.alarms]
    return f"!: {len(words)} of {len(verdicts)} measurements contradict the rule ({counts}): {'; '.join(words)}."


def _verb(growth: "Growth") -> str:
    return "has diverged" if growth.verdict == "diverged" else f"{growth.verdict} as d^{growth.fit.slope:.2f}"


def as_dict(coordinates: "Coordinates") -> dict[str, Any]:
    """Returns the coordinate check as JSON types."""
    growths = [
        {
            "activation": growth.activation,
            "quantity": growth.quantity,
            "values": [[_finite(x) for x in row] for row in growth.values.tolist()],
            "power": _finite(growth.fit.slope),
            "interval": [_finite(end) for end in growth.fit.interval],
            "expected": None if growth.expected is None else dataclasses.asdict(growth.expected),
            "verdict": growth.verdict,
            "alarm": growth.alarm,
        }
        for growth in coordinates.growths
    ]
    shared = {
        "title": coordinates.title,
        "widths": list(coordinates.widths),
        "steps": coordinates.steps,
        "seeds": coordinates.seeds,
    }
    return shared | {"notes": list(coordinates.notes), "growths": growths}


def _finite(x: float) -> float | None:
    return float(x) if np.isfinite(x) else None


def figure(coordinates: "Coordinates") -> "Figure":
    """Draws a row of panels per quantity, with a column per first part of the activations' names."""
    groups: dict[str, list[str]] = {}
    for name in coordinates.activations:
        groups.setdefault(name.rpartition("/")[0].partition("/")[0], []).append(name)
    panels = []
    for quantity, words in QUANTITIES.items():
        for group, names in groups.items():
            series = [_series(coordinates, coordinates[name, quantity], group) for name in names]
            title = f"{group}: {_column(coordinates, words)}" if group else _column(coordinates, words)
            panels.append(Panel(title, "width d", "mean absolute entry", series, "power of d", ylim=_decade(series)))
    return sheet(
        panels,
        title=coordinates.title or "Coordinates over width",
        words=[
            f"Points: means over {coordinates.seeds} seeds with standard errors. Lines: fitted powers; the legend "
            "gives each power with its 95 % interval.",
            "!: grows or vanishes contrary to the rule; *: grows or vanishes as the rule predicts.",
        ],
        columns=len(groups),
        size=(4.6, 4.4),
    )


def _decade(series: list[Series]) -> tuple[float, float] | None:
    """Axis limits of at least a decade, so that flat series look flat."""
    values = np.concatenate([series_.y for series_ in series])
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    low, high = values.min() / 1.3, values.max() * 1.3
    stretch = max(1.0, np.sqrt(10 * low / high))
    return float(low / stretch), float(high * stretch)


def _series(coordinates: "Coordinates", growth: "Growth", group: str) -> Series:
    values = np.where(np.isfinite(growth.values) & (growth.values > 0), growth.values, np.nan)
    seeds = values.shape[1]
    error = values.std(axis=1, ddof=1) / np.sqrt(seeds) if seeds > 1 else None
    name = growth.activation.removeprefix(f"{group}/")
    fitted = growth.fit.line(coordinates.widths)[0] if np.isfinite(growth.fit.slope) else None
    label = f"{name}: {_power(growth)} {_word(growth)}"
    return Series(label, coordinates.widths, values.mean(axis=1), error=error, fitted=fitted)
