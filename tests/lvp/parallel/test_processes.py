"""Training on a mesh of two processes over `jax.distributed` on this machine, one device each. The file runs itself as
these processes (`python -m tests.lvp.parallel.test_processes INDEX PORT FOLDER PART`), which assert and print."""

import functools
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from lvp import roles, training
from lvp.files import checkpoints
from lvp.models.configs import DecoderConfig
from lvp.parallel import processes, sharding
from lvp.training import DataConfig, OptimizerConfig, Program, Run, Setting

ROOT = Path(__file__).parents[3]
STEPS, HALF = 20, 9
MODEL = DecoderConfig(vocab=40, width=16, layers=1, context=8, head_dim=4, positions="rotary", mlp="swiglu")
SETTING = Setting(MODEL, DataConfig("none", order="rows"), 4, STEPS, OptimizerConfig("adamw", {"weight_decay": 0.1}))
RUN = Run(dict.fromkeys(roles.ROLES, 0.02), dict.fromkeys(roles.ROLES, 0.2), 0)
LATE = 40.0  # seconds; a collective operation on CPUs waits 30
TOLERANCE = 1e-5  # nats, compared with one device


def feed(mesh):
    tokens = np.arange(2000, dtype=np.int32) ** 2 % MODEL.vocab
    return training.StreamedTokens(SETTING, tokens[:1900], tokens[1900:], [RUN.seed], mesh)


@functools.cache
def program(mesh) -> Program:
    return Program(SETTING, mesh=mesh)


def train(mesh, **options) -> list[float]:
    (outcome,) = training.run(program(mesh), [RUN], feed(mesh), **options)
    return [*outcome.curve_losses, outcome.valid_loss]


# --- in one of two processes --------------------------------------------------------------------------------------


def first_half(mesh, folder: Path) -> dict:
    """Trains half of the steps and saves."""
    for step, state in training.chunks(program(mesh), [RUN], feed(mesh), chunk_seconds=0):
        if step == HALF:
            checkpoints.save_step(folder / "lane", step, state, "a")
            return {"stopped": step}
    return {}


def second_half(mesh, folder: Path) -> dict:
    """Resumes from the saved step. The length of chunks depends on each process' clock."""
    step, state, _ = checkpoints.latest(folder / "lane", program(mesh).run_shapes(), "a")
    kernel = state["params"]["head"]["kernel"]
    assert not kernel.is_fully_addressable and kernel.addressable_shards[0].data.shape == (8, 40)
    return {"from": step, "losses": train(mesh, state=state, step=step, chunk_seconds=0.001)}


def whole(mesh, folder: Path) -> dict:
    return {"losses": train(mesh)}


def damaged(mesh, folder: Path) -> dict:
    """Tries to resume from a checkpoint with one wrong byte."""
    if jax.process_index() == 0:
        flip_a_byte(folder / "lane")
    processes.gathered([1])
    return {"usable": checkpoints.latest(folder / "lane", program(mesh).run_shapes(), "a") is not None}


def another_configuration(mesh, folder: Path) -> dict:
    return {"usable": checkpoints.latest(folder / "lane", program(mesh).run_shapes(), "b") is not None}


def late(mesh, folder: Path) -> dict:
    """Gathers values after process 1 has slept."""
    if jax.process_index() == 1:
        time.sleep(LATE)
    checkpoints.wait_for_all()
    return {"gathered": processes.gathered([jax.process_index()]).tolist()}


def late_without_waiting(mesh, folder: Path) -> dict:
    if jax.process_index() == 1:
        time.sleep(LATE)
    try:
        return {"gathered": processes.gathered([jax.process_index()]).tolist()}
    except jax.errors.JaxRuntimeError:
        return {"gathered": None}


PARTS = (whole, first_half, second_half, another_configuration, damaged, late, late_without_waiting)


def main(index: int, port: int, folder: Path, names: list[str]) -> None:
    jax.distributed.initialize(f"localhost:{port}", 2, index)
    mesh = sharding.make_mesh(sharding.mesh_sizes("fsdp=2", jax.device_count()))
    for part in PARTS:
        if part.__name__ in names:
            print(json.dumps({part.__name__: part(mesh, folder)}), flush=True)
    os._exit(0)


# --- the tests ----------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("localhost", 0))
        return bound.getsockname()[1]


def run(folder: Path, *parts, followers_end=True) -> list[dict]:
    """Returns the output of each of two processes, by part. `followers_end`: whether process 1 must end without an
    error."""
    words = [str(free_port()), str(folder), *(p.__name__ for p in parts)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    pair = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.lvp.parallel.test_processes", str(i), *words],
            **{"cwd": ROOT, "env": environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
        )
        for i in range(2)
    ]
    try:
        outputs = [p.communicate(timeout=240) for p in pair]
    finally:
        for p in pair:
            p.kill()
    for p, (_, err) in zip(pair, outputs, strict=True):
        assert p.returncode == 0 or (p is pair[1] and not followers_end), err[-4000:]
    return [
        {k: v for line in out.splitlines() if line.startswith("{") for k, v in json.loads(line).items()}
        for out, _ in outputs
    ]


def flip_a_byte(folder: Path) -> None:
    """Damages the largest file of every step."""
    for step in folder.glob("step_*"):
        path = max((p for p in step.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
        content = bytearray(path.read_bytes())
        content[-len(content) // 3] ^= 1
        path.write_bytes(content)


@pytest.mark.slow
def test_two_processes_train_save_and_resume(tmp_path):
    alone = np.array(train(None))
    first = run(tmp_path, whole, first_half)
    # One process reads the checkpoint of two.
    step, state, _ = checkpoints.latest(tmp_path / "lane", program(None).run_shapes(), "a")
    assert step == HALF
    np.testing.assert_allclose(train(None, state=state, step=step), alone, atol=TOLERANCE)
    second = run(tmp_path, second_half, another_configuration, damaged)
    for before, after in zip(first, second, strict=True):
        np.testing.assert_allclose(before["whole"]["losses"], alone, atol=TOLERANCE)
        assert before["first_half"] == {"stopped": HALF}
        assert after["second_half"]["from"] == HALF
        # Losses before the interruption are part of the state. Later losses equal those of the uninterrupted run bit
        # for bit.
        assert after["second_half"]["losses"] == before["whole"]["losses"]
        assert not after["another_configuration"]["usable"] and not after["damaged"]["usable"]
    assert alone[0] - alone[-2] > 0.3


@pytest.mark.slow
def test_processes_that_wait_for_each_other_may_be_late(tmp_path):
    assert [part["late"]["gathered"] for part in run(tmp_path, late)] == [[[0], [1]]] * 2
    # Control: without the wait, the collective operation fails in the process that begins it first.
    failed, _ = run(tmp_path, late_without_waiting, followers_end=False)
    assert failed["late_without_waiting"] == {"gathered": None}


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
