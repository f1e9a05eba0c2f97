"""The rows of a part, written to a file after each measurement."""

import json
import math
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lvp.files import write_whole


class Rows:
    """The rows of one part.

    Args:
      path: the JSON file of the rows.
      seconds: the time limit of the part.
      rows: rows that were measured before.
    """

    def __init__(self, path: Path, seconds: float, rows: Sequence[Mapping[str, Any]] = ()):
        self.path, self.rows, self.ends = path, [dict(row) for row in rows], time.monotonic() + seconds
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return self.ends - time.monotonic()

    def add(
        self,
        quantity: str,
        value: float,
        unit: str = "",
        *,
        most: float | None = None,
        least: float | None = None,
        raw: Mapping[str, Any] | None = None,
    ) -> None:
        """Adds a row and writes the file.

        Args:
          unit: "", "×", "%", "ms", "GiB" or another word.
          most, least: bounds of the value; None is no bound. A value that is not finite meets no bound.
          raw: measured values behind the value; those that are not finite become None.
        """
        bounds = [value <= most] if most is not None else []
        bounds += [value >= least] if least is not None else []
        row = {"quantity": quantity, "value": value if math.isfinite(value) else None, "unit": unit}
        row |= {"most": most, "least": least, "holds": all(bounds) if bounds else None}
        self._write(row | {"raw": _finite(dict(raw or {}))})

    @contextmanager
    def attempt(self, quantity: str) -> Iterator[None]:
        """Adds a row with the error if the block raises one; the part goes on."""
        try:
            yield
        except Exception as error:  # any error of a library or a device is a result
            traceback.print_exc()
            self._write({"quantity": quantity, "failed": f"{type(error).__name__}: {error}".splitlines()[0][:300]})

    def skip(self, quantity: str, reason: str) -> None:
        """Adds a row that was not measured, with the reason."""
        self._write({"quantity": quantity, "skipped": reason})

    def _write(self, row: Mapping[str, Any]) -> None:
        with self._lock:
            rows = [*self.rows, dict(row)]
            write_whole(self.path, json.dumps(rows, indent=1, allow_nan=False) + "\n")
            self.rows = rows  # after the write: a row that is no JSON does not spoil the later rows
            print("  ".join(filter(None, settings(row))), flush=True)


def _finite(value: Any) -> Any:
    """The value with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(path: Path) -> list[dict[str, Any]]:
    """The rows that a part has written so far."""
    return json.loads(path.read_text()) if path.exists() else []


def settings(row: Mapping[str, Any]) -> Sequence[str]:
    """Quantity, measured value, bound, and whether the bound holds, as text."""
    for word in ("failed", "skipped"):
        if word in row:
            return row["quantity"], row[word], "", word
    number = lambda x: "–" if x is None else f"{x:.3g}{'' if row['unit'] in ('', '×', '%') else ' '}{row['unit']}"  # noqa: E731
    bound = f"≤ {number(row['most'])}" if row["most"] is not None else ""
    bound += f"≥ {number(row['least'])}" if row["least"] is not None else ""
    holds = {None: "", True: "holds", False: "does not hold"}[row["holds"]]
    return row["quantity"], number(row["value"]), bound, holds


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table."""
    lines = [("quantity", "measured", "bound", ""), ("---", "---:", "---:", "---"), *map(settings, rows)]
    return "\n".join("| " + " | ".join(x.replace("|", "/") for x in line) + " |" for line in lines)
