"""Peak figures of accelerators, published by their makers, for model FLOPs utilisation (MFU).

Google: cloud.google.com/tpu/docs/v5e, v5p, v6e (bfloat16, one chip). NVIDIA: data sheets of A100 80 GB SXM, H100 SXM
and H200 SXM (dense bfloat16).
"""

import contextlib
import math
import os
import platform
import resource
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

GIB = 2**30


class Accelerator(NamedTuple):
    """Peak figures of one device."""

    kinds: tuple[str, ...]  # JAX's names (`Device.device_kind`), in full: some parts share a prefix
    flops: float  # bfloat16 FLOP/s
    memory: float  # bytes


ACCELERATORS: Mapping[str, Accelerator] = {
    "v5e": Accelerator(("TPU v5 lite", "TPU v5e"), 197e12, 16 * GIB),
    "v5p": Accelerator(("TPU v5p", "TPU v5"), 459e12, 95 * GIB),
    "v6e": Accelerator(("TPU v6 lite", "TPU v6e"), 918e12, 32 * GIB),
    "a100": Accelerator(("NVIDIA A100-SXM4-80GB",), 312e12, 80 * GIB),
    "h200": Accelerator(("NVIDIA H200",), 989e12, 141 * GIB),
    "h100": Accelerator(("NVIDIA H100 80GB HBM3",), 989e12, 80 * GIB),
}


def accelerator(device_kind: str) -> Accelerator | None:
    """The figures of a device by JAX's name for it; None for an unknown device."""
    for known in ACCELERATORS.values():
        if device_kind in known.kinds:
            return known
    return None


def visible_cores() -> int:
    """The number of CPU cores on which this process may run. XLA starts as many threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """The number of CPU cores that this process may use: the visible cores, up to the CPU quota of its container.

    Args:
      cgroup: where Linux mounts the control group of the container, of version 2 or 1.
    """
    quota = math.inf
    with contextlib.suppress(OSError, ValueError):  # no Linux, or no quota ("max")
        most, period = (cgroup / "cpu.max").read_text(encoding="utf-8").split()
        quota = int(most) / int(period)
    with contextlib.suppress(OSError, ValueError):
        most, period = (
            (cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text(encoding="utf-8") for name in ("quota", "period")
        )
        quota = min(quota, int(most) / int(period) if int(most) > 0 else math.inf)
    return max(1, math.floor(min(quota, visible_cores())))


@cache
def processor() -> tuple[str, str]:
    """The model of the CPU and its vector extensions; the architecture and "" if the system does not list them."""
    with contextlib.suppress(OSError):
        lines = (line.partition(":") for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines())
        fields = {key.strip(): value.strip() for key, _, value in lines}
        if "flags" in fields:
            vectors = [word for word in fields["flags"].split() if word.startswith(("avx", "fma", "amx"))]
            return fields.get("model name", platform.machine()), " ".join(sorted(vectors))
    return platform.processor() or platform.machine(), ""


def peak_memory() -> int:
    """The largest resident memory of this process so far, in bytes.

    On Linux it is VmHWM of /proc/self/status: a new program inherits its parent's peak in `ru_maxrss`.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else 1024 * peak
