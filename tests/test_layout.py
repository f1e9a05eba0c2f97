"""The house's own rules: imports run one way, and no file or function grows out of sight."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(p for room in ("lvp", "experiments", "sweeps") for p in (ROOT / room).rglob("*.py"))
FORBIDDEN = {
    "lvp": {"experiments", "sweeps", "ray"},
    "experiments": {"sweeps", "ray"},
    "lvp/optim": {"flax", "orbax", "numpy", "pandas"},
}
ONLY = {"flax": "lvp/models", "orbax": "lvp/checkpoints.py", "ray": "sweeps", "tensorboardX": "sweeps/event_files.py"}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path):
    name, modules = str(path.relative_to(ROOT)), set(imported(path))
    for room, forbidden in FORBIDDEN.items():
        if name.startswith(room + "/"):
            assert not modules & forbidden
    for module, place in ONLY.items():
        assert module not in modules or name.startswith(place)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, node.name
