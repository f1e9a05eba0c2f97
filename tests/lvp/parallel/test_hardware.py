"""The peak memory of a process."""

import json
import subprocess
import sys

import numpy as np
import pytest

CHILD = """
import json, resource
from lvp.parallel.hardware import peak_memory
inherited, before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, peak_memory()
block = bytearray(10**8)
block[::1024] = bytes(len(block[::1024]))
print(json.dumps([inherited, before, peak_memory()]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_the_peak_memory_is_that_of_the_process_alone():
    """Control: the system's figure includes the parent, which holds 1 GB."""
    parent = np.ones(125_000_000)
    inherited, before, after = json.loads(subprocess.check_output([sys.executable, "-c", CHILD]))
    assert before < parent.nbytes <= inherited
    assert after - before == pytest.approx(10**8, rel=0.1)
