"""A sweep's files, the text at the end of a command, and the page say what the experiment reads in the records."""

import base64
import dataclasses
import html
import io
import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from lvp.analysis import claims as claims_of
from lvp.analysis import figure_style
from lvp.sweeps import committed
from lvp.sweeps.report import Report

FIGURES = {"figure.png", "figure.svg"}
HOSTILE = "<script>alert('&')</script>"


def a_claim(context, verdict="supported", **fields):
    reason = "two seeds" if verdict == claims_of.NOT_TESTED else ""
    given = {
        "statement": "it falls",
        "source": "figure 3",
        "paper_value": None,
        "value": -0.5,
        "interval": (-0.6, -0.4),
    }
    return claims_of.Claim(**(given | fields), verdict=verdict, reason=reason, **context)


def some_claims(table, config, context):
    unmeasured = a_claim(context, "unresolved", value=None, variant="large")
    return [a_claim(context, claims_of.NOT_TESTED, statement="it rises"), unmeasured, a_claim(context, variant="small")]


@pytest.fixture(scope="module")
def sweep():
    """The arguments of `Report` for a finished sweep with real records. Its figure is quickly drawn."""
    done = committed.result("width_vocab/laptop-python-docs-normalized")
    experiment = dataclasses.replace(
        done.experiment,
        summary=lambda table, config: f"the loss is {table.train_loss.min():.3f}",
        figure=lambda table, config, **origin: figure_style.sheet([], title="losses", **origin),
        claims=some_claims,
    )
    return experiment, done.config, done.preset, done.rows, len(done.rows)


@pytest.fixture(scope="module")
def drawn(sweep):
    return Report(*sweep).files()


class Tables(HTMLParser):
    """The tags of a page and the texts of its table cells, row by row."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self.in_cell = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "br":
            self.rows[-1][-1] += claims_of.LINE
            return
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self.in_cell = tag in ("td", "th")

    def handle_endtag(self, tag):
        self.in_cell = False

    def handle_data(self, data):
        if self.in_cell:
            self.rows[-1][-1] += data


def changed(sweep, **functions):
    """The sweep with other functions of the experiment."""
    return dataclasses.replace(sweep[0], **functions), *sweep[1:]


def failing(*_, **__):
    return 1 / 0


def test_the_files_and_the_text_at_the_end_of_a_command(sweep, drawn):
    files, text, errors = drawn
    assert files.keys() == {"table.csv", "claims.md", *FIGURES} and errors == []
    assert text.splitlines() == [
        f"the loss is {min(row['outcome']['train_loss'] for row in sweep[3]):.3f}",
        "unresolved: it falls (large): –",  # the first claim is not tested here
    ]
    table = pd.read_csv(io.BytesIO(files["table.csv"]))
    assert sorted(table["hash"]) == sorted(row["hash"] for row in sweep[3])
    claims = files["claims.md"].decode()
    assert "| it rises | figure 3 | – | −0.50 [−0.60, −0.40] | – | not tested here |" in claims
    assert "large: –, unresolved<br>small: −0.50 [−0.60, −0.40], supported | – | supported in part |" in claims
    assert "1. `width_vocab`: two seeds." in claims


def test_a_claim_that_is_not_tested_is_in_the_file_only(sweep):
    untested = changed(sweep, claims=lambda table, config, context: [a_claim(context, claims_of.NOT_TESTED)])
    files, text, _ = Report(*untested).files()
    assert len(text.splitlines()) == 1 and "not tested here |" in files["claims.md"].decode()
    files, text, _ = Report(*changed(sweep, claims=lambda *_: [])).files()
    assert "claims.md" not in files and len(text.splitlines()) == 1


def test_a_sweep_with_missing_runs_is_marked(sweep, drawn):
    experiment, config, preset, rows, planned = sweep
    files, text, _ = Report(experiment, config, preset, rows[1:], planned).files()
    assert f"\nPARTIAL: {planned - 1} of {planned} runs have a record\n" in text
    mark = f"<!-- PARTIAL: {planned - 1} of {planned} "
    assert mark in files["figure.svg"].decode() and "PARTIAL" not in drawn[0]["figure.svg"].decode() + drawn[1]
    assert (
        f"{planned - 1} of {planned} runs have a record."
        in Report(experiment, config, preset, rows[1:], planned).page()
    )
    assert Report(experiment, config, preset, [], planned).files() == ({}, "no run has a record: nothing to draw", [])
    assert "0 of 3 runs have a record." in Report(experiment, config, preset, [], 3).page()


@pytest.mark.parametrize("name, lost", [("figure", FIGURES), ("summary", set()), ("claims", {"claims.md"})])
def test_an_error_of_the_experiment_keeps_the_other_files(sweep, name, lost):
    files, _, (line,) = Report(*changed(sweep, **{name: failing})).files()
    assert files.keys() == {"table.csv", "claims.md", *FIGURES} - lost
    assert re.fullmatch(rf"no {name}: ZeroDivisionError: division by zero \({re.escape(__file__)}:\d+\)", line)


def test_an_error_of_the_experiment_is_on_the_page(sweep):
    text = Report(*changed(sweep, figure=failing)).page()
    assert "<p>no figure: ZeroDivisionError" in text and "<h2>Runs</h2>\n<table" in text


def test_the_page_has_the_claims_and_the_numbers_of_the_records(sweep):
    report = Report(*sweep)
    text = Report(*sweep).page()
    rows = Tables(text).rows
    head, claims = claims_of.cells(claims_of.findings({"": report.claims}))
    assert rows[: len(claims) + 1] == [head, *claims]
    names, *runs = rows[len(claims) + 1 :]
    table = report.table.set_index("hash")
    assert {"hash", "status", "train_loss", "run.seed"} <= set(names) and not {"commit", "seconds"} & set(names)
    assert {row[0] for row in runs} == set(table.index) and len(runs) == len(table)
    for run in runs:
        shown = dict(zip(names, run, strict=True))
        assert shown["train_loss"] == f"{table.loc[shown['hash'], 'train_loss']:.6g}"


def loaded(text):
    """What a page would load or run."""
    pictures = [base64.b64decode(data).decode() for data in re.findall(r'src="data:[^,]*,([^"]*)"', text)]
    outside = re.findall(r'(?:src|href)="(?!#|data:)[^"]*"|url\((?!#)[^)]*\)|@import|<script|<link|<iframe', text)
    return outside + [found for svg in pictures for found in re.findall(r'href="(?!#|data:)|url\((?!#)|<script', svg)]


def test_the_page_loads_nothing(sweep):
    text = Report(*sweep).page()
    assert loaded(text) == [] and Tables(text).tags.count("img") == 1
    for added in ('<img src="https://a.b/c.png">', "<script>", "<style>@import 'a.css'"):  # controls
        assert loaded(text + added)


def test_texts_are_escaped(sweep):
    """Of the experiment, the configuration, the records and the claims."""
    experiment, config, _, rows, planned = changed(
        sweep,
        name=HOSTILE,
        question=HOSTILE,
        claims=lambda table, config, context: [a_claim(context, statement=HOSTILE)],
        figure=lambda *_, **__: [][HOSTILE],
    )
    config = dataclasses.replace(config, corpus=HOSTILE)
    first = {**rows[0], "hash": HOSTILE, "outcome": {**rows[0]["outcome"], "status": HOSTILE, HOSTILE: 1.0}}
    text = Report(experiment, config, HOSTILE, [first, *rows[1:]], planned).page()
    assert "<script" not in text.lower()
    settings = sum(Tables(text).rows, [])
    assert settings.count(HOSTILE) >= 4  # hash, status, the name of a number and the claim
    assert text.count(html.escape(HOSTILE)) >= 3  # title and question


def test_the_figure_says_what_was_found_and_does_not_need_the_claims(sweep):
    experiment, *rest = sweep

    def title(**changes):
        return Report(dataclasses.replace(experiment, **changes), *rest).figure().get_suptitle().splitlines()

    first, second, *_ = title()
    assert (first, second) == ("Unresolved: it falls", "losses") or first.startswith("Supported in part: it falls (")
    assert title(headline=False)[0] == "losses"

    def broken(table, config, context):
        raise ValueError("no claims")

    assert title(claims=broken)[0] == "losses"
