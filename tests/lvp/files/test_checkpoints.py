"""A checkpoint is restored bit for bit, or it is named and skipped."""

import shutil

import jax
import numpy as np
import pytest

from lvp.files import checkpoints, digests

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
    checkpoints.save_step(tmp_path, 5, state(), CONFIGURATION)
    loaded, _ = checkpoints.load(tmp_path / checkpoints.name_of(5), 5, SHAPES, CONFIGURATION)
    for got, saved in zip(jax.tree.leaves(loaded), jax.tree.leaves(state()), strict=True):
        assert (got.dtype, got.shape, got.tobytes()) == (saved.dtype, saved.shape, saved.tobytes())


def test_the_last_two_steps_are_kept(tmp_path):
    for step in (1, 2, 3):
        checkpoints.save_step(tmp_path, step, state(step), CONFIGURATION)
    assert checkpoints.steps(tmp_path) == [2, 3]
    assert checkpoints.steps(tmp_path / "nowhere") == []


def test_another_configuration_is_refused(tmp_path):
    checkpoints.save_step(tmp_path, 1, state(), CONFIGURATION)
    with pytest.raises(ValueError, match="belongs to configuration"):
        checkpoints.load(tmp_path / checkpoints.name_of(1), 1, SHAPES, "f" * 16)


def test_a_renamed_step_is_not_used(tmp_path, caplog):
    for step in (1, 2):
        checkpoints.save_step(tmp_path, step, state(step), CONFIGURATION)
    (tmp_path / "step_000000002").rename(tmp_path / "step_000000003")
    with pytest.raises(checkpoints.Damaged, match="step_000000003 belongs to step 2"):
        checkpoints.load(tmp_path / checkpoints.name_of(3), 3, SHAPES, CONFIGURATION)
    assert checkpoints.latest(tmp_path, SHAPES, CONFIGURATION)[0] == 1 and "step_000000003" in caplog.text


def test_environments_are_read_as_written(tmp_path):
    first, second = [{"jax": "0.10.2", "flags": [1, None]}], [{"jax": "0.11.1"}, {"device": "η"}]
    checkpoints.save_step(tmp_path, 1, state(), CONFIGURATION, environments=first)
    checkpoints.save_step(tmp_path, 2, state(), CONFIGURATION, environments=second)
    assert checkpoints.latest(tmp_path, SHAPES, CONFIGURATION)[2] == second
    assert checkpoints.load(tmp_path / checkpoints.name_of(1), 1, SHAPES, CONFIGURATION)[1] == first


def test_a_part_of_a_state_is_read(tmp_path):
    checkpoints.save(tmp_path / "lane", 5, state(), CONFIGURATION, config={"steps": 5})
    part, _ = checkpoints.load(tmp_path / "lane", 5, {"params": SHAPES["params"]}, CONFIGURATION)
    assert digests.digests_of_tree(part) == digests.digests_of_tree({"params": state()["params"]})
    assert checkpoints.metadata(tmp_path / "lane")["config"] == {"steps": 5}


def test_a_changed_environment_is_detected(tmp_path):
    checkpoints.save_step(tmp_path, 1, state(), CONFIGURATION, environments=[{"jax": "0.10.2"}])
    path = tmp_path / "step_000000001" / checkpoints.METADATA
    path.write_bytes(path.read_bytes().replace(b"0.10.2", b"0.10.3"))
    with pytest.raises(checkpoints.Damaged, match="does not match its digest"):
        checkpoints.load(tmp_path / checkpoints.name_of(1), 1, SHAPES, CONFIGURATION)


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
    checkpoints.save_step(tmp_path / "whole", 1, state(), CONFIGURATION)
    files = [
        p.relative_to(tmp_path / "whole") for p in (tmp_path / "whole").rglob("*") if p.is_file() and p.stat().st_size
    ]
    named = 0
    for i, file in enumerate(files):
        folder = tmp_path / str(i)
        shutil.copytree(tmp_path / "whole", folder)
        damage(folder / file)
        try:
            loaded, _ = checkpoints.load(folder / checkpoints.name_of(1), 1, SHAPES, CONFIGURATION)
        except ValueError as error:
            assert "step_000000001" in str(error)
            named += 1
        else:
            assert digests.digests_of_tree(loaded) == digests.digests_of_tree(state()), file
    assert named >= 2


def test_a_damaged_step_is_named_and_the_previous_one_is_used(tmp_path, caplog):
    for step in (1, 2):
        checkpoints.save_step(tmp_path, step, state(step), CONFIGURATION)
    for file in (tmp_path / "step_000000002").rglob("d/*"):
        flip(file)
    step, loaded, _ = checkpoints.latest(tmp_path, SHAPES, CONFIGURATION)
    assert step == 1 and "step_000000002" in caplog.text
    np.testing.assert_array_equal(loaded["params"]["a"], state(1)["params"]["a"])


def test_steps_after_the_restored_one_are_removed(tmp_path):
    for step in (1, 2, 3):
        checkpoints.save_step(tmp_path, step, state(), CONFIGURATION)
    for file in (tmp_path / "step_000000003").rglob("d/*"):
        flip(file)
    assert checkpoints.latest(tmp_path, SHAPES, CONFIGURATION)[0] == 2
    assert checkpoints.steps(tmp_path) == [2]


def test_nothing_is_left_of_steps_that_cannot_be_used(tmp_path):
    """Damaged steps would count among the last two, and a killed process leaves an unfinished save."""
    for step in (8, 9):
        checkpoints.save_step(tmp_path, step, state(), CONFIGURATION)
    for file in tmp_path.rglob("d/*"):
        flip(file)
    (tmp_path / "step_000000010.orbax-checkpoint-tmp").mkdir()
    (tmp_path / "other").mkdir()
    assert checkpoints.steps(tmp_path) == [8, 9]
    assert checkpoints.latest(tmp_path, SHAPES, CONFIGURATION) is None
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize("last", ["another configuration", "empty"])
def test_an_unusable_last_step_is_skipped(tmp_path, caplog, last):
    checkpoints.save_step(tmp_path, 1, state(1), CONFIGURATION)
    if last == "empty":
        (tmp_path / "step_000000002").mkdir()
    else:
        checkpoints.save_step(tmp_path, 2, state(2), "f" * 16)
    step, loaded, _ = checkpoints.latest(tmp_path, SHAPES, CONFIGURATION)
    assert step == 1 and digests.digests_of_tree(loaded) == digests.digests_of_tree(state(1))
    assert last == "empty" or "belongs to configuration " + "f" * 16 in caplog.text
