"""`publish` and `report`, killed before every fsync, rename and unlink of their own."""

import contextlib

import pytest

from lvp.analysis import figure_style
from lvp.errors import InputError
from lvp.sweeps import committed
from lvp.sweeps.report import Report
from tests.faults import kill_points
from tests.faults.ledger import record

MADE = ("docs/claims.md", "docs/gallery.md", "results/evidence.json")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A directory in place of the repository: its results, README, docs and evidence."""
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    for name, path in {"COMMITTED": "results", "README": "README.md"}.items():
        monkeypatch.setattr(committed, name, root / path)
    committed.README.write_text("<!-- results status -->\n<!-- end -->\n")
    for name in ("claims", "gallery"):
        (root / "docs" / f"{name}.md").write_text(f"<!-- results {name} -->\n<!-- end -->\n")
    return root


@pytest.fixture(scope="module")
def finished():
    """The arguments of `publish` for a finished sweep."""
    done = committed.result("width_vocab/laptop-python-docs-normalized")
    return {**done.sweep, "hash": done.sweep["sweep"]}, done.rows


def files(folder):
    """Path → content, without what a killed writer left."""
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".tmp"}


def restore(folder, content):
    for path in files(folder):
        path.unlink()
    for path, data in content.items():
        path.write_bytes(data)


@pytest.mark.slow
def test_a_killed_publication_is_old_or_new_or_refused(finished, repository, monkeypatch):
    folder = committed.publish(*finished)
    newer = files(folder)
    committed.publish(finished[0], finished[1][1:])
    older = files(folder)

    with kill_points.in_this_process(monkeypatch, folder) as points:
        committed.publish(*finished)
    seen = set()
    for at in range(1, len(points) + 1):
        restore(folder, older)
        with kill_points.in_this_process(monkeypatch, folder, at) as reached:
            committed.publish(*finished)
        assert len(reached) >= at
        state = "older" if files(folder) == older else "newer" if files(folder) == newer else "refused"
        seen.add(state)
        expected = pytest.raises(InputError, match="publish DIR") if state == "refused" else contextlib.nullcontext()
        with expected:
            committed.committed()
        committed.publish(*finished)
        assert files(folder) == newer
    record("publish is killed at a fsync, rename or unlink", len(points), lost=0, repeated=0, wrong=0)
    assert len(points) >= 6 and seen == {"older", "newer", "refused"}


@pytest.mark.slow
def test_a_report_that_is_killed_is_written_whole_by_the_next(finished, repository, monkeypatch):
    for name, value in {"summary": "s", "claims": [], "figure": lambda _: figure_style.sheet([], title="t")}.items():
        monkeypatch.setattr(Report, name, value)  # quickly drawn
    folder = committed.publish(*finished)
    published = files(repository)
    with kill_points.in_this_process(monkeypatch, repository) as points:
        committed.write_report()
    whole = files(repository)
    assert {folder / "figure.png", *(repository / path for path in MADE)} <= whole.keys()
    for at in range(1, len(points) + 1):
        restore(repository, published)
        with kill_points.in_this_process(monkeypatch, repository, at) as reached:
            committed.write_report()
        assert len(reached) >= at
        committed.write_report()
        assert files(repository) == whole
    record("report is killed at a fsync, rename or unlink", len(points), lost=0, repeated=0, wrong=0)
    assert len(points) > 15
