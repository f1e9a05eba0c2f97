"""A lane's bits do not depend on JAX_… variables. The environment on which they depend is recorded and compared."""

import dataclasses
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import experiments
from lvp.errors import InputError
from lvp.training import Program, checkpoints, records
from sweeps.driver import api
from sweeps.driver.manifest import Manifest
from sweeps.driver.options import Options
from sweeps.worker import environment
from sweeps.worker.tasks import task_for
from sweeps.worker.worker import Settings, Worker
from tests.faults.ledger import record
from tests.lvp.data.tokens.texts import some_text
from tests.sweeps.running import ROOT, TINY, outcomes

# Values of variables that could change or end a lane if the worker did not replace them.
VARIABLES = {
    "JAX_THREEFRY_PARTITIONABLE": "0",
    "JAX_DEFAULT_PRNG_IMPL": "rbg",
    "JAX_ENABLE_X64": "1",
    "JAX_DEFAULT_MATMUL_PRECISION": "TF32_TF32_F32",
    "JAX_NUMPY_DTYPE_PROMOTION": "strict",
    "JAX_NUMPY_RANK_PROMOTION": "raise",
    "JAX_DEBUG_NANS": "1",
    "JAX_DEBUG_INFS": "1",
    "JAX_DISABLE_JIT": "1",
    "JAX_RANDOM_SEED_OFFSET": "7",
    "JAX_ENABLE_CUSTOM_PRNG": "1",
    "JAX_SOFTMAX_CUSTOM_JVP": "1",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    "JAX_HIGH_DYNAMIC_RANGE_GUMBEL": "1",
}
TRIAL = """
import contextlib, sys
from sweeps.worker import environment
from sweeps.worker.worker import Settings, Worker
if sys.argv[3] == "as it is":
    environment.fixed_options = contextlib.nullcontext
settings = Settings(pin=False, checkpoint_seconds=0.0)
Worker(sys.argv[1], settings).run_trial({"id": "0", "cell": 0, "pack": 1, "lanes": sys.argv[2].split(",")})
"""


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The manifest of a sweep of three lanes without records."""
    folder = tmp_path_factory.mktemp("environment")
    (folder / "text.txt").write_text(some_text(20_000))
    values = TINY | {"corpus": f"text:{folder / 'text.txt'}", "widths": "16", "seeds": "0", "steps": "12"}
    config = experiments.configured("width_vocab", "smoke", values)
    (planned,) = experiments.load("width_vocab").cells(config)
    dataset = task_for(planned.cell).prepare(folder / "cache")
    datasets = {planned.label: dataset.to_dict()}
    manifest = Manifest(folder / "out", "width_vocab", "smoke", experiments.to_dict(config), datasets)
    return dataclasses.replace(manifest, environment=environment.present())


@pytest.fixture(scope="module")
def usual(begun, tmp_path_factory):
    """The outcomes of the sweep's lanes without variables. Checks that their records name the environment."""
    out, present = tmp_path_factory.mktemp("usual") / "out", environment.present()
    lanes = trained(begun, out, {})
    assert len(lanes) == 3
    for row in records.read(out / "records"):
        assert all(row["provenance"][part] == present[part] for part in ("code", "flags", "machine"))
    return lanes


def trained(manifest, out, variables, options="fixed", checkpoint_at=None):
    """The outcomes of the lanes, trained in a process with the variables; {} if it fails.

    Args:
      checkpoint_at: a step. All lanes but the first continue from checkpoints of this step, which are made without the
        variables.
    """
    manifest = dataclasses.replace(manifest, out=out)
    manifest.begin()
    manifest.make_lane_directories()
    lanes = list(manifest.cells[0].lanes)
    if checkpoint_at is not None:
        _save_checkpoints(manifest, checkpoint_at)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    words = [sys.executable, "-c", TRIAL, out, ",".join(lanes), options]
    surroundings = clean | {"JAX_PLATFORMS": "cpu"} | variables
    subprocess.run(words, cwd=ROOT, env=surroundings, check=False, stderr=subprocess.DEVNULL)
    return outcomes(out)


def _save_checkpoints(manifest, step):
    (entry,) = manifest.cells
    with environment.fixed_options():
        program = Program(entry.cell)
        data = task_for(entry.cell).load(entry.dataset)
        for h, lane in list(entry.lanes.items())[1:]:
            state = program.blank_state()
            state = program.advance(np.int32(0), np.int32(step), state, program.arrays([lane]), data(lane).feed(0)[1])
            checkpoints.save(manifest.checkpoint_path(h), step, jax.tree.map(np.asarray, state), h)


@pytest.mark.slow
def test_variables_of_jax_do_not_change_new_or_resumed_lanes(begun, usual, tmp_path):
    lanes = trained(begun, tmp_path / "out", VARIABLES, checkpoint_at=5)
    wrong = sum(lanes[h] != usual[h] for h in lanes)
    record("JAX_ variables are set at resume", len(VARIABLES), len(usual) - len(lanes), repeated=0, wrong=wrong)
    assert lanes == usual
    resumed = [r["provenance"]["resumed_at_step"] for r in records.read(tmp_path / "out" / "records")]
    assert sorted(resumed) == [0, 5, 5]


@pytest.mark.slow
def test_control_a_variable_changes_lanes_without_fixed_options(begun, usual, tmp_path):
    other = trained(begun, tmp_path / "out", {"JAX_THREEFRY_PARTITIONABLE": "0"}, options="as it is")
    assert len(other) == 3 and all(other[h] != usual[h] for h in usual)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIABLES)
def test_no_variable_alone_changes_a_lane(begun, usual, tmp_path, name):
    assert trained(begun, tmp_path / "out", {name: VARIABLES[name]}, checkpoint_at=5) == usual


# Variables without effect on a lane that does not diverge.
HARMLESS = (
    "SOFTMAX_CUSTOM_JVP",
    "HIGH_DYNAMIC_RANGE_GUMBEL",
    "ENABLE_CUSTOM_PRNG",
    "RANK_PROMOTION",
    "DEBUG_NANS",
    "DEBUG_INFS",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in VARIABLES if not name.endswith(HARMLESS)])
def test_control_each_variable_changes_lanes_without_fixed_options(begun, usual, tmp_path, name):
    assert trained(begun, tmp_path / "out", {name: VARIABLES[name]}, options="as it is") != usual


def test_the_users_options_are_restored_after_a_trial():
    jax.config.update("jax_enable_x64", True)
    try:
        with environment.fixed_options():
            assert not jax.config.jax_enable_x64 and jax.config.jax_numpy_rank_promotion == "allow"
        assert jax.config.jax_enable_x64 and jax.config.jax_numpy_rank_promotion == "raise"
    finally:
        jax.config.update("jax_enable_x64", False)


CHANGES = {
    "jax": ({"versions": {"jax": "0.0.1"}}, "jax 0.0.1 (now "),
    "flax": ({"versions": {"flax": None}}, "flax None (now "),
    "code": ({"code": "0" * 16, "commit": "0123abc"}, "other source files: commit 0123abc (now "),
    "flags": ({"flags": ["--xla_cpu_max_isa=AVX"]}, "flags --xla_cpu_max_isa=AVX (now "),
    "machine": ({"machine": "Z80: "}, "machine Z80:  (now "),
}


def _with_changed(manifest, out, change):
    """The sweep in `out` with an environment that differs from the present one."""
    present = environment.present()
    changed = {k: {**present[k], **v} if isinstance(v, dict) else v for k, v in change.items()}
    manifest = dataclasses.replace(manifest, out=out, environment=present | changed)
    manifest.begin()
    manifest.make_lane_directories()
    return manifest


@pytest.mark.parametrize("what", CHANGES)
def test_another_environment_gives_a_one_line_error(begun, tmp_path, what):
    change, says = CHANGES[what]
    manifest = _with_changed(begun, tmp_path / "out", change)
    with pytest.raises(InputError, match="--allow-other-version") as refused:
        api._in_its_environment(manifest, Options(executor="local"), print)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_another_environment_is_allowed_on_request_with_a_message(begun, tmp_path):
    manifest = _with_changed(begun, tmp_path / "out", CHANGES["jax"][0])
    printed, options = [], Options(executor="local", allow_other_version=True)
    same, present = api._in_its_environment(manifest, options, printed.append)
    assert (
        same == manifest and present["versions"]["jax"] == jax.__version__
    )  # the manifest keeps the first environment
    assert len(printed) == 1 and f"jax 0.0.1 (now {jax.__version__})" in printed[0]
    assert "--allow-other-version" in options.resume_options()


def test_a_manifest_without_environment_gets_the_present_environment_with_a_message(begun, tmp_path):
    dataclasses.replace(begun, out=tmp_path / "out", environment=None).begin()
    for name in ("manifest.json", "manifest.copy.json"):  # manifests of earlier versions have no environment
        content = json.loads((tmp_path / "out" / name).read_text())
        del content["environment"], content["digest"]
        content["digest"] = records.config_hash(content)
        (tmp_path / "out" / name).write_text(json.dumps(content))
    (tmp_path / "out" / "manifest.copy.json").unlink()
    printed = []
    api._in_its_environment(Manifest.read(tmp_path / "out"), Options(executor="local"), printed.append)
    assert len(printed) == 1 and "has no recorded environment" in printed[0]
    assert Manifest.read(tmp_path / "out").environment == environment.present()


def test_flags_that_shape_the_machine_or_write_files_are_not_compared(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/home/me --xla_force_host_platform_device_count=8 --xla_x=1")
    assert environment.present()["flags"] == ["--xla_x=1"]


def test_a_worker_with_another_environment_trains_nothing(begun, tmp_path):
    manifest = dataclasses.replace(begun, out=tmp_path / "out")
    manifest.begin()
    manifest.make_lane_directories()
    drivers = environment.present() | {"device": "tpu v9"}
    worker = Worker(manifest.out, Settings(pin=False, environment=drivers))
    lanes = list(manifest.cells[0].lanes)
    with pytest.raises(RuntimeError, match="the environment of .* is not the driver's: device tpu v9"):
        worker.run_trial({"id": "0", "cell": 0, "pack": 1, "lanes": lanes})
    assert not outcomes(manifest.out)
