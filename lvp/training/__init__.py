"""Training as compiled programs: `cells` says what is compiled and what is traced, `packs` drives any program,
`language` trains a decoder on next tokens."""

from lvp.training.cells import OPTIMIZERS, Cell, DataConfig, Lane, OptimizerConfig, check_positive
from lvp.training.language import Program, TrainingData, check_lengths
from lvp.training.packs import run, unstack

__all__ = [
    "OPTIMIZERS",
    "Cell",
    "DataConfig",
    "Lane",
    "OptimizerConfig",
    "Program",
    "TrainingData",
    "check_lengths",
    "check_positive",
    "run",
    "unstack",
]
