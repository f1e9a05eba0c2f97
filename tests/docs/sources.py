"""The source files of lvp, lvp.experiments and lvp.sweeps, and their imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("experiments", "sweeps")  # of lvp; lvp has links to their folders
FILES = sorted(p for package in ("lvp", *PARTS) for p in (ROOT / package).rglob("*.py"))


def packaged() -> set[str]:
    """The files of the wheel: all code, and the records of the committed results without figures and benchmarks."""
    results = (ROOT / "experiments" / "results").glob
    data = [ROOT / "lvp" / "py.typed", *results("evidence.json"), *results("*/*/records.*"), *results("*/*/sweep.json")]
    names = (path.relative_to(ROOT) for path in [*FILES, *data])
    return {str(Path("lvp", name) if name.parts[0] in PARTS else name) for name in names}


def imported(path: Path) -> Iterator[str]:
    """Yields the package of every module that a file imports: its top-level name, or the part of lvp."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, second = [*name.split("."), ""][:2]
            yield second if first == "lvp" and second in PARTS else first
