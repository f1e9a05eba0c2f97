"""Corpora by name: a specification such as `wikitext2:DIR` becomes bytes for training and validation."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lvp.data import python_docs, storage, text, wikitext2, zipf
from lvp.errors import InputError


@dataclass(frozen=True)
class Corpus:
    """A text in two parts. spec is canonical (absolute paths, explicit exponent); fingerprint is the sha256
    (hex) over both parts, or, for zipf, which has no text and empty parts, over the definition of its source.
    """

    spec: str
    train: bytes = field(repr=False)
    valid: bytes = field(repr=False)
    fingerprint: str


def _python_docs(argument: str | None, cache: Path) -> Corpus:
    if argument is not None:
        raise InputError(f"the corpus python-docs takes no argument, but got {argument!r}")
    return _from_text("python-docs", *python_docs.load())


def _wikitext2(argument: str | None, cache: Path) -> Corpus:
    directory = None if argument is None else _path("wikitext2", argument)
    canonical = "wikitext2" if directory is None else f"wikitext2:{directory}"
    return _from_text(canonical, *wikitext2.load(directory, cache=cache))


def _text(argument: str | None, cache: Path) -> Corpus:
    path = _path("text", argument or "")
    return _from_text(f"text:{path}", *text.load(path))


def _zipf(argument: str | None, cache: Path) -> Corpus:
    exponent = zipf.DEFAULT_EXPONENT if argument is None else zipf.parse_exponent(argument)
    return Corpus(f"zipf:{exponent}", b"", b"", zipf.fingerprint(exponent))


def _path(kind: str, argument: str) -> Path:
    if not argument:
        raise InputError(f"the corpus {kind}: names no path; write {kind}:PATH")
    return Path(argument).expanduser().absolute()


def _from_text(canonical: str, train: bytes, valid: bytes) -> Corpus:
    return Corpus(canonical, train, valid, storage.digest(train, valid))


_LOADERS: dict[str, Callable[[str | None, Path], Corpus]] = {
    "python-docs": _python_docs,
    "wikitext2": _wikitext2,
    "text": _text,
    "zipf": _zipf,
}
_FORMS = "python-docs, wikitext2[:DIR], text:FILE-OR-DIR, zipf[:EXPONENT]"


def load(spec: str, *, cache: Path) -> Corpus:
    """The corpus that spec names: python-docs, wikitext2[:DIR], text:FILE-OR-DIR or zipf[:EXPONENT].

    python-docs is the embedded default (see lvp.data.python_docs); wikitext2 without a directory is looked
    for and else downloaded (lvp.data.wikitext2); text is any UTF-8 text (lvp.data.text); zipf is synthetic
    tokens without text (lvp.data.zipf). cache is a directory, made when needed, where a download is kept.
    Raises InputError for an unknown name or text that is missing, empty, binary or not UTF-8.
    """
    kind, colon, argument = spec.partition(":")
    if kind not in _LOADERS:
        close = difflib.get_close_matches(kind, _LOADERS, n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}? " if close else ""
        raise InputError(f"unknown corpus {spec!r}; {hint}the corpora are {_FORMS}")
    return _LOADERS[kind](argument if colon else None, Path(cache).absolute())
