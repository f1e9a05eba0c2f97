"""Training as compiled programs: `cell` says what is compiled and what is traced, `program` compiles it, `loop` drives
any program, `language` trains a decoder on next tokens, `images` a residual network."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lvp.training.exports import (
        OPTIMIZERS,
        Cell,
        DataConfig,
        ImageCell,
        ImageData,
        ImageDataConfig,
        ImageLane,
        ImageProgram,
        Lane,
        OptimizerConfig,
        Preempted,
        Program,
        RandomWindows,
        StreamedRows,
        StreamedTokens,
        TrainingData,
        check_images,
        check_lengths,
        check_mesh,
        check_positive,
        lane_feeds,
        run,
        steps_of_parts,
        unstack,
    )

__all__ = [
    "OPTIMIZERS",
    "Cell",
    "DataConfig",
    "ImageCell",
    "ImageData",
    "ImageDataConfig",
    "ImageLane",
    "ImageProgram",
    "Lane",
    "OptimizerConfig",
    "Preempted",
    "Program",
    "RandomWindows",
    "StreamedRows",
    "StreamedTokens",
    "TrainingData",
    "check_images",
    "check_lengths",
    "check_mesh",
    "check_positive",
    "lane_feeds",
    "run",
    "steps_of_parts",
    "unstack",
]


def __getattr__(name: str) -> Any:
    """The names above, once asked for: jax and flax take seconds to import, and `records` needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lvp.training import exports

    return getattr(exports, name)
