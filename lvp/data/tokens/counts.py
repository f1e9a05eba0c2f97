"""Counts of a tokenizer's tokens in a text, from which `lvp.parametrization.recommend` computes κ."""

from pathlib import Path

import numpy as np

from lvp.data.text import splits
from lvp.data.tokens import loading
from lvp.errors import InputError

LIMIT = 100_000_000  # bytes of text; more text does not change the frequencies noticeably


def count(tokenizer: Path, corpus: Path, *, limit: int = LIMIT) -> tuple[np.ndarray, int]:
    """Counts the tokens of a corpus; returns the counts and the number of bytes read.

    Args:
      tokenizer: a SentencePiece model or a tokenizer.json, from `lvp tokenize` or any other source.
      corpus: a UTF-8 text file, or a directory whose files are read in the order of their names.
      limit: largest number of bytes to read; the text is cut between two characters.

    Returns:
      (int64 [m], bytes); m is the size of the tokenizer's vocabulary. Text is encoded in blocks (8 MiB, up to the end
      of a line), without the special tokens that a tokenizer may add to a document.

    Raises:
      InputError: a file cannot be read, is no tokenizer or is not text, or the text has no tokens.
    """
    loaded = loading.load(Path(tokenizer))
    counts, read = np.zeros(loaded.vocab_size, np.int64), 0
    for path in splits.files(Path(corpus)):
        if read >= limit:
            break
        try:
            with open(path, "rb") as file:
                for end, block in splits.blocks(file, 0, path.stat().st_size, path):
                    kept = splits.cut(block, limit - read)
                    begins = end == len(block)
                    counts += np.bincount(loaded.encode(kept, begins), minlength=counts.size)
                    read += len(kept)
                    if len(kept) < len(block):
                        limit = read  # no further file
                        break
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if not counts.any():
        raise InputError(f"{corpus} holds no text: give a corpus that is not empty")
    return counts, read
