"""Token datasets by name: slicing, tokenizing and encoding of a corpus into cached and fingerprinted files."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lvp.data.text import corpora, zipf
from lvp.data.text import splits as text
from lvp.data.tokens import arrays, scored, shards, streams, tokenizers
from lvp.errors import InputError
from lvp.files import storage
from lvp.files.buckets import is_address

BYTES_PER_TOKEN = zipf.BYTES_PER_TOKEN  # counted for tokens without their text
_FORMAT = 1  # version of the cached files
_LIMITS = {"training": "slice_bytes", "validation": "valid_bytes"}  # part → the option that limits its bytes
_FILES = ("train.npy", "valid.npy")
_SCORED = "scored.npy"
_PATHS = ("tokens_train", "tokens_valid", "tokens_scored")


@dataclass(frozen=True)
class Dataset:
    """Tokens on disk for a corpus, slice and vocabulary; a small object that can be sent to another process.

    The first num_tokens of the training files belong to the dataset, and num_valid_tokens of the validation files. The
    files have more tokens only for the corpus `tokens:PATH`. The numbers are stored so that a sweep can be read without
    the files.
    """

    tokens_train: Path  # file of tokens below vocab, or directory (`lvp.data.tokens.arrays`)
    tokens_valid: Path  # the same
    num_tokens: int  # number of training tokens
    num_valid_tokens: int  # number of validation tokens
    vocab: int  # the model's vocabulary size; a tokenizer may have fewer tokens
    train_bytes: int | None  # bytes of training text; 4 per token for zipf; None for tokens without their text
    valid_bytes: int | None  # bytes of validation text; None for zipf and for tokens without their text
    corpus_fingerprint: str  # sha256 in hex
    tokenizer_fingerprint: str | None  # sha256 in hex; None without a tokenizer
    spec: str  # canonical specification of the corpus
    tokens_scored: Path | None = None  # .npy file of the tokens of a line end and the scored text; None without text
    scored_words: scored.WordCounts | None = None  # word counts of the scored text
    scored_fingerprint: str | None = None  # sha256 in hex
    first_valid: int = 0  # position of the first validation token in its file

    def to_dict(self) -> dict:
        """The fields as a JSON object."""
        return asdict(self) | {name: str(path) for name in _PATHS if (path := getattr(self, name))}

    @classmethod
    def from_dict(cls, values: Mapping) -> "Dataset":
        """The inverse of `to_dict`.

        Raises:
          TypeError: keys are missing or unknown.
        """
        fields = {**values, **{name: Path(values[name]) for name in _PATHS if values.get(name)}}
        if fields.get("scored_words"):
            fields["scored_words"] = scored.WordCounts(*fields["scored_words"])
        return cls(**fields)

    def tokens(self, split: str, *, mapped: bool = False) -> np.ndarray:
        """The tokens of "train" or "valid", in their dtype.

        Args:
          mapped: True gives a memory map, which may be larger than memory.
        """
        place, first, count = {
            "train": (self.tokens_train, 0, self.num_tokens),
            "valid": (self.tokens_valid, self.first_valid, self.num_valid_tokens),
        }[split]
        held = "train" if first else split  # the end of the training files can be validation
        ids = arrays.sequence(arrays.find(place, held, self.vocab), first, count)
        return ids if mapped else np.array(ids)

    def frequencies(self) -> np.ndarray:
        """Unigram frequencies, float64 [vocab], with sum 1: of tokens_train, or the exact frequencies for zipf."""
        kind, _, exponent = self.spec.partition(":")
        if kind == "zipf":
            return zipf.frequencies(self.vocab, float(exponent))
        return streams.frequencies(self.tokens("train", mapped=True), self.vocab)

    def pair_frequencies(self) -> np.ndarray:
        """Frequencies of pairs (token, next token), float64 [vocab, vocab], with sum 1.

        They are those of tokens_train, which must fit into memory, or exact for zipf.
        """
        kind, _, exponent = self.spec.partition(":")
        if kind == "zipf":
            return zipf.pair_frequencies(self.vocab, float(exponent))
        tokens = self.tokens("train").astype(np.int64)
        pairs = streams.frequencies(tokens[:-1] * self.vocab + tokens[1:], self.vocab**2)
        return pairs.reshape(self.vocab, self.vocab)

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per training token; 4 if the text is unknown."""
        return BYTES_PER_TOKEN if self.train_bytes is None else self.train_bytes / self.num_tokens


def check_settings(spec: str, vocab: int, slice_bytes: int | None, valid_bytes: int | None) -> None:
    """Checks the sizes of a dataset, without the corpus. The arguments are those of `prepare`.

    Raises:
      InputError: `vocab` is below 256 (zipf and tokens: 2), or a size is not positive.
    """
    smallest = 2 if spec.partition(":")[0] in ("zipf", "tokens") else tokenizers.SMALLEST
    if isinstance(vocab, bool) or not isinstance(vocab, int) or vocab < smallest:
        raise InputError(f"vocab={vocab!r}: the vocabulary size must be a whole number of at least {smallest}")
    for name, size in (("slice_bytes", slice_bytes), ("valid_bytes", valid_bytes)):
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise InputError(f"{name}={size!r}: must be a positive number of bytes, or None for everything")


def prepare(
    spec: str,
    *,
    vocab: int,
    slice_bytes: int | None,
    valid_bytes: int | None,
    cache: Path,
    scored_spec: str | None = None,
) -> Dataset:
    """Tokenizes the first bytes of a corpus with a tokenizer of exactly `vocab` tokens, trained on the corpus.

    The tokenizer is trained on the whole training part, so all slices of a corpus share it. For zipf there is no text:
    4 bytes count as one token. tokens:PATH is a directory made by `python -m lvp tokenize`, a directory that contains
    it as PATH/VOCAB, or token files of another project; its tokens are not copied. tokens:ADDRESS is a directory in a
    bucket, which is downloaded once. With tokens, a size in bytes counts the mean number of bytes per token, or 4 if
    the text is unknown, and `vocab` may be larger than that of the tokens.

    All other files are kept under `cache` and made by one process at a time. A second call reads and verifies them and
    imports neither SentencePiece (except for tokens) nor TFDS (except for tfds).

    Args:
      spec: as in `lvp.data.load`, or tokens:PATH or tokens:ADDRESS.
      vocab: size of the vocabulary.
      slice_bytes: size of the training text: the first bytes of the corpus's training part, cut at a whole character.
        None or a larger number takes the whole part; for zipf, None is 2^20 tokens.
      valid_bytes: the same for the validation part; for zipf, None is 2^17 tokens.
      cache: directory of the files.
      scored_spec: another text (`lvp.data.tokens.scored`), which is taken whole and never trained on.

    Raises:
      InputError: the corpus or the scored text cannot be used; `vocab` is below 256 (zipf and tokens: 2), larger than
        the corpus supports or too small for the tokens; a size is not positive or leaves fewer than two tokens; or the
        cache cannot be written.
    """
    cache = Path(cache).absolute()
    kind = spec.partition(":")[0]
    build = _build_zipf if kind == "zipf" else _build_text
    check_settings(spec, vocab, slice_bytes, valid_bytes)
    if kind == "tokens":
        return _of_token_files(spec, vocab, slice_bytes, valid_bytes, cache, scored_spec)
    corpus = corpora.load(spec, cache=cache)
    further = None if scored_spec is None else scored.load(scored_spec, cache=cache)
    if further is not None and kind == "zipf":
        raise InputError("zipf has no tokenizer, so no text can be scored; omit the scored text")
    decides = [_FORMAT, tokenizers.FORMAT, corpus.fingerprint, vocab, slice_bytes, valid_bytes]
    key = storage.as_json(decides + ([] if further is None else [storage.digest(further)]))
    entry = cache / "datasets" / f"{kind}-{vocab}-{storage.digest(key)[:32]}"

    def make() -> tuple[dict[str, bytes], dict[str, Any]]:
        splits, meta = build(corpus, vocab, slice_bytes, valid_bytes, cache)
        files = {name: storage.npy(ids) for name, ids in zip(_FILES, splits, strict=True)}
        if further is not None:
            files[_SCORED] = storage.npy(_tokenizer(corpus, vocab, cache).encode(b"\n" + further))
            meta["scored_words"] = scored.WordCounts.from_text(further)
            meta["scored_fingerprint"] = storage.digest(further)
        return files, meta

    meta = storage.entry(entry, make)
    train, valid = (entry / name for name in _FILES)
    num_tokens, num_valid_tokens = (int(storage.load_npy(path, mapped=True).size) for path in (train, valid))
    fields: dict[str, Any] = {"vocab": vocab, "corpus_fingerprint": corpus.fingerprint, "spec": corpus.spec} | meta
    if further is not None:
        fields |= {"tokens_scored": entry / _SCORED, "scored_words": scored.WordCounts(*meta["scored_words"])}
    return Dataset(train, valid, num_tokens, num_valid_tokens, **fields)


def _of_token_files(spec, vocab, slice_bytes, valid_bytes, cache, scored_spec) -> Dataset:
    place = _token_place(corpora.split(spec)[1] or "", vocab, cache)
    meta = shards.read(place) if place.is_dir() and shards.begun(place) else None
    if meta is not None and meta["settings"]["vocab"] > vocab:
        problem = f"the tokens in {place} are of a vocabulary of {meta['settings']['vocab']}, not {vocab}"
        raise InputError(f"{problem}: set vocab to {meta['settings']['vocab']} or more, or tokenize again")
    if meta is not None:
        shards.tokenizer_of(place, meta)
    files = shards.check(place, meta, cache) if meta else _other_files(place, vocab)
    counts = {split: arrays.total(files[split]) for split in files}
    first_valid = 0
    if not files["valid"]:  # as for a text, the end is validation: a tenth, or less if less is wanted
        held_out = counts["train"] // 10
        counts["valid"] = held_out if valid_bytes is None else min(held_out, valid_bytes // BYTES_PER_TOKEN)
        counts["train"] = first_valid = counts["train"] - counts["valid"]
    limits = {"train": slice_bytes, "valid": valid_bytes}
    sizes = {split: _head(counts[split], meta, split, limit) for split, limit in limits.items()}
    for (name, option), (count, _) in zip(_LIMITS.items(), sizes.values(), strict=True):
        if count < 2:
            raise InputError(f"the {name} part of {place} is too small: {count} tokens; give more, or raise {option}")
    digests = {split: arrays.verified(of_split, vocab, cache) for split, of_split in files.items()}
    (num_tokens, train_bytes), (num_valid_tokens, size_of_valid) = sizes.values()
    dataset = Dataset(
        place,
        place,
        num_tokens,
        num_valid_tokens,
        vocab,
        train_bytes,
        size_of_valid,
        storage.digest(storage.as_json(digests)),
        None if meta is None else meta["settings"]["tokenizer"]["fingerprint"],
        corpora.absolute(spec),
        first_valid=first_valid,
    )
    if scored_spec is None:
        return dataset
    if meta is None:
        raise InputError(f"{spec} has no tokenizer, so no text can be scored; omit the scored text")
    return _with_scored(dataset, place, meta, cache, scored_spec)


def _other_files(place: Path, vocab: int) -> dict[str, list[arrays.TokenFile]]:
    """The token files of another project, by split; without validation files if there are none."""
    if place.is_file():
        return {"train": arrays.find(place, "train", vocab), "valid": []}
    files = {split: arrays.find(place, split, vocab) if place.is_dir() else [] for split in shards.SPLITS}
    if not files["train"]:
        problem = f"no tokens in {place}: no file with train in its name ends in .bin or .npy"
        raise InputError(
            f"{problem}; `python -m lvp tokenize SPEC --vocab {vocab} --out {place}` makes tokens of a text"
        )
    return files


def _head(count: int, meta: Mapping | None, split: str, limit: int | None) -> tuple[int, int | None]:
    """(tokens, bytes of text) of about the first `limit` bytes of a split, by its mean bytes per token."""
    if meta is None:
        return count if limit is None else min(count, limit // BYTES_PER_TOKEN), None
    size = sum(record["bytes"] for record in meta["shards"][split])
    if limit is None or limit >= size:
        return count, size
    return count * limit // size, limit


def _token_place(place: str, vocab: int, cache: Path) -> Path:
    """The local file or directory of the tokens at `place`, a path or an address.

    If `place` holds one directory per vocabulary, it is the directory of `vocab`.
    """
    if is_address(place):
        return shards.local_copy(place, vocab, cache)
    named = corpora.path_of("tokens", place)
    several = named.is_dir() and not shards.begun(named) and any(p.name.isdecimal() for p in named.glob("*/"))
    return named / str(vocab) if several else named


def _with_scored(dataset: Dataset, directory: Path, meta: Mapping, cache: Path, spec: str) -> Dataset:
    """A dataset of token files with a scored text, encoded by their tokenizer."""
    further = scored.load(spec, cache=cache)
    fingerprint = storage.digest(further)
    key = storage.as_json([_FORMAT, tokenizers.FORMAT, dataset.tokenizer_fingerprint, fingerprint])
    entry = cache / "datasets" / f"scored-{dataset.vocab}-{storage.digest(key)[:32]}"
    encoded = lambda: storage.npy(shards.tokenizer_of(directory, meta).encode(b"\n" + further))  # noqa: E731
    storage.entry(entry, lambda: ({_SCORED: encoded()}, {}))
    words = scored.WordCounts.from_text(further)
    return replace(dataset, tokens_scored=entry / _SCORED, scored_words=words, scored_fingerprint=fingerprint)


def _build_text(corpus, vocab, slice_bytes, valid_bytes, cache):
    texts = [
        part if limit is None else text.cut(part, limit)
        for part, limit in ((corpus.train, slice_bytes), (corpus.valid, valid_bytes))
    ]
    tokenizer = _tokenizer(corpus, vocab, cache)
    splits = [tokenizer.encode(part) for part in texts]
    for (name, option), part, ids in zip(_LIMITS.items(), texts, splits, strict=True):
        if ids.size < 2:
            problem = f"the {name} text of {corpus.spec} is too small: {len(part)} bytes make {ids.size} tokens"
            raise InputError(f"{problem}; give a longer text, or raise {option}")
    return splits, {
        "train_bytes": len(texts[0]),
        "valid_bytes": len(texts[1]),
        "tokenizer_fingerprint": tokenizer.fingerprint,
    }


def _build_zipf(corpus, vocab, slice_bytes, valid_bytes, cache):
    exponent = float(corpus.spec.partition(":")[2])
    splits = []
    for split, size, option in (("train", slice_bytes, "slice_bytes"), ("valid", valid_bytes, "valid_bytes")):
        count = zipf.DEFAULT_TOKENS[split] if size is None else size // zipf.BYTES_PER_TOKEN
        if count < 2:
            problem = f"{size} bytes of zipf are {count} tokens ({zipf.BYTES_PER_TOKEN} bytes each)"
            raise InputError(f"{problem}; raise {option} to at least {2 * zipf.BYTES_PER_TOKEN}")
        splits.append(zipf.sample(count, vocab, exponent, split))
    train_bytes = splits[0].size * zipf.BYTES_PER_TOKEN
    return splits, {"train_bytes": train_bytes, "valid_bytes": None, "tokenizer_fingerprint": None}


def _tokenizer(corpus: corpora.Corpus, vocab: int, cache: Path) -> tokenizers.Tokenizer:
    """The cached tokenizer of a corpus; if there is none, a new one trained on its whole training part."""
    entry = cache / "tokenizers" / f"{corpus.fingerprint[:32]}-{vocab}-v{tokenizers.FORMAT}"

    def make() -> tuple[dict[str, bytes], dict[str, str]]:
        tokenizer = tokenizers.Tokenizer.train(corpus.train, vocab)
        return {"model": tokenizer.model}, {"fingerprint": tokenizer.fingerprint}

    storage.entry(entry, make)
    return tokenizers.Tokenizer.load(entry / "model")
