"""The typed table and ranges of docs/embedding_rate.md agree with the summaries of the committed results."""

import re
from pathlib import Path

import numpy as np

from lvp.sweeps.committed import result

PAGE = Path(__file__).parents[2] / "docs" / "embedding_rate.md"


def cells():
    """First word of a row of the table → its last cell."""
    text = PAGE.read_text().split("| experiment | tokens read | best ratio |")[1].split("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    return {re.search(r"\w+", first)[0]: last for first, _, last in rows}


def columns(summary, pattern):
    """The groups of a pattern at the start of the lines of a summary."""
    return [match.groups() for line in summary.splitlines() if (match := re.match(pattern, line))]


def test_the_leaderboards_references():
    found = dict(columns(result("leaderboard/laptop-wikitext2").summary, r"(\S.*?\S) {2,}[\d.]+\*?, (\d+)\*?, LVP"))
    assert len(found) == 6
    expected = f"{' or '.join(sorted(set(found.values()), key=int))} times √d; tokens × 8: {found['tokens × 8']} times"
    assert cells()["leaderboard"] == expected


def test_the_best_ratio_under_adam():
    found = columns(result("muon/laptop-wikitext2").summary, r"Adam, (.*?) {2,}[\d.]+\*? +([\d.]+)")
    losses = [float(loss) for _, loss in found]
    assert losses == sorted(losses, reverse=True) and found[-1][0] == "ratio d"
    assert cells()["muon"] == "d = 8 times √d, the largest of the grid"  # d is 64


def test_the_ratio_on_text_read_once():
    found = columns(result("fresh_text/today-wikitext2").summary, r" +(\d+) +\d+ +[\d.]+ +[\d.]+ +([\d.]+) +[\d.]+ …")
    over = [float(ratio) / float(width) ** 0.5 for width, ratio in found]
    assert len(over) == 5
    assert cells()["fresh_text"] == f"{min(over):.1f} to {max(over):.1f} times √d"
    of_width = [float(ratio) / float(width) for width, ratio in found]
    assert "about a third of d" in PAGE.read_text() and 0.25 < min(of_width) <= max(of_width) < 0.42


def test_the_ranges_of_costs_and_intervals():
    line = r" +\d+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+) +([\d.]+) … ([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+) +([\d.]+)"
    costs, sides = [], []
    for preset in ("laptop", "today"):
        rows = np.array(columns(result(f"fresh_text/{preset}-wikitext2").summary, line), float)
        best, low, high, *both = rows.T
        costs += [side.mean() for side in both]
        sides += [*(100 * (high / best - 1)), *(100 * (1 - low / best))]
    text = " ".join(PAGE.read_text().split())
    assert f"costs only {min(costs):.1f} to {max(costs):.1f} % of the loss" in text
    assert f"its intervals lie {min(sides):.0f} to {max(sides):.0f} % from it" in text


def test_the_ratio_of_the_small_1b_design():
    found = columns(result("pretrain_1b/laptop-wikitext2").summary, r"(√d = )?[\d.]+ +([\d.]+) \[")
    losses = {name: float(loss) for name, loss in found[:7]}
    assert len(found) >= 7 and min(losses, key=losses.get) == "√d = "
    assert cells()["pretrain_1b"] == "√d, the best of seven ratios"


def test_the_table_is_read():
    assert set(cells()) == {"leaderboard", "muon", "fresh_text", "pretrain_1b"}


def test_the_vocabularies():
    found = result("fresh_text/vocabulary-wikitext2")
    shapes = columns(found.summary, r" +64 +(\d+) +([\d.]+) +[\d.]+ +[\d.]+ +[\d.]+ …")
    assert [vocab for vocab, _ in shapes] == ["512", "1024", "2048", "4096", "8192"]
    assert len({constant for _, constant in shapes}) == 1
    assert "chose the same η_hidden · d for every m" in PAGE.read_text()
    signs = [claim for claim in found.claims if "as the vocabulary grows" in claim.statement]
    assert signs and all(claim.verdict == "unresolved" and "but not without m" in claim.note for claim in signs)
    assert "Without one of the vocabularies the interval of the power of m contains 0" in PAGE.read_text()
