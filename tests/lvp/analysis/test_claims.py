"""Claims: verdicts, strict JSON round trips, and the Markdown table."""

import math
from dataclasses import replace

import pytest

from lvp.analysis.claims import (
    ABOVE_ZERO,
    CONTRADICTED_IN_PART,
    MIXED,
    NOT_TESTED,
    SUPPORTED_IN_PART,
    Claim,
    Finding,
    Question,
    Seeds,
    findings,
    headline,
    in_setting,
    judge,
    measurements,
    refusal,
    table,
)
from lvp.analysis.measurement import Measurement
from lvp.errors import InputError

INF, NAN = math.inf, math.nan

VERDICTS = [
    # value, interval, claimed, rivals, verdict
    (-0.45, (-0.6, -0.3), -0.5, (0.0, -1.0), "supported"),
    (-0.45, (-0.6, -0.3), -0.5, (), "supported"),
    (-0.45, (-0.6, -0.3), 0.0, (-0.5,), "contradicted"),
    (-0.45, (-0.9, 0.0), -0.5, (0.0, -1.0), "unresolved"),
    (-0.2, (-0.3, -0.1), -0.5, (0.0, -1.0), "contradicted"),  # also contradicts the rivals
    (-0.45, (-INF, INF), -0.5, (0.0,), "unresolved"),
    (-0.45, (-INF, INF), -0.5, (), "unresolved"),
    (-0.45, None, -0.5, (0.0,), "unresolved"),
    (-0.45, (NAN, NAN), -0.5, (0.0,), "unresolved"),
    (None, (-0.6, -0.3), -0.5, (0.0,), "unresolved"),
    (NAN, (-0.6, -0.3), -0.5, (0.0,), "unresolved"),
    (INF, (-0.6, -0.3), -0.5, (0.0,), "unresolved"),
    (-0.4, (-0.6, -0.1), (-INF, 0.0), (), "supported"),
    (-0.4, (-0.6, -0.1), (0.0, INF), (), "contradicted"),
    (-0.4, (-0.6, 0.1), (-INF, 0.0), (), "unresolved"),
    (-0.4, (-0.6, -0.1), (-INF, 0.0), (-0.5,), "unresolved"),
    (0.4, (0.1, INF), (0.0, INF), (), "supported"),
    (0.4, (0.1, INF), -0.5, (), "contradicted"),
    (0.4, (0.1, INF), 0.5, (), "unresolved"),
    (0.4, (-INF, INF), (0.0, INF), (), "unresolved"),
    (0.5, (0.5, 0.5), 0.5, (0.0,), "supported"),
]


@pytest.mark.parametrize(("value", "interval", "claimed", "rivals", "verdict"), VERDICTS)
def test_verdicts(value, interval, claimed, rivals, verdict):
    assert judge(value, interval, claimed=claimed, rivals=rivals) == verdict


@pytest.mark.parametrize(
    "change",
    [
        dict(interval=(1.0, 0.0)),
        dict(interval=(1.0,)),
        dict(interval="wide"),
        dict(claimed=None),
        dict(claimed=NAN),
        dict(claimed=(0.0, NAN)),
        dict(claimed=(1.0, 0.0)),
        dict(claimed="half"),
        dict(rivals=(None,)),
        dict(rivals=("0",)),
        dict(value="-0.5"),
        dict(value=True),
    ],
)
def test_bad_input_of_judge(change):
    arguments = {"value": -0.5, "interval": (-0.6, -0.4), "claimed": -0.5, "rivals": (0.0,), **change}
    with pytest.raises(InputError) as caught:
        judge(arguments.pop("value"), arguments.pop("interval"), **arguments)
    assert len(str(caught.value).splitlines()) == 1


def claim(**change) -> Claim:
    fields = dict(
        experiment="width_vocab",
        statement="the optimal embedding rate falls as d^(−1/2)",
        source="Hayou & Liu 2025, figure 3",
        paper_value=-0.5,
        value=-0.4321,
        interval=(-0.61, -0.25),
        verdict="supported",
        preset="laptop",
        corpus="wikitext2",
        commit="0123456789abcdef0123456789abcdef01234567",
    )
    return Claim(**{**fields, **change})


def test_nonfinite_measurements_have_no_number():
    unmeasured = claim(value=INF, interval=(NAN, 0.0))
    assert unmeasured.value is None and unmeasured.interval is None


@pytest.mark.parametrize(
    "change",
    [
        dict(verdict="true"),
        dict(verdict=NOT_TESTED),  # without a reason
        dict(reason="batch 32"),  # with another verdict
        dict(interval=(0.0, -1.0)),
        dict(interval=(0.0,)),
        dict(value="0.5"),
        dict(commit=None),
        dict(statement=3),
    ],
)
def test_bad_claims(change):
    with pytest.raises(InputError):
        claim(**change)


def test_table_has_one_line_per_claim_and_equal_columns():
    claims = [claim(), claim(note="a | b\nc"), claim(value=None, interval=None, verdict="unresolved")]
    lines = table([Finding({"": each}) for each in claims]).splitlines()
    assert len(lines) == 2 + 3
    bars = {line.replace("\\|", "").count("|") for line in lines}
    assert len(bars) == 1
    assert "−0.43 [−0.61, −0.25]" in lines[2]
    assert "| – | unresolved |" in lines[4]
    assert len(table([]).splitlines()) == 2


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (0.5, None, "0.5"),
        (0.5, (-INF, INF), "0.5, no interval"),
        (1234.5, (1200.0, 1300.0), "1234 [1200, 1300]"),
        (0.012345, (0.0120, 0.0129), "0.01235 [0.01200, 0.01290]"),
        (3e-9, (2e-9, 4e-9), "3e−09 [2e−09, 4e−09]"),
        (0.054, (0.003, 0.105), "0.05 [0.003, 0.10]"),  # two figures would give 0.00 as the lower end
        (0.009, (-2e-5, 0.0178), "0.009 [−0.00002, 0.018]"),
        (0.05, (0.0, 0.1), "0.05 [0.00, 0.10]"),
    ],
)
def test_numbers_have_the_digits_that_their_interval_supports(value, interval, text):
    assert f"| {text} |" in table(findings({"": [claim(value=value, interval=interval)]}))


@pytest.mark.parametrize(
    "limits, text", [((), "0.10 [0.05, 0.25]"), ((0.05,), "0.10 [0.0498, 0.25]"), ((-0.05,), "0.10 [0.05, 0.25]")]
)
def test_an_end_beside_a_limit_is_told_from_it(limits, text):
    assert claim(value=0.1, interval=(0.0498, 0.25), limits=limits).measured == text


def test_the_limits_of_an_answer_are_those_of_its_question():
    question = Question(statement="s", source="p", paper_value=None, claimed=(-math.inf, 0.5), rivals=(1.2,))
    context = dict(experiment="e", preset="t", corpus="c", commit="x")
    assert question.answer(Measurement(0.1, (0.0, 0.2)), context, None).limits == (0.5, 1.2)
    assert replace(question, claimed=ABOVE_ZERO).answer(Measurement(0.1, (0.0, 0.2)), context, None).limits == (1.2,)


def test_a_claim_about_values_is_judged_by_their_t_interval():
    values, seeds = [0.9, 1.0, 1.1], Seeds((0, 1, 2))
    context = dict(experiment="e", preset="t", corpus="c", commit="x")
    question = Question(statement="s", source="p", paper_value=1.0, claimed=(0.5, 1.5))
    claim = question.answer(Measurement.over_seeds(values), context, seeds)
    half = 4.302653 * 0.1 / 3**0.5  # Student's 97.5 % quantile of two degrees of freedom
    assert claim.value == pytest.approx(1.0) and claim.verdict == "supported"
    assert claim.interval == pytest.approx((1 - half, 1 + half), rel=1e-6)
    assert (claim.statement, claim.source, claim.paper_value, claim.note, claim.preset) == ("s", "p", 1.0, "", "t")
    measured = Measurement.over_seeds(values)
    for changes in ({"claimed": (2.0, 3.0)}, {"claimed": 2.0}):
        assert replace(question, **changes).answer(measured, context, seeds).verdict == "contradicted"
    with_rival = replace(question, claimed=1.0, rivals=(1.2,))
    assert with_rival.answer(Measurement.over_seeds(values), context, seeds).verdict == "unresolved"
    noted = replace(with_rival, note="n", rivals=(1.2, -0.5)).answer(Measurement.over_seeds(values), context, seeds)
    assert noted.note == "n; rivals: 1.2, −0.5"
    for unknown in ([], [1.0], [1.0, float("nan")], [1.0, float("inf")]):
        claim = question.answer(Measurement.over_seeds(unknown), context, None)
        assert claim.verdict == "unresolved" and claim.interval is None


@pytest.mark.parametrize(
    ("judging", "selecting", "says"),
    [
        ((2, 3, 4), (0, 1), ""),
        ((0, 1, 2), (), ""),
        ((0, 1, 2, 3), (0, 1), "seeds 0, 1 selected the setting"),
        ((2, 3), (0, 1), "2 judging seeds: a claim needs at least 3"),
        ((2,), (0, 1), "1 judging seed: a claim needs at least 3"),
        ((2, 2, 2), (), "1 judging seed: a claim needs at least 3"),
    ],
)
def test_seeds_that_cannot_judge_are_refused_in_one_line(judging, selecting, says):
    line = refusal(judging, selecting)
    assert line.startswith(says) and bool(line) == bool(says) and "\n" not in line


def test_measurements_of_a_statement_are_one_finding():
    """Equal measurements are listed once. Corpora are not pooled, and a disagreement is visible."""
    tied, untied = claim(variant="tied"), claim(variant="untied", value=9.0, interval=None, verdict="unresolved")
    (found,) = findings({"a": [tied, untied], "b": [tied]})
    assert found.claims == {"tied, a and b": tied, "untied, a": untied} and found.verdict == SUPPORTED_IN_PART
    assert "(supported: tied, a and b – unresolved: untied, a)" in found.sentence
    against = claim(variant="untied", verdict="contradicted")
    assert findings({"a": [tied, against]})[0].verdict == MIXED
    assert findings({"a": [claim(variant="tied", verdict="unresolved"), against]})[0].verdict == CONTRADICTED_IN_PART
    (alone,) = findings({"a": [tied]})
    assert (list(alone.claims), alone.verdict, alone.sentence) == (["tied"], tied.verdict, tied.statement)
    untested = claim(variant="untied", verdict=NOT_TESTED, reason="r")
    (found,) = findings({"a": [tied, untested]})
    assert found.verdict == tied.verdict and findings({"a": [untested]})[0].verdict == NOT_TESTED
    assert len(findings({"a": [tied, claim(statement="other"), claim(source="our result, after p")]})) == 3
    with pytest.raises(InputError, match="need different variants"):
        findings({"a": [tied, claim(variant="tied", value=9.0, interval=None)]})


def test_shared_parts_of_notes_and_equal_papers_values_stand_once():
    notes = {"a": "t: steps; first; of a; 8 seeds; d 32", "b": "t: steps; first; of b; more; 8 seeds; d 32"}
    found = findings({"": [claim(variant=name, note=note, paper_value="> 0") for name, note in notes.items()]})
    name = claim().experiment
    assert measurements(found) == f"1. `{name}`: t: steps; first. a: of a. b: of b; more. 8 seeds; d 32.\n"
    alone = findings({"": [claim(variant="a", note="x; y"), claim(variant="b", note="x; y")]})
    assert measurements(alone) == f"1. `{name}`: x; y.\n"
    assert "| > 0 |" in table(found)
    several = findings({"": [claim(variant="a", paper_value="a gap"), claim(variant="b", paper_value="no gap")]})
    assert "| a gap; no gap |" in table(several)


def test_a_papers_sentence_is_judged_in_its_own_setting_only():
    assert in_setting("p, figure 1", "> 0", of_paper=True) == {"source": "p, figure 1", "paper_value": "> 0"}
    ours = claim(**in_setting("p, figure 1", "> 0", of_paper=False))
    (finding,) = findings({"a": [ours]})
    assert finding.ours and "| after p, figure 1 | > 0 |" in table([finding])


def test_an_untested_claim_keeps_its_value_and_the_reason():
    context = dict(experiment="e", preset="t", corpus="c", commit="x")
    question = Question(statement="s", source="p", paper_value=1.0, claimed=(0.5, 1.5))
    claim = question.answer(Measurement.over_seeds([0.9, 1.0]), context, Seeds((0, 1)), reason="r")
    assert (claim.verdict, claim.value) == (NOT_TESTED, pytest.approx(0.95))
    assert claim.sentence == "s (2 judging seeds: a claim needs at least 3)"
    found = findings({"": [claim]})
    assert f"| {NOT_TESTED} |" in table(found)
    assert measurements(found) == "1. `e`: 2 judging seeds: a claim needs at least 3.\n"
    assert question.answer(Measurement.over_seeds([0.9, 1.0, 1.1]), context, Seeds((0, 1, 2))).sentence == "s"
    other = question.answer(Measurement.over_seeds([0.9, 1.0, 1.1]), context, Seeds((0, 1, 2)), reason="r")
    assert other.sentence == "s (r)"
    overlapping = question.answer(Measurement.over_seeds([0.9, 1.0, 1.1]), context, Seeds((0, 1, 2), (2, 3)))
    assert overlapping.reason.startswith("seeds 2 selected the setting")


def test_a_headline_says_what_was_found():
    def found(*verdicts):
        claims = [claim(statement=f"s{i}", verdict=v, reason="x" * (v == NOT_TESTED)) for i, v in enumerate(verdicts)]
        return headline(findings({"": claims}))

    assert found("unresolved", "supported", "supported", "contradicted") == "Supported: s1\nContradicted: s3"
    assert found(NOT_TESTED, "unresolved") == "Unresolved: s1"
    assert found(NOT_TESTED) == f"{NOT_TESTED.capitalize()}: s0" and headline([]) == ""
    parts = [claim(statement="s", variant=v, verdict=x) for v, x in (("a", "unresolved"), ("b", "supported"))]
    assert headline(findings({"": parts})) == "Supported in part: s (b)"
    parts[0] = claim(statement="s", variant="a", verdict=NOT_TESTED, reason="x")
    assert headline(findings({"": parts})) == "Supported: s (b)"
    assert findings({"": parts})[0].sentence == "s (supported: b)"
