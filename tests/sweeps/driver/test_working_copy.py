"""Working copies of sweeps in buckets: which files are copied, when, and what a fault leaves."""

import pytest

from lvp.errors import InputError
from lvp.files import buckets
from sweeps.driver import working_copy
from tests.sweeps.driver.memory_buckets import memory, objects  # noqa: F401  fixture

ADDRESS = "s3://bucket/sweep"


@pytest.fixture
def copy(memory):  # noqa: F811
    with working_copy.opened(ADDRESS) as out:
        yield working_copy.get(out)


def other_machine():
    return working_copy.opened(ADDRESS)


@pytest.mark.parametrize(
    "address, problem",
    [
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("gs://-/prefix", "names no bucket"),
        ("s4://bucket/prefix", "did you mean s3"),
        ("https://bucket/prefix", "unknown scheme"),
        ("s3://key:secret@bucket/prefix", "contains credentials"),
        ("s3://bucket//prefix", "name of the prefix"),
        ("s3://bucket/a/../b", "name of the prefix"),
        ("s3://bucket/a\nb", "name of the prefix"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address, problem):
    assert buckets.is_address(address)
    with pytest.raises(InputError, match=problem) as error:
        buckets.split(address)
    assert "\n" not in str(error.value) and "secret" not in str(error.value)


@pytest.mark.parametrize("path", ["out", "/tmp/out", "./s3/x", "s3:/x", "C:\\x"])
def test_a_path_is_no_address(path):
    assert not buckets.is_address(path)
    with working_copy.opened(path) as out:
        assert str(out) == path.removeprefix("./") and working_copy.location(out) == out


def test_a_directory_cannot_name_a_bucket(tmp_path):
    (tmp_path / ".bucket").write_text(ADDRESS)
    assert working_copy.get(tmp_path) is None and working_copy.location(tmp_path) == tmp_path


def test_files_of_the_driver_reach_another_machine(copy, memory):  # noqa: F811
    for name in ("manifest.json", "failures.jsonl", "progress/host-1.json", "workers/0.log", ".lock"):
        (copy.out / name).parent.mkdir(exist_ok=True)
        (copy.out / name).write_text(name)
    copy.push()
    assert objects(memory).keys() == {"manifest.json", "failures.jsonl", "progress/host-1.json", "workers/0.log"}
    with other_machine() as out:
        assert (out / "failures.jsonl").read_text() == "failures.jsonl" and (out / "progress/host-1.json").exists()
        assert not (out / "workers").exists()
        (copy.out / "failures.jsonl").unlink()
        copy.push()
        working_copy.pull(out)
        assert not (out / "failures.jsonl").exists() and (out / "manifest.json").exists()
        working_copy.push(out)  # a reader changes nothing
    assert objects(memory).keys() == {"manifest.json", "progress/host-1.json", "workers/0.log"}


def test_unchanged_files_are_not_written_again(copy, monkeypatch):
    (copy.out / "manifest.json").write_text("1")
    (copy.out / "table.csv").write_text("2")
    copy.push()
    with monkeypatch.context() as patched:
        patched.setattr(copy, "_upload", lambda *_: pytest.fail("was uploaded"))
        copy.push()
    with other_machine() as out:
        monkeypatch.setattr(working_copy.get(out), "_upload", lambda *_: pytest.fail("was uploaded"))
        working_copy.push(out)


def test_a_manifest_that_another_driver_has_written_is_kept(copy, memory):  # noqa: F811
    with other_machine() as out:
        (out / "manifest.json").write_text("other")
        working_copy.push(out)
    (copy.out / "manifest.json").write_text("ours")
    with pytest.raises(RuntimeError, match="another driver"):
        copy.push()
    assert objects(memory) == {"manifest.json": b"other"}


def test_the_first_record_of_a_lane_is_kept(copy, memory):  # noqa: F811
    path = copy.out / "records" / "lane.jsonl"
    assert copy.commit_record(path, "first\n") == copy.commit_record(path, "second\n") == b"first\n"
    assert objects(memory) == {"records/lane.jsonl": b"first\n"}
    with other_machine() as out:
        assert (out / "records" / "lane.jsonl").read_bytes() == b"first\n"


def test_a_record_that_a_listing_omits_is_read_by_its_name(copy, monkeypatch):
    paths = [copy.out / "records" / f"{lane}.jsonl" for lane in ("a", "b")]
    copy.commit_record(paths[0], "a\n")
    monkeypatch.setattr(buckets.Bucket, "listed", lambda *_: [])
    copy.pull()
    assert not paths[0].exists()
    copy.fetch_records(paths)
    assert paths[0].read_text() == "a\n" and not paths[1].exists()


def test_a_damaged_record_is_renamed(copy, memory):  # noqa: F811
    path = copy.out / "records" / "lane.jsonl"
    path.parent.mkdir()
    path.write_bytes(copy.commit_record(path, "damaged"))
    copy.rename_damaged(path, path.with_suffix(".damaged"))
    assert objects(memory) == {"records/lane.damaged": b"damaged"}


def checkpoint(copy, step: int):
    folder = copy.out / "checkpoints" / "lane"
    (folder / f"step_{step:09d}" / "d").mkdir(parents=True)
    (folder / f"step_{step:09d}" / "d" / "array").write_bytes(bytes([step]) * 100_000)
    return folder


def fetched() -> dict[str, bytes]:
    """The checkpoints that another machine gets."""
    with other_machine() as out:
        (out / "checkpoints").mkdir()
        working_copy.get(out).fetch_checkpoints(out / "checkpoints" / "lane")
        return {path.parents[1].name: path.read_bytes() for path in (out / "checkpoints").rglob("array")}


def test_checkpoints_reach_another_machine(copy, memory):  # noqa: F811
    assert fetched() == {}
    folder = checkpoint(copy, 1)
    checkpoint(copy, 2)
    (folder / "step_000000003.orbax-checkpoint-tmp").mkdir()  # a save that was not finished
    copy.save_checkpoints(folder)
    assert fetched() == {f"step_00000000{step}": bytes([step]) * 100_000 for step in (1, 2)}
    (folder / "step_000000001").rename(folder / "step_000000004")
    copy.save_checkpoints(folder)
    assert objects(memory).keys() == {"checkpoints/lane/step_000000002.tar", "checkpoints/lane/step_000000004.tar"}
    copy.drop_checkpoints(folder)
    assert objects(memory) == {}


@pytest.mark.parametrize("damage", ["cut off", "empty", "garbage", "leaves its directory"])
def test_a_damaged_checkpoint_is_named_and_skipped(copy, memory, caplog, damage):  # noqa: F811
    folder = checkpoint(copy, 1)
    checkpoint(copy, 2)
    copy.save_checkpoints(folder)
    name = "checkpoints/lane/step_000000002.tar"
    content = objects(memory)[name]
    damaged = {"cut off": content[:50_000], "empty": b"", "garbage": b"\xff" * 10_000}
    damaged["leaves its directory"] = content.replace(b"step_000000002/d/array", b"../../../../../x/array")
    memory.put(name, damaged[damage])
    assert fetched().keys() == {"step_000000001"}
    assert f"{ADDRESS}/{name} is damaged" in caplog.text


def test_files_of_other_machines_reach_the_driver(copy, memory):  # noqa: F811
    """A newer file of the driver is not replaced, and a worker deletes no objects of others."""
    own = copy.out / "progress" / "driver-1.json"
    own.parent.mkdir()
    own.write_text("old")
    copy.push()
    with other_machine() as out:
        other, written = working_copy.get(out), {"progress/other-1.json": "step 1", "curves/lane.json": "loss"}
        for name, content in written.items():
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_text(content)
        other.follow()
        other.commit_record(out / "records" / "lane.jsonl", "record")
        own.write_text("new")
        for _ in range(2):  # the second call downloads nothing
            copy.pull_workers()
            here = {str(p.relative_to(copy.out)): p.read_text() for p in copy.out.rglob("*.json*")}
            assert here == written | {"progress/driver-1.json": "new", "records/lane.jsonl": "record"}
        (out / "progress/other-1.json").unlink()
        other.follow()
        copy.pull_workers()
        assert not (copy.out / "progress/other-1.json").exists() and own.read_text() == "new"
    assert objects(memory).keys() == {"progress/driver-1.json", "curves/lane.json", "records/lane.jsonl"}


def test_two_workers_save_the_same_lane(copy, memory):  # noqa: F811
    """A worker that is behind keeps the later steps of the other worker."""
    copy.save_checkpoints(checkpoint(copy, 5))
    with other_machine() as out:
        behind = working_copy.get(out)
        behind.save_checkpoints(checkpoint(behind, 2))
        assert behind.saved_steps(["lane", "none"]) == {f"checkpoints/lane/step_00000000{step}.tar" for step in (2, 5)}
    checkpoint(copy, 6)
    copy.save_checkpoints(copy.out / "checkpoints" / "lane")
    assert fetched().keys() == {"step_000000005", "step_000000006"}
