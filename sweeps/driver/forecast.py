"""The cost of a sweep before it runs, and the text of durations."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.common.experiment import Calculation, CellLanes, Experiment
from lvp.errors import InputError
from lvp.training import records
from sweeps.driver.calibration import (
    ASSUMED_COMPILE,
    ASSUMED_FLOPS,
    ASSUMED_START,
    Speed,
    estimated_flops,
    matrix_product_flops,
)
from sweeps.driver.manifest import lane_configs

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}  # seconds


@dataclass(frozen=True)
class Cost:
    """The cost of all lanes of one cell."""

    label: str
    lanes: int
    params: int  # of the cell's model
    tokens: float  # training tokens of all lanes
    flops: float  # model FLOPs of all lanes


def cost(cells: Sequence[CellLanes]) -> list[Cost]:
    """The cost of each cell."""
    return [
        Cost(
            c.label,
            len(c.lanes),
            c.cell.num_params,
            float(len(c.lanes)) * c.cell.tokens_per_lane,
            len(c.lanes) * c.cell.flops_per_lane,
        )
        for c in cells
    ]


def forecast(cells: Sequence[CellLanes], workers: int, speed: Speed, kind: str, devices: int = 1) -> str:
    """The table of costs that is printed before the sweep runs.

    Args:
      workers: the number of workers.
      speed: the speed of this machine. Missing values are estimated or assumed. The text names the origin of FLOP/s.
      kind: "cpu" or "accelerator". Missing FLOP/s of a CPU are estimated from a matrix product. Those of an accelerator
        are assumed.
      devices: the number of devices in each worker's mesh.
    """
    rows = cost(cells)
    column = max([16, *(len(r.label) for r in rows)])
    lines = [f"{'cell':<{column}} {'lanes':>6} {'params':>9} {'tokens':>9} {'FLOPs':>9}"]
    for r in rows:
        lines.append(f"{r.label:<{column}} {r.lanes:>6} {_si(r.params):>9} {_si(r.tokens):>9} {_si(r.flops):>9}")
    lanes, tokens, flops = sum(r.lanes for r in rows), sum(r.tokens for r in rows), sum(r.flops for r in rows)
    lines.append(f"{'all':<{column}} {lanes:>6} {'':>9} {_si(tokens):>9} {_si(flops):>9}")
    time = expected(cells, workers, speed, kind, devices)
    on_workers = f"{workers} worker{'s' * (workers > 1)}"
    parts = f"{duration(time.start)} for start and compilation, {duration(time.training)} of training ({time.basis})"
    return "\n".join([*lines, f"expected: {duration(time.seconds)} on {on_workers}: {parts}"])


def with_follow_ups(experiment: Experiment, config: Any, earlier: Sequence[Mapping[str, Any]] = ()) -> list[CellLanes]:
    """The cells with the lanes that `follow_up` adds if every lane without a record finishes with the same loss.

    The number of these lanes seldom depends on the losses.

    Args:
      earlier: records of other sweeps. Lanes of the same configuration have their outcomes.
    """
    planned = list(experiment.cells(config))
    losses = ("train_loss", "valid_loss", "train_bits_per_byte", "valid_bits_per_byte")
    outcome = {"status": "finished", "curve_steps": [], "curve_losses": [], **dict.fromkeys(losses, 1.0)}
    more = experiment.follow_up(_table(planned, earlier, outcome), config) if experiment.follow_up else {}
    return [c._replace(lanes=[*c.lanes, *more.get(c.label, ())]) for c in planned]


def _table(cells: Sequence[CellLanes], earlier: Sequence[Mapping[str, Any]], outcome: Any = None):
    """The table of the lanes of cells with their earlier outcomes. A lane without a record has `outcome`."""
    known = {_key(row["config"]): row["outcome"] for row in earlier}
    configs = (each for c in cells for each in lane_configs(c.cell, c.lanes, None))
    return records.table(
        [
            {"hash": str(i), "config": each, "outcome": known.get(_key(each), outcome), "provenance": {}}
            for i, each in enumerate(configs)
        ]
    )


def without_records(cells: Sequence[CellLanes], earlier: Sequence[Mapping[str, Any]]) -> list[CellLanes]:
    """The cells with the lanes that have no record of the same configuration. Other cells are left out."""
    known, remaining = {_key(row["config"]) for row in earlier}, []
    for c in cells:
        configs = lane_configs(c.cell, c.lanes, None)
        lanes = [lane for lane, config in zip(c.lanes, configs, strict=True) if _key(config) not in known]
        if lanes:
            remaining.append(c._replace(lanes=lanes))
    return remaining


def remaining_of_limit(
    experiment: Experiment, config: Any, earlier: Sequence[Mapping[str, Any]]
) -> tuple[int, list[CellLanes]]:
    """The number of lanes with a record, and as many further lanes as the sweep may train.

    The lanes of an experiment with a limit depend on results, so that lanes of the limit need not match records. This
    function follows the rounds of `follow_up` as far as there are records.
    """
    assert experiment.limit is not None and experiment.follow_up is not None
    planned = list(experiment.cells(config))
    while not (missing := without_records(planned, earlier)):
        more = experiment.follow_up(_table(planned, earlier), config)
        new = {c.label: [lane for lane in more.get(c.label, ()) if lane not in c.lanes] for c in planned}
        if not any(new.values()):
            return sum(len(c.lanes) for c in planned), []
        planned = [c._replace(lanes=[*c.lanes, *new[c.label]]) for c in planned]
    left = {c.label: len(c.lanes) for c in missing}
    recorded = {c.label: len(c.lanes) - left.get(c.label, 0) for c in planned}
    most = [c._replace(lanes=c.lanes[recorded[c.label] :]) for c in experiment.limit(config)]
    return sum(recorded.values()), most


def _key(config: Mapping[str, Any]) -> str:
    """The configuration of a lane without the fingerprints of its text, which a forecast does not read."""
    return records.dumps({"cell": config["cell"], "lane": config["lane"]})


class Expected(NamedTuple):
    """The expected duration of a sweep."""

    start: float  # seconds of start and compilation
    training: float  # seconds of training
    basis: str  # the origin of the speed, in words

    @property
    def seconds(self) -> float:
        return self.start + self.training


def expected(cells: Sequence[CellLanes], workers: int, speed: Speed, kind: str, devices: int = 1) -> Expected:
    """The expected duration of the cells' lanes. The arguments are those of `forecast`."""
    unmeasured = devices * ASSUMED_FLOPS
    trained = [c for c in cells if not isinstance(c.cell, Calculation)]
    # An accelerator has no plans of calculations.
    if all(speed.flops_of(c.cell) for c in (cells if kind == "cpu" else trained or cells)):
        basis = speed.basis
    elif kind == "cpu":
        unmeasured = matrix_product_flops() / workers
        basis = f"estimated from a matrix product with {_si(unmeasured)}FLOP/s per worker"
    else:
        basis = f"{_si(unmeasured)}FLOP/s per worker assumed, not measured"
    estimate = estimated_flops if kind == "cpu" else lambda cell, flops: flops
    rates = [speed.flops_of(c.cell) or estimate(c.cell, unmeasured) for c in cells]
    training = sum(r.flops / rate for r, rate in zip(cost(cells), rates, strict=True)) / workers
    start = ASSUMED_START if speed.start_seconds is None else speed.start_seconds
    start += len(trained) * (ASSUMED_COMPILE if speed.compile_seconds is None else speed.compile_seconds)
    return Expected(start, training, basis)


def seconds_of(budget: str) -> float:
    """The seconds of a budget such as "90s", "45m", "2h" or "1.5d". Raises InputError for another form."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", budget)
    if match is None or not (allowed := float(match[1]) * _UNITS[match[2]]):
        raise InputError(f"budget={budget!r} is no duration: use a number above 0 with s, m, h or d, such as 2h")
    return allowed


def check_budget(budget: str, time: Expected) -> None:
    """Raises InputError if the expected duration exceeds the budget, or if the budget has another form."""
    if time.seconds > seconds_of(budget):
        raise InputError(
            f"budget={budget} is less than the expected {duration(time.seconds)} ({time.basis}): use fewer lanes or "
            "steps, or a larger budget"
        )


def _si(x: float) -> str:
    if not x:
        return "–"
    for unit, size in (
        ("Z", 1e21),
        ("E", 1e18),
        ("P", 1e15),
        ("T", 1e12),
        ("G", 1e9),
        ("M", 1e6),
        ("k", 1e3),
    ):
        if x >= size:
            return f"{x / size:.3g} {unit}"
    return f"{x:.3g} "


def duration(seconds: float) -> str:
    """The seconds as text in seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
