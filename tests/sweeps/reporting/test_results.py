"""Published results contain no paths of this machine, and README and docs agree with the records."""

import re
import shutil

import pytest

from lvp.errors import InputError
from lvp.training import records
from sweeps.reporting import results


def test_readme_and_docs_agree_with_the_committed_records():
    report = results.report(results.committed())
    assert {results.README, results.REPORT, results.GALLERY, results.EVIDENCE} <= set(report)
    for path, text in report.items():
        assert path.read_text() == text, f"{path.name} is stale: run `python -m sweeps report`"
        # A marker that no result fills would stay unnoticed.
        filled = re.findall(r"<!-- results \S+ -->\n(.*?)<!-- end -->", text, flags=re.DOTALL)
        assert len(filled) == text.count("<!-- results ") and all(filled)


def test_every_committed_result_is_complete_and_has_a_figure():
    committed = results.committed()
    assert committed
    for result in committed:
        assert (result.folder / "figure.png").exists() and (result.folder / "figure.svg").exists()
        assert {r["sweep"] for r in result.rows} == {result.sweep["sweep"], *result.sweep.get("reused", [])}
        assert {r["tier"] for r in result.rows} == {result.sweep["tier"]}


def test_a_committed_result_by_name():
    result = results.result("mean_embedding/laptop-wikitext2")
    assert result.name == "mean_embedding/laptop-wikitext2" and len(result.table) == len(result.rows)
    assert result.summary() in results.REPORT.read_text()
    assert result.figure().get_axes() and {claim.corpus for claim in result.claims()} == {"wikitext2"}
    with pytest.raises(InputError, match="did you mean mean_embedding/laptop-wikitext2"):
        results.result("mean_embedding/laptop-wikitext")


def test_a_published_result_has_no_paths_of_the_machine(finished, monkeypatch, tmp_path):
    monkeypatch.setattr(results, "COMMITTED", tmp_path)
    folder = results.publish(finished[0])
    assert folder == tmp_path / "width_vocab" / "smoke-python-docs"
    text = (folder / "sweep.json").read_text() + records.content(folder / results.RECORDS).decode()
    assert str(finished[0]) not in text and "/root" not in text and "/home" not in text and ".npy" not in text
    assert len(records.read(folder / results.RECORDS)) == 12
    (committed,) = results.committed()
    assert committed.sweep["experiment"] == "width_vocab"
    assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", committed.sweep["date"])


def test_a_suffix_keeps_results_apart(finished, monkeypatch, tmp_path):
    monkeypatch.setattr(results, "COMMITTED", tmp_path)
    folders = [results.publish(finished[0]), results.publish(finished[0], "other")]
    assert [folder.name for folder in folders] == ["smoke-python-docs", "smoke-python-docs-other"]
    assert [result.name for result in results.committed()] == [f"width_vocab/{folder.name}" for folder in folders]
    with pytest.raises(InputError, match="suffix='../x' must have only letters and digits"):
        results.publish(finished[0], "../x")


def test_an_unfinished_sweep_is_not_published(finished, tmp_path):
    shutil.copytree(finished[0], tmp_path / "out")
    next((tmp_path / "out" / "records").iterdir()).unlink()
    with pytest.raises(InputError, match="11 of 12"):
        results.publish(tmp_path / "out")


def test_the_machine_is_that_of_the_records_and_not_that_of_publish():
    rows = [{"provenance": {"machine": f"{name}: avx", "device": "cpu"}} for name in ("Epyc", "Xeon", "Epyc")]
    older = [{"provenance": {"device": "cpu"}}]
    assert results._machine(rows + older, {"platform": "cpu", "workers": 3, "threads": 2}) == "6 cores, Epyc, Xeon"
    rows = [{"provenance": {"machine": "Epyc: avx", "device": "NVIDIA H100"}}]
    assert results._machine(rows, {"platform": "gpu", "workers": 3, "threads": 1}) == "NVIDIA H100, Epyc"
