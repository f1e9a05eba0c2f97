"""Rules of the code base: import direction, no cycles of files or packages, light imports, annotated public functions,
no private interfaces."""

import ast
import functools
import re
import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest

from tests.docs.sources import FILES, PARTS, ROOT, imported

FORBIDDEN = {
    "lvp": {"experiments", "sweeps", "ray"},
    "experiments": {"sweeps", "ray"},
    "lvp/optim": {"flax", "orbax", "numpy", "pandas"},
}
# Statement → the third-party packages that it may import. jax and optax stand for themselves and their dependencies.
IMPORTS = {
    "import lvp": set(),
    "from lvp import optim": {"jax", "optax"},
    "import lvp.losses, lvp.measures, lvp.roles, lvp.parallel.sharding": {"jax", "optax"},
    "from lvp.parametrization.recommend import recommend": {"numpy"},
    "from lvp.cli import main; main.parser()": {"numpy"},
}
ONLY: dict[str, str | tuple[str, ...]] = {
    "flax": ("lvp/models", "experiments/large_updates/resnet.py"),
    "obstore": "lvp/files/buckets.py",
    "orbax": "lvp/files/checkpoints.py",
    "ray": ("sweeps/ray_tune.py", "sweeps/encoding.py"),
    "tensorboardX": "sweeps/trackers.py",
    "wandb": "sweeps/trackers.py",
    "mlflow": "sweeps/trackers.py",
}


def test_imports_run_one_way():
    for path in FILES:
        name, modules = str(path.relative_to(ROOT)), set(imported(path))
        for folder, forbidden in FORBIDDEN.items():
            assert not (name.startswith(folder + "/") and modules & forbidden), name
        for module, place in ONLY.items():
            assert module not in modules or name.startswith(place), name


PRIVATE = re.compile(r"^\s*(from|import) [\w.]*\._(src|private)\b", re.MULTILINE)


def test_no_private_interfaces_of_other_packages_are_used():
    assert PRIVATE.search("from jax._src import x") and PRIVATE.search("    import ray._private.y")  # controls
    assert [path for path in FILES if PRIVATE.search(path.read_text())] == []


OURS = re.compile(r"^\s*(from|import) (experiments|sweeps)\b", re.MULTILINE)


def test_no_package_of_a_user_hides_ours():
    """`experiments` and `sweeps` are usual names, and the working directory precedes other places of imports."""
    assert OURS.search("from experiments.warmup import x")  # controls
    assert not OURS.search("from lvp.experiments import x")
    assert [path for path in FILES if OURS.search(path.read_text())] == []


def executed(node):
    """Yields the nodes below `node`, without the branches that only type checkers execute."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from executed(other)
        else:
            yield child
            yield from executed(child)


def imports_between(sources):
    """Returns, for every module of `sources` (dotted name → text), the modules of `sources` that it imports, in
    functions too. `from package import x` imports the module x if it exists, otherwise the package. Parent packages do
    not count."""
    graph = {}
    for module, text in sources.items():
        targets = set()
        for node in executed(ast.parse(text)):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                below = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= {name if name in sources else node.module for name in below}
        graph[module] = targets & sources.keys()
    return graph


def cycles(graph):
    """Returns the strongly connected components of more than one node, sorted."""

    def reached(start):
        seen, todo = set(), list(graph[start])
        while todo:
            if (node := todo.pop()) not in seen:
                seen.add(node)
                todo += graph[node]
        return seen

    behind = {node: reached(node) for node in graph}
    components = {tuple(sorted({node} | {x for x in behind[node] if node in behind[x]})) for node in graph}
    return sorted(component for component in components if len(component) > 1)


def imports_between_packages(graph):
    """Returns the packages that each package imports, from the result of `imports_between`.

    A module belongs to the package of its directory. `__init__` belongs to the package that it describes, and may
    import the packages below it. A top-level package such as lvp is no layer: its lowest module (lvp.errors) and its
    highest (lvp.__main__) stand in one directory. Its modules therefore count as packages of one file.
    """
    packages = {module.rpartition(".")[0] for module in graph}

    def package(module):
        return module if module in packages or module.count(".") < 2 else module.rpartition(".")[0]

    between = {package(module): set() for module in graph}
    for module, targets in graph.items():
        between[package(module)] |= {package(target) for target in targets}
    return between


def dotted(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("lvp", *parts) if parts[0] in PARTS else parts).removesuffix(".__init__")


def test_no_two_files_import_each_other():
    assert cycles(imports_between({dotted(path): path.read_text() for path in FILES})) == []


def test_no_two_packages_import_each_other():
    sources = {dotted(path): path.read_text() for path in FILES}
    assert cycles(imports_between_packages(imports_between(sources))) == []


def test_import_cycles_are_detected():
    """Negative control: cycles through functions, packages and `import a.b` are detected; imports for type checkers
    alone are not."""
    sources = {
        "a": "from a import one",
        "a.one": "def f():\n    from a.two import x",
        "a.two": "import a.three",
        "a.three": "from a import one, nothing",
        "b": "from b.one import x\nif TYPE_CHECKING:\n    import b.two",
        "b.one": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from b import x\nelse:\n    import b.two",
        "b.two": "import os",
    }
    assert cycles(imports_between(sources)) == [("a", "a.one", "a.three", "a.two")]
    assert cycles(imports_between(sources | {"a.three": "from a import one"})) == [("a.one", "a.three", "a.two")]
    assert cycles(imports_between(sources | {"a.three": "x = 1"})) == []
    assert cycles(imports_between(sources | {"a.three": "x = 1", "b.two": "import b.one"})) == [("b.one", "b.two")]


def test_cycles_of_packages_are_detected():
    """Negative control: the files of these sources do not import each other in a cycle, but their packages do."""
    sources = {
        "a": "from a.low import deep",  # may import the packages below it
        "a.__main__": "import a.high.one",
        "a.high": "",
        "a.high.one": "from a.low import two",
        "a.high.other": "import a.errors",
        "a.low": "from a.low import two",  # an arrow within the package
        "a.low.two": "def f():\n    from a.errors import x",
        "a.low.deep": "",
        "a.low.deep.three": "import a.errors",
        "a.errors": "",
    }

    def found(**changed):
        return cycles(imports_between_packages(imports_between(sources | changed)))

    assert found() == []
    assert found(**{"a.low.two": "from a.high import other"}) == [("a.high", "a.low")]
    assert found(**{"a.low.deep.three": "import a.high.other"}) == []  # no arrow from a.high to a.low.deep
    assert found(**{"a.low.two": "import a.low.deep", "a.low.deep.three": "import a.low"}) == [("a.low", "a.low.deep")]
    changed = {"a.errors": "import a.high.other", "a.high.other": ""}
    assert found(**changed) == [("a.errors", "a.high", "a.low")]
    assert cycles(imports_between(sources | changed)) == []


@functools.cache
def installed(code):
    """Returns the installed packages that a fresh interpreter has imported after the code."""
    code += "\nimport sys\nprint(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split()) & packages_distributions().keys()


@pytest.mark.parametrize("code", IMPORTS)
def test_modules_import_only_their_permitted_packages(code):
    needed = {"jax", "optax"} & IMPORTS[code]
    known = installed(f"import {', '.join(sorted(needed))}") if needed else IMPORTS[code]
    assert installed(code) - {"lvp"} - installed("pass") == known - installed("pass")


@pytest.mark.slow
def test_heavy_packages_are_imported_where_they_are_used():
    """Each worker process imports `lvp.sweeps`, and the local executor works without Ray."""
    imported = installed("import lvp.sweeps.__main__")
    assert "jax" in imported and not imported & {"matplotlib", "pandas", "ray", "scipy"}


def public_functions(tree):
    """Yields the functions of a module and of its public classes, with their arguments except `self`."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from ((f, list(arguments(f))[1:]) for f in node.body if isinstance(f, ast.FunctionDef))
        elif isinstance(node, ast.FunctionDef):
            yield node, list(arguments(node))


def arguments(function):
    signature = function.args
    yield from (*signature.posonlyargs, *signature.args, *filter(None, [signature.vararg]), *signature.kwonlyargs)
    yield from filter(None, [signature.kwarg])


def test_public_functions_of_the_library_are_annotated():
    trees = [ast.parse(path.read_text()) for path in FILES if path.is_relative_to(ROOT / "lvp")]
    for function, given in (pair for tree in trees for pair in public_functions(tree)):
        if not function.name.startswith("_"):
            assert function.returns is not None, function.name
            assert all(argument.annotation for argument in given), function.name


def test_the_tracked_files_stay_below_30_mib():
    """A clone is copied to machines with accelerators, some of which take 64 MiB with corpus and packages."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    sizes = [path.stat().st_size for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]
    assert sum(sizes) < 30 * 2**20 and max(sizes) < 5 * 2**20
