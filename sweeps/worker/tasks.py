"""The kinds of cells: how each gets from a corpus to data and a program, and what its outcomes are called."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from experiments.common.experiment import Calculation
from lvp import data
from lvp.data.tokens import storage
from lvp.training import (
    Cell,
    ImageCell,
    ImageData,
    ImageProgram,
    Program,
    check_images,
    check_lengths,
    check_mesh,
    lane_feeds,
)
from lvp.training.scoring import word_perplexity


class Kind(NamedTuple):
    """prepare(cell, cache) → its dataset on disk, or None. dataset: the class of that. fingerprints(dataset) → what
    decides its content, as records have it. steps(cell, dataset, epochs): so many times through it. load(cell, dataset,
    mesh) → lane → what it is trained on, and program(cell, lanes, mesh): what a worker trains with; None where nothing
    is trained. check_mesh(cell, sizes): InputError for a mesh that does not divide the cell; None where none serves.
    outcome(dataset, outcome) → the outcome with what only the dataset can say."""

    prepare: Callable[[Any, Path], Any]
    dataset: type[data.Dataset] | type[data.Images]
    fingerprints: Callable[[Any], Mapping[str, str | None]]
    steps: Callable[[Any, Any, float], float] | None = None
    load: Callable[[Any, Any, Any], Callable[[Any], Any]] | None = None
    program: Callable[[Any, int, Any], Any] | None = None
    check_mesh: Callable[[Any, Mapping[str, int]], None] | None = None
    outcome: Callable[[Any, dict], dict] = lambda dataset, outcome: outcome

    def check(self, cell, lanes) -> None:
        """InputError for a lane that the cell cannot train."""
        for lane in lanes if self.trained else ():
            cell.check(lane)

    @property
    def trained(self) -> bool:
        return self.program is not None


def of(cell) -> Kind:
    return KINDS[type(cell)]


def _tokens(cell, cache: Path) -> data.Dataset | None:
    d = cell.data
    if d is None:
        return None
    sizes = {"vocab": cell.vocab, "slice_bytes": d.slice_bytes, "valid_bytes": d.valid_bytes}
    dataset = data.prepare(d.corpus, cache=cache, scored_spec=d.scored, **sizes)
    if isinstance(cell, Cell):
        check_lengths(cell, dataset.num_tokens, dataset.num_valid_tokens)
    return dataset


def _token_fingerprints(dataset: data.Dataset) -> dict[str, str | None]:
    found = {"corpus": dataset.corpus_fingerprint, "tokenizer": dataset.tokenizer_fingerprint}
    return found if dataset.scored_fingerprint is None else found | {"scored": dataset.scored_fingerprint}


def streamed(cell) -> bool:
    """Whether each lane reads rows of its own while it trains: then lanes share no data, and go one by one."""
    return isinstance(cell, Cell) and not cell.data.source.shared


def _load_tokens(cell: Cell, dataset: data.Dataset, mesh) -> Callable[[Any], Any]:
    scored = None if dataset.tokens_scored is None else storage.load_npy(dataset.tokens_scored)
    return lane_feeds(cell, dataset.tokens("train", mapped=True), dataset.tokens("valid"), scored, mesh)


def _with_bits_per_byte(dataset: data.Dataset, outcome: dict) -> dict:
    """None where the lane diverged, or there is no text."""
    sizes = {  # of the validation text, the first token has nothing before it and is not scored
        "train": (dataset.num_tokens, dataset.train_bytes),
        "valid": (dataset.num_valid_tokens - 1, dataset.valid_bytes),
    }
    found = {}
    for split, (scored, num_bytes) in sizes.items():
        nats = outcome[f"{split}_loss"]
        known = nats is not None and dataset.valid_bytes
        found[f"{split}_bits_per_byte"] = nats * scored / num_bytes / math.log(2) if known else None
    if dataset.scored_words is not None:
        nats = outcome["scored_nats"]
        for name, count in dataset.scored_words._asdict().items():
            found[f"perplexity_by_{name}"] = None if nats is None else word_perplexity(nats, count)
    return outcome | found


def _images(cell: ImageCell, cache: Path) -> data.Images:
    images = data.load_images(cell.data.corpus, cache=cache)
    check_images(cell, (images.num_train, *images.shape), (images.num_test, *images.shape), images.classes)
    return images


def _load_images(cell: ImageCell, images: data.Images, mesh) -> Callable[[Any], Any]:
    parts = ((images.train_images, images.train_labels), (images.test_images, images.test_labels))
    train, test = ([storage.load_npy(path) for path in part] for part in parts)
    found = jax.device_put(ImageData.from_arrays(cell, train, test, images.mean, images.std))
    return lambda lane: found


KINDS: Mapping[type, Kind] = {
    Cell: Kind(
        prepare=_tokens,
        dataset=data.Dataset,
        fingerprints=_token_fingerprints,
        steps=lambda cell, dataset, epochs: epochs * dataset.num_tokens / cell.tokens_per_step,
        load=_load_tokens,
        program=Program,
        check_mesh=check_mesh,
        outcome=_with_bits_per_byte,
    ),
    ImageCell: Kind(
        prepare=_images,
        dataset=data.Images,
        fingerprints=lambda images: {"images": images.fingerprint},
        # What does not fill a batch is left out of an epoch.
        steps=lambda cell, images, epochs: epochs * (images.num_train // cell.batch),
        load=_load_images,
        program=lambda cell, lanes, mesh: ImageProgram(cell, lanes),
    ),
    Calculation: Kind(prepare=_tokens, dataset=data.Dataset, fingerprints=_token_fingerprints),
}
