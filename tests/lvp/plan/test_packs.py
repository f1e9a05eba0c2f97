"""Packs: the most lanes that fit on a device, and all devices for a lane that does not fit on one."""

import os
from dataclasses import replace

import jax
import pytest

from lvp.errors import InputError
from lvp.losses import compiling_for, default_chunk
from lvp.models.configs import DecoderConfig
from lvp.parallel import sharding
from lvp.parallel.hardware import ACCELERATORS
from lvp.plan import TooLarge, devices_of, packs
from lvp.plan.assignment import assigned_memory
from lvp.plan.compilation import memory_of
from lvp.plan.packs import PackPlan, largest_pack, planned
from lvp.training import Cell, DataConfig
from lvp.training.tasks import task_for

CELL = Cell(DecoderConfig(vocab=64, width=16, layers=1, context=16), DataConfig("none", slice_bytes=500), 2, 10)
CPU = "host:1"


@pytest.fixture(scope="module")
def all_plans():
    return {lanes: planned(task_for(CELL), lanes, CPU) for lanes in (1, 2, 4)}


@pytest.fixture
def plans(all_plans, monkeypatch):
    """Lanes → plan. `largest_pack` takes these plans instead of compiling again."""
    monkeypatch.setattr(packs, "planned", lambda task, lanes, topology, devices=1: all_plans[lanes])
    return all_plans


def test_a_plan_counts_state_and_step_of_every_lane(plans):
    for lanes, plan in plans.items():
        # Parameters and two moments are both arguments and, donated, results.
        state = lanes * 3 * CELL.num_params * 4
        assert state < plan.memory < 20 * state
        assert (plan.lanes, plan.devices) == (lanes, 1)
        assert plan.flops == lanes * CELL.model.flops_per_token() * CELL.tokens_per_step
    assert plans[4].memory > plans[2].memory > plans[1].memory


@pytest.mark.parametrize("num_lanes, fits, expected", [(5, 4, 4), (3, 4, 2), (5, 2, 2), (5, 1, 1), (1, 4, 1)])
def test_the_largest_power_of_two_that_fits_is_taken(plans, num_lanes, fits, expected):
    """`fits`: the memory is that of a pack of this many lanes."""
    # The estimate uses 0.9 of the memory.
    memory = max(plans[fits].memory, fits * plans[1].memory) / 0.89
    if fits < 4:
        memory = min(memory, plans[2 * fits].memory - 1)
    assert largest_pack(task_for(CELL), num_lanes, CPU, memory).lanes == expected


def test_lanes_with_data_of_their_own_are_not_packed(plans):
    streamed = replace(CELL, data=DataConfig("none", order="rows"))
    assert largest_pack(task_for(streamed), 8, CPU, 1e12).lanes == 1


def test_a_lane_that_fits_on_no_device_is_too_large(plans):
    with pytest.raises(TooLarge, match="a lane needs 0.0 GiB on each of 1 devices, and a device has 0.0 GiB; use a"):
        largest_pack(task_for(CELL), 4, CPU, 100.0)


def test_the_time_of_a_step_is_the_larger_of_arithmetic_and_memory():
    v5e = ACCELERATORS["v5e"]
    arithmetic, memory = PackPlan(1, 1, 1, 2 * v5e.flops), PackPlan(1, 1, int(1.5 * v5e.bandwidth), v5e.flops)
    assert (arithmetic.seconds(v5e), memory.seconds(v5e)) == (2.0, 3.0)


def test_a_program_for_another_platform_has_the_chunks_of_that_platform():
    assert default_chunk(2**14) == 512
    with compiling_for("tpu"):
        assert default_chunk(2**14) == 8192
    assert default_chunk(2**14) == 512


def test_a_device_and_a_mesh_are_refused():
    devices = jax.devices("cpu")[:1]
    program = task_for(CELL).program(1, sharding.make_mesh(sharding.mesh_sizes("", 1), devices))
    with pytest.raises(ValueError, match="device must be None with a mesh"):
        program.compile(task_for(CELL).data_shapes(), devices[0])


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1", "v6e:2x2", "h100:2"])
def test_a_pack_is_planned_without_the_hardware(topology):
    pytest.importorskip("jax_cuda12_plugin" if topology == "h100:2" else "libtpu")
    _, hardware = devices_of(topology)
    plan = largest_pack(task_for(CELL), 4, topology, hardware.memory)
    assert plan.lanes == 4 and 0 < plan.seconds(hardware) < 1


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_the_assigned_memory_is_that_of_the_compiled_program(count):
    pytest.importorskip("libtpu")
    topology, cell = "v5e:2x2", replace(CELL, model=replace(CELL.model, width=128), batch=1024)
    devices = devices_of(topology)[0][:count]
    mesh = sharding.make_mesh(sharding.mesh_sizes("", count), devices) if count > 1 else None
    task = task_for(cell)
    compiled = task.program(1, mesh).compile(task.data_shapes(), None if mesh else devices[0])
    memory = sum(memory_of(compiled).values())
    constants = planned(task, 1, topology, count).memory - memory  # only the report has them
    assert 0 <= constants < 150_000 < memory / 50


def refuse(devices):
    raise TooLarge(f"too large for {len(devices)} device")


def compile_another_program(devices):
    jax.jit(lambda x: x + 1).lower(1.0).compile()


def die(devices):
    os._exit(1)


@pytest.mark.parametrize(
    "compile_, error, words",
    [
        (refuse, TooLarge, "^too large for 1 device$"),
        (compile_another_program, RuntimeError, "XLA wrote no memory report for host:1"),
        (die, RuntimeError, "the compiler for host:1 ended without a result"),
    ],
)
def test_errors_of_the_compiling_process_are_raised(compile_, error, words):
    with pytest.raises(error, match=words):
        assigned_memory(CPU, compile_)


def test_a_topology_without_its_devices_is_refused():
    with pytest.raises(InputError, match="host:64: this process has .* CPU devices"):
        assigned_memory("host:64", refuse)
