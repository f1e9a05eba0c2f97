"""Collectives of a compiled program, parsed from its HLO text."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16, "f16": 16}
_SHAPE = re.compile(r"\b(pred|bf16|[fsuc]\d+|f8\w+)\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{")
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*)$")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CONDITION, _BODY = re.compile(r"condition=%?([\w.\-]+)"), re.compile(r"body=%?([\w.\-]+)")
_INDEX, _OPERAND = re.compile(r"index=(\d+)"), re.compile(r"%([\w.\-]+)")
# Three forms of equal groups in XLA's text: [2,4], lists of devices, axes of a mesh.
_GROUPS = re.compile(r"replica_groups=(?:\[\d+,(\d+)\]|\{\{([\d,]*)\}|mesh\[([^\]]*)\] \{([^}]*)\})")
_CHANNEL = re.compile(r"channel_id=(\d+)")


class Collective(NamedTuple):
    """A kind of collective, its size and its count."""

    kind: str  # one of COLLECTIVES
    group: int  # devices per group
    size: int  # bytes of the whole array: before a reduce-scatter, after an all-gather
    times: int  # executions

    @property
    def moved(self) -> float:
        """Bytes that one device sends on a ring: times · size · (n − 1) / n; twice that for an all-reduce.

        A collective-permute sends times · size.
        """
        rounds = 2.0 if self.kind == "all-reduce" else 1.0
        part = 1.0 if self.kind == "collective-permute" else (self.group - 1) / self.group
        return self.times * self.size * rounds * part


class _Instruction(NamedTuple):
    name: str  # without %
    shape: str  # of the result
    opcode: str  # such as "all-reduce"
    rest: str  # operands and attributes


def _computations(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    """(instructions by computation, name of the entry computation)."""
    computations: dict[str, list[_Instruction]] = {}
    entry, name = "", None
    for line in text.splitlines():
        if line and not line[0].isspace() and (match := _COMPUTATION.match(line)):
            name = match.group(1)
            computations[name] = []
            entry = name if line.startswith("ENTRY") else entry
        elif name is not None and (match := _INSTRUCTION.match(line)):
            computations[name].append(_Instruction(*match.groups()))
    return computations, entry


def collectives(text: str, *, in_loop: bool = False) -> list[Collective]:
    """The collectives of a compiled program (`compiled.as_text()`), grouped by kind, group and size.

    A call in a loop of known length counts once per iteration, and a call in a loop of unknown length counts once.
    Groups of one device are left out, except for a collective-permute.

    Args:
      in_loop: count only calls inside loops of unknown length.
    """
    computations, entry = _computations(text)
    times_by_kind: Counter = Counter()
    seen = set()  # channels: an asynchronous collective appears in several fusions with one channel

    def note(kind: str, instruction: _Instruction, times: int) -> None:
        channel = _CHANNEL.search(instruction.rest)
        if channel and channel.group(1) in seen:
            return
        seen.add(channel and channel.group(1))
        group = _group(instruction.rest)
        times_by_kind[kind, group, _size(instruction.shape, instruction.opcode, group)] += times

    def visit(name: str, times: int, inside: bool) -> None:
        for instruction in computations.get(name, ()):
            kind, rest = instruction.opcode.removesuffix("-start"), instruction.rest
            if kind in COLLECTIVES and (inside or not in_loop):
                note(kind, instruction, times)
            loop = instruction.opcode == "while"
            trips = _trips(rest, computations) if loop else None
            for called in _called(rest):
                visit(called, times * (trips or 1), inside or (loop and trips is None))

    visit(entry, 1, False)
    return [
        Collective(kind, group, size, times)
        for (kind, group, size), times in sorted(times_by_kind.items())
        if group > 1 or kind == COLLECTIVES[-1]
    ]


def _trips(rest: str, computations: dict[str, list[_Instruction]]) -> int | None:
    """The number of iterations of a while loop; None if it is unknown.

    It is the compiler's note or, on TPU, the constant in the condition divided by the body's increment of the counter.
    """
    if noted := _TRIPS.search(rest):
        return int(noted.group(1))
    condition, body = _CONDITION.search(rest), _BODY.search(rest)
    if condition is None or body is None:
        return None
    limits = _constants(computations.get(condition.group(1), ()))
    if len(limits) != 1:
        return None
    (limit,) = limits.values()
    counter = [i for i in computations[condition.group(1)] if i.opcode == "get-tuple-element"]
    index = _INDEX.search(counter[0].rest) if counter else None
    return -(-limit // _step(computations.get(body.group(1), ()), index.group(1) if index else "0"))


def _constants(computation) -> dict[str, int]:
    """The integer constants of a computation, by name."""
    constants = [i for i in computation if i.opcode == "constant" and i.shape.startswith(("s32[]", "u32[]"))]
    return {i.name: int(i.rest.split(")")[0]) for i in constants}


def _step(computation, index: str) -> int:
    """The increment that a loop's body adds to element `index` of its carry; 1 if it is not visible."""
    root = [i for i in computation if i.opcode == "tuple"][-1:]
    carried = _OPERAND.findall(root[0].rest.split(")")[0]) if root else []
    after = carried[int(index)] if int(index) < len(carried) else None
    constants = _constants(computation)
    for i in computation:
        if i.name == after and i.opcode == "add":
            return next((constants[o] for o in _OPERAND.findall(i.rest.split(")")[0]) if o in constants), 1) or 1
    return 1


def _called(rest: str) -> Iterator[str]:
    yield from _CALLED.findall(rest)
    for names in _BRANCHES.findall(rest):
        yield from (name.strip().lstrip("%") for name in names.split(","))


def _sizes(shape: str) -> Iterator[int]:
    """Bytes of every array in a shape."""
    for kind, dims in _SHAPE.findall(shape):
        bits = _BITS.get(kind) or int(re.findall(r"\d+", kind)[0])
        yield math.prod(map(int, dims.split(","))) * bits // 8 if dims else bits // 8


def _size(shape: str, opcode: str, group: int) -> int:
    """Bytes of the whole arrays of a collective, from the shape of its result."""
    sizes = list(_sizes(shape))
    if opcode == "all-gather-start":  # operands, and results `group` times as large
        return sum(sizes) * group // (group + 1)
    if opcode == "collective-permute-start":  # operand, result, and two numbers
        return max(sizes)
    return sum(sizes) * (group if opcode == "reduce-scatter" else 1)


def _group(rest: str) -> int:
    """Devices per group; 1 if the instruction does not give it."""
    match = _GROUPS.search(rest)
    if match is None:
        return 1
    size, listed, mesh, axes = match.groups()
    if size:
        return int(size)
    if listed is not None:
        return len(listed.split(","))
    sizes = dict(part.split("=") for part in mesh.replace("'", "").split(","))
    return math.prod(int(sizes[axis.strip()]) for axis in axes.replace("'", "").split(",") if axis)
