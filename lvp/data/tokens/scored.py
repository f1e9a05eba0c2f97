"""Texts that a trained model is scored on, whole, and their words."""

from pathlib import Path
from typing import NamedTuple

from lvp.data.text import python_docs, splits, wikitext2
from lvp.data.tokens import storage
from lvp.errors import InputError


class WordCounts(NamedTuple):
    """Of a text whose words are separated by white space: `tokens`, words and line ends, as WikiText's own perplexities
    are counted (Merity et al. 2016: a line end is a token to be predicted), and `words` alone. WikiText-2's test text
    has 245,569 and 241,211."""

    tokens: int
    words: int

    @classmethod
    def from_text(cls, content: bytes) -> "WordCounts":
        words = len(content.split())
        return cls(words + content.count(b"\n"), words)


def load(spec: str, *, cache: Path) -> bytes:
    """The text that spec names: the test split of wikitext2[:DIR], all of text:FILE, or the validation part of
    python-docs. InputError for anything else, and for a text that is missing, empty, binary or not UTF-8."""
    kind, _, argument = spec.partition(":")
    path = storage.user_path(argument) if argument else None
    if kind == "wikitext2":
        return wikitext2.test(path, cache=cache)
    if spec == "python-docs":
        return python_docs.load()[1]
    if kind != "text" or path is None:
        raise InputError(f"scored text {spec!r} must be wikitext2[:DIR] (its test split), text:FILE or python-docs")
    if not (content := splits.read(path)):
        raise InputError(f"{path} is empty")
    return content
