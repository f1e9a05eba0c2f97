"""The source files of the three packages, and their imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted(p for package in ("lvp", "experiments", "sweeps") for p in (ROOT / package).rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yields the top-level name of every module that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").split(".")[0]
