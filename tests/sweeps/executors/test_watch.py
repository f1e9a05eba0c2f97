"""The message about a lost Ray, also if Ray's native code ends the driver while it joins."""

import re
import subprocess
import sys

import pytest

from tests.sweeps.running import ROOT

DRIVER = """
import os, socket, sys
from pathlib import Path
import ray
from sweeps.driver.options import Options
from sweeps.executors.ray_tune import RayExecutor

def init(**_):
    if sys.argv[1] == "ends":
        os._exit(1)
    raise ConnectionError("no cluster")

ray.init = init
head = socket.create_server(("127.0.0.1", 0))  # answers connections
RayExecutor(Path("out"), Options(ray_address=f"127.0.0.1:{head.getsockname()[1]}"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ends", "raises"])
def test_a_driver_that_ray_ends_while_it_joins_has_one_line(way):
    done = subprocess.run([sys.executable, "-c", DRIVER, way], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    if way == "ends":
        assert re.fullmatch(
            r"sweeps: the Ray cluster at \S+ no longer answers; `python -m sweeps resume out .*\n", done.stderr
        )
    else:  # the witness is silent after an exception
        assert "cannot join the Ray cluster" in done.stderr and "no longer answers" not in done.stderr
