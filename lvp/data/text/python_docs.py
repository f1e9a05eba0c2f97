"""The corpus python-docs: the documentation and source text of the Python standard library on this machine.

The corpus is available on every machine without a network. It is the same for the same Python release if the
distribution ships the same files. Some distributions do not, so records contain its fingerprint.
"""

import ast
import sysconfig
from pathlib import Path

from lvp.errors import InputError
from lvp.files import ABSENT, walked

# Tests, other packages and character tables are not the library's text. `_topics` reads pydoc_data.
_SKIPPED_DIRECTORIES = {
    "__pycache__", "dist-packages", "encodings", "idle_test", "pydoc_data", "site-packages", "test", "tests",
}  # fmt: skip
# Written by the build or the distributor of this Python, with paths of the machine.
_SKIPPED_PREFIXES = ("_sysconfigdata", "config-", "sitecustomize", "usercustomize")


def _topics(library: Path) -> list[str]:
    """pydoc's topics: English pages of the language reference with examples. The file is parsed and not executed."""
    try:
        module = ast.parse((library / "pydoc_data" / "topics.py").read_bytes())
        (topics,) = (
            ast.literal_eval(node.value)
            for node in module.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "topics"
        )
        return [topics[name] for name in sorted(topics)]
    except (*ABSENT, ValueError, SyntaxError):
        return []  # some distributions leave the topics out; the source text is a corpus too


def _sources(library: Path) -> list[str]:
    """Text of the library's .py files in the order of their relative paths; files that are not UTF-8 are skipped."""
    names = []
    for directory, below, files in walked(library):
        below[:] = [name for name in below if name not in _SKIPPED_DIRECTORIES]
        paths = (Path(directory, name).relative_to(library) for name in files if name.endswith(".py"))
        names += [path.as_posix() for path in paths]
    texts = []
    for name in sorted(names):
        if any(part.startswith(_SKIPPED_PREFIXES) for part in name.split("/")):
            continue
        try:
            texts.append((library / name).read_bytes().decode("utf-8"))
        except (*ABSENT, UnicodeDecodeError):
            continue
    return texts


def load(library: Path | None = None) -> tuple[bytes, bytes]:
    """(train, valid): documentation pages first, then source files, split by whole documents.

    A document goes to validation if validation is then at most a tenth of the text so far. Both parts therefore begin
    with English text (about 420 kB and 46 kB), and the first bytes of both are the same kind of text.

    Args:
      library: directory of the standard library; None takes the library of this Python.

    Raises:
      InputError: the library has no text.
      OSError: a part of the library cannot be read. The corpus would differ without that part.
    """
    library = library or Path(sysconfig.get_path("stdlib"))
    train, valid = [], []
    room = 0  # tenths of a byte by which validation may grow
    for text in _topics(library) + _sources(library):
        document = text.strip("\n").encode() + b"\n\n"
        room += len(document)
        if room >= 10 * len(document):
            room -= 10 * len(document)
            valid.append(document)
        else:
            train.append(document)
    if not train or not valid:
        raise InputError(f"no text of the Python standard library in {library}; pass text:FILE-OR-DIR")
    return b"".join(train), b"".join(valid)
