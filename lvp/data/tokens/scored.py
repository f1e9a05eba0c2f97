"""Texts on which trained models are scored as a whole, and their word counts."""

from pathlib import Path
from typing import NamedTuple

from lvp.data.text import corpora, python_docs, splits, wikitext2
from lvp.errors import InputError


class WordCounts(NamedTuple):
    """Word counts of a text whose words are separated by white space.

    WikiText's own perplexities count `tokens`: a line end is a token to be predicted (Merity et al. 2016). WikiText-2's
    test text has 245,569 tokens and 241,211 words.
    """

    tokens: int  # words and line ends
    words: int  # words only

    @classmethod
    def from_text(cls, content: bytes) -> "WordCounts":
        words = len(content.split())
        return cls(words + content.count(b"\n"), words)


def load(spec: str, *, cache: Path) -> bytes:
    """Loads a text to be scored.

    Args:
      spec: wikitext2[:DIR] (its test split), text:FILE, or python-docs (its validation part).
      cache: directory of downloads.

    Raises:
      InputError: `spec` is another one, or the text is missing, empty, binary or not UTF-8.
    """
    kind, _, argument = spec.partition(":")
    path = corpora.path_of(kind, argument) if ":" in spec else None
    if kind == "wikitext2":
        return wikitext2.test(path, cache=cache)
    if spec == "python-docs":
        return python_docs.load()[1]
    if kind != "text" or path is None:
        raise InputError(f"scored text {spec!r} must be wikitext2[:DIR] (its test split), text:FILE or python-docs")
    if not (content := splits.read(path)):
        raise InputError(f"{path} is empty")
    return content
