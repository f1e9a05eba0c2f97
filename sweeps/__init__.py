"""Runs, resumes and reports experiments.

In Python:

    from lvp import sweeps
    table = sweeps.run("width_vocab", preset="smoke", executor="local")
"""

import importlib
from typing import Any

# Name → module. They are imported when they are used, so that Ctrl-C during the imports ends a command in one line.
_PUBLIC = {
    "Options": "driver",
    "resume": "driver",
    "run": "driver",
    "status": "commands",
    "table_of": "commands",
    "track": "commands",
    "trainable": "ray_tune",
}

__all__ = ["Options", "resume", "run", "status", "table_of", "track", "trainable"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'lvp.sweeps' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"lvp.sweeps.{_PUBLIC[name]}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{error}. sweeps needs the packages of the extra lab: pip install 'lvp[lab]'") from error
