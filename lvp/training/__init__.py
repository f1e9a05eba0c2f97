"""Training as compiled programs.

`setting` defines the compiled and the traced part of a run. `program` compiles a setting, and `loop` runs any program.
`language` trains a decoder on next tokens. `tasks` prepares the data of a setting. `train` trains one run. `AnySetting`
and `Task` are the bases of your own settings and tasks.
"""

from lvp.training.batches import RandomWindows, StreamedRows
from lvp.training.language import Program, StreamedTokens, TrainingData, check_lengths, check_mesh, run_feeds
from lvp.training.loop import chunks, run
from lvp.training.program import unstack
from lvp.training.setting import (
    OPTIMIZERS,
    AnySetting,
    DataConfig,
    OptimizerConfig,
    Run,
    Setting,
    check_positive,
    steps_of_parts,
)
from lvp.training.tasks import LanguageTask, Task, task_for, train

__all__ = [
    "OPTIMIZERS",
    "AnySetting",
    "Setting",
    "DataConfig",
    "Run",
    "LanguageTask",
    "OptimizerConfig",
    "Program",
    "Task",
    "RandomWindows",
    "StreamedRows",
    "StreamedTokens",
    "TrainingData",
    "check_lengths",
    "check_mesh",
    "check_positive",
    "chunks",
    "run_feeds",
    "run",
    "steps_of_parts",
    "task_for",
    "train",
    "unstack",
]
