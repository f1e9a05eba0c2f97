"""Training as compiled programs: `cell` says what is compiled and what is traced, `program` compiles it, `loop` drives
any program, `language` trains a decoder on next tokens, `images` a residual network, `tasks` goes from a corpus to a
lane's outcome."""

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
        ImageTask,
        Lane,
        LanguageTask,
        OptimizerConfig,
        Preempted,
        Program,
        Task,
        TrainingData,
        check_images,
        check_lengths,
        check_mesh,
        check_positive,
        feed,
        run,
        steps_of_parts,
        task_for,
        train,
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
    "ImageTask",
    "Lane",
    "LanguageTask",
    "OptimizerConfig",
    "Preempted",
    "Program",
    "Task",
    "TrainingData",
    "check_images",
    "check_lengths",
    "check_mesh",
    "check_positive",
    "feed",
    "run",
    "steps_of_parts",
    "task_for",
    "train",
    "unstack",
]


def __getattr__(name: str) -> Any:
    """The names above, once asked for: jax and flax take seconds to import, and `records` needs neither."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lvp.training import exports

    return getattr(exports, name)
