"""A checkpoint is restored bit for bit, or it is named and skipped."""

import os
import shutil
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

from lvp.files import digests
from lvp.training import checkpoints

CONFIGURATION = "0123456789abcdef"


def state(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "params": {
            "a": rng.normal(size=(40, 30)).astype(np.float32),
            "b": np.float32([np.nan, np.inf, -0.0]),
        },
        "opt": (np.asarray(3, np.int32), [rng.normal(size=5)]),
        "key": np.asarray([1, 2**31], np.uint32),
    }


SHAPES = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state())


def test_a_checkpoint_is_restored_bit_for_bit(tmp_path):
    checkpoints.save(tmp_path / "lane", 5, state(), CONFIGURATION)
    loaded, _ = checkpoints.load(tmp_path / "lane", 5, SHAPES, CONFIGURATION)
    for got, saved in zip(jax.tree.leaves(loaded), jax.tree.leaves(state()), strict=True):
        assert (got.dtype, got.shape, got.tobytes()) == (saved.dtype, saved.shape, saved.tobytes())


def test_the_last_two_steps_are_kept(tmp_path):
    for step in (1, 2, 3):
        checkpoints.save(tmp_path, step, state(step), CONFIGURATION)
    assert checkpoints.steps(tmp_path) == [2, 3]
    assert checkpoints.steps(tmp_path / "nowhere") == []


def test_another_configuration_is_refused(tmp_path):
    checkpoints.save(tmp_path, 1, state(), CONFIGURATION)
    with pytest.raises(ValueError, match="belongs to configuration"):
        checkpoints.load(tmp_path, 1, SHAPES, "f" * 16)


def test_a_renamed_step_is_not_used(tmp_path, caplog):
    for step in (1, 2):
        checkpoints.save(tmp_path, step, state(step), CONFIGURATION)
    (tmp_path / "step_000000002").rename(tmp_path / "step_000000003")
    with pytest.raises(checkpoints.Damaged, match="step_000000003 belongs to step 2"):
        checkpoints.load(tmp_path, 3, SHAPES, CONFIGURATION)
    assert checkpoints.latest([tmp_path], SHAPES, [CONFIGURATION])[0] == 1 and "step_000000003" in caplog.text


def test_environments_are_read_as_written(tmp_path):
    """`latest` returns those of the first directory at the step that both hold."""
    first, second = [{"jax": "0.10.2", "flags": [1, None]}], [{"jax": "0.11.1"}, {"device": "η"}]
    checkpoints.save(tmp_path / "a", 1, state(), CONFIGURATION, first)
    checkpoints.save(tmp_path / "a", 2, state(), CONFIGURATION, second)
    checkpoints.save(tmp_path / "b", 1, state(), CONFIGURATION)
    folders = [tmp_path / "a", tmp_path / "b"]
    assert checkpoints.latest(folders[:1], SHAPES, [CONFIGURATION])[2] == second
    assert checkpoints.load(folders[1], 1, SHAPES, CONFIGURATION)[1] == []
    assert checkpoints.latest(folders, SHAPES, [CONFIGURATION] * 2)[2] == first


def test_a_changed_environment_is_detected(tmp_path):
    checkpoints.save(tmp_path, 1, state(), CONFIGURATION, [{"jax": "0.10.2"}])
    path = tmp_path / "step_000000001" / checkpoints._METADATA
    path.write_bytes(path.read_bytes().replace(b"0.10.2", b"0.10.3"))
    with pytest.raises(checkpoints.Damaged, match="does not match its digest"):
        checkpoints.load(tmp_path, 1, SHAPES, CONFIGURATION)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("damage", [flip, cut, lambda path: path.unlink()], ids=["flip", "cut", "delete"])
def test_every_damage_is_detected(tmp_path, damage):
    """For any damaged file (Orbax keeps some that a load does not read), the load returns the exact bits or an error
    that names the step."""
    checkpoints.save(tmp_path / "whole", 1, state(), CONFIGURATION)
    files = [
        p.relative_to(tmp_path / "whole") for p in (tmp_path / "whole").rglob("*") if p.is_file() and p.stat().st_size
    ]
    named = 0
    for i, file in enumerate(files):
        folder = tmp_path / str(i)
        shutil.copytree(tmp_path / "whole", folder)
        damage(folder / file)
        try:
            loaded, _ = checkpoints.load(folder, 1, SHAPES, CONFIGURATION)
        except ValueError as error:
            assert "step_000000001" in str(error)
            named += 1
        else:
            assert digests.digests_of_tree(loaded) == digests.digests_of_tree(state()), file
    assert named >= 2


def test_a_damaged_step_is_named_and_the_previous_one_is_used(tmp_path, caplog):
    for step in (1, 2):
        checkpoints.save(tmp_path, step, state(step), CONFIGURATION)
    for file in (tmp_path / "step_000000002").rglob("d/*"):
        flip(file)
    step, (loaded,), _ = checkpoints.latest([tmp_path], SHAPES, [CONFIGURATION])
    assert step == 1 and "step_000000002" in caplog.text
    np.testing.assert_array_equal(loaded["params"]["a"], state(1)["params"]["a"])


def test_steps_after_the_restored_one_are_removed(tmp_path):
    for step in (1, 2, 3):
        checkpoints.save(tmp_path, step, state(), CONFIGURATION)
    for file in (tmp_path / "step_000000003").rglob("d/*"):
        flip(file)
    assert checkpoints.latest([tmp_path], SHAPES, [CONFIGURATION])[0] == 2
    assert checkpoints.steps(tmp_path) == [2]


def test_later_damaged_steps_do_not_displace_new_ones(tmp_path):
    for step in (8, 9):
        checkpoints.save(tmp_path, step, state(), CONFIGURATION)
    for file in tmp_path.rglob("d/*"):
        flip(file)
    assert checkpoints.latest([tmp_path], SHAPES, [CONFIGURATION]) is None
    for step in (1, 2, 3):  # started again
        checkpoints.save(tmp_path, step, state(step), CONFIGURATION)
    assert checkpoints.steps(tmp_path) == [2, 3, 8, 9]
    step, (loaded,), _ = checkpoints.latest([tmp_path], SHAPES, [CONFIGURATION])
    np.testing.assert_array_equal(loaded["params"]["a"], state(3)["params"]["a"])
    assert step == 3 and checkpoints.steps(tmp_path) == [2, 3]


def test_a_pack_resumes_from_the_last_step_that_all_lanes_have(tmp_path):
    for step in (1, 2):
        checkpoints.save(tmp_path / "a", step, state(), CONFIGURATION)
    checkpoints.save(tmp_path / "b", 1, state(), CONFIGURATION)
    step, states, _ = checkpoints.latest([tmp_path / "a", tmp_path / "b"], SHAPES, [CONFIGURATION] * 2)
    assert (step, len(states)) == (1, 2)
    assert checkpoints.latest([tmp_path / "a", tmp_path / "c"], SHAPES, [CONFIGURATION] * 2) is None


@pytest.mark.parametrize("last", ["another configuration", "empty"])
def test_an_unusable_last_step_is_skipped(tmp_path, caplog, last):
    checkpoints.save(tmp_path, 1, state(1), CONFIGURATION)
    if last == "empty":
        (tmp_path / "step_000000002").mkdir()
    else:
        checkpoints.save(tmp_path, 2, state(2), "f" * 16)
    step, (loaded,), _ = checkpoints.latest([tmp_path], SHAPES, [CONFIGURATION])
    assert step == 1 and digests.digests_of_tree(loaded) == digests.digests_of_tree(state(1))
    assert last == "empty" or "belongs to configuration " + "f" * 16 in caplog.text


def unfinished_save(directory, pid):
    """The directory of a save of step 3 that process `pid` did not complete."""
    before = set(directory.iterdir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: pid)
        patch.setattr(checkpoints, "_commit", lambda *_: None)
        checkpoints.save(directory, 3, state(3), CONFIGURATION)
    (left,) = set(directory.iterdir()) - before
    return left


def test_two_workers_save_the_same_lane(tmp_path, monkeypatch):
    """Both workers save step 3, and the other worker's rename comes between the two calls of this worker's."""
    checkpoints.save(tmp_path, 2, state(2), CONFIGURATION)
    other = unfinished_save(tmp_path, os.getppid())
    assert checkpoints.latest([tmp_path], SHAPES, [CONFIGURATION])[0] == 2
    renames = []

    def rename(path, target):
        if target.name == "step_000000003":
            os.rename(other, target)
            renames.append(path)
        os.rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        checkpoints.save(tmp_path, 3, state(3), CONFIGURATION)
    assert renames and sorted(p.name for p in tmp_path.iterdir()) == ["step_000000002", "step_000000003"]
    loaded, _ = checkpoints.load(tmp_path, 3, SHAPES, CONFIGURATION)
    assert digests.digests_of_tree(loaded) == digests.digests_of_tree(state(3))


def test_only_unfinished_saves_of_ended_processes_are_removed(tmp_path):
    with subprocess.Popen(["true"]) as ended:
        pass
    left, written = unfinished_save(tmp_path, ended.pid), unfinished_save(tmp_path, os.getppid())
    assert checkpoints.latest([tmp_path], SHAPES, [CONFIGURATION]) is None
    assert (left.exists(), written.exists()) == (False, True)
