"""Tasks: how a setting's data are prepared and loaded, which program trains it and what its runs' records report.

`train` prepares a setting's data and trains a run. Sweeps use the same tasks.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from jax.sharding import Mesh

from lvp import data
from lvp.data.text import corpora
from lvp.files import cache_dir, storage
from lvp.files.buckets import files as bucket_files
from lvp.files.buckets import is_address
from lvp.training import loop
from lvp.training.batches import Feed
from lvp.training.language import Program, TrainingData, check_lengths, check_mesh, data_shapes, run_feeds
from lvp.training.outcome import Outcome
from lvp.training.program import PackedProgram
from lvp.training.setting import AnySetting, DataConfig, Run, Setting


class Task(ABC):
    """How one setting is trained. `dataset_class` is the class of its dataset on disk."""

    dataset_class: ClassVar[Any]

    def __init__(self, setting: Any):
        self.setting = setting

    @property
    def trained(self) -> bool:
        """True if a compiled program trains the setting's runs."""
        return True

    @abstractmethod
    def prepare(self, cache: Path) -> Any:
        """The setting's dataset on disk, made under `cache` if missing.

        Raises:
          InputError: the corpus cannot be used, or does not fit the setting.
        """

    def check_data(self, cache: Path) -> None:
        """Checks that data in files or in a bucket exist, without a download.

        Raises:
          InputError: the data are missing or empty.
        """
        self.prepare(cache)

    @abstractmethod
    def fingerprints(self, dataset: Any) -> dict[str, str | None]:
        """The fingerprints that identify the dataset's content, as records have them."""

    @abstractmethod
    def steps(self, dataset: Any, epochs: float) -> float:
        """The number of steps in `epochs` passes through the training data."""

    @abstractmethod
    def load(self, dataset: Any, mesh: Mesh | None = None) -> Callable[[Sequence], Feed]:
        """A function from the runs of a pack to their feed, as `lvp.training.run` takes it."""

    @abstractmethod
    def program(self, runs: int = 1, mesh: Mesh | None = None) -> PackedProgram:
        """The program that trains `runs` runs together. It is not compiled yet."""

    @abstractmethod
    def data_shapes(self) -> Any:
        """The shapes of the program's data, to compile without a dataset. The evaluation has one group of rows."""

    def check_runs(self, runs: Iterable[Any]) -> None:
        """Checks that the setting can train every run.

        Raises:
          InputError: the setting cannot train a run.
        """
        for run in runs:
            self.setting.check(run)

    @abstractmethod
    def check_mesh(self, sizes: Mapping[str, int]) -> None:
        """Checks that a mesh of these sizes can train the setting.

        Raises:
          InputError: the mesh cannot train the setting.
        """

    def outcome(self, dataset: Any, outcome: Outcome) -> dict[str, Any]:
        """The outcome as a record has it, with the columns that follow from it and the dataset."""
        return asdict(outcome)


class LanguageTask(Task):
    """A decoder trained on the tokens of a text."""

    dataset_class = data.Dataset
    setting: Setting

    def prepare(self, cache: Path) -> data.Dataset:
        dataset = prepare_tokens(self.setting.data, self.setting.vocab, cache)
        check_lengths(self.setting, dataset.num_tokens, dataset.num_valid_tokens)
        return dataset

    def check_data(self, cache: Path) -> None:
        check_corpus(self.setting.data.corpus, cache, self.prepare)

    def fingerprints(self, dataset: data.Dataset) -> dict[str, str | None]:
        return token_fingerprints(dataset)

    def steps(self, dataset: data.Dataset, epochs: float) -> float:
        return epochs * dataset.num_tokens / self.setting.tokens_per_step

    def load(self, dataset: data.Dataset, mesh: Mesh | None = None) -> Callable[[Sequence[Run]], Feed]:
        scored = None if dataset.tokens_scored is None else storage.load_npy(dataset.tokens_scored)
        return run_feeds(self.setting, dataset.tokens("train", mapped=True), dataset.tokens("valid"), scored, mesh)

    def program(self, runs: int = 1, mesh: Mesh | None = None) -> Program:
        return Program(self.setting, runs, mesh)

    def data_shapes(self) -> TrainingData:
        return data_shapes(self.setting)

    def check_mesh(self, sizes: Mapping[str, int]) -> None:
        check_mesh(self.setting, sizes)

    def outcome(self, dataset: data.Dataset, outcome: Outcome) -> dict[str, Any]:
        """The outcome with `train_bits_per_byte`, `valid_bits_per_byte` and, for a scored text, `perplexity_by_…`.

        With scored steps, `perplexities_by_…` are lists over the measured steps, None for a step without a score. The
        other columns are None for a diverged run. Bits per byte are also None for synthetic tokens.
        """
        return asdict(outcome) | bits_per_byte(dataset, outcome) | perplexities(dataset, outcome)


def task_for(setting: Any) -> Task:
    """The task of a setting: `LanguageTask` of a `Setting`, and the result of the method `task` of another type."""
    return LanguageTask(setting) if isinstance(setting, Setting) else setting.task()


def train(setting: AnySetting, run: Any, *, cache: Path | None = None) -> dict[str, Any]:
    """Trains one run of a setting on this process's default device and returns its outcome.

    Args:
      setting: its `data.corpus` names the corpus (`lvp.data.load`).
      run: the run's rates, init scales and seed.
      cache: directory of prepared data; None is the folder `data` of `lvp.files.cache_dir()`, which sweeps use too.

    Returns:
      The fields of `Outcome` and the columns that follow from the dataset (bits per byte, perplexities), as the record
      of the same run in a sweep has them.

    Raises:
      InputError: the corpus cannot be used or does not fit the setting, or the setting cannot train the run.
    """
    task = task_for(setting)
    task.check_runs([run])
    dataset = task.prepare(cache_dir() / "data" if cache is None else cache)
    (outcome,) = loop.run(task.program(), [run], task.load(dataset)([run]))
    return task.outcome(dataset, outcome)


def prepare_tokens(config: DataConfig, vocab: int | None, cache: Path) -> data.Dataset:
    """The token dataset of a data configuration and a vocabulary size, made under `cache` if it is missing.

    Raises:
      InputError: the corpus cannot be used, or `vocab` is None or does not fit the corpus.
    """
    return data.prepare(
        config.corpus,
        vocab=vocab,  # type: ignore[arg-type]  # checked there
        slice_bytes=config.slice_bytes,
        valid_bytes=config.valid_bytes,
        cache=cache,
        scored_spec=config.scored,
    )


def check_corpus(spec: str, cache: Path, prepare: Callable[[Path], Any]) -> None:
    """Checks that the files or objects of a corpus exist. It trains no tokenizer and downloads nothing.

    Args:
      prepare: is called with `cache` to check a corpus of another kind, or of an unknown one.

    Raises:
      InputError: the files or objects are missing or empty, or the corpus is unknown.
    """
    kind, _, path = spec.partition(":")
    if is_address(path) and kind in ("text", "tokens"):
        bucket_files(path)
    elif path and kind in ("text", "wikitext2"):
        corpora.source(spec, cache=cache)
    elif path and kind != "tfds" or kind not in ("python-docs", "wikitext2", "tfds", "zipf"):
        prepare(cache)


def token_fingerprints(dataset: data.Dataset) -> dict[str, str | None]:
    """The fingerprints of corpus and tokenizer, and of the scored text if there is one."""
    fingerprints = {"corpus": dataset.corpus_fingerprint, "tokenizer": dataset.tokenizer_fingerprint}
    return fingerprints if dataset.scored_fingerprint is None else fingerprints | {"scored": dataset.scored_fingerprint}


def bits_per_byte(dataset: data.Dataset, outcome: Outcome) -> dict[str, float | None]:
    """The losses in bits per byte of text. None for a diverged run, and for tokens whose text is unknown."""
    if not dataset.train_bytes or not dataset.valid_bytes:
        return {"train_bits_per_byte": None, "valid_bits_per_byte": None}

    def bits(nats: float | None, num_tokens: int, num_bytes: int) -> float | None:
        return None if nats is None else nats * num_tokens / num_bytes / math.log(2)

    return {
        "train_bits_per_byte": bits(outcome.train_loss, dataset.num_tokens, dataset.train_bytes),
        # The first token of the validation text is not predicted.
        "valid_bits_per_byte": bits(outcome.valid_loss, dataset.num_valid_tokens - 1, dataset.valid_bytes),
    }


def perplexities(dataset: data.Dataset, outcome: Outcome) -> dict[str, Any]:
    """The scored text's perplexity for each of its word counts: at the end, and over measured steps with scored steps.

    {} without a scored text. None for a diverged run and for a step without a score.
    """
    counts = dataset.scored_words._asdict() if dataset.scored_words else {}
    columns: dict[str, Any] = {f"perplexity_by_{n}": _perplexity(outcome.scored_nats, c) for n, c in counts.items()}
    if scored := (outcome.measures or {}).get("scored"):
        columns |= {f"perplexities_by_{n}": [_perplexity(x, c) for x in scored["nats"]] for n, c in counts.items()}
    return columns


def _perplexity(nats: float | None, count: int) -> float | None:
    """exp(nats / count); inf if nats / count is 700 or more."""
    return None if nats is None else math.exp(nats / count) if nats / count < 700 else math.inf
