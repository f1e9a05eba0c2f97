"""The trained parameters of a decoder: of a run of `lvp train`, or of a run of a sweep that keeps its weights.

A sweep keeps them in STORE/weights/RUN, in the form of a checkpoint with the run's configuration. The last checkpoint
of a finished `lvp train` has the same form.
"""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from lvp.errors import InputError
from lvp.files import checkpoints
from lvp.files.buckets import Bucket, is_address, refusals
from lvp.models.configs import DecoderConfig

if TYPE_CHECKING:  # decoders need Flax, which configurations and the linear network do not
    from lvp.models.decoder import Decoder


class Weights(NamedTuple):
    """The content of a place with weights."""

    config: DecoderConfig
    params: Any  # nested dict of float32 NumPy arrays, as `Decoder.init` returns them
    digest: str  # of the parameters: 16 hexadecimal digits
    tokenizer: str | None  # fingerprint of the tokenizer; None for tokens without one


def load(place: str | Path) -> tuple["Decoder", Any]:
    """(decoder, params) of a trained run.

    Args:
      place: OUT of a finished `lvp train`, or STORE/weights/RUN of a sweep with --keep-weights, as a directory or an
        address in a bucket.

    Raises:
      InputError: there are no weights, the run is unfinished or is not of a decoder, or a file is damaged.
    """
    from lvp.models.decoder import decoder

    weights = read(place)
    return decoder(weights.config), jax.tree.map(jnp.asarray, weights.params)


def read(place: str | Path) -> Weights:
    """The weights at a place, on the host. The argument is that of `load`.

    Raises:
      InputError: there are no weights, the run is unfinished or is not of a decoder, or a file is damaged.
    """
    from lvp.models.decoder import decoder

    with _checkpoint(place) as path:
        try:
            found = checkpoints.metadata(path)
            config = _config(place, found)
            shapes = {"params": jax.eval_shape(decoder(config).init, jax.random.key(0))}
            state, _ = checkpoints.load(path, found["step"], shapes, found["configuration"])
        except checkpoints.Damaged as error:  # names the place and not a downloaded copy
            raise InputError(str(error).replace(str(path), str(place) if is_address(place) else str(path))) from None
    leaves = {leaf: digest for leaf, digest in found["digests"].items() if leaf.startswith("params/")}
    digest = hashlib.sha256(json.dumps(leaves, sort_keys=True).encode()).hexdigest()[:16]
    return Weights(config, state["params"], digest, (found["config"].get("data") or {}).get("tokenizer"))


@contextlib.contextmanager
def _checkpoint(place: str | Path) -> Iterator[Path]:
    """The local directory of the checkpoint with the weights."""
    if is_address(place):
        with tempfile.TemporaryDirectory(prefix="lvp-") as folder, refusals():
            bucket = Bucket(str(place))
            names = [entry.name for entry in bucket.objects()]
            if checkpoints.METADATA not in names:
                raise _no_weights(place)
            bucket.fetch(names, Path(folder))
            yield Path(folder)
        return
    path = Path(place).absolute()
    if steps := checkpoints.steps(path / "checkpoints"):
        path = path / "checkpoints" / checkpoints.name_of(steps[-1])
    elif not (path / checkpoints.METADATA).exists():
        raise _no_weights(place)
    yield path


def _no_weights(place: str | Path) -> InputError:
    return InputError(
        f"{place} holds no weights: name OUT of a finished `lvp train`, or STORE/weights/RUN of a sweep that was run "
        "with --keep-weights"
    )


def _config(place: str | Path, metadata: dict[str, Any]) -> DecoderConfig:
    """The decoder of a run.

    Raises:
      InputError: the run is unfinished or has no decoder, or another version made the model.
    """
    setting = metadata.get("config", {}).get("cell", {})
    steps = setting.get("steps")
    if steps is None:
        raise _no_weights(place)
    if metadata["step"] < steps:
        raise InputError(f"{place}: the run has {metadata['step']:,} of {steps:,} steps; continue it to its end")
    if "context" not in setting["model"]:
        raise InputError(f"{place}: the run is not of a decoder; name the weights of a language model")
    try:
        return DecoderConfig(**setting["model"])
    except TypeError as error:
        raise InputError(f"{place}: another version of lvp trained this model ({error}); use that version") from None
