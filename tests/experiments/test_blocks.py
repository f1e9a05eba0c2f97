"""Blocks of docs that experiments make from their committed results: our numbers stand beside the published ones."""

from types import SimpleNamespace

import pytest

from lvp import experiments
from lvp.experiments.leaderboard.blocks import transfer
from lvp.parametrization import evidence, published
from lvp.sweeps import committed


@pytest.fixture(scope="module")
def made():
    names = ("leaderboard", "rate_transfer", "width_vocab")
    results = {name: committed.result(f"{name}/laptop-wikitext2") for name in names}
    return {
        k: v for name in names for k, v in experiments.load(name).blocks({"laptop-wikitext2": results[name]}).items()
    }


@pytest.mark.parametrize(
    "block, expected",
    [
        ("published-ratios", {"0.91 √d": "4 to 16 √d (d", "| – |": "not comparable: Muon trains the hidden matrices"}),
        ("published-powers", {"d^−1 ": "d^0.17 [", "d^−0.5 ": "d^0.17 [", "tokens^": "not comparable: mixture"}),
        ("published-sweeps", {"d^−1.00": "d^−1.18 [", "d^0.20": "d^−0.16 ["}),
    ],
)
def test_every_published_rate_has_our_number_or_a_reason(made, block, expected):
    head, _, *rows = made[block].splitlines()
    sources = {
        "published-ratios": published.TUNED,
        "published-powers": published.POWER_LAWS,
        "published-sweeps": published.SWEEPS,
    }
    assert len(rows) == len(sources[block]) and {row.count(" | ") for row in (head, *rows)} == {3}
    for row in rows:
        assert sum(number in row and row.split(" | ")[-1].startswith(ours) for number, ours in expected.items()) == 1


def test_other_results_give_other_or_no_blocks():
    for name in ("leaderboard", "rate_transfer"):
        assert experiments.load(name).blocks({"smoke-wikitext2": SimpleNamespace()}) == {}
    adaptive = {"laptop-wikitext2-adaptive": committed.result("width_vocab/laptop-wikitext2-adaptive")}
    assert experiments.load("width_vocab").blocks(adaptive).keys() == {"token-rows"}


def test_a_star_in_the_table_of_transfer_is_explained():
    (result,) = evidence.transfer().values()
    edges = [next(iter(result["entries"]["LVP"]["gaps"]))]
    assert "A better value may exist" in transfer({**result, "references_at_edge": edges})
    entries = {name: {**row, "constant_at_edge": False} for name, row in result["entries"].items()}
    assert "*" not in transfer({**result, "references_at_edge": [], "entries": entries})
