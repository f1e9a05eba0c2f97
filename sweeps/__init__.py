"""Runs, resumes and reports experiments. Only `sweeps.executors` imports Ray.

import sweeps
table = sweeps.run("width_vocab", tier="smoke", executor="local")
"""

from sweeps.driver.api import resume, run, status, table_of, track
from sweeps.driver.options import Options

__all__ = ["Options", "resume", "run", "status", "table_of", "track"]
