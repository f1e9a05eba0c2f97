"""Reads the records of `tied`: tuned groups, summary, claims and figure."""

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from lvp.analysis.claims import ABOVE_ZERO, OUR_RESULT, Claim, Question, Seeds, unless_at_edge
from lvp.analysis.figure_style import sheet
from lvp.analysis.measurement import Measurement
from lvp.analysis.power_laws import Panel, over_seeds
from lvp.analysis.tuned import difference
from lvp.experiments.common.tables import with_fields
from lvp.experiments.common.tuned_groups import TunedGroup, judging_runs, tuned_group
from lvp.experiments.tied.config import GROUPS, Config, Group, groups, label, run, setting_of
from lvp.training import Run

STATEMENTS = {  # choice → that it has a lower loss than the choice before it
    "tied": "a matrix tied as embedding and head has a lower loss with the embedding's init and rate, logits scaled, "
    "than with the head's",
    "bounded": "a tied matrix with the embedding's init and rate has a lower loss if its logits are multiplied by a "
    "further 1/√d",
}
NOTE = "difference in validation bits per byte; each group at its own tuned rate; the interval allows for the tuning; "
NOTE += "a program that gives a tied matrix the role of its head has the head's init and rate"


def tuned(table, config: Config, group: Group, width: int) -> TunedGroup:
    """The losses of a group at a width: at every rate, and of the judging seeds at the best rate."""
    model = setting_of(config, group, width).model
    rows = with_fields(table, "setting.model", model, ("width", "tied", "output_multiplier"))
    return tuned_group(group.label, rows, config, config.rates_times_width, partial(run, config, group, width))


def follow_up(table, config: Config) -> dict[str, list[Run]]:
    """The judging seeds' runs of every setting, at its tuned rate."""
    return {
        label(group, width): judging_runs(
            tuned(table, config, group, width), config, partial(run, config, group, width)
        )
        for width, group in product(config.widths, groups(config))
    }


def summary(table, config: Config) -> str:
    """The tuned rate and the judging seeds' loss of every setting."""
    lines = [f"{'setting':<24} {'rate · d':>8} bits/byte"]
    for width, group in product(config.widths, groups(config)):
        best = tuned(table, config, group, width)
        shown = "–" if best.value is None else f"{best.value:.4g}" + ("*" if best.at_edge else " ")
        lines.append(f"{label(group, width):<24} {shown:>8} {Measurement.over_seeds(best.judged.losses).text('.3f')}")
    lines.append("bits/byte: validation loss of the judging seeds, 95 % interval")
    lines.append("rate · d: tuned hidden rate times d (*: at the edge of its grid)")
    return "\n".join(lines)


def claims(table, config: Config, context) -> list[Claim]:
    """Whether the choice `tied` has a lower loss than `output`, and `bounded` a lower loss than `tied`."""
    seeds = Seeds(config.judging_seeds, config.selecting_seeds)
    answers = []
    for width, rule, worse, better in _compared(config):
        question = Question(
            statement=STATEMENTS[better],
            variant=f"{ {'lvp': 'LVP', 'mup': 'μP'}.get(rule, rule) }, d {width}",
            source=OUR_RESULT,
            paper_value=None,
            claimed=ABOVE_ZERO,
            unit="bits per byte",
            note=f"{NOTE}; t interval over {len(config.judging_seeds)} judging seeds",
        )
        plus, minus = (tuned(table, config, Group(rule, choice), width) for choice in (worse, better))
        answer = question.answer(difference([[plus.judged]], [[minus.judged]]), context, seeds)
        edges = ([each.label] if each.at_edge else [] for each in (plus, minus))
        answers.append(unless_at_edge(answer, question.claimed, *edges))
    return answers


def _compared(config: Config) -> Iterator[tuple[int, str, str, str]]:
    """Yields (width, rule, worse, better): by the claim, the choice `better` has a lower loss than `worse`."""
    configured = set(groups(config))
    for width, (rule, choice) in product(config.widths, GROUPS.values()):
        pair = {"output": ("output", "tied"), "bounded": ("tied", "bounded")}.get(choice)
        if pair is not None and {Group(rule, each) for each in pair} <= configured:
            yield width, rule, *pair


def figure(table, config: Config, *, preset: str, corpus: str, partial):
    """Loss over the hidden rate by group, a panel per width."""
    return sheet(
        [_panel(table, config, width) for width in config.widths],
        title="One matrix for embedding and head: which row of the rule?",
        preset=preset,
        corpus=corpus,
        partial=partial,
        columns=min(2, len(config.widths)),
        words=[f"m {config.vocab}. Means over the seeds that tune. Bars: from the lowest to the highest seed."],
    )


def _panel(table, config: Config, width: int) -> Panel:
    series, rates = [], np.array(config.rates_times_width)
    for group in groups(config):
        losses = tuned(table, config, group, width).losses
        finished = np.isfinite(losses).all(axis=1)
        if finished.any():
            series.append(over_seeds(group.label, rates[finished], losses[finished]))
    return Panel(f"d {width}", "hidden rate times d", "validation bits/byte", series, yscale="linear")
