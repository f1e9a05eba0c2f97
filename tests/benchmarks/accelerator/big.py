"""The 1B model of Hayou & Liu 2025 (table 3): steps at the largest batch that fits, with remat and without."""

import time

import jax
import numpy as np

from lvp.parallel.hardware import GIB, accelerator
from lvp.plan.compilation import memory_of
from lvp.training import Cell, Program
from tests.benchmarks.accelerator.rows import Rows
from tests.benchmarks.accelerator.sizes import Sizes, data_of, lanes

MFU = 42  # %, floor


def main(rows: Rows, sizes: Sizes) -> None:
    done = set()
    for remat, attention, rows_per_step in sizes.big:
        if (remat, attention) in done:
            continue
        name = f"1B, remat {remat}, {attention} attention, {rows_per_step} rows a step"
        if rows.left < 12:
            rows.skip(name, "out of time")
            continue
        with rows.attempt(name):
            if measured(rows, name, sizes.one_b(remat, attention, rows_per_step), sizes.big_steps):
                done.add((remat, attention))
        jax.clear_caches()


def limit_of(device: jax.Device) -> float:
    """Bytes that a program may use; infinite if the device does not say."""
    return (device.memory_stats() or {}).get("bytes_limit", float("inf"))


def measured(rows: Rows, name: str, cell: Cell, steps: int) -> bool:
    """Adds the rows of a cell and returns True; returns False if its program does not fit."""
    device = jax.devices()[0]
    data, program, started = data_of(cell), Program(cell), time.perf_counter()
    needed = memory_of(program.compile(data))
    compiled = time.perf_counter() - started
    foretold = sum(needed.values()) / GIB
    rows.add(f"{name}: memory by the compiler", foretold, "GiB", raw={**needed, "compile_seconds": compiled})
    if foretold * GIB > limit_of(device):
        rows.skip(name, f"needs {foretold:.1f} GiB, and the device gives {limit_of(device) / GIB:.1f} GiB")
        return False
    arrays, state, step = program.arrays(lanes(cell, 1)), program.blank_state(), 0
    times = []
    for stop in (1, 1 + steps):  # the first dispatch draws the parameters
        started = time.perf_counter()
        state = jax.block_until_ready(program.advance(np.int32(step), np.int32(stop), state, arrays, data))
        times.append((time.perf_counter() - started) / (stop - step))
        step = stop
    per_second = cell.tokens_per_step / times[1]
    losses = np.asarray(state["losses"][: 1 + steps])
    rows.add(f"{name}: tokens per second", per_second, raw={"seconds": times, "losses": losses.tolist()})
    rows.add(f"{name}: steps with a finite loss", int(np.isfinite(losses).sum()), least=1 + steps)
    if (known := accelerator(device.device_kind)) is not None:
        used = 100 * per_second * cell.model.flops_per_token() / known.flops
        rows.add(f"{name}: MFU", used, "%", least=MFU if cell.model.attention == "fused" else None)
    if "peak_bytes_in_use" in (stats := device.memory_stats() or {}):
        rows.add(f"{name}: peak memory", stats["peak_bytes_in_use"] / GIB, "GiB", raw={"foretold": foretold})
    return True
