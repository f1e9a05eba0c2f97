"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]], align: str = "") -> str:
    """A Markdown table without a line end after its last line.

    Args:
      align: "l" or "r" for each column; "" is "l" for all columns. Numbers are read best from the right.
    """
    sides = ["---:" if side == "r" else "---" for side in align or "l" * len(head)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (head, sides, *rows))
