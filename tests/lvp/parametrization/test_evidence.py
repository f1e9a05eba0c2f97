"""The packaged evidence equals the committed results (`test_results` checks that it is not stale)."""

import lvp.parametrization.evidence
from lvp import parametrization
from sweeps.reporting import results


def test_evidence_covers_every_rule_of_every_committed_result():
    committed = [folder.name for folder, sweep, _ in results.committed() if sweep["experiment"] == "regimes"]
    evidence = lvp.parametrization.evidence.transfer()
    assert committed and sorted(evidence) == sorted(committed)
    for result in evidence.values():
        assert max(result["widths"]) >= 4 * min(result["widths"])
        assert max(result["vocabs"]) >= 16 * min(result["vocabs"])
        for rule, row in result["rules"].items():
            parametrization.table(rule, width=64, vocab=256)
            assert {f"{name}_gap" for name in ("tuned", "mean", "worst")} <= set(row)
            for name in ("mean", "worst"):
                if row[f"{name}_gap"] is not None:  # None: the rule diverged
                    low, high = row[f"{name}_gap_interval"]
                    assert low <= row[f"{name}_gap"] <= high and row["mean_gap"] <= row["worst_gap"]


def test_other_records_give_other_evidence(monkeypatch):
    """Negative control for staleness."""
    kept = [c for c in results.committed() if c[1]["experiment"] == "token_frequencies"]
    monkeypatch.setattr(results, "committed", lambda: kept)
    assert kept and results.report()[results.EVIDENCE] != results.EVIDENCE.read_text()
