"""The peak memory of a process, and the CPU quota of a container."""

import json
import subprocess
import sys

import numpy as np
import pytest

from lvp.parallel.hardware import cores, visible_cores

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


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1),  # 1.5 cores
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "100000000 100000\n"}, None),
        ({}, None),
    ],
)
def test_the_quota_of_a_container_bounds_the_cores(files, quota, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores(tmp_path) == (quota or visible_cores())
