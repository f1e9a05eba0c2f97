"""`publish` and `report`, killed before every fsync, rename and unlink of their own."""

import contextlib

import pytest

from lvp.errors import InputError
from lvp.files import write_whole
from lvp.training import records
from sweeps.reporting import results
from tests.faults import kill_points
from tests.faults.ledger import record


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A directory in place of the repository: its results, README, docs and evidence."""
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    names = {"COMMITTED": "results", "README": "README.md", "EVIDENCE": "evidence.json"}
    names |= {"REPORT": "docs/claims.md", "GALLERY": "docs/gallery.md"}
    for name, path in names.items():
        monkeypatch.setattr(results, name, root / path)
    results.README.write_text("<!-- results status -->\n<!-- end -->\n")
    return root


def files(folder):
    """Path → content, without what a killed writer left."""
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".tmp"}


def restore(folder, content):
    for path in files(folder):
        path.unlink()
    for path, data in content.items():
        path.write_bytes(data)


def test_a_publication_that_is_killed_is_the_older_or_the_newer_result_or_refused(finished, repository, monkeypatch):
    folder = results.publish(finished[0])
    newer = files(folder)
    published = results._read(folder)
    records.write(folder / results.RECORDS, published.rows[1:])
    unsigned = {k: v for k, v in published.sweep.items() if k not in ("digest", "records_sha256")}
    signed = results._with_digests(unsigned, records.content(folder / results.RECORDS))
    write_whole(folder / results.DESCRIPTION, records.dumps(signed))
    older = files(folder)

    with kill_points.in_this_process(monkeypatch, folder) as points:
        results.publish(finished[0])
    seen = set()
    for at in range(1, len(points) + 1):
        restore(folder, older)
        with kill_points.in_this_process(monkeypatch, folder, at) as reached:
            results.publish(finished[0])
        assert len(reached) >= at
        state = "older" if files(folder) == older else "newer" if files(folder) == newer else "refused"
        seen.add(state)
        expected = pytest.raises(InputError, match="publish DIR") if state == "refused" else contextlib.nullcontext()
        with expected:
            results.committed()
        results.publish(finished[0])
        assert files(folder) == newer
    record("publish is killed at a fsync, rename or unlink", len(points), lost=0, repeated=0, wrong=0)
    assert len(points) >= 6 and seen == {"older", "newer", "refused"}


@pytest.mark.slow
def test_a_report_that_is_killed_is_written_whole_by_the_next(finished, repository, monkeypatch):
    folder = results.publish(finished[0])
    published = files(repository)
    with kill_points.in_this_process(monkeypatch, repository) as points:
        results.write_report()
    whole = files(repository)
    assert {folder / "figure.png", results.REPORT, results.GALLERY, results.EVIDENCE} <= whole.keys()
    for at in range(1, len(points) + 1):
        restore(repository, published)
        with kill_points.in_this_process(monkeypatch, repository, at) as reached:
            results.write_report()
        assert len(reached) >= at
        results.write_report()
        assert files(repository) == whole
    record("report is killed at a fsync, rename or unlink", len(points), lost=0, repeated=0, wrong=0)
    assert len(points) > 15
