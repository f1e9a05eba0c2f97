"""Lossless byte-pair-encoding tokenizers, one per vocabulary size from 256 up.

SentencePiece works on characters and treats some characters specially. Every byte is therefore mapped to its own
character. The 256 bytes are the alphabet, so a vocabulary of 256 has no merges.
"""

import io
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from lvp.data.tokens import storage
from lvp.errors import InputError

SMALLEST = 256
FORMAT = 1  # version of training and encoding; part of the cache's keys
_CHUNK = 1 << 20  # bytes encoded at a time
_SPACE_MARK = "\u2581"  # SentencePiece's mark for a space inside a piece
_UNKNOWN = "\u2047"  # the unknown piece, which SentencePiece requires; no byte maps to this character


def _characters() -> np.ndarray:
    """The character of each byte, code points [256]; printable ASCII and space map to themselves.

    SentencePiece makes no piece across a border between scripts. Control bytes map to symbols, so that a line end does
    not merge with the word before it. Bytes from 128 up, mostly parts of letters, map to Latin letters.
    """
    points = np.arange(256, dtype="<u4")
    points[:0x20] += 0x2400
    points[0x7F] = 0x2421
    points[0x80:] += 0x100
    return points


_POINTS = _characters()
_LINE_END = chr(_POINTS[ord("\n")])
_BYTES = {chr(point): byte for byte, point in enumerate(_POINTS)} | {_SPACE_MARK: ord(" ")}


def to_characters(text: bytes) -> str:
    """The text with a character per byte; one-to-one."""
    return _POINTS[np.frombuffer(text, np.uint8)].tobytes().decode("utf-32-le")


def to_bytes(characters: str) -> bytes:
    """The inverse of to_characters, also for a piece of the vocabulary. Raises KeyError for any other character."""
    return bytes(_BYTES[character] for character in characters)


def _lines(text: bytes) -> Iterator[list[str]]:
    """The lines of the mapped text, each with its line end, in groups of about _CHUNK bytes."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + _CHUNK) + 1 or len(text)
        *lines, rest = to_characters(text[start:end]).split(_LINE_END)
        yield [line + _LINE_END for line in lines] + [rest] * bool(rest)
        start = end


def _sentences(text: bytes) -> Iterator[str]:
    # Every byte once, alone: SentencePiece has pieces only for characters that it has seen.
    yield from map(chr, _POINTS)
    for lines in _lines(text):
        yield from lines


def is_ours(processor: Any) -> bool:
    """True if a SentencePieceProcessor holds a model made by `Tokenizer.train`: bytes mapped to characters."""
    return processor.unk_id() == 0 and processor.id_to_piece(0) == _UNKNOWN


class Tokenizer:
    """A vocabulary and its segmentation of text. Ids run from 0 to vocab_size − 1; there are no special tokens."""

    def __init__(self, model: bytes):
        """Loads a SentencePiece model that `train` made, from its bytes. Raises RuntimeError for other bytes."""
        import sentencepiece

        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @classmethod
    def train(cls, text: bytes, vocab_size: int) -> "Tokenizer":
        """Learns exactly vocab_size tokens from the text: the 256 bytes, and vocab_size − 256 merges.

        Training is deterministic (one thread). Merges stay within a line and within a word. Raises InputError for a
        size below 256, and if the text has too few different pairs; the error names the largest possible size.
        """
        import sentencepiece

        if vocab_size < SMALLEST:
            raise InputError(f"vocabulary size {vocab_size} must be at least {SMALLEST}, the number of bytes")
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_sentences(text),
                model_writer=model,
                model_type="bpe",
                vocab_size=min(vocab_size, 2**24) + 1,  # plus the unknown piece, which never occurs
                unk_id=0,
                bos_id=-1,
                eos_id=-1,
                pad_id=-1,
                unk_piece=_UNKNOWN,
                character_coverage=1.0,
                required_chars="".join(map(chr, _POINTS)).replace(" ", _SPACE_MARK),
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                add_dummy_prefix=False,
                allow_whitespace_only_pieces=True,  # indentation: a third fewer tokens on python-docs
                byte_fallback=False,
                hard_vocab_limit=True,
                max_sentence_length=2**30,  # the default silently drops paragraphs above 4192 bytes
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            largest = re.search(r"Vocabulary size too high .* a value <= (\d+)", str(error))
            if largest is None:
                raise
            limit = int(largest[1]) - 1
            raise InputError(
                f"vocabulary size {vocab_size} is too large: this corpus supports at most {limit}"
            ) from None
        tokenizer = cls(model.getvalue())
        assert tokenizer.vocab_size == vocab_size and set(tokenizer.pieces) >= {bytes([b]) for b in range(256)}
        return tokenizer

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """The tokenizer written by `save`. Raises OSError or RuntimeError if the file is missing or damaged."""
        return cls(Path(path).read_bytes())

    def save(self, path: Path) -> None:
        """Writes the tokenizer to a file atomically. Raises InputError if it cannot be written."""
        storage.write_file(Path(path), self.model)

    @property
    def model(self) -> bytes:
        """The SentencePiece model, as written by `save`."""
        return self._model

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return self._processor.get_piece_size() - 1

    @cached_property
    def pieces(self) -> tuple[bytes, ...]:
        """The bytes of each token, [vocab_size] byte strings, all different and not empty."""
        return tuple(to_bytes(self._processor.id_to_piece(index + 1)) for index in range(self.vocab_size))

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) over the tokens in their order, which determines every encoding."""
        return storage.digest(b"lvp-bpe", FORMAT.to_bytes(2, "little"), *self.pieces)

    def encode(self, text: bytes) -> np.ndarray:
        """The token ids, int32 [number of tokens]. Deterministic and line by line, in time linear in the text."""
        ids = [
            np.fromiter(chain.from_iterable(encoded), np.int32)
            for lines in _lines(text)
            for encoded in [self._processor.encode(lines, out_type=int, num_threads=1)]
        ]
        return np.concatenate(ids) - np.int32(1) if ids else np.zeros(0, np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        """The bytes of the tokens: decode(encode(text)) == text for every byte string.

        Raises ValueError if an id is negative or not below vocab_size.
        """
        ids = np.asarray(ids, dtype=np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            raise ValueError(
                f"token ids must be from 0 to {self.vocab_size - 1}, got {ids.min()} to {ids.max()}; "
                "use the tokenizer that encoded them"
            )
        return b"".join([self.pieces[index] for index in ids.tolist()])
