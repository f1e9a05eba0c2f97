"""The public names of `lvp.training`, which imports them from here when they are asked for."""

from lvp.training.cell import OPTIMIZERS, Cell, DataConfig, Lane, OptimizerConfig, check_positive
from lvp.training.images import (
    ImageCell,
    ImageData,
    ImageDataConfig,
    ImageLane,
    ImageProgram,
    check_images,
    steps_of_parts,
)
from lvp.training.language import Program, TrainingData, check_lengths, check_mesh, feed
from lvp.training.loop import Preempted, run
from lvp.training.program import unstack
from lvp.training.tasks import ImageTask, LanguageTask, Task, task_for, train

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
