"""How often each token of a tokenizer occurs in a text: what `lvp.parametrization.recommend` makes κ of."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from lvp.data.text import splits
from lvp.data.tokens import storage, tokenizers
from lvp.errors import InputError

LIMIT = 100_000_000  # bytes of text; frequencies of more tell the same


def count(tokenizer: Path, corpus: Path, *, limit: int = LIMIT) -> tuple[np.ndarray, int]:
    """Counts of tokens, and the bytes of text that they come from.

    Args:
      tokenizer: a SentencePiece model: one of `lvp tokenize` or any other.
      corpus: a UTF-8 text file, or a directory whose files are read in the order of their names.
      limit: bytes of the text that are read, from its beginning, up to a line's or a character's end.

    Returns:
      (int64 [m], bytes); m is the size of the tokenizer's vocabulary. Text is encoded block by block (8 MiB, at a
      line's end), without the special tokens that a tokenizer may put at a document's ends.

    Raises:
      InputError: a file that cannot be read, is no SentencePiece model, or is not text; a text without a token.
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
                        return counts, read
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if not counts.any():
        raise InputError(f"{corpus} holds no text: frequencies need some")
    return counts, read


def _encoder(path: Path) -> tuple[int, Callable[[bytes], np.ndarray]]:
    """The size of the vocabulary and the function bytes → token ids [N] of a SentencePiece model."""
    import sentencepiece

    model = storage.read_input(path)
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        raise InputError(f"{path} is no SentencePiece model") from None
    if tokenizers.is_ours(processor):
        ours = tokenizers.Tokenizer(model)
        return ours.vocab_size, ours.encode

    def encode(block: bytes) -> np.ndarray:
        lines = block.decode().splitlines(keepends=True)
        encoded = processor.encode(lines, out_type=int)
        return np.fromiter((index for line in encoded for index in line), np.int64)

    return processor.get_piece_size(), encode
