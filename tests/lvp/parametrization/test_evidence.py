"""The evidence has all entries of the committed results (`tests/sweeps/test_committed.py`: it is not stale)."""

import pytest

import lvp.parametrization.evidence
from lvp import parametrization
from lvp.experiments.common.transferred_entries import ENTRIES
from lvp.sweeps import committed


def test_evidence_covers_every_entry_of_every_committed_result():
    names = [path.parent.name for path in committed.COMMITTED.glob("leaderboard/*/sweep.json")]
    evidence = lvp.parametrization.evidence.transfer()
    assert names and sorted(evidence) == sorted(names)
    for result in evidence.values():
        assert all(largest >= 7.9 * least for least, largest in result["measured"].values())
        assert set(result["entries"]) == set(ENTRIES)
        assert set(result["measured"]) == set(vars(parametrization.Shape(width=8, vocab=8)))
        for row in result["entries"].values():
            parametrization.table(row["rule"], width=64, vocab=256)
            for name in ("mean", "worst"):
                if row[f"{name}_gap"] is not None:  # None: runs diverged
                    low, high = row[f"{name}_gap_interval"]
                    assert low <= row[f"{name}_gap"] <= high and row["mean_gap"] <= row["worst_gap"]
                    assert row["worst_gap"] == max(row["gaps"].values())


@pytest.mark.slow
def test_other_records_give_other_evidence():
    """Negative control for staleness."""
    kept = [each for each in committed.committed() if each.experiment.name == "token_frequencies"]
    path = committed.COMMITTED / lvp.parametrization.evidence.FILE.name
    assert kept and committed.texts(kept)[path] != path.read_text()


def test_entries_are_ranked_by_mean_gap():
    gaps = {"a": None, "b": 0.2, "c": -0.1, "d": None}
    ranked = lvp.parametrization.evidence.ranked({"entries": {name: {"mean_gap": gap} for name, gap in gaps.items()}})
    assert [name for name, _ in ranked] == ["c", "b", "a", "d"]
