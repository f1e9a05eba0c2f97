"""Corpora by name: training and validation text, as bytes or as streams, from a specification like `wikitext2:DIR`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lvp.data.text import documents, python_docs, tfds_text, wikitext2, zipf
from lvp.errors import InputError, unknown
from lvp.files import buckets, storage
from lvp.files.buckets import is_address

_MOST = 1 << 32  # largest text in memory, in bytes


@dataclass(frozen=True)
class Corpus:
    """A text with a training and a validation part; zipf has no text, and its parts are empty."""

    spec: str  # canonical specification (absolute paths, explicit exponent)
    train: bytes = field(repr=False)  # UTF-8
    valid: bytes = field(repr=False)  # UTF-8
    fingerprint: str  # sha256 (hex) over both parts; for zipf over the definition of its tokens


def _python_docs(argument: str | None, cache: Path, valid_bytes: int | None) -> documents.Source:
    if argument is not None:
        raise InputError(f"the corpus python-docs takes no argument, but got {argument!r}")
    return documents.held("python-docs", *python_docs.load(), "a tenth of the documents")


def _wikitext2(argument: str | None, cache: Path, valid_bytes: int | None) -> documents.Source:
    directory = None if argument is None else path_of("wikitext2", argument)
    canonical = "wikitext2" if directory is None else f"wikitext2:{directory}"
    return documents.held(canonical, *wikitext2.load(directory, cache=cache), "the split valid")


def _text(argument: str | None, cache: Path, valid_bytes: int | None) -> documents.Source:
    if is_address(argument):
        return documents.of_bucket(str(argument), valid_bytes)
    return documents.of_files(path_of("text", argument or ""), valid_bytes)


def _tfds(argument: str | None, cache: Path, valid_bytes: int | None) -> documents.Source:
    if not argument:
        raise InputError("the corpus tfds needs a dataset; write tfds:NAME or tfds:NAME/CONFIG:VERSION#FEATURE")
    return tfds_text.of_dataset(argument, valid_bytes)


def _tokens(argument: str | None, cache: Path, valid_bytes: int | None) -> documents.Source:
    raise InputError(f"tokens:{argument or ''} has tokens, but a text is needed; write text:FILE-OR-DIR")


def _zipf(argument: str | None, cache: Path, valid_bytes: int | None) -> documents.Source:
    raise InputError("zipf has tokens, but a text is needed; write text:FILE-OR-DIR")


def path_of(kind: str, argument: str) -> Path:
    """The absolute path in `kind:argument`.

    Raises:
      InputError: the path is empty or invalid, or is an address in a bucket.
    """
    if not argument:
        raise InputError(f"the corpus {kind} needs a path; write {kind}:PATH")
    if is_address(argument):
        buckets.split(argument)  # refuses credentials, which the message would repeat
        remedy = "download it, and name the file" if kind == "text" else f"write text:{argument}, or name a directory"
        raise InputError(f"{kind}:{argument} cannot be read from a bucket: {remedy}")
    return storage.user_path(argument)


_SOURCES: Mapping[str, Callable[[str | None, Path, int | None], documents.Source]] = {
    "python-docs": _python_docs,
    "wikitext2": _wikitext2,
    "text": _text,
    "tfds": _tfds,
    "tokens": _tokens,
    "zipf": _zipf,
}


def split(spec: str) -> tuple[str, str | None]:
    """(kind, text after the colon or None).

    Raises:
      InputError: the kind is unknown.
    """
    kind, colon, argument = spec.partition(":")
    if kind not in _SOURCES:
        raise unknown("corpus", kind, _SOURCES)
    return kind, argument if colon else None


def absolute(spec: str) -> str:
    """The specification with an absolute path, if it has a path.

    Raises:
      InputError: the kind is unknown, the path is invalid, or the kind cannot be read from a bucket.
    """
    kind, argument = split(spec)
    if is_address(argument) and kind in ("text", "tokens"):
        return spec
    return f"{kind}:{path_of(kind, argument)}" if kind in ("text", "wikitext2", "tokens") and argument else spec


def source(spec: str, *, cache: Path, valid_bytes: int | None = None) -> documents.Source:
    """The text that `spec` names, as a training and a validation part.

    The content of files is checked when it is read.

    Args:
      spec: as in `load`.
      cache: directory of downloads, made if it does not exist.
      valid_bytes: approximate size in bytes of the validation part, for `text:` and for `tfds:` datasets with neither a
        validation nor a test split. At most a tenth of the text is used; None is a tenth.

    Raises:
      InputError: the name is unknown; the corpus is zipf or tokens, which have no text; the text is missing or empty.
    """
    kind, argument = split(spec)
    return _SOURCES[kind](argument, Path(cache).absolute(), valid_bytes)


def load(spec: str, *, cache: Path) -> Corpus:
    """Loads a corpus by name.

    "python-docs" is the text of the Python standard library (`lvp.data.text.python_docs`). "wikitext2" without a
    directory reads a local copy or downloads it (`lvp.data.text.wikitext2`). "text" is any UTF-8 text: a file, a
    directory, or an address in a bucket (`lvp.data.text.documents`). "tfds" is any text of TensorFlow Datasets
    (`lvp.data.text.tfds_text`). "zipf" is synthetic tokens without text (`lvp.data.text.zipf`).

    Args:
      spec: python-docs, wikitext2[:DIR], text:PLACE, tfds:NAME or zipf[:EXPONENT].
      cache: directory of downloads, made if it does not exist.

    Raises:
      InputError: the name is unknown or is tokens; the exponent is out of range; the text is missing, empty, binary or
        not UTF-8; or a part of the text is larger than 4 GiB (use `python -m lvp tokenize`).
    """
    kind, argument = split(spec)
    if kind == "zipf":
        exponent = zipf.DEFAULT_EXPONENT if argument is None else zipf.parse_exponent(argument)
        return Corpus(f"zipf:{exponent}", b"", b"", zipf.fingerprint(exponent))
    text = source(spec, cache=cache)
    if (corpus := _last_bucket_corpus.get(text.identity)) is not None and corpus.spec == text.spec:
        return corpus
    train, valid = (b"".join(_held(text.spec, part)) for part in (text.train, text.valid))
    corpus = Corpus(text.spec, train, valid, storage.digest(train, valid))
    if is_address(argument):
        _last_bucket_corpus.clear()
        _last_bucket_corpus[text.identity] = corpus
    return corpus


_last_bucket_corpus: dict[str, Corpus] = {}  # by identity; kept because each setting of a sweep loads its corpus


def _held(spec: str, part: documents.Text) -> Iterator[bytes]:
    size = 0
    for block in part.blocks():
        size += len(block.ended)
        if max(size, part.num_bytes or 0) > _MOST:
            remedy = f"run `python -m lvp tokenize {spec} --vocab M --out DIR` and pass tokens:DIR"
            raise InputError(f"{spec} is larger than {_MOST >> 30} GiB, the limit of texts in memory: {remedy}")
        yield block.ended
