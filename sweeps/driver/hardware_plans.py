"""Plans of an experiment's cells on accelerators, compiled without the hardware.

`python -m sweeps plan EXPERIMENT` writes them to `experiments/results/plans/`. The forecast of `--dry-run` and
docs/tpu_plans.md read them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import experiments
from experiments.common.experiment import CellLanes, Experiment
from lvp.errors import InputError, unknown
from lvp.files import ABSENT, write_whole
from lvp.parallel.hardware import ACCELERATORS, GIB
from lvp.training import records
from sweeps.driver.calibration import Speed
from sweeps.driver.forecast import duration
from sweeps.worker.tasks import task_for

FOLDER = Path(experiments.__file__).parent / "results" / "plans"
# Accelerator → the slice that trains a lane which does not fit on one device.
TOPOLOGIES = {"v5e": "v5e:4x4", "v5p": "v5p:2x2x4", "v6e": "v6e:4x4"}


def write(experiment: str, tier: str, accelerator: str, say: Callable[[str], None]) -> None:
    """Compiles all trained cells of a tier for an accelerator and writes their plans.

    A cell with a plan is not compiled again. Every plan is written as soon as it is compiled, so the command can be
    interrupted.

    Raises: InputError for an unknown experiment, tier or accelerator, or without libtpu.
    """
    from lvp.plan import devices_of
    from lvp.plan.packs import largest_pack

    loaded = experiments.load(experiment)
    config = experiments.configured(loaded, tier)
    if accelerator not in TOPOLOGIES:
        raise unknown("accelerator", accelerator, TOPOLOGIES)
    path, hardware = FOLDER / f"{loaded.name}-{tier}.json", ACCELERATORS[accelerator]
    devices, _ = devices_of(TOPOLOGIES[accelerator])
    plans = _read(path)
    for planned in _trained(loaded, config):
        of_cell = plans.setdefault(program_hash(planned.cell), {})
        if accelerator in of_cell:
            continue
        try:
            plan = largest_pack(task_for(planned.cell), len(planned.lanes), devices, hardware.memory)
            of_cell[accelerator] = plan._asdict() | {"seconds": plan.seconds(hardware)}
            say(f"{planned.label}: {in_words(of_cell[accelerator], planned.cell.steps)}")
        except InputError as error:  # too large, or the slice does not divide the rows or heads
            of_cell[accelerator] = {"too_large": str(error)}
            say(f"{planned.label}: does not fit on {TOPOLOGIES[accelerator]}: {error}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(plans, indent=1, sort_keys=True) + "\n")


def _trained(experiment: Experiment, config: Any) -> Iterator[CellLanes]:
    """The trained cells of a configuration with all their lanes, those that depend on results included."""
    for planned in (experiment.limit or experiment.cells)(config):
        if task_for(planned.cell).trained:
            yield planned


def program_hash(cell: Any) -> str:
    """The hash of a trained cell without its data: the corpus does not change the speed."""
    return records.config_hash({k: v for k, v in records.configuration(cell).items() if k != "data"})


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Hash of a cell → accelerator → plan; empty without a file."""
    try:
        return json.loads(path.read_text())
    except ABSENT:
        return {}
    except ValueError:
        raise InputError(f"{path} is no JSON; restore it (`git restore`)") from None


def table() -> str:
    """A Markdown table of all plans: a row per cell, a column per accelerator."""
    head = ["experiment, tier", "cell", *TOPOLOGIES]
    lines = [head, ["---"] * len(head)]
    for path in sorted(FOLDER.glob("*.json")):
        name, _, tier = path.stem.rpartition("-")
        experiment, plans = experiments.load(name), _read(path)
        for planned in _trained(experiment, experiments.configured(experiment, tier)):
            of_cell = plans.get(program_hash(planned.cell), {})
            columns = [_short(of_cell.get(accelerator), planned.cell.steps) for accelerator in TOPOLOGIES]
            lines.append([f"{name}, {tier}", planned.label, *columns])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _short(plan: Mapping[str, Any] | None, steps: int) -> str:
    if plan is None:
        return "–"
    if "too_large" in plan:
        return "too large"
    devices = f" × {plan['devices']}" if plan["devices"] > 1 else ""
    return f"{plan['lanes']}, {plan['memory'] / GIB:.1f} GiB{devices}, {duration(seconds_per_lane(plan, steps))}"


def in_words(plan: Mapping[str, Any], steps: int) -> str:
    """A plan as text: lanes per program, memory of a device and time of a lane."""
    where = "1 device" if plan["devices"] == 1 else f"{plan['devices']} devices"
    lanes = f"{plan['lanes']} lane{'s' * (plan['lanes'] > 1)}"
    time = duration(seconds_per_lane(plan, steps))
    return f"{lanes} on {where}, {plan['memory'] / GIB:.1f} GiB per device, about {time} per lane"


def seconds_per_lane(plan: Mapping[str, Any], steps: int) -> float:
    """Seconds of a lane's training at peak rates, divided by the lanes of the program."""
    return steps * plan["seconds"] / plan["lanes"]


@dataclass(frozen=True)
class PlannedSpeed(Speed):
    """The speed of an accelerator according to the compiled plans."""

    plans: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # hash of a cell → plan
    accelerator: str = ""

    @property
    def basis(self) -> str:
        return f"compiled for {self.accelerator}: the compiler's FLOPs and bytes at peak rates"

    def flops_of(self, cell: Any) -> float | None:
        """Model FLOP/s of a worker on a cell; None without a plan."""
        if not task_for(cell).trained:
            return None
        plan = self.plans.get(program_hash(cell))
        return None if plan is None else cell.flops_per_lane / seconds_per_lane(plan, cell.steps)


def speed(experiment: str, tier: str, accelerator: str) -> PlannedSpeed:
    """The planned speed of a tier; without plans for the cells that have not been compiled. Raises InputError for an
    unknown accelerator."""
    if accelerator not in TOPOLOGIES:
        raise unknown("accelerator", accelerator, TOPOLOGIES)
    plans = _read(FOLDER / f"{experiment}-{tier}.json")
    known = {h: of_cell[accelerator] for h, of_cell in plans.items() if "seconds" in of_cell.get(accelerator, {})}
    return PlannedSpeed(plans=known, accelerator=accelerator)
