"""The gallery shows every committed figure with a command that gives its exact configuration. test_results.py compares
the page with the records."""

import dataclasses
import json
import re
import shlex

import pytest

import experiments
from lvp.analysis.claims import Claim
from lvp.cli.parser import setting
from lvp.parametrization import evidence, published
from sweeps.__main__ import parser
from sweeps.reporting import front_page, gallery, results

SWEEPS = {path.parent: json.loads(path.read_text()) for path in sorted(results.COMMITTED.glob("*/*/sweep.json"))}
PAGE = results.GALLERY.read_text()


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=[f"{f.parent.name}/{f.name}" for f in SWEEPS])
def test_the_command_gives_the_configuration(sweep):
    command = gallery.command(sweep)
    assert f"```sh\n{command}\n```" in PAGE
    arguments = parser().parse_args(shlex.split(command)[3:])
    values = dict(setting(s) for s in arguments.set) | ({"corpus": arguments.corpus} if arguments.corpus else {})
    config = experiments.configured(arguments.experiment, arguments.tier, values)
    experiment = experiments.load(sweep["experiment"])
    assert config == experiments.restored(experiment, sweep["tier"], sweep["config"])


def test_changed_values_are_in_the_command():
    sweep = SWEEPS[results.COMMITTED / "width_vocab" / "laptop-wikitext2"]
    changed = sweep | {"config": sweep["config"] | {"widths": [32, 64], "head_dim": 8}}
    assert gallery.command(changed).endswith(" --corpus wikitext2 --set head_dim=8 widths=32,64 normalized_rates=")


def test_every_committed_figure_is_shown_once_as_bitmap_and_as_vectors():
    for folder in SWEEPS:
        place = f"../experiments/results/{folder.parent.name}/{folder.name}"
        for name in ("figure.png", "figure.svg", "records.jsonl.gz"):
            assert PAGE.count(f"{place}/{name}") == 1


def test_every_experiment_names_its_figures_and_the_undrawn_figures():
    for name in experiments.NAMES:
        e = experiments.load(name)
        assert bool(e.paper) == bool(e.answers) and not set(e.answers) & set(e.undrawn)
        for what, why in e.undrawn.items():
            assert f"{e.paper}, {what} (`{name}`): {why}" in PAGE.split("## Not drawn")[1]


def record(commit, **changes):
    source = {"commit": commit, "device": "cpu", "platform": "cpu", "threads": 1, "pack": 1, "seconds": 60.0}
    return {"config": {"cell": {}}, "provenance": source | changes}


def shown(**changes):
    experiment = experiments.load("width_vocab")
    folder = results.COMMITTED / "width_vocab" / "laptop-wikitext2"
    place = {"experiment": "width_vocab", "tier": "laptop", "corpus": "wikitext2", "commit": "abc"}
    measured = {"paper_value": None, "value": None, "interval": None, "verdict": "unresolved"}
    claims = [Claim(statement="it falls", source="figure 3", **measured, **place)]
    rows = [record("abc")]
    return gallery.Shown(folder, SWEEPS[folder], rows, experiment, claims)._replace(**changes)


def test_the_page_depends_on_records_claims_and_committed_results():
    place = results.GALLERY.parent
    before = gallery.page([shown()], place)
    assert "**unresolved**: it falls" in before and "commit abc, on cpu" in before
    missing = re.findall(r"^- .*, figure 5 \(`(\w+)`\): no result is committed$", before, re.MULTILINE)
    assert sorted(missing) == ["pretrain_1b", "warmup"]
    other = dataclasses.replace(shown().claims[0], verdict="supported")
    for changed in (
        shown(claims=[other]),
        shown(rows=[record("abd")]),
        shown(sweep=shown().sweep | {"date": "2027-01-01"}),
    ):
        assert gallery.page([changed], place) != before


@pytest.mark.parametrize(
    "rows, minutes",
    [
        ([record("abc")] * 3, 3.0),
        ([record("abc", pack=2)] * 2, 1.0),  # both lanes record the time of their pack
        ([record("abc", threads=2)], 2.0),
        ([record("abc", platform="gpu", threads=8)], 1.0),
        ([record("abc", platform="tpu", threads=8, mesh={"data": 2, "model": 2})], 4.0),
    ],
)
def test_the_training_time_counts_every_core_and_accelerator(rows, minutes):
    assert gallery.training_minutes(rows) == minutes


def test_a_sweep_whose_lanes_were_all_taken_from_other_sweeps_has_no_workers():
    reused = shown(sweep=shown().sweep | {"packing": None})
    assert "workers" in gallery.page([shown()], results.GALLERY.parent)
    assert "workers" not in gallery.page([reused], results.GALLERY.parent)
    assert "workers" not in front_page.results_table([reused])


def test_records_of_a_directory_without_git_have_an_unknown_commit():
    unknown = shown(rows=[record(None)])
    assert "commit unknown, on cpu" in gallery.page([unknown], results.GALLERY.parent)


def test_an_experiment_without_a_paper_is_shown():
    ours = dataclasses.replace(shown().experiment, paper="", answers=())
    page = gallery.page([shown(experiment=ours)], results.GALLERY.parent)
    assert "## Without a paper\n\n### width_vocab, tier laptop" in page


@pytest.mark.parametrize(
    "words, says",
    [
        (["figure 3"], "figure 3"),
        (["figure 1", "figure 2", "figure 5"], "figures 1, 2 and 5"),
        (["figure 2", "lemma 1", "theorem 2"], "figure 2, lemma 1, theorem 2"),
        (["toy figure", "table of appendix A"], "toy figure, table of appendix A"),
    ],
)
def test_words_are_listed(words, says):
    assert gallery.listed(words) == says


def test_every_published_rate_has_a_row_with_our_number_or_a_reason():
    ours = {"ratio": "OUR RATIO", "width": "OUR POWER", "sp": "OUR SP"}
    head, _, *rows = front_page.published_rates(ours).splitlines()
    assert len(rows) == len(published.TUNED) + len(published.POWER_LAWS) + len(published.SWEEPS)
    assert {row.count(" | ") for row in (head, *rows)} == {3}
    by_number = {number: [row.strip("| ").split(" | ")[-1] for row in rows if number in row] for number in NUMBERS}
    assert by_number == {
        "0.91 √d": ["OUR RATIO"],
        "d^−1 ": ["OUR POWER"] * 2,
        "d^−0.5 ": ["OUR POWER"] * 2,
        "d^−1.00": ["OUR SP"],
        "d^0.20": ["no result"],
        "tokens^": ["not comparable: mixture of experts"] * 2,
        "| – |": ["not comparable: Muon trains the hidden matrices"],
    }


NUMBERS = ("0.91 √d", "d^−1 ", "d^−0.5 ", "d^−1.00", "d^0.20", "tokens^", "| – |")


def test_a_star_in_the_table_of_transfer_is_explained():
    (result,) = evidence.transfer().values()
    edges = [next(iter(result["entries"]["LVP"]["gaps"]))]
    assert "A better value may exist" in front_page.transfer({**result, "references_at_edge": edges})
    entries = {name: {**row, "constant_at_edge": False} for name, row in result["entries"].items()}
    assert "*" not in front_page.transfer({**result, "references_at_edge": [], "entries": entries})
