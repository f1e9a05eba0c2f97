"""Tokenizers from files: lvp's own, any SentencePiece model (Llama 2, Phi-3), and Hugging Face's tokenizer.json."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from lvp.data.text import splits
from lvp.data.tokens import tokenizers
from lvp.errors import InputError
from lvp.files import storage

_PIECE = 1 << 18  # bytes encoded at a time; longer documents are cut, if possible at a line end
# Names of the tokens before and after a document. A tokenizer.json does not say which tokens these are.
_NAMES = {
    "bos": ("<s>", "<|begin_of_text|>", "<bos>", "<|bos|>", "<|startoftext|>"),
    "eos": ("</s>", "<|end_of_text|>", "<eos>", "<|endoftext|>"),
}


class AnyTokenizer(Protocol):
    """A vocabulary and its segmentation of text."""

    @property
    def model(self) -> bytes:
        """The content of the tokenizer's file, for `from_bytes`."""

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""

    @property
    def fingerprint(self) -> str:
        """sha256 (hex); it determines every encoding."""

    @property
    def separators(self) -> Mapping[str, int]:
        """The ids of the tokens that separate documents, by "bos" and "eos"; empty without such tokens."""

    def encode(self, text: bytes, begins: bool = True) -> np.ndarray:
        """The ids of UTF-8 text without separators, int32 [N].

        Args:
          begins: True if the text is the beginning of a document.
        """

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        """The text of ids."""


class SentencePiece:
    """A SentencePiece model of any project, with its normalization and its space before a document."""

    def __init__(self, model: bytes):
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2

        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)  # type: ignore[attr-defined]  # made at import
        proto.normalizer_spec.add_dummy_prefix = False  # the rest of a long document has no space before it
        self._rest = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        self.vocab_size: int = self._processor.get_piece_size()
        self.fingerprint = storage.digest(b"sentencepiece", model)
        ids = {"bos": self._processor.bos_id(), "eos": self._processor.eos_id()}
        self.separators = {name: number for name, number in ids.items() if number >= 0}

    def encode(self, text: bytes, begins: bool = True) -> np.ndarray:
        ids: list[int] = []
        for number, piece in enumerate(_pieces(text)):
            ids += (self._processor if begins and not number else self._rest).encode(piece, out_type=int)
        return np.array(ids, np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        return self._processor.decode(np.asarray(ids).tolist()).encode()


class HuggingFace:
    """A tokenizer.json of the package `tokenizers`. The names of special tokens inside a text are text."""

    def __init__(self, model: bytes):
        try:
            import tokenizers as library
        except ImportError:
            raise InputError("a tokenizer.json needs tokenizers: pip install 'lvp[tokenizers]'") from None
        self.model = model
        self._tokenizer = library.Tokenizer.from_str(model.decode())
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        vocab = self._tokenizer.get_vocab()
        self.vocab_size: int = max(vocab.values()) + 1
        self.fingerprint = storage.digest(b"tokenizer.json", model)
        found = {kind: [vocab[name] for name in names if name in vocab] for kind, names in _NAMES.items()}
        self.separators = {kind: ids[0] for kind, ids in found.items() if ids}

    def encode(self, text: bytes, begins: bool = True) -> np.ndarray:
        encoded = (self._tokenizer.encode(piece, add_special_tokens=False).ids for piece in _pieces(text))
        return np.concatenate([np.zeros(0, np.int32), *(np.array(ids, np.int32) for ids in encoded)])

    def decode(self, ids: Sequence[int] | np.ndarray) -> bytes:
        return self._tokenizer.decode(np.asarray(ids).tolist(), skip_special_tokens=False).encode()


def _pieces(text: bytes) -> Iterator[str]:
    """The text in pieces of at most _PIECE bytes that end with a line end, or else between two characters."""
    start = 0
    while start < len(text):
        piece = splits.cut(text[start : start + _PIECE + 4], _PIECE)
        if start + len(piece) < len(text):
            piece = piece[: piece.rfind(b"\n") + 1] or piece
        yield piece.decode()
        start += len(piece)


def from_bytes(model: bytes) -> AnyTokenizer:
    """The tokenizer in a file's content.

    Raises:
      InputError: the package `tokenizers` is missing.
      Exception: the content is no tokenizer. The class depends on the tokenizer's library.
    """
    if model.lstrip()[:1] == b"{":
        return HuggingFace(model)
    if not model:
        raise ValueError("the content is empty")  # SentencePiece 0.2.1 would end the process
    import sentencepiece

    ours = tokenizers.is_ours(sentencepiece.SentencePieceProcessor(model_proto=model))
    return tokenizers.Tokenizer(model) if ours else SentencePiece(model)


def load(path: Path) -> AnyTokenizer:
    """The tokenizer in a file: a SentencePiece model or a tokenizer.json.

    Raises:
      InputError: the file cannot be read or is no tokenizer, or the package `tokenizers` is missing.
    """
    model = storage.read_input(path)
    try:
        return from_bytes(model)
    except InputError:
        raise
    except Exception:  # a damaged file can raise any exception
        problem = f"tokenizer {path} is neither a SentencePiece model nor a Hugging Face tokenizer"
        raise InputError(f"{problem}: give a tokenizer.model or a tokenizer.json") from None
