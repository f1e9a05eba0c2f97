"""Memory and time of the lanes of a cell on an accelerator, from programs compiled without the hardware.

A program trains a pack of lanes on one device. If one lane does not fit on a device, it is compiled for all devices of
a topology.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lvp.parallel import sharding
from lvp.parallel.hardware import Accelerator
from lvp.plan.compilation import TooLarge, compiled_or_too_large
from lvp.training.tasks import Task

_SHARE = 0.9  # of the memory that an estimate may use: the compiler's temporaries do not grow exactly with the lanes


class PackPlan(NamedTuple):
    """The compiled program of a pack on one device, or of a lane on several devices. All numbers are of one device."""

    lanes: int  # lanes of the program
    devices: int
    memory: int  # bytes of state, data and temporaries
    flops: float  # of a step of all lanes, as the compiler counts them
    traffic: float  # bytes that a step's operations read and write, as the compiler counts them

    def seconds(self, accelerator: Accelerator) -> float:
        """Seconds of a step: the larger of arithmetic at the peak rate and traffic at the memory's peak bandwidth."""
        return max(self.flops / accelerator.flops, self.traffic / accelerator.bandwidth)


def largest_pack(task: Task, num_lanes: int, devices: Sequence[Any], memory: float) -> PackPlan:
    """The plan with the most lanes that fit, for at most `num_lanes` lanes; powers of 2.

    Args:
      task: of the cell.
      devices: of the topology. All of them are used if a lane does not fit on one device (mesh axis fsdp).
      memory: bytes of a device.

    Raises: TooLarge if a lane does not fit on all devices.
    """
    try:
        one = compiled(task, 1, devices[:1])
    except TooLarge:
        one = None
    if one is None or one.memory > memory:
        whole = compiled(task, 1, devices)
        if whole.memory > memory:
            raise TooLarge(f"a lane needs {whole.memory} bytes on each of {whole.devices} devices, of {memory:.0f}")
        return whole
    for lanes in _smaller_packs(num_lanes if task.shares_data else 1, _SHARE * memory / one.memory):
        try:
            pack = compiled(task, lanes, devices[:1])
        except TooLarge:
            continue
        if pack.memory <= memory:
            return pack
    return one


def _smaller_packs(most: int, fitting: float) -> Iterator[int]:
    """Powers of 2 above 1, from the largest that is at most `most` and `fitting`."""
    lanes = 1 << max(0, int(min(most, fitting)).bit_length() - 1)
    while lanes > 1:
        yield lanes
        lanes //= 2


def compiled(task: Task, lanes: int, devices: Sequence[Any]) -> PackPlan:
    """The plan of a pack on one device, or of one lane on several devices. Raises TooLarge if the compiler refuses."""
    several = len(devices) > 1
    mesh = sharding.make_mesh(sharding.mesh_sizes("", len(devices)), devices) if several else None
    program = task.program(lanes, mesh)
    device = None if several else devices[0]
    name = f"{lanes} lane{'s' * (lanes > 1)} on {len(devices)} device{'s' * several}"
    executable = compiled_or_too_large(lambda: program.compile(task.data_shapes(), device), name)
    used, counted = executable.memory_analysis(), executable.cost_analysis()
    # Donated arrays are both input and output.
    held = used.argument_size_in_bytes + used.output_size_in_bytes - used.alias_size_in_bytes
    return PackPlan(
        lanes,
        len(devices),
        held + used.temp_size_in_bytes,
        float(counted["flops"]),
        float(counted["bytes accessed"]),
    )
