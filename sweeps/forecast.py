"""The cost of a sweep before it runs, its packing, and the text of durations."""

import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lvp.errors import InputError
from lvp.experiments.common.experiment import Calculation, SettingRuns
from lvp.training import task_for

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}  # seconds
ACCELERATOR_FLOPS = 2.0e13  # model FLOP/s of an accelerator on small float32 models; assumed
# Number of parameters → training's model FLOP/s over those of NumPy's matrix product on the same cores. Measured by
# tests/benchmarks/training_share.py.
TRAINING_SHARE = {41_120: 0.34, 164_160: 0.50, 656_000: 0.66}
CALCULATION_SHARE = 0.4  # the same ratio for the calculations of linear_network
START, COMPILE = 10.0, 6.0  # seconds of a session, and of a compilation
PARAMETERS = 2**26  # parameters of the models that an accelerator trains at the same time
MOST = 64  # runs of a pack


class Forecast(NamedTuple):
    """The expected duration of runs, in seconds, and where the speed is from."""

    seconds: float
    basis: str


def expected(settings: Sequence[SettingRuns], workers: int, accelerator: bool) -> Forecast:
    """The expected duration of the runs on some workers. The speed of a CPU is measured by a matrix product."""
    speed = ACCELERATOR_FLOPS if accelerator else matrix_product_flops() / workers
    share = (lambda setting: 1.0) if accelerator else training_share
    seconds = (
        sum(len(each.runs) * each.setting.flops_per_run / (speed * share(each.setting)) for each in settings) / workers
    )
    compiled = sum(not isinstance(each.setting, Calculation) and bool(each.runs) for each in settings)
    origin = "assumed for an accelerator" if accelerator else "of a matrix product"
    return Forecast(START + COMPILE * compiled + seconds, f"{si(speed)}FLOP/s per worker, {origin}")


def training_share(setting: Any) -> float:
    """Training's FLOP/s over those of a matrix product."""
    if isinstance(setting, Calculation):
        return CALCULATION_SHARE
    return float(np.interp(math.log(setting.num_params), np.log([*TRAINING_SHARE]), [*TRAINING_SHARE.values()]))


def matrix_product_flops() -> float:
    """float32 FLOP/s of NumPy's matrix product on all cores: the best of six products of 1024 × 1024 matrices."""
    matrix, best = np.ones((1024, 1024), np.float32), math.inf
    for _ in range(6):
        began = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - began)
    return 2 * 1024**3 / best


def table(settings: Sequence[SettingRuns]) -> str:
    """Runs, parameters, tokens and FLOPs of each setting, and their sums."""
    column = max([16, *(len(each.label) for each in settings)])
    lines = [f"{'setting':<{column}} {'runs':>6} {'params':>9} {'tokens':>9} {'FLOPs':>9}"]
    runs, tokens, flops = 0, 0.0, 0.0
    for each in settings:
        n, setting = len(each.runs), each.setting
        numbers = f"{si(setting.num_params):>9} {si(n * setting.tokens_per_run):>9} {si(n * setting.flops_per_run):>9}"
        lines.append(f"{each.label:<{column}} {n:>6} {numbers}")
        runs, tokens, flops = runs + n, tokens + n * setting.tokens_per_run, flops + n * setting.flops_per_run
    return "\n".join([*lines, f"{'all':<{column}} {runs:>6} {'':>9} {si(tokens):>9} {si(flops):>9}"])


def packing(
    settings: Sequence[SettingRuns],
    machines: Any,
    *,
    pack: int | None,
    threads: int | None,
    mesh: Mapping[str, int] | None,
) -> dict[str, Any]:
    """The packing of a sweep, as sweep.json holds it.

    On a CPU a worker has one core and a program has one run; if there are fewer runs than cores, the cores are divided
    among them. On an accelerator a program has as many runs as fit: small models do not fill the device. With a mesh,
    a worker has all devices of a machine.

    Args:
      machines: `lvp.sweeps.executors.Machines`.
      pack, threads: the user's choice; None follows the rule.
      mesh: sizes of the mesh; None is one device.
    """
    cpu, label = machines.platform == "cpu", {each.label: each for each in settings}
    sizes = {name: _pack(each, pack, cpu or mesh is not None) for name, each in label.items()}
    packs = sum(math.ceil(len(each.runs) / sizes[name]) for name, each in label.items())
    if threads is None:
        threads = max(1, min(machines.units) // max(1, packs)) if cpu and mesh is None else 1
    made = {"platform": machines.platform, "threads": threads, "lanes_per_program": sizes}
    made |= {"mesh": dict(mesh)} if mesh is not None else {}
    return made | {"workers": workers(machines, made)}


def workers(machines: Any, packing: Mapping[str, Any]) -> int:
    """The number of workers of a packing on these machines."""
    threads = packing["threads"] if machines.platform == "cpu" else 1
    return max(1, sum(1 if packing.get("mesh") else units // threads for units in machines.units))


def _pack(each: SettingRuns, pack: int | None, single: bool) -> int:
    """The runs of a program of a setting."""
    task = task_for(each.setting)
    if not task.trained:
        return 1
    if pack is not None or single:
        return pack or 1
    fits = max(1, min(MOST, PARAMETERS // max(1, each.setting.num_params), len(each.runs)))
    return 1 << (fits.bit_length() - 1)


def seconds_of(budget: str) -> float:
    """The seconds of a budget such as "90s", "45m", "2h" or "1.5d".

    Raises:
      InputError: the budget has another form, or is 0.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", budget)
    if match is None or not (allowed := float(match[1]) * UNITS[match[2]]):
        raise InputError(f"budget={budget!r} is no duration: use a number above 0 with s, m, h or d, such as 2h")
    return allowed


def duration(seconds: float) -> str:
    """The seconds as text in seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def si(x: float) -> str:
    """A number with three digits and the prefix of a unit; "–" for 0."""
    if not x:
        return "–"
    for unit, size in (("Z", 1e21), ("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if x >= size:
            return f"{x / size:.3g} {unit}"
    return f"{x:.3g} "
