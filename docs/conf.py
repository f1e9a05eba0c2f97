"""Sphinx configuration of `make docs`.

The source directory is the root of the repository. README.md is the front page.
"""

import importlib
import pkgutil
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from sphinx.ext.autodoc.mock import mock  # noqa: E402

import lvp  # noqa: E402

project = "lvp"
author = "the authors of lvp"
release = version = lvp.__version__

root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/api/*/*.rst", "notebooks/*.ipynb"]
exclude_patterns = ["docs/navigation.md", "docs/api/*/modules.rst"]
extensions = [
    "myst_nb",
    "sphinx.ext.apidoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]

html_theme = "furo"
html_title = "lvp"
html_show_copyright = False

# The committed outputs of the notebooks are shown.
nb_execution_mode = "off"
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]

# The pages of docs/api are generated from the package.
apidoc_modules = [
    {
        "path": "../lvp",
        "destination": "docs/api/lvp",
        "follow_links": True,  # lvp/experiments and lvp/sweeps
        "max_depth": 1,
        "separate_modules": False,
        "module_first": True,
        "include_private": False,
        "automodule_options": {"members", "show-inheritance"},
    }
]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_mock_imports = ["mlflow", "wandb"]  # extras that the environment of the site does not have
autodoc_inherit_docstrings = False
napoleon_use_ivar = True
default_role = "literal"
CODE = re.compile(r"(`[^`]*`)")
# A name that is exported by a package is described once, in its own module.
with mock(autodoc_mock_imports):
    for module in ("lvp", *(info.name for info in pkgutil.walk_packages(lvp.__path__, "lvp."))):
        if not module.endswith("__main__"):
            vars(importlib.import_module(module)).pop("__all__", None)


def to_restructured_text(app, what, name, obj, options, lines):
    """Makes code blocks of indented text and tables, separates lists, and escapes the characters of markup."""
    out, literal, previous = [], False, ""
    for line in lines:
        table = line.startswith("|")
        if table or line.startswith("    ") and (literal or not previous):
            out += [] if literal else ["", "::", ""]
            out.append("    " + line if table else line)
            literal = True
        else:
            starts_list = line.startswith("- ") and previous and not previous.startswith(("- ", "  "))
            out += [""] if starts_list or (literal and line) else []
            literal = literal and not line
            parts = CODE.split(line)
            parts[::2] = [re.sub(r"([*|]|_(?!\w))", r"\\\1", part) for part in parts[::2]]
            # Markup must end before a space or punctuation; an escaped space is not shown.
            parts[2::2] = [re.sub(r"^(?=[^\s.,;:!?)\]}'\"/-])", r"\\ ", part) for part in parts[2::2]]
            out.append("".join(parts))
        previous = line
    lines[:] = out


def add_navigation(app, docname, source):
    """Appends the tables of contents to the front page. On its own, README.md shows none."""
    if docname == root_doc:
        source[0] += (ROOT / "docs" / "navigation.md").read_text()


def add_index(app, error):
    """Copies the front page to index.html."""
    if error is None:
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app):
    app.connect("source-read", add_navigation)
    app.connect("autodoc-process-docstring", to_restructured_text, priority=100)  # before napoleon
    app.connect("build-finished", add_index)
