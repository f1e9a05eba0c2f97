"""The public names of `lvp.training`, which imports them from here on first use."""

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
from lvp.training.loop import Preempted, run
from lvp.training.program import unstack

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
