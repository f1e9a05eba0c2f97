"""Memory and time of the lanes of a cell on an accelerator, from programs compiled without the hardware.

A program trains a pack of lanes on one device. If one lane does not fit on a device, it is compiled for all devices of
a topology.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from lvp.parallel import sharding
from lvp.parallel.hardware import GIB, Accelerator
from lvp.plan.assignment import assigned_memory
from lvp.plan.compilation import TooLarge, compiled_or_too_large, devices_of
from lvp.training.tasks import Task

# The estimate may use this share of the memory. Temporaries do not grow exactly with the lanes.
_SHARE = 0.9


class PackPlan(NamedTuple):
    """The program of a pack on one device, or of a lane on several devices. All numbers are of one device."""

    lanes: int  # lanes of the program
    devices: int
    memory: int  # bytes of state, data and temporaries
    flops: float  # model FLOPs of a step of all lanes

    def seconds(self, accelerator: Accelerator) -> float:
        """Seconds that a step of all lanes needs at least: a roofline.

        The larger of arithmetic at the peak rate, and of reading and writing all memory once at the peak bandwidth.
        """
        return max(self.flops / accelerator.flops, 2 * self.memory / accelerator.bandwidth)


def largest_pack(task: Task, num_lanes: int, topology: str, memory: float) -> PackPlan:
    """The plan of the largest pack, a power of 2 and at most `num_lanes`, that an estimate and the compiler accept.

    The estimate is the memory of one lane times the lanes.

    Args:
      task: of the cell.
      topology: as in `lvp.plan.devices_of`. All its devices are used if a lane does not fit on one device (mesh axis
        fsdp).
      memory: bytes of a device.

    Raises: TooLarge if a lane does not fit on all devices. InputError if they do not divide the cell's rows or
      parameters.
    """
    try:
        one = planned(task, 1, topology)
    except TooLarge:
        one = None
    if one is None or one.memory > memory:
        whole = planned(task, 1, topology, len(devices_of(topology)[0]))
        if whole.memory > memory:
            raise TooLarge(
                f"a lane needs {whole.memory / GIB:.1f} GiB on each of {whole.devices} devices, and a device has "
                f"{memory / GIB:.1f} GiB; use a larger slice or more micro-batches"
            )
        return whole
    for lanes in _smaller_packs(num_lanes if task.shares_data else 1, _SHARE * memory / one.memory):
        try:
            pack = planned(task, lanes, topology)
        except TooLarge:
            continue
        if pack.memory <= memory:
            return pack
    return one


def _smaller_packs(most: int, fitting: float) -> Iterator[int]:
    """Powers of 2 in decreasing order: at most `most` and `fitting`, at least 2."""
    lanes = 1 << max(0, int(min(most, fitting)).bit_length() - 1)
    while lanes > 1:
        yield lanes
        lanes //= 2


def planned(task: Task, lanes: int, topology: str, devices: int = 1) -> PackPlan:
    """The plan of a pack on one device, or of one lane on several devices.

    Raises: TooLarge if the compiler refuses the program. InputError if several devices do not divide the cell.
    """
    memory = assigned_memory(topology, partial(_compile, task, lanes, devices))
    return PackPlan(lanes, devices, memory, lanes * task.cell.flops_per_lane / task.cell.steps / devices)


def _compile(task: Task, lanes: int, count: int, devices: Sequence[Any]) -> None:
    """Compiles the program of a pack for the first of the devices, or that of a lane for the first `count`."""
    device, mesh = devices[0], None
    if count > 1:
        sizes = sharding.mesh_sizes("", count)
        task.check_mesh(sizes)
        device, mesh = None, sharding.make_mesh(sizes, devices[:count])
    program = task.program(lanes, mesh)
    name = f"{lanes} lane{'s' * (lanes > 1)} on {count} device{'s' * (count > 1)}"
    compiled_or_too_large(lambda: program.compile(task.data_shapes(), device), name)
