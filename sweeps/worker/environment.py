"""The environment of a lane: all that determines the bits of its results, besides its configuration.

The worker sets JAX's options (`fixed_options`). Versions, code, compiler flags and the machine cannot be set. The
manifest records them at the sweep's first session (`present`). `differences` lists what differs. A worker with
differences raises an error, and a driver does so without `--allow-other-version`.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax

import experiments
import lvp
from lvp.files.schema import Shape
from lvp.parallel.hardware import processor
from lvp.training import records

# JAX's default values. They replace the values from JAX_… variables and from the process.
JAX_OPTIONS: Mapping[str, Any] = {
    "jax_allow_f16_reductions": True,
    "jax_check_tracer_leaks": False,
    "jax_compiler_enable_remat_pass": True,
    "jax_debug_infs": False,
    "jax_debug_key_reuse": False,
    "jax_debug_nans": False,
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_disable_jit": False,
    "jax_disable_most_optimizations": False,
    "jax_enable_checks": False,
    "jax_enable_custom_prng": False,
    "jax_enable_x64": False,
    "jax_exec_time_optimization_effort": 0.0,
    "jax_high_dynamic_range_gumbel": False,
    "jax_legacy_prng_key": "allow",
    "jax_numpy_dtype_promotion": "standard",
    "jax_numpy_rank_promotion": "allow",
    "jax_optimization_level": "UNKNOWN",
    "jax_random_seed_offset": 0,
    "jax_softmax_custom_jvp": False,
    "jax_threefry_gpu_kernel_lowering": False,
    "jax_threefry_partitionable": True,
}
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")
SHAPE: Shape = {"versions": dict, "code": str, "commit": str | None, "flags": [str], "machine": str}
_FLAG_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
# Flags that are not compared: the worker sets the first, the second makes virtual devices, the third writes files.
_NOT_COMPARED = ("--xla_cpu_multi_thread_eigen=", "--xla_force_host_platform_device_count=", "--xla_dump_")


@contextlib.contextmanager
def fixed_options() -> Iterator[None]:
    """Sets `JAX_OPTIONS` during the block. Skips options that this version of JAX does not have."""
    before = {name: jax.config.values[name] for name in JAX_OPTIONS if name in jax.config.values}
    try:
        for name in before:
            jax.config.update(name, JAX_OPTIONS[name])
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def present() -> dict[str, Any]:
    """The environment of this process, in the form of the manifest. Does not initialise a device."""
    software = records.software()
    return {
        "versions": {name: software["versions"][name] for name in PACKAGES if name in software["versions"]},
        "code": _code(),
        "commit": software["commit"],
        "flags": _flags(),
        "machine": _machine(),
    }


def differences(began: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences between two environments, as text. Flags, machine and device are compared only if both
    environments have them."""
    versions = [(name, began["versions"].get(name), now["versions"].get(name)) for name in PACKAGES]
    parts = [f"{name} {before} (now {after})" for name, before, after in versions if before != after]
    if began["code"] != now["code"]:
        parts.append(f"other source files: commit {began['commit']} (now {now['commit']})")
    for name in ("flags", "machine", "device"):
        if name in began and name in now and began[name] != now[name]:
            before, after = (" ".join(x) or "none" if name == "flags" else x for x in (began[name], now[name]))
            parts.append(f"{name} {before} (now {after})")
    return parts


@cache
def _code() -> str:
    """The digest of the packages' source files."""
    digest = hashlib.sha256()
    roots = [Path(str(package.__file__)).parent for package in (lvp, experiments)] + [Path(__file__).parents[1]]
    for root in roots:
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{root.name}/{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _flags() -> list[str]:
    words = [word for name in _FLAG_VARIABLES for word in os.environ.get(name, "").split()]
    return sorted(word for word in words if not word.startswith(_NOT_COMPARED))


def _machine() -> str:
    """The processor and its vector extensions. XLA's code depends on both."""
    model, vectors = processor()
    return f"{model}: {vectors}" if vectors else model
