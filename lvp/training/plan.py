"""The plan of a run: memory and time of a setting's training on a topology, compiled without the hardware.

The compiler reports the memory. The time is a lower bound: model FLOPs over the makers' peak.
"""

import dataclasses
import math
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies

from lvp import mesh_axes
from lvp.errors import InputError
from lvp.parallel import sharding
from lvp.parallel.hardware import ACCELERATORS, GIB, Accelerator
from lvp.training import Program, Setting
from lvp.training.language import check_mesh, data_shapes

# The facts about a GPU that XLA's compiler needs, in its text format (xla/backends/gpu/target_config/specs, 2026).
_GPU_TARGETS = {
    "h100": """
platform_name: "CUDA"
device_description_str: "NVIDIA H100 80GB HBM3"
dnn_version_info { major: 9 minor: 10 }
gpu_device_info {
  cuda_compute_capability { major: 9 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  device_memory_size: 84942979072
  memory_bandwidth: 3352320000000
  l2_cache_size: 52428800
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
"""
}


def devices_of(topology: str) -> tuple[Sequence[Any], Accelerator | None]:
    """(devices of a topology, peak figures of one device; None for CPU devices).

    "v5e:4x4", "v5p:2x2x4" and "v6e:4x4" are TPU slices, which libtpu describes without a TPU. "h100:8" is eight GPUs.
    JAX's CUDA plug-in compiles for them without a GPU. "host:8" is eight CPU devices of this process
    (XLA_FLAGS=--xla_force_host_platform_device_count=8 before jax starts).

    Raises:
      InputError: the topology is unknown, libtpu or the CUDA plug-in is not installed, or this process has too few CPU
        devices.
    """
    kind, _, shape = topology.partition(":")
    if kind == "host":
        return _of_host(shape), None
    if kind in _GPU_TARGETS:
        return _of_gpus(kind, shape), ACCELERATORS[kind]
    if kind not in ACCELERATORS or not kind.startswith("v") or not all(n.isdecimal() for n in shape.split("x")):
        raise InputError(f"topology must be like v5e:4x4, v5p:2x2x4, v6e:4x4, h100:8 or host:8, got {topology!r}")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # no query of a metadata server
    os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # several processes may compile: none has a TPU
    try:
        with _silent():
            return topologies.get_topology_desc(platform="tpu", topology_name=topology).devices, ACCELERATORS[kind]
    except Exception as error:  # the plug-in raises exceptions of many types
        message = str(error).splitlines()[0][:200]
        if "TPU support not installed" in message:
            message = "it needs libtpu, which is not installed: pip install 'lvp[lab,tpu]'"
        raise InputError(f"topology {topology}: {message}") from None


def _of_gpus(kind: str, count: str) -> Sequence[Any]:
    if not count.isdecimal() or int(count) < 1:
        raise InputError(f"topology {kind}:{count}: write {kind}:8 for eight GPUs")
    shape = {"topology": f"1x1x{count}", "target_config": _GPU_TARGETS[kind]}
    try:
        with _silent():
            return topologies.get_topology_desc(platform="cuda", topology_name=kind, **shape).devices
    except Exception as error:  # the plug-in raises exceptions of many types
        message = str(error).splitlines()[0][:200]
        if isinstance(error, NotImplementedError):
            message = "it needs JAX's CUDA plug-in, which is not installed: pip install 'lvp[lab,cuda]'"
        raise InputError(f"topology {kind}:{count}: {message}") from None


@contextmanager
def _silent():
    """Hides C++ messages about the missing accelerator."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _of_host(count: str) -> Sequence[Any]:
    if not count.isdecimal() or int(count) < 1:
        raise InputError(f"topology host:{count}: write host:8 for eight devices of this machine")
    cpus = jax.devices("cpu")
    if len(cpus) < int(count):
        raise InputError(
            f"topology host:{count}: this process has {len(cpus)} CPU devices; start it with "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={count}"
        )
    return cpus[: int(count)]


class TooLarge(InputError):
    """A program that the compiler refuses because it needs more memory than a device has."""


@dataclass(frozen=True)
class Plan:
    """Memory and time of a setting on a topology. Bytes are per device, FLOPs per step on all devices."""

    topology: str
    sizes: Mapping[str, int]  # of the mesh, by axis
    setting: Setting
    accelerator: Accelerator | None  # None for CPU devices
    memory: Mapping[str, int]  # bytes of parameters, optimizer, rest of the state and data, temporaries

    @property
    def devices(self) -> int:
        """The number of devices."""
        return math.prod(self.sizes.values())

    @property
    def used(self) -> int:
        """Bytes of a device that the training needs."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool | None:
        """True if the memory of a device suffices; None if device memory is unknown."""
        return None if self.accelerator is None else self.used <= self.accelerator.memory

    @property
    def flops(self) -> float:
        """Model FLOPs of a step."""
        return self.setting.model.flops_per_token() * self.setting.tokens_per_step

    @property
    def seconds(self) -> float | None:
        """Seconds of a step at least: model FLOPs at the devices' peak; None if the peak is unknown."""
        return self.accelerator and self.flops / (self.devices * self.accelerator.flops)


def plan(setting: Setting, topology: str, mesh: str | Mapping[str, int] = "") -> Plan:
    """The plan of a setting on a topology and a mesh. The training is compiled, and not run.

    Args:
      topology: as in `devices_of`.
      mesh: sizes as in `lvp.parallel.sharding.mesh_sizes`.

    Raises:
      InputError: the topology or an axis of the mesh is unknown, the mesh does not fit the topology or the setting, or
        the compiler of the topology is not installed.
      TooLarge: the program needs more memory than a device has. The error has the compiler's message.
    """
    devices, accelerator = devices_of(topology)
    sizes = sharding.mesh_sizes(mesh, len(devices))
    check_mesh(setting, sizes)
    program = Program(setting, mesh=sharding.make_mesh(sizes, devices))
    compiled = compiled_or_too_large(lambda: program.compile(data_shapes(setting)), f"{topology}, {_mesh_words(sizes)}")
    return Plan(topology, sizes, setting, accelerator, _memory(program, compiled))


def compiled_or_too_large(compile_: Callable[[], Any], what: str) -> Any:
    """The result of `compile_`.

    Args:
      what: names the program in the error.

    Raises:
      TooLarge: the program needs more memory than a device has.
    """
    try:
        return compile_()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        words = re.search(r"(Used [^.]*\.?[^.]*? of [^.]*\.?\d*G hbm|[^.]*exceed[^.]*\.?\d*[A-Z]*)", str(error))
        raise TooLarge(f"{what}: {(words.group(0) if words else str(error)[:200]).strip()}") from None


def _memory(program: Program, compiled) -> dict[str, int]:
    shapes, placement = program.run_shapes(), program.placement

    def held(name: str) -> int:
        leaves = zip(jax.tree.leaves(shapes[name]), jax.tree.leaves(placement[name]), strict=True)
        return sum(math.prod(where.shard_shape(x.shape)) * np.dtype(x.dtype).itemsize for x, where in leaves)

    used, params, opt = memory_of(compiled), held("params"), held("opt")
    return {
        "parameters": params,
        "optimizer": opt,
        "rest of the state, data": max(0, used["arguments"] - params - opt),
        "activations and temporaries": used["temporaries"],
    }


def memory_of(compiled: Any) -> dict[str, int]:
    """Bytes of a device that a compiled program needs: arguments and results, and temporaries."""
    analysis = compiled.memory_analysis()
    # Donated arrays are both input and output.
    arguments = analysis.argument_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return {"arguments": arguments, "temporaries": analysis.temp_size_in_bytes}


def remedies(setting: Setting, sizes: Mapping[str, int]) -> list[tuple[str, Setting]]:
    """(command-line options, setting) of settings that need less memory, cheapest first.

    Blocks are rematerialised first. Then micro-batches are halved as long as the devices divide their rows evenly.
    """
    tokens = math.prod(sizes[name] for name in mesh_axes.TOKENS)
    steps = []
    if setting.model.remat != "block":
        setting = dataclasses.replace(setting, model=dataclasses.replace(setting.model, remat="block"))
        steps.append(("--remat block", setting))
    while setting.micro_batch_size % (2 * tokens) == 0:
        setting = dataclasses.replace(setting, micro_batches=2 * setting.micro_batches)
        steps.append((f"{steps[0][0] + ' ' if steps else ''}--micro-batches {setting.micro_batches}", setting))
    return steps


def _mesh_words(sizes: Mapping[str, int]) -> str:
    return " × ".join(f"{name} {size}" for name, size in sizes.items())


def _of(value: float, units: Sequence[str], base: float) -> str:
    for unit in units[:-1]:
        if abs(value) < base:
            return f"{value:.3g} {unit}"
        value /= base
    return f"{value:.3g} {units[-1]}"


def table(planned: Plan) -> str:
    """A plan as text."""
    setting, model = planned.setting, planned.setting.model
    size = lambda x: f"{_of(x, ['B', 'KiB', 'MiB', 'GiB'], 1024):>12}"  # noqa: E731
    limit = f" of {planned.accelerator.memory / GIB:.1f} GiB" if planned.accelerator else ""
    flops = _of(planned.flops, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"], 1e3)
    lines = [
        f"{planned.topology}: {planned.devices} devices, mesh {_mesh_words(planned.sizes)}",
        f"model: {_of(model.num_params, ['', 'k', 'M', 'B'], 1e3)} parameters, {model.dtype} arithmetic, remat "
        f"{model.remat}; a step: {setting.batch} rows of {model.context} tokens in {setting.micro_batches} "
        f"micro-batches, {setting.optimizer.kind}",
        "",
        "memory of a device, by the compiler",
        *(f"  {name:<32}{size(x)}" for name, x in planned.memory.items()),
        f"  {'all':<32}{size(planned.used)}{limit}",
        "",
        "a step",
        f"  {'model FLOPs':<32}{flops:>12}",
    ]
    if planned.seconds:
        rate = _of(setting.tokens_per_step / planned.seconds * 86400, ["", "k", "M", "G"], 1e3)
        lines += [
            f"  {'time at peak FLOP/s':<32}{planned.seconds:>10.3f} s, a lower bound",
            f"  {'tokens a day at peak FLOP/s':<32}{rate:>12}, an upper bound",
        ]
    return "\n".join(lines)
