"""The embedded corpus: the documentation and source text of the Python standard library on this machine.

Every machine that runs lvp has it, whatever its network. It is the same on every machine with the same Python
release as long as that ships the same files; records carry its fingerprint because some do not.
"""

import ast
import sysconfig
from pathlib import Path

from lvp.errors import InputError
from lvp.files import ABSENT, walked

# Not the library's own text, or not text: tests, packages of others, character tables, and the documentation
# that comes first anyway.
_SKIPPED_DIRECTORIES = {
    "__pycache__", "dist-packages", "encodings", "idle_test", "pydoc_data", "site-packages", "test", "tests",
}  # fmt: skip
# Written by the build or the distributor of this particular Python, with paths of the machine in it.
_SKIPPED_PREFIXES = ("_sysconfigdata", "config-", "sitecustomize", "usercustomize")


def _topics(library: Path) -> list[str]:
    """pydoc's topics: pages of the language reference, English with examples. Parsed, never executed."""
    try:
        module = ast.parse((library / "pydoc_data" / "topics.py").read_bytes())
        (topics,) = (
            ast.literal_eval(node.value)
            for node in module.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "topics"
        )
        return [topics[name] for name in sorted(topics)]
    except (*ABSENT, ValueError, SyntaxError):
        return []  # some distributions leave it out; the source text alone is a corpus too


def _sources(library: Path) -> list[str]:
    """Text of the library's .py files in the order of their relative paths; what is not UTF-8 is skipped."""
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

    In that order, a document is validation whenever this keeps validation at no more than a tenth of the
    text so far. So both parts begin with English (about 420 kB and 46 kB), and a slice of the head of one is
    the same kind of text as a slice of the head of the other. library is the standard library's directory,
    this Python's own by default. Raises InputError if there is no text in it, and OSError if the machine gives no
    access to a part of it: without that part it is another corpus.
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
