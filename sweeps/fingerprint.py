"""The fingerprint of a program's environment: what determines the bits of a run, besides its configuration.

Same lowered program, same compiler, same flags, same kind of device, same threads: same bits. The fingerprint stands in
`sweep.json` (without the program), for every compiled program of a sweep, and in every checkpoint and record.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lvp.files.schema import Shape, fits
from lvp.parallel.hardware import processor, visible_cores
from lvp.training import records

PACKAGES = ("jax", "jaxlib", "numpy", "scipy")
SHAPE: Shape = {"versions": dict, "flags": [str], "machine": str}
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
_KERNELS = ("OPENBLAS_", "MKL_", "BLIS_", "NPY_")  # variables that choose NumPy's kernels
_NO_EFFECT = ("--xla_dump_",)  # flags that write files
CPU_FLAGS = "--xla_cpu_multi_thread_eigen=false"  # of a worker with one thread


def present() -> dict[str, Any]:
    """Versions, flags and processor of this process. Does not initialise a device."""
    versions = records.software()["versions"]
    kernels = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(_KERNELS)]
    return {
        "versions": {name: versions[name] for name in PACKAGES if name in versions},
        "flags": sorted(word for name in _FLAGS for word in _words(os.environ.get(name, ""))) + sorted(kernels),
        "machine": ": ".join(filter(None, processor())),
    }


def of_program(program: str, device: Any, devices: int, threads: int | None) -> dict[str, Any]:
    """The fingerprint of a program.

    Args:
      program: the text of the lowered program; "" for a calculation.
      device: a `jax.Device` that runs it.
      devices: the number of the process's devices.
      threads: the worker's threads; None if XLA chooses them.
    """
    splits = threads is None and device.platform == "cpu"  # XLA splits sums by the cores
    chosen = {"cores": visible_cores()} if splits else {}
    return (
        present()
        | chosen
        | {
            "program": hashlib.sha256(program.encode()).hexdigest()[:16],
            "device": f"{device.platform} {device.device_kind}",
            "devices": devices,
            "threads": threads,
        }
    )


def content(fingerprint: Mapping[str, Any]) -> bytes:
    """The content of a fingerprint's file: JSON with a digest."""
    return records.dumps({**fingerprint, "digest": records.config_hash(fingerprint)}).encode()


def held(content: bytes) -> dict[str, Any] | None:
    """The fingerprint in the content of its file; None if it is damaged."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(content)
        if fits(found, SHAPE) and found.pop("digest", None) == records.config_hash(found):
            return found
    return None


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints, in words. Only keys of both are compared."""
    parts = []
    for key in (key for key in before if key in now and before[key] != now[key]):
        if key == "versions":
            names = [name for name in {**before[key], **now[key]} if before[key].get(name) != now[key].get(name)]
            parts += [f"{name} {before[key].get(name)} (now {now[key].get(name)})" for name in names]
        else:
            old, new = (" ".join(x) or "none" if isinstance(x, list) else x for x in (before[key], now[key]))
            parts.append(f"{key} {old} (now {new})")
    return parts


def _words(flags: str) -> list[str]:
    """The flags in a variable. XLA reads a file if the variable holds a path."""
    if flags and not flags.lstrip().startswith("-"):
        try:
            flags = Path(flags.strip()).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return [flags]
    return [word for word in flags.split() if not word.startswith(_NO_EFFECT) and word != CPU_FLAGS]
