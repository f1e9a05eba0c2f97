"""The HTML page needs nothing outside of itself, and its numbers are those of the records."""

import base64
import re
import shutil
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sweeps
from lvp.analysis import claims as claims_of
from sweeps.driver.manifest import Manifest
from sweeps.reporting import page, results
from tests.faults.damage import contents, examples


class Read(HTMLParser):
    """The elements, links, words and tables of a page."""

    VOID = {"meta", "img", "br", "link"}

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.links, self.open, self.words = [], [], [], {}
        self.tables: dict[str, list[list[tuple[str, str | None]]]] = {}  # class → rows of (text, title)
        self.feed(text)
        self.close()
        assert self.open == [], "unclosed elements"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.links += [v for k, v in attributes.items() if k in ("src", "href", "srcset", "data", "action", "poster")]
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.rows = self.tables[attributes["class"]] = []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append(("", attributes.get("title")))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        within = self.open[-1] if self.open else ""
        self.words[within] = self.words.get(within, "") + data
        if within in ("td", "th"):
            text, title = self.rows[-1][-1]
            self.rows[-1][-1] = text + data, title


def outside(text: str) -> list[str]:
    """Returns the links, styles and elements with which a page would load or run something outside of itself."""
    read = Read(text)
    loaded = [link for link in read.links if not link.startswith(("#", "data:"))]
    loaded += re.findall(r"url\((?!#)[^)]*\)|@import.*", read.words.get("style", ""))
    loaded += [tag for tag in read.tags if tag in ("script", "link", "iframe", "object", "embed", "base")]
    for link in read.links:
        if link.startswith("data:"):
            assert link.startswith("data:image/svg+xml;base64,")
            svg = base64.b64decode(link.partition(",")[2]).decode()
            loaded += re.findall(r'href="(?!#|data:)[^"]*"|url\((?!#)[^)]*\)|<script|<foreignObject', svg)
    return loaded


@pytest.fixture(scope="module")
def out(finished):
    return finished[0]


@pytest.fixture(scope="module")
def text(out):
    return results.sweep_page(Manifest.read(out))


def test_the_page_loads_nothing(text):
    assert outside(text) == []
    assert Read(text).tags.count("img") == 2  # the figure and the curves
    for added in ('<img src="https://a.b/c.png">', "<script></script>", '<a href="other.html"></a>'):  # controls
        assert outside(text.replace("</body>", f"{added}</body>"))
    assert outside(text.replace("<style>", "<style>@import 'a.css';"))


def test_numbers_are_those_of_the_table(out, text):
    head, *rows = Read(text).tables["lanes"]
    names, table = [name for name, _ in head], sweeps.table_of(out).set_index("hash")
    assert {"cell.model.width", "lane.learning_rates.embedding", "lane.seed", "train_loss", "status"} <= set(names)
    assert "provenance" not in names and not {"commit", "seconds", "cell.model.layers"} & set(names)
    assert {row[0][0] for row in rows} == set(table.index) and len(rows) == len(table)
    for row in rows:
        for name, (shown, exact) in list(zip(names, row, strict=True))[1:]:
            value = table.loc[row[0][0], name]
            if exact is not None:
                assert float(exact) == value and float(shown) == float(f"{value:.6g}")
            else:
                assert shown == ("–" if value is None or value != value else str(value))


def test_claims_and_summary_are_those_of_the_experiment(out, text):
    manifest, read = Manifest.read(out), Read(text)
    experiment, config = manifest.resolved
    table = sweeps.table_of(out)
    context = results._context(manifest.experiment, manifest.tier, config, manifest.read_records())
    head, claims = claims_of.cells(experiment.claims(table, config, context))
    assert [[cell for cell, _ in row] for row in read.tables["claims"]] == [head, *claims] and claims
    assert read.words["pre"].strip() == experiment.summary(table, config).strip()


@pytest.mark.slow
def test_an_unfinished_sweep_has_a_page(out, tmp_path):
    """Two lanes have no record. One of them has begun."""
    copy = tmp_path / "out"
    shutil.copytree(out, copy)
    begun, waiting = sorted(copy.glob("records/*.jsonl"))[:2]
    for record in (begun, waiting):
        record.unlink()
    (copy / "curves" / f"{waiting.stem}.json").unlink()
    text = results.sweep_page(Manifest.read(copy))
    assert "10 of 12 lanes have a record, and 1 others have begun." in Read(text).words["p"]
    assert len(Read(text).tables["lanes"]) == 11 and outside(text) == []
    for record in copy.glob("records/*.jsonl"):
        record.unlink()
    text = results.sweep_page(Manifest.read(copy))
    assert Read(text).tags.count("img") == 1 and Read(text).tables == {}  # the curves only


def test_curves_are_those_of_the_records(out):
    rows = Manifest.read(out).read_records()
    running = [{"config": rows[0]["config"], "outcome": {"curve_steps": [3, 9], "curve_losses": [5.0, None]}}]
    panels = page.curve_panels(rows[1:], running)
    assert [panel.title for panel in panels] and len(panels) == 2  # two widths
    lines = [line for panel in panels for line in panel.lanes]
    assert sorted((s, x) for _, s, x, dashed in lines if not dashed) == sorted(
        (r["outcome"]["curve_steps"], r["outcome"]["curve_losses"]) for r in rows[1:]
    )
    assert [(s, x) for _, s, x, dashed in lines if dashed] == [([3], [5.0])]
    assert {panel.parameter for panel in panels} == {"lane.learning_rates.embedding"}
    assert page.curve_panels([]) == []


@examples(50)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\0", exclude_categories=["Cs"])), st.floats())
def test_any_text_and_number_survives(words, number):
    section = page.Section(words, words, words, words, (), None, ())
    read = Read(page.page(words, [section, section]))
    assert read.words.get("h1", "") == words and read.words.get("a", "") == 2 * words
    cell = Read(f"<table class='x'><tr>{page._cell(number)}</tr></table>").tables["x"][0][0]
    assert cell == ("–", None) if number != number else float(cell[1]) == number


@pytest.mark.slow
def test_the_command_writes_the_page_of_a_sweep(out, command_here, tmp_path):
    before = contents(out)
    done = command_here("report", out, "--html", tmp_path / "page.html")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'page.html'}\n")
    assert Read((tmp_path / "page.html").read_text()).tables.keys() == {"claims", "lanes"}
    assert contents(out) == before
    done = command_here("report", out)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--html FILE.html" in done.stderr
    done = command_here("report", tmp_path, "--html", tmp_path / "other.html")
    assert done.returncode == 2 and not (tmp_path / "other.html").exists()
    done = command_here("report", out, "--html", tmp_path / "missing" / "page.html")
    assert done.returncode == 1 and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_page_of_the_committed_results(monkeypatch):
    few = [r for r in results.committed() if r.experiment.name in ("width_vocab", "token_frequencies")]
    monkeypatch.setattr(results, "committed", lambda: few)
    text = results.committed_page()
    read = Read(text)
    assert outside(text) == [] and read.tags.count("h2") == len(few) > 1
    assert f"{len(few[0].rows)} lanes" in read.words["p"]
