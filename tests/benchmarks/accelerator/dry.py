"""Compiles the programs of the parts for one H100 that this machine lacks, and compares their memory with the device's.

Needs JAX's CUDA plug-in (pip install 'lvp[lab,cuda]'). Rows are written after each program. Programs with a row are
not compiled again, and rows of other programs are dropped. `accelerator_dry.json` is a benchmark's result for
`experiments/results/benchmarks/`.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from lvp import experiments
from lvp.files import write_whole
from lvp.losses import compiling_for
from lvp.parallel.hardware import GIB
from lvp.training import Program, Setting, records
from lvp.training.language import data_shapes
from lvp.training.plan import devices_of, memory_of
from tests.benchmarks.accelerator import figure
from tests.benchmarks.accelerator.rows import Rows, read, settings
from tests.benchmarks.accelerator.sides import loss_functions
from tests.benchmarks.accelerator.sizes import Sizes
from tests.benchmarks.programs import loss_shapes

TOPOLOGY = "h100:1"
USABLE = 0.95  # of the device's memory, as in the part `big`


def main(out: Path, sizes: Sizes) -> int:
    """Writes dry.json and accelerator_dry.json. Returns 0 if every program compiles and fits."""
    out.mkdir(parents=True, exist_ok=True)
    (device, *_), accelerator = devices_of(TOPOLOGY)
    assert accelerator is not None  # `devices_of` knows the topology
    present = dict(programs(sizes, device))
    done = [row for row in read(out / "dry.json") if row["quantity"] in present]
    rows = Rows(out / "dry.json", float("inf"), done)
    for name, compiled in present.items():
        if name in {row["quantity"] for row in done}:
            continue
        started = time.perf_counter()
        with rows.attempt(name):
            needed = memory_of(compiled())
            raw = {**needed, "jax": jax.__version__, "compile_seconds": time.perf_counter() - started}
            rows.add(name, sum(needed.values()) / GIB, "GiB", most=USABLE * accelerator.memory / GIB, raw=raw)
    software = records.software()
    content = {
        "head": ["program", "memory", "bound", ""],
        "rows": [list(settings(row)) for row in rows.rows],
        "raw": {row["quantity"]: row.get("raw") for row in rows.rows},
        "rounds": None,
        "machine": f"Compiled for one {accelerator.kinds[0]} without the device",
        **software,
        "versions": software["versions"] | {"jax": jax.__version__},
    }
    write_whole(out / "accelerator_dry.json", json.dumps(content, indent=1, sort_keys=True) + "\n")
    return 0 if all(row.get("holds") for row in rows.rows) else 1


def programs(sizes: Sizes, device: jax.Device) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(name, function that compiles it) of the programs of the parts figure, big and fast."""
    experiment = experiments.load(figure.EXPERIMENT)
    values = dict(word.split("=") for word in sizes.figure)
    for planned in experiment.settings(experiments.configured(experiment, "gpu", values)):
        yield f"figure, {planned.label}, pack of {sizes.pack}", of_setting(planned.setting, sizes.pack, device)
    for choice in sizes.big:
        yield "1B, remat {}, {} attention, {} rows".format(*choice), of_setting(sizes.one_b(*choice), 1, device)
    for width in sizes.step_widths:
        for kind in ("fused", "masked"):
            yield f"step at d {width}, {kind} attention", of_setting(sizes.step(width, kind), 1, device)
    for width in sizes.widths:
        for count in (max(sizes.packs), 1):
            yield f"d {width}, pack of {count}", of_setting(sizes.packed(width), count, device)
    for vocab in sizes.loss_vocabs:
        of_vocab = loss_shapes(sizes.loss_tokens, sizes.loss_width, vocab, sizes.dtype)
        shapes = [jax.ShapeDtypeStruct(*shape, sharding=SingleDeviceSharding(device)) for shape in of_vocab]
        for name, loss in loss_functions(sizes, vocab).items():
            yield f"loss at m {vocab} ({name})", of_loss(loss, shapes)


def of_setting(setting: Setting, count: int, device: jax.Device) -> Callable[[], Any]:
    return lambda: Program(setting, count).compile(data_shapes(setting), device)


def of_loss(loss: Callable, shapes: list[jax.ShapeDtypeStruct]) -> Callable[[], Any]:
    def compiled() -> Any:
        with compiling_for("cuda"):
            return jax.jit(jax.value_and_grad(loss, (0, 1))).lower(*shapes).compile()

    return compiled
