"""Training as compiled programs.

`cell` separates what is compiled from what is traced, `batches` feeds data, `program` compiles, `loop` runs a program,
`language` trains a decoder on next tokens, `images` trains a residual network.
"""

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
    """Imports the names above on first use: jax and flax take seconds, and `records` needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lvp.training import exports

    return getattr(exports, name)
