"""Memory of a program on an accelerator, from XLA's buffer assignment.

XLA assigns the memory of a program before it generates machine code, which takes most of the time of a compilation for
a TPU. The memory is therefore read from XLA's report, and the compilation ends there.
"""

import multiprocessing
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lvp.errors import InputError
from lvp.plan.compilation import devices_of
from lvp.training.program import PackedProgram

_POLL_SECONDS = 0.05
# Memory space 0 is the device memory. The others are memories inside the chip.
_TOTAL = re.compile(r"Memory Space: [^\n]*color=0\)\nTotal bytes: (\d+) ")


def assigned_memory(topology: str, compile_: Callable[[Sequence[Any]], object]) -> int:
    """Bytes of a device that XLA assigns to a `PackedProgram`: arguments, results, constants and temporaries.

    A separate process compiles the program. It is killed as soon as XLA has written its report.

    Args:
      topology: as in `lvp.plan.devices_of`.
      compile_: compiles the program for the devices of the topology. It must be picklable.

    Raises: InputError of `devices_of` and of `compile_`. RuntimeError if the compiler fails or writes no report.
    """
    context = multiprocessing.get_context("forkserver")  # imports the packages once for all programs
    context.set_forkserver_preload(["__main__", __name__])
    with tempfile.TemporaryDirectory() as directory:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_compile, args=(Path(directory), sender, topology, compile_), daemon=True)
        process.start()
        sender.close()
        try:
            while (memory := _reported(Path(directory))) is None:
                if receiver.poll(_POLL_SECONDS):
                    return _after_compilation(receiver, Path(directory), topology)
            return memory
        finally:
            process.kill()
            process.join()


def _after_compilation(receiver: Any, directory: Path, topology: str) -> int:
    """The memory, after the process has ended or has sent its error."""
    try:
        error = receiver.recv()
    except EOFError:
        raise RuntimeError(f"the compiler for {topology} ended without a result; see its messages") from None
    if error is not None:
        raise error
    memory = _reported(directory)
    if memory is None:
        raise RuntimeError(f"XLA wrote no memory report for {topology}")
    return memory


def _reported(directory: Path) -> int | None:
    """The bytes of device memory in XLA's report; None before XLA has written it."""
    for path in directory.glob("*memory-usage-report.txt"):
        if total := _TOTAL.search(path.read_text(errors="replace")):
            return int(total.group(1))
    return None


def _compile(directory: Path, sender: Any, topology: str, compile_: Callable[[Sequence[Any]], object]) -> None:
    # Without the pattern, small programs that JAX runs while it traces would write reports too.
    flags = f"--xla_dump_to={directory} --xla_dump_hlo_module_re=jit_{PackedProgram._advance.__name__}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    try:
        compile_(devices_of(topology)[0])
    except InputError as error:
        sender.send(error)
    else:
        sender.send(None)
