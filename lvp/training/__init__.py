"""Training as compiled programs.

`cell` defines the compiled and the traced part of a run. `program` compiles a cell, and `loop` runs any program.
`language` trains a decoder on next tokens, and `images` trains a residual network. `tasks` prepares the data of a cell.
`train` trains one lane.
"""

from lvp.training.batches import RandomWindows, StreamedRows
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
from lvp.training.language import Program, StreamedTokens, TrainingData, check_lengths, check_mesh, lane_feeds
from lvp.training.loop import chunks, run
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
    "Program",
    "Task",
    "RandomWindows",
    "StreamedRows",
    "StreamedTokens",
    "TrainingData",
    "check_images",
    "check_lengths",
    "check_mesh",
    "check_positive",
    "chunks",
    "lane_feeds",
    "run",
    "steps_of_parts",
    "task_for",
    "train",
    "unstack",
]
