"""Runs experiments: packs lanes into trials, runs, resumes, reports. The only Ray imports are here.

import sweeps
table = sweeps.run("width_vocab", tier="smoke", executor="local")
"""

from sweeps.api import Options, resume, run, status, table_of, track

__all__ = ["Options", "resume", "run", "status", "table_of", "track"]
