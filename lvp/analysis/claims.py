"""Claims: sentences of a paper that a measurement supports, contradicts, leaves unresolved or does not test."""

import math
import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from lvp.analysis import markdown
from lvp.analysis.measurement import Measurement
from lvp.errors import InputError

NOT_TESTED = "not tested here"
OUR_RESULT = "our result"  # source of a claim that no paper makes
VERDICTS = ("supported", "contradicted", "unresolved", NOT_TESTED)
LINE = "<br>"  # between the lines of a cell
# Verdicts of a finding whose measurements have different verdicts. "mixed": some support it and some contradict it.
SUPPORTED_IN_PART, CONTRADICTED_IN_PART, MIXED = "supported in part", "contradicted in part", "mixed"
FINDING_VERDICTS = (*VERDICTS, SUPPORTED_IN_PART, CONTRADICTED_IN_PART, MIXED)
LEAST_JUDGING_SEEDS = 3
# Region of values above zero. Regions include their ends, so the lower end is the smallest normal float, not 0.
ABOVE_ZERO = (float(np.finfo(float).tiny), math.inf)
BELOW_ZERO = (-math.inf, -ABOVE_ZERO[0])


@dataclass(frozen=True)
class Claim:
    """A claim, the paper's value and our value.

    A value that is nan or inf becomes None: it was not measured. An interval with a nan end becomes None. An open end
    of an interval is ±inf here and null in JSON.

    Raises:
      InputError: a field has the wrong type; the verdict is unknown; the ends of the interval are in the wrong order;
        the verdict is "not tested here" and there is no reason, or there is a reason and the verdict is another one.
    """

    experiment: str  # its name
    statement: str  # the claim in one sentence
    source: str  # paper and figure, theorem or table; or `OUR_RESULT`
    paper_value: float | str | None  # the paper's number or words; None if it gives neither
    value: float | None  # our measurement; None if there is none
    interval: tuple[float, float] | None  # its 95 % interval; None if unknown
    verdict: str  # one of VERDICTS
    preset: str  # of the sweep
    corpus: str  # of the sweep
    commit: str  # of the code
    variant: str = ""  # which of the measurements that test the statement, such as "tied head"; empty if it is the only
    note: str = ""  # how the value is measured
    reason: str = ""  # why the claim is not tested here; empty for other verdicts
    unit: str = ""  # what the value is, such as "nats per token" or "power of d"
    limits: tuple[float, ...] = ()  # ends of the claimed region and rivals, without 0

    def __post_init__(self):
        texts = ("experiment", "statement", "source", "preset", "corpus", "commit", "variant", "note", "reason", "unit")
        for name in texts:
            if not isinstance(getattr(self, name), str):
                raise InputError(f"a claim's {name} must be a string, got {getattr(self, name)!r}")
        if self.verdict not in VERDICTS:
            raise InputError(f"a claim's verdict must be one of {', '.join(VERDICTS)}, got {self.verdict!r}")
        if (self.verdict == NOT_TESTED) != bool(self.reason):
            raise InputError(
                f"a claim needs a reason if and only if its verdict is {NOT_TESTED!r}, got verdict {self.verdict!r} "
                f"and reason {self.reason!r}"
            )
        object.__setattr__(self, "value", _number("value", self.value))
        object.__setattr__(self, "interval", _interval(self.interval))
        if not isinstance(self.paper_value, str):
            object.__setattr__(self, "paper_value", _number("paper_value", self.paper_value))

    @property
    def full_statement(self) -> str:
        """The statement with its variant."""
        return f"{self.statement} ({self.variant})" if self.variant else self.statement

    @property
    def sentence(self) -> str:
        """The statement with its variant, and with the reason of a claim that is not tested here."""
        return f"{self.full_statement} ({self.reason})" if self.reason else self.full_statement

    @property
    def measured(self) -> str:
        """The value and its interval as text, to two figures of the interval's width; a dash if there is no value."""
        if self.value is None:
            return "–"
        if self.interval is None or self.interval == (self.value, self.value):  # a count or a p-value
            return _text(self.value)
        low, high = self.interval
        if math.isinf(low) and math.isinf(high):
            return f"{_text(self.value)}, no interval"
        width = high - low
        digits = None
        if 0 < width < math.inf and 1e-4 < width < 1e4:  # for other widths, decimals are not readable
            digits = max(0, 1 - math.floor(math.log10(width)))
        ends = ", ".join(_text(end, self._digits(end, digits)) for end in (low, high))
        return f"{_text(self.value, digits)} [{ends}]"

    def _digits(self, end: float, digits: int | None) -> int | None:
        """The decimals of an end of the interval: so many that it does not round to 0 or to a limit."""
        others = [limit for limit in (0, *self.limits) if limit != end]
        while digits is not None and digits < 8 and round(end, digits) in [round(limit, digits) for limit in others]:
            digits += 1
        return digits


def judge(
    value: float | None,
    interval: tuple[float, float] | None,
    *,
    claimed: float | tuple[float, float],
    rivals: Sequence[float] = (),
) -> str:
    """Returns the verdict that a measurement allows on a claim.

    "supported": the interval contains the claimed value (or lies within the claimed region) and contains no rival.
    "contradicted": the interval does not contain the claimed value (does not overlap the region). "unresolved": all
    other cases, such as an interval that contains the claim and a rival, or a missing measurement. An interval with an
    open end can contradict a claim or lie within a half-line, but cannot support a single value.

    Pass the rivals: without them, any finite interval that contains the claimed value supports it.

    Args:
      value: the measurement; None or not finite if it is missing.
      interval: (lo, hi) of the value; None or a nan end if it is unknown.
      claimed: the claimed value, or the claimed region (lo, hi) with its ends included; ±inf for a half-line.
      rivals: values that other theories claim.

    Raises:
      InputError: an interval or region is in the wrong order; a value, end, claimed value or rival is not a number.
    """
    region = _interval(claimed if isinstance(claimed, tuple | list) else (claimed, claimed))
    others = [number for rival in rivals if (number := _number("rival", rival)) is not None]
    if region is None or len(others) < len(rivals):
        raise InputError(
            "claimed must be a number or a pair without nan, and rivals must be finite numbers, got "
            f"{claimed!r} and {list(rivals)!r}"
        )
    value, interval = _number("value", value), _interval(interval)
    if value is None or interval is None:
        return "unresolved"
    low, high = interval
    if high < region[0] or low > region[1]:
        return "contradicted"
    if any(low <= rival <= high for rival in others):
        return "unresolved"
    if region[0] == region[1]:
        return "supported" if math.isfinite(low) and math.isfinite(high) else "unresolved"
    return "supported" if region[0] <= low and high <= region[1] else "unresolved"


class Seeds(NamedTuple):
    """The seeds of a measurement."""

    judging: Sequence[int]  # of the runs that give the value
    selecting: Sequence[int] = ()  # of the runs that selected its settings; () if no setting was selected


def refusal(judging: Sequence[int], selecting: Sequence[int] = ()) -> str:
    """Returns why seeds cannot judge a claim, in one line; an empty string if they can.

    Args:
      judging, selecting: as in `Seeds`.
    """
    if common := sorted(set(selecting) & set(judging)):
        return f"seeds {', '.join(map(str, common))} selected the setting and cannot judge it: judge on other seeds"
    if (count := len(set(judging))) < LEAST_JUDGING_SEEDS:
        return f"{count} judging seed{'s' * (count != 1)}: a claim needs at least {LEAST_JUDGING_SEEDS}"
    return ""


def unless_at_edge(
    claim: Claim, claimed: float | tuple[float, float], plus: Sequence[str], minus: Sequence[str]
) -> Claim:
    """Returns the claim, or an unresolved claim if a lower loss beyond a grid could change its verdict.

    The loss of a setting at the edge of its grid is an upper bound of the tuned loss.

    Args:
      claimed: the claimed half-line of a difference of losses, as in `judge`.
      plus, minus: names of settings at the edge of their grid whose losses are added and subtracted.
    """
    if claim.verdict not in ("supported", "contradicted"):
        return claim
    above = isinstance(claimed, tuple) and math.isinf(claimed[1])
    says_large = (claim.verdict == "supported") == above
    edges = list(dict.fromkeys(plus if says_large else minus))
    if not edges:
        return claim
    note = f"would be {claim.verdict} if no best rate were at the edge of its grid: {', '.join(edges)}"
    return replace(claim, verdict="unresolved", note="; ".join(filter(None, (claim.note, note))))


@dataclass(frozen=True, kw_only=True)
class Question:
    """A sentence of a paper and the values that would support it. A measurement answers it."""

    statement: str  # the sentence
    source: str  # paper and figure, theorem or table
    paper_value: float | str | None  # the paper's number or words; None if it gives neither
    claimed: float | tuple[float, float]  # the value or the region, as in `judge`
    rivals: tuple[float, ...] = ()  # values that other theories claim; added to the note
    unit: str = ""  # what the value is, such as "nats per token"
    variant: str = ""  # which of the measurements that test the statement
    note: str = ""  # how the value is measured

    def answer(
        self, measurement: Measurement, context: Mapping[str, str], seeds: Seeds | None, *, reason: str = ""
    ) -> Claim:
        """Returns the claim with the verdict that the measurement allows.

        Args:
          context: the fields `experiment`, `preset`, `corpus` and `commit` of the claim.
          seeds: the seeds of the measurement. If `refusal` returns a text for these seeds, the text replaces `reason`.
            None for counts and calculations, which have no seeds.
          reason: why the measurement does not test the sentence, such as a setting that the sentence does not speak
            about. The verdict is then "not tested here".
        """
        reason = (refusal(*seeds) if seeds else "") or reason
        verdict = NOT_TESTED if reason else judge(*measurement, claimed=self.claimed, rivals=self.rivals)
        rivals = f"rivals: {', '.join(map(_text, self.rivals))}" if self.rivals else ""
        claimed = self.claimed if isinstance(self.claimed, tuple | list) else (self.claimed,)
        return Claim(
            statement=self.statement,
            source=self.source,
            paper_value=self.paper_value,
            value=measurement.value,
            interval=measurement.interval,
            verdict=verdict,
            unit=self.unit,
            variant=self.variant,
            note="; ".join(filter(None, (self.note, rivals))),
            reason=reason,
            limits=tuple(float(x) for x in (*claimed, *self.rivals) if ABOVE_ZERO[0] < abs(x) < math.inf),
            **context,
        )


def in_setting(source: str, paper_value: float | str | None, *, of_paper: bool) -> dict[str, Any]:
    """The source and the paper's value of a question, by the setting of its runs.

    A paper's sentence is judged only in a setting that it speaks about. In any other setting it is our result.
    """
    return {"source": source if of_paper else f"{OUR_RESULT}, after {source}", "paper_value": paper_value}


class Finding(NamedTuple):
    """A statement and all measurements that test it, of several variants, corpora or presets."""

    claims: Mapping[str, Claim]  # the variant and the place of a measurement → its claim

    @property
    def first(self) -> Claim:
        return next(iter(self.claims.values()))

    @property
    def ours(self) -> bool:
        """True for a result of this project, False for a paper's sentence in a setting that it speaks about."""
        return self.first.source.startswith(OUR_RESULT)

    @property
    def by_verdict(self) -> dict[str, list[str]]:
        """Verdict → the variants and places of its measurements; those that test nothing are left out if others do."""
        found: dict[str, list[str]] = {}
        for name, claim in self.claims.items():
            found.setdefault(claim.verdict, []).append(name)
        if len(found) > 1:
            found.pop(NOT_TESTED, None)
        return found

    @property
    def verdict(self) -> str:
        """One of `FINDING_VERDICTS`. Corpora are not independent, so measurements are not pooled."""
        verdict, *others = self.by_verdict
        decided = set(self.by_verdict) & {"supported", "contradicted"}
        if not others:
            return verdict
        return MIXED if len(decided) > 1 else f"{decided.pop()} in part"

    @property
    def differs(self) -> bool:
        """Whether a measurement has another verdict than the finding."""
        return any(claim.verdict != self.verdict for claim in self.claims.values())

    @property
    def sentence(self) -> str:
        """The statement, with the measurements of each verdict if they differ, or with the reason of no test."""
        if self.verdict == NOT_TESTED:
            return f"{self.first.statement} ({self.first.reason})"
        each = " – ".join(f"{verdict}: {'; '.join(names)}" for verdict, names in self.by_verdict.items())
        return f"{self.first.statement} ({each})" if self.differs else self.first.statement


def findings(by_place: Mapping[str, Sequence[Claim]]) -> list[Finding]:
    """The findings of some results, in the order of their first claims.

    Args:
      by_place: the name of a result, such as "laptop-wikitext2", → its claims. Equal measurements are listed once.

    Raises:
      InputError: two measurements of a statement have the same variant in one result.
    """
    alike: dict[tuple, list[tuple[str, Claim]]] = {}
    for place, claims in by_place.items():
        for claim in claims:
            alike.setdefault((claim.experiment, claim.statement, claim.source), []).append((place, claim))
    made = []
    for group in alike.values():
        equal: dict[Claim, list[tuple[str, Claim]]] = {}
        for place, claim in group:
            equal.setdefault(replace(claim, preset="", corpus="", commit=""), []).append((place, claim))
        several = len({place for place, _ in group}) > 1
        named: dict[str, Claim] = {}
        for same in equal.values():
            where = " and ".join(place for place, _ in same) if several else ""
            named[", ".join(filter(None, (same[0][1].variant, where)))] = same[0][1]
        if len(named) < len(equal):
            raise InputError(f"two measurements of {group[0][1].statement!r} need different variants")
        made.append(Finding(named))
    return made


def headline(found: Sequence[Finding]) -> str:
    """What was found, for the title of a figure.

    The first statement of each of the first two verdicts that decide something, one a line. Without these it is the
    first unresolved statement, else the first that is not tested. If other measurements do not
    decide, those that decide are named, or counted if there are three or more.
    """
    first: dict[str, str] = {}
    for finding in found:
        names = finding.by_verdict.get(finding.verdict.removesuffix(" in part"), ())
        several = f"{len(names)} of {len(finding.claims)} measurements"
        deciding = f" ({'; '.join(names) if len(names) < 3 else several})" * (finding.differs and bool(names))
        first.setdefault(finding.verdict, f"{finding.verdict.capitalize()}: {finding.first.statement}{deciding}")
    decided = [line for verdict, line in first.items() if verdict not in ("unresolved", NOT_TESTED)]
    return "\n".join(decided[:2] or [first[verdict] for verdict in VERDICTS if verdict in first][:1])


def table(found: Sequence[Finding], start: int = 1) -> str:
    """A Markdown table of findings in the given order, which are numbered from `start`."""
    head, rows = cells(found, start)
    return markdown.table(head, [[_cell(cell) for cell in row] for row in rows]) + "\n"


def cells(found: Sequence[Finding], start: int = 1) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of `table`. Numbers have as many digits as their interval supports."""
    rows = []
    for number, finding in enumerate(found, start):
        first = finding.first
        said = (c.paper_value for c in finding.claims.values())
        paper = "; ".join(dict.fromkeys(x if isinstance(x, str) else _text(x) for x in said))
        values = [  # with the verdict where the row has another one
            (f"{name}: " if name else "") + c.measured + (f", {c.verdict}" if c.verdict != finding.verdict else "")
            for name, c in finding.claims.items()
        ]
        source = first.source.removeprefix(f"{OUR_RESULT}, ").removeprefix(OUR_RESULT)
        unit = " or ".join(dict.fromkeys(c.unit for c in finding.claims.values() if c.unit))
        rows.append([str(number), first.statement, source, paper, LINE.join(values), unit, finding.verdict])
    return ["", "claim", "source", "paper", "ours (95 %)", "unit", "verdict"], rows


def measurements(found: Sequence[Finding], start: int = 1) -> str:
    """How each finding was measured, as a numbered list: experiment, definition of the value, and reasons.

    The first and the last parts of a note stand once if all measurements share them.
    """
    lines = []
    for number, finding in enumerate(found, start):
        parts = {name: [p for p in f"{c.note}; {c.reason}".split("; ") if p] for name, c in finding.claims.items()}
        first, last = (os.path.commonprefix([own[::step] for own in parts.values()]) for step in (1, -1))
        last = last[: min(map(len, parts.values())) - len(first)][::-1]
        notes: dict[str, list[str]] = {}
        for name, own in parts.items():
            notes.setdefault("; ".join(own[len(first) : len(own) - len(last)]), []).append(name)
        texts = [f"{'; '.join(names)}: {note}" for note, names in notes.items() if note]
        if noted := ". ".join(filter(None, ["; ".join(first), *texts, "; ".join(last)])):
            lines.append(f"{number}. `{finding.first.experiment}`: {noted}.")
    return "\n".join(lines) + "\n"


def _number(name: str, value) -> float | None:
    """A float, or None for None, nan and inf: a diverged run has no measurement."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(value, str | bool):
        raise InputError(f"a claim's {name} must be a number or None, got {value!r}")
    return number if math.isfinite(number) else None


def _interval(ends) -> tuple[float, float] | None:
    """A pair of floats in order, possibly infinite; None for None and for a nan end."""
    if ends is None:
        return None
    try:
        low, high = (float(end) for end in ends)
    except (TypeError, ValueError):
        raise InputError(f"an interval must be a pair of numbers, got {ends!r}") from None
    if math.isnan(low) or math.isnan(high):
        return None
    if low > high:
        raise InputError(f"an interval's ends must be in order, got {ends!r}")
    return low, high


def _text(number: float | None, digits: int | None = None) -> str:
    """A number as text: `digits` decimals, or three significant figures; a dash for None."""
    if number is None:
        return "–"
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    text = f"{number:z.3g}" if digits is None else f"{number:z.{digits}f}"
    return text.replace("-", "−")


def _cell(text: str) -> str:
    """Text of a table cell: one line, escaped column ends, a dash if empty."""
    return " ".join(str(text).replace("\\", "\\\\").replace("|", "\\|").split()) or "–"
