"""Lossless byte-pair-encoding tokenizers, one per vocabulary size from 256 up.

SentencePiece works on characters and treats some characters specially. Every byte is therefore mapped to its own
character. The 256 bytes are the alphabet, so a vocabulary of 256 has no merges.
"""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from lvp.errors import InputError
from lvp.files import storage

SMALLEST = 256
FORMAT = 1  # version of training and encoding; part of the cache's keys
_CHUNK = 1 << 20  # bytes encoded at a time
_WORD, _LINE = re.compile(rb" *[^ \n]*\n?"), re.compile(rb"[^\n]*\n?")
_SPACE_AFTER = re.compile(rb"[^ ] ")
_MOST_KNOWN = 1 << 18  # parts of a text whose ids are kept; about 50 MB
_LONGEST_KNOWN = 100  # bytes of the longest part whose ids are kept
_LONGEST_TRAINED = 60_000  # characters of a word: SentencePiece 0.2.1 and 0.2.2 abort above 65,535
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
    """The inverse of `to_characters`, also for a piece of the vocabulary.

    Raises:
      KeyError: a character has no byte.
    """
    return bytes(_BYTES[character] for character in characters)


def _chunks(text: bytes) -> Iterator[tuple[int, int]]:
    """The (start, end) of whole lines of about _CHUNK bytes each."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + _CHUNK) + 1 or len(text)
        yield start, end
        start = end


def _sentences(text: bytes) -> Iterator[str]:
    # Every byte once, alone: SentencePiece has pieces only for characters that it has seen.
    yield from map(chr, _POINTS)
    for start, end in _chunks(text):
        *lines, rest = to_characters(text[start:end]).split(_LINE_END)
        for line in (*(line + _LINE_END for line in lines), rest):
            yield from _with_short_words(line)


def _with_short_words(line: str) -> Iterator[str]:
    """The parts of a line between which words above `_LONGEST_TRAINED` are cut."""
    start = 0
    if len(line) > _LONGEST_TRAINED:
        for word in re.finditer(r"[^ ]+", line):
            for cut in range(word.start() + _LONGEST_TRAINED, word.end(), _LONGEST_TRAINED):
                yield line[start:cut]
                start = cut
    if line[start:]:
        yield line[start:]


def _cut(whole: Any, lengths: Iterable[int]) -> Iterator[Any]:
    """The consecutive slices of `whole` with these lengths."""
    start = 0
    for length in lengths:
        yield whole[start : start + length]
        start += length


def is_ours(processor: Any) -> bool:
    """True if a SentencePieceProcessor holds a model made by `Tokenizer.train`: bytes mapped to characters."""
    return processor.unk_id() == 0 and processor.id_to_piece(0) == _UNKNOWN


class Tokenizer:
    """A vocabulary and its segmentation of text. Ids run from 0 to vocab_size − 1; there are no special tokens."""

    def __init__(self, model: bytes):
        """Loads a SentencePiece model that `train` made, from its bytes.

        Raises:
          RuntimeError: the bytes are no SentencePiece model.
        """
        import sentencepiece

        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._known: dict[bytes, bytes] = {}  # see `_learn`

    @classmethod
    def train(cls, text: bytes, vocab_size: int) -> "Tokenizer":
        """Learns exactly `vocab_size` tokens from the text: the 256 bytes, and vocab_size − 256 merges.

        Training is deterministic (one thread). Merges stay within a line and within a word.

        Raises:
          InputError: `vocab_size` is below 256, or the text has too few different pairs. The error names the smallest
            or the largest possible size.
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
        """The tokenizer that `save` wrote.

        Raises:
          OSError: the file cannot be read.
          RuntimeError: the file is no SentencePiece model.
        """
        return cls(Path(path).read_bytes())

    def save(self, path: Path) -> None:
        """Writes the tokenizer to a file atomically.

        Raises:
          InputError: the file cannot be written.
        """
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

    separators: Mapping[str, int] = MappingProxyType({})  # there are no special tokens

    def encode(self, text: bytes, begins: bool = True) -> np.ndarray:
        """The token ids, int32 [number of tokens]; `begins` has no effect.

        The encoding is deterministic. No token spans two lines. The time is linear in the text.
        """
        ids = bytearray()
        for start, end in _chunks(text):
            parts = self._part.findall(text, start, end)
            new = self._learn(set(parts))
            ids += b"".join(map(self._known.__getitem__, parts))
            for part in new:
                if len(part) > _LONGEST_KNOWN:
                    del self._known[part]
        return np.frombuffer(ids, np.int32)

    @cached_property
    def _part(self) -> re.Pattern[bytes]:
        """The pattern of the parts of a line that are encoded independently.

        A part is a word with the spaces before it. If a token of the model has a space after another character, a part
        is a whole line.
        """
        return _LINE if any(_SPACE_AFTER.search(piece) for piece in self.pieces) else _WORD

    def _learn(self, parts: set[bytes]) -> list[bytes]:
        """Adds the ids of new parts to `_known`, which maps a part to int32 ids as bytes, and returns these parts.

        A few words make up most of a text.
        """
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        new = list(parts - self._known.keys())
        characters = to_characters(b"".join(new))  # one per byte
        encoded = self._processor.encode(list(_cut(characters, map(len, new))), out_type=int, num_threads=1)
        ids = (np.fromiter(chain.from_iterable(encoded), np.int32) - np.int32(1)).tobytes()
        self._known.update(zip(new, _cut(ids, (4 * len(each) for each in encoded)), strict=True))
        return new

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        """The bytes of the tokens: decode(encode(text)) == text for every byte string.

        Raises:
          ValueError: an id is negative or not below `vocab_size`.
        """
        ids = np.asarray(ids, dtype=np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.vocab_size:
            raise ValueError(
                f"token ids must be from 0 to {self.vocab_size - 1}, got {ids.min()} to {ids.max()}; "
                "use the tokenizer that encoded them"
            )
        return b"".join([self.pieces[index] for index in ids.tolist()])
