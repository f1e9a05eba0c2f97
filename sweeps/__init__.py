"""Runs, resumes and reports experiments. Only `sweeps.executors` imports Ray.

import sweeps
table = sweeps.run("width_vocab", tier="smoke", executor="local")
"""

try:
    from sweeps.driver.api import resume, run, status, table_of, track
    from sweeps.driver.options import Options
except ModuleNotFoundError as error:
    raise ImportError(f"{error}. sweeps needs the packages of the extra lab: pip install -e '.[lab]'") from error

__all__ = ["Options", "resume", "run", "status", "table_of", "track"]
