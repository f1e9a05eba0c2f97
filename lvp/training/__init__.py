"""Training as compiled programs: `cells` says what is compiled and what is traced, `packs` drives any program,
`language` trains a decoder on next tokens, `images` a residual network."""

from lvp.training.cells import OPTIMIZERS, Cell, DataConfig, Lane, OptimizerConfig, check_positive
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
from lvp.training.packs import Preempted, run, unstack

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
    "TrainingData",
    "check_images",
    "check_lengths",
    "check_mesh",
    "check_positive",
    "feed",
    "run",
    "steps_of_parts",
    "unstack",
]
