"""Packs: the most lanes that fit on a device, and all devices for a lane that does not fit on one."""

from dataclasses import replace

import jax
import pytest

from lvp.models.configs import DecoderConfig
from lvp.parallel.hardware import ACCELERATORS
from lvp.plan import TooLarge, packs
from lvp.plan.packs import PackPlan, compiled, largest_pack
from lvp.training import Cell, DataConfig
from lvp.training.tasks import task_for

CELL = Cell(DecoderConfig(vocab=64, width=16, layers=1, context=16), DataConfig("none", slice_bytes=500), 2, 10)
CPU = jax.devices("cpu")[:1]


@pytest.fixture(scope="module")
def all_plans():
    return {lanes: compiled(task_for(CELL), lanes, CPU) for lanes in (1, 2, 4)}


@pytest.fixture
def plans(all_plans, monkeypatch):
    """Lanes → plan. `largest_pack` takes these plans instead of compiling again."""
    monkeypatch.setattr(packs, "compiled", lambda task, lanes, devices: all_plans[lanes])
    return all_plans


def test_a_plan_counts_state_and_step_of_every_lane(plans):
    for lanes, plan in plans.items():
        # Parameters and two moments are both arguments and, donated, results.
        state = lanes * 3 * CELL.num_params * 4
        assert state < plan.memory < 20 * state
        assert (plan.lanes, plan.devices) == (lanes, 1)
        model_flops = CELL.model.flops_per_token() * CELL.tokens_per_step
        assert 0.5 * lanes * model_flops < plan.flops < 5 * lanes * model_flops
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
    with pytest.raises(TooLarge, match=f"a lane needs {plans[1].memory} bytes on each of 1 devices, of 100"):
        largest_pack(task_for(CELL), 4, CPU, 100.0)


def test_the_time_of_a_step_is_the_larger_of_arithmetic_and_traffic():
    v5e = ACCELERATORS["v5e"]
    arithmetic, traffic = (
        PackPlan(1, 1, 1, 2 * v5e.flops, v5e.bandwidth),
        PackPlan(1, 1, 1, v5e.flops, 3 * v5e.bandwidth),
    )
    assert (arithmetic.seconds(v5e), traffic.seconds(v5e)) == (2.0, 3.0)


@pytest.mark.slow
@pytest.mark.parametrize("accelerator", ["v5e", "v5p", "v6e"])
def test_a_pack_is_compiled_for_a_tpu_without_the_tpu(accelerator):
    pytest.importorskip("libtpu")
    from lvp.plan import devices_of

    devices, hardware = devices_of({"v5p": "v5p:2x2x1"}.get(accelerator, f"{accelerator}:2x2"))
    plan = largest_pack(task_for(CELL), 4, devices, hardware.memory)
    assert plan.lanes == 4 and 0 < plan.seconds(hardware) < 1
