"""Runs experiments: packs lanes into trials, runs, resumes, reports. The only Ray imports are here.

import sweeps
table = sweeps.run("width_vocab", tier="smoke", executor="local")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeps.driver.api import resume, run, status, table_of, track
    from sweeps.driver.options import Options

__all__ = ["Options", "resume", "run", "status", "table_of", "track"]


def __getattr__(name: str) -> Any:
    """The names above, once asked for: what trains takes seconds to import, and `python -m sweeps status` trains
    nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sweeps.driver import api

    return getattr(api, name)
