"""The packaged evidence has all entries of the committed results (`test_results` checks that it is not stale)."""

import pytest

import lvp.parametrization.evidence
from experiments.common.transferred_entries import ENTRIES
from lvp import parametrization
from sweeps.reporting import results


def test_evidence_covers_every_entry_of_every_committed_result():
    committed = [each.folder.name for each in results.committed() if each.experiment.name == "leaderboard"]
    evidence = lvp.parametrization.evidence.transfer()
    assert committed and sorted(evidence) == sorted(committed)
    for result in evidence.values():
        assert all(largest >= 7.9 * least for least, largest in result["measured"].values())
        assert set(result["entries"]) == set(ENTRIES)
        assert set(result["measured"]) == set(vars(parametrization.Shape(width=8, vocab=8)))
        for row in result["entries"].values():
            parametrization.table(row["rule"], width=64, vocab=256)
            for name in ("mean", "worst"):
                if row[f"{name}_gap"] is not None:  # None: lanes diverged
                    low, high = row[f"{name}_gap_interval"]
                    assert low <= row[f"{name}_gap"] <= high and row["mean_gap"] <= row["worst_gap"]
                    assert row["worst_gap"] == max(row["gaps"].values())


@pytest.mark.slow
def test_other_records_give_other_evidence():
    """Negative control for staleness."""
    kept = [each for each in results.committed() if each.experiment.name == "token_frequencies"]
    assert kept and results.report(kept)[results.EVIDENCE] != results.EVIDENCE.read_text()


def test_entries_are_ranked_by_mean_gap_and_diverged_ones_are_last():
    gaps = {"a": None, "b": 0.2, "c": -0.1, "d": None}
    ranked = lvp.parametrization.evidence.ranked({"entries": {name: {"mean_gap": gap} for name, gap in gaps.items()}})
    assert [name for name, _ in ranked] == ["c", "b", "a", "d"]
