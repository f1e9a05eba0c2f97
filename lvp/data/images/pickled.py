"""Arrays out of a pickle that Python 2 wrote, read as data.

A pickle is a program for a machine that may call any function by name, and a file that a user names may come from
anybody. So it is not run: its opcodes are listed (`pickletools`) and those that build plain values and NumPy's arrays
are followed. The three names which an array needs are known here; any other is refused, and none is looked up.
"""

import pickletools
from collections.abc import Iterator
from typing import Any

import numpy as np

_ARRAY, _DTYPE, _TYPE = "numpy.core.multiarray._reconstruct", "numpy.dtype", "numpy.ndarray"
_MARK = object()
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": (), "MARK": _MARK}
_BYTES = ("STRING", "BINSTRING", "SHORT_BINSTRING")  # Python 2's text
_VALUES = (
    *("INT", "LONG", "LONG1", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT", "BINBYTES", "SHORT_BINBYTES"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE"),
)
_PUTS, _GETS = ("PUT", "BINPUT", "LONG_BINPUT"), ("GET", "BINGET", "LONG_BINGET")
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Name(str):
    """A function or class, by its name alone."""


class _Made:
    """What such a name was called for, and the state that it was given."""

    def __init__(self, name: _Name, arguments: tuple):
        self.name, self.arguments = name, arguments
        self.state: tuple = ()

    def array(self) -> np.ndarray:
        """uint8, of the shape that was written."""
        _, shape, dtype, fortran, content = self.state
        if self.name != _ARRAY or dtype.name != _DTYPE or dtype.arguments[0] not in (b"u1", "u1"):
            raise ValueError("it holds an array that is not of bytes")
        return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


def read(content: bytes) -> Any:
    """The value in a pickle: None, numbers, bytes (Python 2's text), text, tuples, lists, dictionaries and uint8 arrays
    in any place of a dictionary.

    ValueError, or what the bytes happen to mean, for damaged content and for what would have to be executed.
    """
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    argument: Any  # of a type that the operation says
    for op, argument, _ in pickletools.genops(content):
        name = op.name
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            stack.append(argument)
        elif name in _BYTES:
            stack.append(argument.encode("latin1"))
        elif name in _PUTS:
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in _GETS:
            stack.append(memo[argument])
        elif name not in ("PROTO", "FRAME", "STOP"):
            _follow(name, argument, stack)
    (value,) = stack
    return {k: v.array() if isinstance(v, _Made) else v for k, v in value.items()} if isinstance(value, dict) else value


def _follow(name: str, argument: Any, stack: list) -> None:
    """An opcode that builds something of what stands on the stack."""
    if name in ("EMPTY_DICT", "EMPTY_LIST"):
        stack.append({} if name == "EMPTY_DICT" else [])
    elif name in ("TUPLE", "APPENDS", "SETITEMS"):
        _collect(name, stack, _down_to_mark(stack))
    elif name in _TUPLES:
        stack[-_TUPLES[name] :] = [tuple(stack[-_TUPLES[name] :])]
    elif name in ("APPEND", "SETITEM"):
        count = {"APPEND": 1, "SETITEM": 2}[name]
        items = stack[-count:]
        del stack[-count:]
        _collect(f"{name}S", stack, items)
    elif name in ("GLOBAL", "STACK_GLOBAL"):
        words = argument.split(" ") if name == "GLOBAL" else [str(x) for x in (stack.pop(-2), stack.pop())]
        if (found := ".".join(words)) not in (_ARRAY, _DTYPE, _TYPE):
            raise ValueError(f"it refers to {found}")
        stack.append(_Name(found))
    elif name == "REDUCE":
        arguments, called = stack.pop(), stack.pop()
        if not isinstance(called, _Name) or not isinstance(arguments, tuple):
            raise ValueError("it calls what is no function")
        stack.append(_Made(called, arguments))
    elif name == "BUILD":
        state = stack.pop()
        if not isinstance(stack[-1], _Made):
            raise ValueError("it gives a state to what has none")
        stack[-1].state = state
    else:
        raise ValueError(f"it holds the opcode {name}")


def _down_to_mark(stack: list) -> list:
    items = []
    while (item := stack.pop()) is not _MARK:
        items.append(item)
    return items[::-1]


def _collect(name: str, stack: list, items: list) -> None:
    if name == "TUPLE":
        stack.append(tuple(items))
    elif name == "APPENDS":
        stack[-1].extend(items)
    else:
        stack[-1].update(_pairs(items))


def _pairs(items: list) -> Iterator[tuple]:
    return zip(items[::2], items[1::2], strict=True)
