"""Plans of an experiment's cells on accelerators, compiled without the hardware.

`python -m sweeps plan EXPERIMENT` writes them to `experiments/results/plans/`. The forecast of `--dry-run` and
docs/accelerator_plans.md read them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax

import experiments
from experiments.common.experiment import Calculation, CellLanes, Experiment
from lvp.errors import InputError, unknown
from lvp.files import ABSENT, write_whole
from lvp.parallel.hardware import ACCELERATORS, GIB
from lvp.plan import devices_of
from lvp.plan.packs import PackPlan, largest_pack
from lvp.training import records
from sweeps.driver.calibration import Speed
from sweeps.driver.forecast import duration, with_follow_ups
from sweeps.worker.tasks import task_for

FOLDER = Path(experiments.__file__).parent / "results" / "plans"
TIERS = ("gpu", "paper")
# Accelerator → the devices that train a lane which does not fit on one device.
TOPOLOGIES = {"v5e": "v5e:4x4", "v5p": "v5p:2x2x4", "v6e": "v6e:4x4", "h100": "h100:8"}


def write(experiment: str, tier: str, accelerator: str, say: Callable[[str], None]) -> None:
    """Compiles all cells of a tier that train a model for an accelerator and writes their plans.

    A cell with a plan is not compiled again. Each plan is written as soon as it is compiled, so the command can be
    interrupted.

    Raises: InputError for an unknown experiment, tier or accelerator, an experiment that trains no model, or a missing
      libtpu or CUDA plug-in.
    """
    loaded = experiments.load(experiment)
    if tier not in TIERS:
        raise InputError(f"tier {tier!r} has no plans; use {' or '.join(TIERS)}")
    if accelerator not in TOPOLOGIES:
        raise unknown("accelerator", accelerator, TOPOLOGIES)
    cells = list(_trained(loaded, tier))
    if not cells:
        raise InputError(f"{experiment} trains no model at tier {tier}, so there is nothing to compile")
    topology, memory = TOPOLOGIES[accelerator], ACCELERATORS[accelerator].memory
    devices_of(topology)  # raises if the plug-in is missing
    for planned in cells:
        if accelerator in _read(loaded.name, tier).get(program_hash(planned.cell), {}):
            continue
        try:
            plan = largest_pack(task_for(planned.cell), len(planned.lanes), topology, memory)
            content: dict[str, Any] = plan._asdict()
            line = f"{planned.label}: {_in_words(plan, accelerator, planned.cell.steps)}"
        except InputError as error:  # too large, or the devices do not divide the rows or a parameter
            content = {"refused": str(error)}
            line = f"{planned.label}: does not fit on {topology}: {error}"
        _store(loaded.name, tier, planned.cell, accelerator, content | {"jax": jax.__version__})
        say(line)


def _trained(experiment: Experiment, tier: str) -> Iterator[CellLanes]:
    """The cells of a tier that train a model, with all lanes that a sweep may train."""
    config = experiments.configured(experiment, tier)
    cells = experiment.limit(config) if experiment.limit else with_follow_ups(experiment, config)
    return (planned for planned in cells if not isinstance(planned.cell, Calculation))


def program_hash(cell: Any) -> str:
    """The hash of a trained cell without `scored_steps` and the name of its corpus, which do not change its plan."""
    content = {k: v for k, v in records.configuration(cell).items() if k != "scored_steps"}
    return records.config_hash(content | {"data": {k: v for k, v in content["data"].items() if k != "corpus"}})


def _path(experiment: str, tier: str) -> Path:
    return FOLDER / f"{experiment}-{tier}.json"


def _read(experiment: str, tier: str) -> dict[str, dict[str, Any]]:
    """Hash of a cell → accelerator → plan; empty without a file."""
    path = _path(experiment, tier)
    try:
        return json.loads(path.read_text())
    except ABSENT:
        return {}
    except ValueError:
        raise InputError(f"{path} is not valid JSON; restore it with `git restore`") from None


def _store(experiment: str, tier: str, cell: Any, accelerator: str, content: Mapping[str, Any]) -> None:
    """Adds a plan to the file of a tier. The file is read again: another command may have added plans."""
    path, plans = _path(experiment, tier), _read(experiment, tier)
    plans.setdefault(program_hash(cell), {})[accelerator] = dict(content)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(plans, indent=1, sort_keys=True) + "\n")


def table() -> str:
    """A Markdown table of all plans: a row per cell, a column per accelerator."""
    head = ["experiment, tier", "cell", *TOPOLOGIES]
    lines = [head, ["---"] * len(head)]
    for path in sorted(FOLDER.glob("*.json")):
        name, _, tier = path.stem.rpartition("-")
        plans = _read(name, tier)
        for planned in _trained(experiments.load(name), tier):
            of_cell = plans.get(program_hash(planned.cell), {})
            columns = [_short(of_cell.get(accelerator), accelerator, planned.cell.steps) for accelerator in TOPOLOGIES]
            lines.append([f"{name}, {tier}", planned.label, *columns])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _short(content: Mapping[str, Any] | None, accelerator: str, steps: int) -> str:
    if content is None:
        return "–"
    if "refused" in content:
        return "does not fit"
    plan = _plan(content)
    devices = f" × {plan.devices}" if plan.devices > 1 else ""
    time = duration(seconds_per_lane(plan, accelerator, steps))
    return f"{plan.lanes}, {plan.memory / GIB:.1f} GiB{devices}, {time}"


def _in_words(plan: PackPlan, accelerator: str, steps: int) -> str:
    """A plan as text: lanes per program, memory of a device and time of a lane."""
    where = "1 device" if plan.devices == 1 else f"{plan.devices} devices"
    lanes = f"{plan.lanes} lane{'s' * (plan.lanes > 1)}"
    time = duration(seconds_per_lane(plan, accelerator, steps))
    return f"{lanes} on {where}, {plan.memory / GIB:.1f} GiB per device, at least {time} per lane"


def _plan(content: Mapping[str, Any]) -> PackPlan:
    return PackPlan(**{name: content[name] for name in PackPlan._fields})


def seconds_per_lane(plan: PackPlan, accelerator: str, steps: int) -> float:
    """Seconds that the training of a lane needs at least, with all lanes of the program side by side."""
    return steps * plan.seconds(ACCELERATORS[accelerator]) / plan.lanes


@dataclass(frozen=True)
class PlannedSpeed(Speed):
    """The speed of an accelerator according to the compiled plans."""

    plans: Mapping[str, PackPlan] = field(default_factory=dict)  # by the hash of a cell
    accelerator: str = ""

    @property
    def basis(self) -> str:
        devices = max((plan.devices for plan in self.plans.values()), default=1)
        several = f" or {devices}" if devices > 1 else ""
        return f"compiled for 1{several} {self.accelerator}: at least, at peak rates of arithmetic and memory"

    def flops_of(self, cell: Any) -> float | None:
        """Model FLOP/s of a worker on a cell; None without a plan."""
        plan = None if isinstance(cell, Calculation) else self.plans.get(program_hash(cell))
        return None if plan is None else cell.flops_per_lane / seconds_per_lane(plan, self.accelerator, cell.steps)


def speed(experiment: str, tier: str, accelerator: str) -> PlannedSpeed:
    """The planned speed of a tier. Cells that are not compiled have no plan."""
    stored = {h: by_name[accelerator] for h, by_name in _read(experiment, tier).items() if accelerator in by_name}
    plans = {h: _plan(content) for h, content in stored.items() if "refused" not in content}
    return PlannedSpeed(plans=plans, accelerator=accelerator)
