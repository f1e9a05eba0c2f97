"""Counts of a tokenizer's tokens in a text, from which `lvp.parametrization.recommend` computes κ."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from lvp.data.text import splits
from lvp.data.tokens import tokenizers
from lvp.errors import InputError
from lvp.files import storage

LIMIT = 100_000_000  # bytes of text; more text does not change the frequencies noticeably


def count(tokenizer: Path, corpus: Path, *, limit: int = LIMIT) -> tuple[np.ndarray, int]:
    """Counts the tokens of a corpus; returns the counts and the number of bytes read.

    Args:
      tokenizer: a SentencePiece model, from `lvp tokenize` or any other source.
      corpus: a UTF-8 text file, or a directory whose files are read in the order of their names.
      limit: largest number of bytes to read; the text is cut between two characters.

    Returns:
      (int64 [m], bytes); m is the size of the tokenizer's vocabulary. Text is encoded in blocks (8 MiB, up to the end
      of a line), without the special tokens that a tokenizer may add to a document.

    Raises:
      InputError: a file that cannot be read, is not a SentencePiece model, or is not text; a text without tokens.
    """
    vocab, encode = _encoder(Path(tokenizer))
    counts, read = np.zeros(vocab, np.int64), 0
    for path in splits.files(Path(corpus)):
        if read >= limit:
            break
        try:
            with open(path, "rb") as file:
                for _, block in splits.blocks(file, 0, path.stat().st_size, path):
                    kept = splits.cut(block, limit - read)
                    counts += np.bincount(encode(kept), minlength=vocab)
                    read += len(kept)
                    if len(kept) < len(block):
                        limit = read  # no further file
                        break
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if not counts.any():
        raise InputError(f"{corpus} holds no text: give a corpus that is not empty")
    return counts, read


def _encoder(path: Path) -> tuple[int, Callable[[bytes], np.ndarray]]:
    """(vocabulary size, function bytes → token ids [N]) of a SentencePiece model."""
    import sentencepiece

    model = storage.read_input(path)
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise InputError(f"tokenizer {path} is not a SentencePiece model: give a tokenizer.model") from None
    if tokenizers.is_ours(processor):
        ours = tokenizers.Tokenizer(model)
        return ours.vocab_size, ours.encode

    def encode(block: bytes) -> np.ndarray:
        lines = block.decode().splitlines(keepends=True)
        encoded = processor.encode(lines, out_type=int)
        return np.fromiter((index for line in encoded for index in line), np.int64)

    return processor.get_piece_size(), encode
