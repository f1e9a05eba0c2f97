"""Committed results: their format, what is made from them, and that README, docs and figures agree with the records."""

import dataclasses
import json
import re
import shlex

import pytest

from lvp import experiments
from lvp.analysis import figure_style
from lvp.analysis.claims import Claim
from lvp.cli.parser import key_value
from lvp.errors import InputError
from lvp.parametrization import evidence
from lvp.sweeps import committed
from lvp.sweeps.__main__ import parser
from lvp.sweeps.sweep import corpus_name
from lvp.training import records

SWEEPS = {path.parent: json.loads(path.read_text()) for path in sorted(committed.COMMITTED.glob("*/*/sweep.json"))}
DOCS = committed.README.parent / "docs"
GALLERY = (DOCS / "gallery.md").read_text()
REPUBLISHED = "width_vocab/laptop-wikitext2-adaptive"  # published in the present format


@pytest.fixture(scope="module")
def results():
    """All committed results by name. Reading them checks the digests of all records, which takes seconds."""
    return {each.name: each for each in committed.committed()}


def test_readme_docs_and_evidence_agree_with_the_records(results):
    texts = committed.texts(list(results.values()))
    made = {committed.README, DOCS / "claims.md", DOCS / "gallery.md", committed.COMMITTED / evidence.FILE.name}
    assert made <= set(texts)
    for path, text in texts.items():
        assert path.read_text() == text, f"{path.name} is stale: run `python -m lvp.sweeps report`"
        # A marker that no result fills would stay unnoticed.
        filled = re.findall(r"<!-- results \S+ -->\n(.*?)<!-- end -->", text, flags=re.DOTALL)
        assert len(filled) == text.count("<!-- results ") and all(filled)


def test_every_summary_is_on_one_page(results):
    pages = [path.read_text() for path in DOCS.glob("*.md")]
    for each in results.values():
        assert sum(each.summary in page for page in pages) == 1, each.name


def test_every_committed_result_is_complete_and_has_a_figure(results):
    assert [each.folder for each in results.values()] == list(SWEEPS)
    for each in results.values():
        assert (each.folder / "figure.png").exists() and (each.folder / "figure.svg").exists()
        others = {r["sweep"] for r in each.rows} - {each.sweep["sweep"]}  # all records may be of other sweeps
        assert others == set(each.sweep.get("reused", []))
        own = {r["tier"] for r in each.rows if r["sweep"] == each.sweep["sweep"]}
        assert own <= {each.sweep["tier"]}  # a reused record keeps the preset of its own sweep


# Results whose configurations had other fields or other roundings when their runs were named.
OLDER = {
    *("feature_learning/laptop-wikitext2", "feature_learning/laptop-zipf"),
    *("token_frequencies/laptop-python-docs", "token_frequencies/laptop-wikitext2"),
    *("width_vocab/laptop-python-docs", "width_vocab/laptop-wikitext2"),
}
NAMES = [f"{folder.parent.name}/{folder.name}" for folder in SWEEPS]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OLDER])
def test_the_code_names_committed_runs_as_their_records_do(name, results):
    """A run is found again by the hash of its configuration, so no key and no value of it may change."""
    result = results[name]
    named = {records.config_hash(row["config"]): row["hash"] for row in result.rows}
    assert all(hash_ == recorded for hash_, recorded in named.items())
    cells = [(row["config"]["cell"], row["config"]["data"]) for row in result.rows]
    data = {json.dumps(cell, sort_keys=True): of_cell for cell, of_cell in cells}
    steps = {json.dumps({**cell, "steps": None}, sort_keys=True): cell.get("steps") for cell, _ in cells}
    found = 0
    for each in result.experiment.settings(result.config):
        setting = records.configuration(each.setting)
        for text in ("corpus", "scored"):
            if (setting.get("data") or {}).get(text):
                setting["data"][text] = corpus_name(setting["data"][text])
        setting = json.loads(records.dumps(setting))
        if each.epochs is not None:  # the steps follow from the data
            setting["steps"] = steps.get(json.dumps({**setting, "steps": None}, sort_keys=True))
        key = json.dumps(setting, sort_keys=True)
        assert key in data, each.label
        configs = [{"cell": setting, "lane": records.configuration(run), "data": data[key]} for run in each.runs]
        missing = {records.config_hash(config) for config in configs} - named.keys()
        assert not missing, (each.label, len(missing))
        found += len(configs)
    assert found


@pytest.mark.slow
def test_committed_figures_redraw_unchanged(results):
    """`tests/lvp/analysis/test_noisy_figures.py` has the negative controls of `same_picture`."""
    for each in results.values():
        assert figure_style.same_picture(each.figure(), each.folder / "figure"), each.name


def test_a_committed_result_by_name():
    result = committed.result("linear_network/laptop-zipf")
    assert result.name == "linear_network/laptop-zipf" and len(result.table) == len(result.rows)
    assert result.figure().get_axes() and {claim.corpus for claim in result.claims} == {"zipf"}
    with pytest.raises(InputError, match="did you mean linear_network/laptop-zipf"):
        committed.result("linear_network/laptop-zip")


@pytest.fixture
def finished(results, monkeypatch, tmp_path):
    """The arguments of `publish` for a committed result. It writes into a temporary directory."""
    done = results[REPUBLISHED]
    monkeypatch.setattr(committed, "COMMITTED", tmp_path)
    return {**done.sweep, "hash": done.sweep["sweep"]}, done.rows


def test_a_result_that_is_published_again_has_the_same_bytes(finished, tmp_path):
    folder = committed.publish(*finished, "adaptive")
    assert folder == tmp_path / REPUBLISHED
    (original,) = [path for path in SWEEPS if f"{path.parent.name}/{path.name}" == REPUBLISHED]
    assert (folder / "sweep.json").read_bytes() == (original / "sweep.json").read_bytes()
    assert records.content(folder / committed.RECORDS) == records.content(original / committed.RECORDS)


def test_a_published_result_has_no_paths_and_no_other_keys(finished):
    sweep, rows = finished
    datasets = {label: data | {"tokens": "/home/a/x.npy"} for label, data in sweep["datasets"].items()}
    config = sweep["config"] | {"corpus": "wikitext2:/home/a/text"}
    content = sweep | {"datasets": datasets, "config": config, "out": "/home/a", "environment": {"HF_TOKEN": "secret"}}
    plain, folder = committed.publish(sweep, rows), committed.publish(content, rows, "other")
    assert (folder / "sweep.json").read_text() == (plain / "sweep.json").read_text()
    assert [result.name for result in committed.committed()] == [f"width_vocab/{x.name}" for x in (plain, folder)]


def test_what_is_not_published(finished):
    sweep, rows = finished
    with pytest.raises(InputError, match="suffix='../x' must have only letters and digits"):
        committed.publish(sweep, rows, "../x")
    assert committed.committed() == []


def test_a_changed_file_of_a_result_is_refused(finished):
    folder = committed.publish(*finished)
    description = folder / "sweep.json"
    description.write_text(description.read_text().replace('"steps": ', '"steps": 1'))
    with pytest.raises(InputError, match="sweep.json does not match its digest.*publish DIR"):
        committed.committed()
    committed.publish(*finished)
    records.write(folder / committed.RECORDS, finished[1][1:])
    with pytest.raises(InputError, match="records.jsonl.gz does not match its digest"):
        committed.committed()


def test_the_machine_is_that_of_the_records():
    rows = [{"provenance": {"machine": f"{name}: avx", "device": "cpu"}} for name in ("Epyc", "Xeon", "Epyc")]
    older = [{"provenance": {"device": "cpu"}}]
    assert committed.machine(rows + older, {"platform": "cpu", "workers": 3, "threads": 2}) == "6 cores, Epyc, Xeon"
    rows = [{"provenance": {"machine": "Epyc: avx", "device": "NVIDIA H100"}}]
    assert committed.machine(rows, {"platform": "gpu", "workers": 3, "threads": 1}) == "NVIDIA H100, Epyc"


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=[f"{f.parent.name}/{f.name}" for f in SWEEPS])
def test_the_command_of_the_gallery_gives_the_configuration(sweep):
    command = committed.command(sweep)
    assert f"```sh\n{command}\n```" in GALLERY
    arguments = parser().parse_args(shlex.split(command)[3:])
    values = dict(key_value(s) for s in arguments.set) | ({"corpus": arguments.corpus} if arguments.corpus else {})
    config = experiments.configured(arguments.experiment, arguments.preset, values)
    experiment = experiments.load(sweep["experiment"])
    assert config == experiments.restored(experiment, sweep["tier"], sweep["config"])


def test_every_committed_figure_is_shown_once():
    for folder in SWEEPS:
        place = f"../experiments/results/{folder.parent.name}/{folder.name}"
        for name in ("figure.png", "figure.svg", "records.jsonl.gz"):
            assert GALLERY.count(f"{place}/{name}") == 1


def test_every_experiment_names_its_figures():
    for name in experiments.NAMES:
        e = experiments.load(name)
        assert bool(e.paper) == bool(e.answers) and not set(e.answers) & set(e.undrawn)
        for what, why in e.undrawn.items():
            assert f"{e.paper}, {what} (`{name}`): {why}" in GALLERY.split("## Not drawn")[1]


def record(commit, **changes):
    source = {"commit": commit, "device": "cpu", "platform": "cpu", "threads": 1, "pack": 1, "seconds": 60.0}
    return {"hash": "h", "config": {"cell": {}}, "outcome": {}, "provenance": source | changes}


@pytest.fixture
def shown(results):
    """shown(claim, **changes) is a result with one record and one claim."""
    one = dataclasses.replace(results["width_vocab/laptop-wikitext2"], rows=[record("abc")])
    place = {"experiment": "width_vocab", "preset": "laptop", "corpus": "wikitext2", "commit": "abc"}

    def changed(claim="unresolved", **changes):
        measured = {"paper_value": None, "value": None, "interval": None, "verdict": claim}
        claims = [Claim(statement="it falls", source="figure 3", **measured, **place)]
        experiment = dataclasses.replace(one.experiment, claims=lambda *_: claims)
        return dataclasses.replace(one, **({"experiment": experiment} | changes))

    return changed


def test_the_gallery_depends_on_the_records(shown):
    before = committed.gallery([shown()], DOCS, {})
    assert "**unresolved**: it falls" in before and "commit abc, on cpu" in before
    elsewhere = committed.gallery([shown()], DOCS, {shown().name: "width_vocab.md"})
    assert "[table and verdicts](width_vocab.md)" in elsewhere and "it falls" not in elsewhere
    dated = shown().sweep | {"date": "2027-01-01"}
    for changed in (shown(claim="supported"), shown(rows=[record("abd")]), shown(sweep=dated)):
        assert committed.gallery([changed], DOCS, {}) != before


@pytest.mark.parametrize(
    "rows, minutes",
    [
        ([record("abc")] * 3, 3.0),
        ([record("abc", pack=2)] * 2, 1.0),  # both runs record the time of their pack
        ([record("abc", threads=2)], 2.0),
        ([record("abc", platform="gpu", threads=8)], 1.0),
        ([record("abc", platform="tpu", threads=8, mesh={"data": 2, "model": 2})], 4.0),
    ],
)
def test_the_training_time_counts_every_core_and_accelerator(rows, minutes):
    assert committed.training_minutes(rows) == minutes


def test_of_two_results_of_a_part_the_one_with_more_measured_rows_is_shown():
    def result(date, **counts):
        parts = {name: {"rows": [{"value": 1.0}] * count + [{"failed": "x"}]} for name, count in counts.items()}
        table = "\n\n".join([f"card, {date}\n", *(f"**{name}**: {date}\n\nrows" for name in counts)])
        return {"date": date, "device": {"kind": "card"}, "parts": parts, "table": table}

    first, second = result("2026-01-01", right=3, fast=0), result("2026-01-02", right=2, fast=5)
    for found in ([first, second], [second, first]):
        text = committed._accelerators(found)
        assert "**right**: 2026-01-01" in text and "**fast**: 2026-01-02" in text and text.count("**right**") == 1
    assert committed._accelerators([result("2026-01-01", right=3), result("2026-01-02", right=3)]).count("01-01") == 0


def test_a_memorising_model_has_a_larger_best_rate_for_train_loss_than_for_validation_loss():
    """What docs/embedding_rate.md and docs/accelerators.md say of the unfinished sweep of the H100."""
    table = records.table(records.read(committed.COMMITTED / "unfinished" / "width_vocab.jsonl.gz"))
    best = {}
    for width, of_width in table.groupby("setting.model.width"):
        means = of_width.groupby("run.learning_rates.embedding")[["train_loss", "valid_loss"]].mean()
        best[width] = means["train_loss"].idxmin(), means["valid_loss"].idxmin(), means.index.max()
    assert best.keys() == {512, 1024}
    for by_train, by_valid, largest in best.values():
        assert by_train == largest > by_valid
    assert best[1024][:2] == (0.001, pytest.approx(0.001 / 4))
