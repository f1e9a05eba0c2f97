"""A sweep that is killed at any fsync, rename, link or unlink continues, and trains no run with a record again."""

import pytest

from tests.faults import kill_points
from tests.faults.ledger import Watched
from tests.marking import slow
from tests.sweeps.running import outcomes

SAVING = {"checkpoint_seconds": 0.0}


def killed(small, out, monkeypatch, at):
    """Runs the sweep up to a point, and returns the points that it reached."""
    with kill_points.in_this_process(monkeypatch, out, at) as points:
        small(out, **SAVING)
    return points


@pytest.mark.parametrize("every", ["some", slow("all")])
def test_a_sweep_killed_at_any_point_is_continued(small, whole, trained, tmp_path, monkeypatch, every):
    points = killed(small, tmp_path / "points", monkeypatch, 0)
    kinds = {point.partition(" ")[0] for point in points}
    assert {"fsync", "link", "rename", "replace", "unlink"} <= kinds and len(points) > 50, points
    for at in range(1, len(points) + 1, 1 if every == "all" else len(points) // 4):
        watched = Watched(out := tmp_path / str(at))
        if len(killed(small, out, monkeypatch, at)) < at:  # their number varies a little
            continue
        recorded = watched.look()
        del trained[:]
        small(out, **SAVING)
        assert len(trained) == 3 - recorded
        watched.assert_whole("a sweep is killed at a fsync, rename, link or unlink", 1, outcomes(whole))


def test_a_record_that_is_written_again_is_detected(small, whole, tmp_path):
    """Control of the tests that use `Watched`."""
    watched = Watched(out := tmp_path / "out")
    small(out)
    watched.look()
    path = min(out.glob("records/*.jsonl"))
    path.unlink()
    small(out)
    with pytest.raises(AssertionError):
        watched.assert_whole("control", 0, outcomes(whole))
