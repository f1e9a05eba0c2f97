"""The claims of `leaderboard`."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lvp.analysis.claims import ABOVE_ZERO, OUR_RESULT, Claim, Question, Seeds, unless_at_edge
from lvp.analysis.measurement import Measurement
from lvp.experiments.common.slope_claims import range_without
from lvp.experiments.common.transferred_entries import Entry, chosen_entries
from lvp.experiments.leaderboard.analysis import Reading, read
from lvp.experiments.leaderboard.config import BASE, RECOMMENDED, Config, references


def claims(table, config: Config, context, *, entries: Mapping[str, Entry]) -> list[Claim]:
    """The claims about the recommended entry.

    It stays near the references, and its mean gap is below the mean gap of each other entry.
    """
    reading = read(table, config, chosen_entries(config.entries, entries))
    if RECOMMENDED not in reading.entries or set(reading.references) < set(config.sizes):
        return []
    seeds = Seeds(config.judging_seeds, config.selecting_seeds)
    interval = f"the interval allows for the tuning; t interval over {len(config.judging_seeds)} judging seeds"
    near = Question(
        statement=f"{RECOMMENDED}, tuned at one small size, loses at most {config.tolerance:.0%} to rates tuned at "
        f"each larger size (width, vocabulary, depth, batch or tokens × {config.factor})",
        source=OUR_RESULT,
        paper_value=None,
        claimed=(-np.inf, config.tolerance),
        unit="relative excess loss",
        note=f"small size: {_in_words(config)}; largest relative gap to the references over {len(config.sizes) - 1} "
        "larger sizes; a reference has LVP's init and the best of at most "
        f"{len(references(config))} settings, tuned at the size; {interval}",
    )
    ours = reading.entries[RECOMMENDED]
    of_ours = [f"{RECOMMENDED} at the base"] * ours.at_edge
    of_references = [f"reference of {x}" for x, best in reading.references.items() if best.at_edge and x != BASE]
    answer = near.answer(reading.worst(RECOMMENDED), context, seeds)
    if reading.diverged(RECOMMENDED):
        answer = _decided(answer, "contradicted", RECOMMENDED)
    answers = [unless_at_edge(answer, near.claimed, of_ours, of_references)]
    for name, rival in reading.entries.items():
        if name == RECOMMENDED:
            continue
        less = Question(
            statement=f"tuned at one small size, {RECOMMENDED}'s mean excess loss at sizes {config.factor} times "
            "larger in width, vocabulary, depth, batch or tokens is below another rule's",
            variant=f"than {name}" + " (Muon, normalized rows)" * (entries[name].optimizer == "muon"),
            source=OUR_RESULT,
            paper_value=None,
            claimed=ABOVE_ZERO,
            unit="relative excess loss",
            note=f"mean relative gap of the other rule to references tuned at each size, minus that of {RECOMMENDED}; "
            f"{interval}; " + "; ".join(filter(None, (_without_one(reading, name), _other_rules(entries[name])))),
        )
        answer = less.answer(_difference(reading, name), context, seeds)
        if reading.diverged(RECOMMENDED) != reading.diverged(name):
            diverged, verdict = (name, "supported") if reading.diverged(name) else (RECOMMENDED, "contradicted")
            answer = _decided(answer, verdict, diverged)
        answers.append(unless_at_edge(answer, less.claimed, [f"{name} at the base"] * rival.at_edge, of_ours))
    return answers


def _in_words(config: Config) -> str:
    """The base size, in words."""
    base = config.base
    return f"d {base.width}, m {base.vocab}, {base.depth} blocks, batch {base.batch}, {base.tokens} tokens"


def _without_one(reading: Reading, name: str) -> str:
    """The range of the mean difference of an entry if one held-out size is left out, in words."""
    left_out = [size for size in reading.entries[name].gaps if size != BASE]
    with np.errstate(invalid="ignore"):  # as in `_difference`
        means = [np.mean(reading.mean_gaps(name, x) - reading.mean_gaps(RECOMMENDED, x)) for x in left_out]
    return range_without(means, "size", decimals=3)


def _other_rules(entry: Entry) -> str:
    """What an entry sets besides the rule of width and vocabulary, in words."""
    axes = ", ".join(f"{axis} “{rule}”" for axis, rule in entry.axes.items()) or "defaults"
    others = [f"{entry.token_rows} rows"] * (entry.token_rows != "plain")
    others += ["Muon in the hidden matrices"] * (entry.optimizer == "muon")
    return "; ".join([f"rules of the other axes, as in docs/transfer.md: {axes}", *others])


def _decided(claim: Claim, verdict: str, diverged: str) -> Claim:
    """The claim with the verdict that follows from a diverged entry. A claim that is not tested stays unchanged."""
    if claim.reason:
        return claim
    return replace(claim, verdict=verdict, note=f"{claim.note}; {diverged} diverged at a held-out size")


def _difference(reading: Reading, name: str) -> Measurement:
    """The mean gap of an entry minus that of the recommended entry, with an interval that allows for the tuning."""
    with np.errstate(invalid="ignore"):  # inf − inf if both diverged
        measured = Measurement.over_seeds(reading.mean_gaps(name) - reading.mean_gaps(RECOMMENDED))
    return measured.widened(reading.entries[name].regret, reading.entries[RECOMMENDED].regret)
