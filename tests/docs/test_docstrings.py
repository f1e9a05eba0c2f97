"""Rules of docstrings: errors stand in `Raises:` blocks, `Args:` blocks name parameters, blocks stand in one order."""

import ast
import re

from tests.docs.sources import FILES, ROOT

BLOCKS = ["Args", "Returns", "Raises"]
BLOCK = re.compile(rf"^({'|'.join(BLOCKS)}):\n((?:(?: .*)?\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^  (\S.*)", re.MULTILINE)  # its further lines have a larger indent
STATED = re.compile(r"\bRaises\b|\braises? (an? |the )?`?\w*Error\b")


def names_of(node: ast.AST) -> set[str]:
    """The parameters of a function; the fields and constructor arguments of a class."""
    if isinstance(node, ast.ClassDef):
        fields = {x.target.id for x in node.body if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name)}
        return fields.union(*(names_of(x) for x in node.body if getattr(x, "name", "") == "__init__"))
    if not isinstance(node, ast.FunctionDef):
        return set()
    given = node.args
    return {x.arg for x in (*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg) if x}


def faults(source: str) -> list[tuple[str, str]]:
    """(place, fault) of every fault in the docstrings of a source text."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) or not (text := ast.get_docstring(node)):
            continue
        blocks, place = BLOCK.findall(text + "\n"), getattr(node, "name", "module")
        if STATED.search(BLOCK.sub("", text + "\n")):
            found.append((place, "an error outside of Raises"))
        order = [BLOCKS.index(kind) for kind, _ in blocks]
        if order != sorted(set(order)):
            found.append((place, "the order of the blocks"))
        for kind, block in blocks:
            entries = ENTRY.findall(block)
            if kind == "Raises" and not (entries and all(re.match(r"[\w.]+: \S", entry) for entry in entries)):
                found.append((place, "an entry of Raises"))
            named = {name for entry in entries for name in entry.partition(":")[0].replace("*", "").split(", ")}
            if kind == "Args" and not (entries and named <= names_of(node)):
                found.append((place, "a name of Args"))
    return found


def test_docstrings_have_one_form():
    found = {str(path.relative_to(ROOT)): faults(path.read_text()) for path in FILES}
    assert {path: places for path, places in found.items() if places} == {}


def test_every_fault_is_found():
    outside, entry = "A number.\n\nRaises: InputError for 0.", "A number.\n\nRaises:\n  if x is 0."
    name, order = "A number.\n\nArgs:\n  x, y: numbers.", "A number.\n\nRaises:\n  E: x is 0.\n\nArgs:\n  x: a number."
    source = "".join(f"def f(x):\n    {text!r}\n" for text in (outside, entry, name, order))
    kinds = ["an error outside of Raises", "an entry of Raises", "a name of Args", "the order of the blocks"]
    assert faults(source) == [("f", kind) for kind in kinds]
