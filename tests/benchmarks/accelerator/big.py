"""The 1B model of Hayou & Liu 2025 (table 3): steps with and without rematerialisation."""

import threading
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lvp.parallel.hardware import GIB, accelerator
from lvp.training import Program, TrainingData
from lvp.training.plan import memory_of
from tests.benchmarks.accelerator.rows import Rows
from tests.benchmarks.accelerator.sizes import Sizes
from tests.benchmarks.programs import data_of, runs

MFU = 42  # %, floor
COMPILING = 0.6  # part of the time limit in which the programs may compile


def main(rows: Rows, sizes: Sizes) -> None:
    found: dict[tuple[str, str, int], Compiled | None] = {}

    def compile_(choice: tuple[str, str, int]) -> None:
        found[choice] = in_attempt(rows, sizes, choice)

    # Daemons, so that the process can end while one compiles.
    threads = [threading.Thread(target=compile_, args=(choice,), daemon=True) for choice in sizes.big]
    until = time.monotonic() + COMPILING * rows.left
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    for choice in sizes.big:
        name = name_of(*choice)
        if choice not in found:
            rows.skip(name, "not compiled in time")
        elif rows.left < 10:
            rows.skip(name, "out of time")
        elif (program := found[choice]) is not None:
            with rows.attempt(name):
                measured(rows, name, program, sizes.big_steps)


class Compiled(NamedTuple):
    """A program with its data and the bytes that the compiler reports."""

    program: Program
    data: TrainingData
    bytes: dict[str, int]
    seconds: float  # of the compilation


def name_of(remat: str, attention: str, count: int) -> str:
    return f"1B, remat {remat}, {attention} attention, {count} rows a step"


def in_attempt(rows: Rows, sizes: Sizes, choice: tuple[str, str, int]) -> Compiled | None:
    """The compiled program of a setting; None, with a row, if the compiler refuses it."""
    with rows.attempt(f"{name_of(*choice)}: compilation"):
        setting, started = sizes.one_b(*choice), time.perf_counter()
        program, data = Program(setting), data_of(setting)
        needed = memory_of(program.compile(data))
        return Compiled(program, data, needed, time.perf_counter() - started)
    return None


def limit_of(device: jax.Device) -> float:
    """Bytes that a program may use; infinite if the device does not say."""
    return (device.memory_stats() or {}).get("bytes_limit", float("inf"))


def measured(rows: Rows, name: str, compiled: Compiled, steps: int) -> None:
    """Adds the rows of a program, if it fits."""
    device, program, setting = jax.devices()[0], compiled.program, compiled.program.setting
    foretold = sum(compiled.bytes.values()) / GIB
    raw = {**compiled.bytes, "compile_seconds": compiled.seconds}
    rows.add(f"{name}: memory by the compiler", foretold, "GiB", raw=raw)
    if foretold * GIB > limit_of(device):
        rows.skip(name, f"needs {foretold:.1f} GiB, and the device gives {limit_of(device) / GIB:.1f} GiB")
        return
    zeros = jax.jit(lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), program.run_shapes()))
    arrays, state, step = program.arrays(runs(setting, 1)), zeros(), 0
    times = []
    for stop in (1, 1 + steps):  # the first dispatch draws the parameters
        started = time.perf_counter()
        state = jax.block_until_ready(program.advance(np.int32(step), np.int32(stop), state, arrays, compiled.data))
        times.append((time.perf_counter() - started) / (stop - step))
        step = stop
    per_second = setting.tokens_per_step / times[1]
    losses = np.asarray(state["losses"][: 1 + steps])
    rows.add(f"{name}: tokens per second", per_second, raw={"seconds": times, "losses": losses.tolist()})
    rows.add(f"{name}: steps with a finite loss", int(np.isfinite(losses).sum()), least=1 + steps)
    if (known := accelerator(device.device_kind)) is not None:
        used = 100 * per_second * setting.model.flops_per_token() / known.flops
        rows.add(f"{name}: MFU", used, "%", least=MFU if setting.model.attention == "fused" else None)
    if "peak_bytes_in_use" in (stats := device.memory_stats() or {}):
        rows.add(f"{name}: peak memory so far", stats["peak_bytes_in_use"] / GIB, "GiB", raw={"foretold": foretold})
