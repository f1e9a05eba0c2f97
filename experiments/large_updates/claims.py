"""The claims of `large_updates`."""

from collections.abc import Iterator

import numpy as np

from lvp.analysis.claims import ABOVE_ZERO, BELOW_ZERO, Claim, Question, Seeds, in_setting
from lvp.analysis.measurement import Measurement
from lvp.experiments.common.slope_claims import answer_without_each
from lvp.experiments.large_updates.analysis import FEW, accuracy, dead, few_images, over_epochs
from lvp.experiments.large_updates.config import GROUPS, Config

PAPER_C = "Kosson, Messmer & Jaggi 2024"
SOURCE = f"{PAPER_C}, appendix A"
UNRELATED = 0.3  # largest correlation of unrelated quantities
DEAD = "dead: above zero for no image"
STABLE_RANK = "stable rank: ‖W‖_F² over ‖W‖₂², mean over the matrices"
LOST = "difference in final accuracy, %"
NOTICEABLE = 0.1  # relative change of the stable rank
PREVENTED = 0.01  # fraction of dead ReLUs up to which frozen biases prevent them


def claims(table, config: Config, context) -> list[Claim]:
    """The claims of appendix A whose groups were run. Accuracies and figure 8 are not tested on other images."""
    seeds = Seeds(config.seeds)
    other_images = other_ranks = ""
    if not _of_paper(config):
        other_images = f"on {config.corpus} the accuracy of most groups is at its ceiling, and otherwise it varies "
        other_images += "much with the seed; the paper has CIFAR-10"
        other_ranks = f"the paper's stable ranks are those of CIFAR-10, not of {config.corpus}"
    of_accuracy = [*_lost_accuracy(table, config), *_few_images(table, config)]
    related = _correlations(table, config)
    return [
        *(question.answer(measurement, context, seeds) for question, measurement in _dead_relus(table, config)),
        *(answer_without_each(*each, context, seeds, what="pair") for each in related),
        *(question.answer(m, context, seeds, reason=other_ranks) for question, m in _stable_rank(table, config)),
        *(question.answer(measurement, context, seeds, reason=other_images) for question, measurement in of_accuracy),
    ]


def _of_paper(config: Config) -> bool:
    """Whether the images are the paper's."""
    return config.corpus.startswith("cifar10")


def _where(config: Config) -> str:
    """The images, in front of a statement about other images than the paper's."""
    return "" if _of_paper(config) else f"on {config.corpus.partition(':')[0]}, "


def _dead_relus(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    """Dead ReLUs: the paper's statement on CIFAR-10, and our result on other images."""
    top, of_paper = config.largest, _of_paper(config)
    note = "difference in the fraction of dead ReLUs at the end of training; the learning rate of the first phase is "
    note += f"× {top:g} or × 1; random: with gradients in random directions in the first phase; {_seeds(config)}"

    def question(variant: str, paper_value: str, claimed: tuple[float, float], limit: str = "") -> Question:
        return Question(
            statement=f"{_where(config)}a first phase at {top:g} times the learning rate leaves dead ReLUs, and frozen "
            "biases prevent this",
            **in_setting(SOURCE, paper_value, of_paper=of_paper),
            claimed=claimed,
            variant=variant,
            unit="fraction of ReLUs",
            note=note + limit,
        )

    for name in (n for n in ("standard", "random") if n in config.groups):
        unfrozen, at_one = (dead(table, config, name, scale) for scale in (top, 1.0))
        yield question(f"{name}, × {top:g} minus × 1", "> 0", ABOVE_ZERO), Measurement.over_seeds(unfrozen - at_one)
        if f"{name}, frozen biases" not in config.groups:
            continue
        frozen, frozen_at_one = (dead(table, config, f"{name}, frozen biases", scale) for scale in (top, 1.0))
        less = question(f"{name}, × {top:g}, without minus with frozen biases", "> 0", ABOVE_ZERO)
        yield less, Measurement.over_seeds(unfrozen - frozen)
        limit = f"; at most {PREVENTED:g} counts as prevented"
        none = question(f"{name}, frozen, × {top:g} minus × 1", "mitigated", (-np.inf, PREVENTED), limit)
        yield none, Measurement.over_seeds(frozen - frozen_at_one)


def _correlations(table, config: Config) -> Iterator[tuple[Question, Measurement, dict[str, Measurement]]]:
    """Section 7: the final accuracy falls with the dead ReLUs, and does not follow the stable rank.

    The correlations are over means of the seeds, because the runs of a group at a scale are not independent of each
    other. Each is also measured without each group at a scale, because one with a low accuracy could decide it.
    """
    groups = [(name, scale) for name in config.groups for scale in config.scales if name != FEW]
    if not groups:
        return
    # The paper excepts the largest scale without frozen biases.
    excepted = [(name, scale) for name, scale in groups if scale != config.largest or GROUPS[name].frozen]
    falls = "final accuracy falls with the fraction of dead ReLUs"
    unrelated = (
        f"except at × {config.largest:g} without frozen biases, final accuracy and stable rank have a correlation of "
        f"at most {UNRELATED:g} in size"
    )
    for statement, place, said, values, claimed, used in (
        (falls, "section 7", "correlates", dead, BELOW_ZERO, groups),
        (
            unrelated,
            "appendix A, figure 8",
            "no significant relation",
            _final_rank,
            (-UNRELATED, UNRELATED),
            excepted,
        ),
    ):
        if not used:
            continue
        pairs = np.array([[of(table, config, *group).mean() for group in used] for of in (values, accuracy)])
        without = {
            f"{name} × {scale:g}": Measurement.correlation(*np.delete(pairs, at, axis=1))
            for at, (name, scale) in enumerate(used)
        }
        question = Question(
            statement=_where(config) + statement,
            **in_setting(f"{PAPER_C}, {place}", said, of_paper=_of_paper(config)),
            claimed=claimed,
            unit="correlation",
            note=f"correlation over the {len(used)} pairs of group and scale, of means over seeds, with Fisher's "
            + f"interval; {DEAD if values is dead else STABLE_RANK}",
        )
        yield question, Measurement.correlation(*pairs), without


def _final_rank(table, config: Config, name: str, scale: float) -> np.ndarray:
    """Mean stable ranks at the end [seeds]."""
    return over_epochs(table, config, name, scale, "stable_rank.mean")[:, -1]


def _stable_rank(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    """Figure 8: the rank is consistent, except at the largest scale without frozen biases."""
    changed, consistent = (NOTICEABLE, np.inf), (-np.inf, NOTICEABLE)
    for name, scale, claimed in (
        ("standard", config.largest, changed),
        ("random", config.largest, changed),
        ("standard, frozen biases", config.largest, consistent),
        ("random, frozen biases", config.largest, consistent),
        ("standard", 8.0, consistent),
    ):
        if name not in config.groups or scale not in config.scales:
            continue
        rank, at_one = (over_epochs(table, config, name, x, "stable_rank.mean")[:, -1] for x in (scale, 1.0))
        verb = "change" if claimed == changed else "do not change"
        question = Question(
            statement=f"first updates at × {scale:g} {verb} the stable rank",
            variant=name,
            source=f"{SOURCE}, figure 8",
            paper_value="noticeable" if claimed == changed else "largely consistent",
            claimed=claimed,
            unit="relative change",
            note=f"relative change of the mean stable rank of the matrices at the end against × 1, {NOTICEABLE:g} or "
            f"more is noticeable; {_seeds(config)}",
        )
        yield question, Measurement.over_seeds(np.abs(rank / at_one - 1))


def _lost_accuracy(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    top, seeds = config.largest, _seeds(config)

    def lost(name: str) -> np.ndarray:
        return accuracy(table, config, name, 1.0) - accuracy(table, config, name, top)

    if "standard" in config.groups:
        question = Question(
            statement=f"first updates at × {top:g} cost accuracy",
            source=SOURCE,
            paper_value=_paper_loss(top, "standard"),
            claimed=ABOVE_ZERO,
            unit="% of accuracy",
            note=f"{LOST}; {seeds}",
        )
        yield question, Measurement.over_seeds(lost("standard"))
    for other, effect in (("random", "in random directions cost less"), ("leaky", "with a leaky ReLU cost less")):
        if {"standard", other} <= set(config.groups):
            question = Question(
                statement=f"first updates at × {top:g} {effect} accuracy",
                source=SOURCE,
                paper_value=_paper_loss(top, "standard", other),
                claimed=ABOVE_ZERO,
                unit="% of accuracy",
                note=f"{LOST}; {seeds}",
            )
            yield question, Measurement.over_seeds(lost("standard") - lost(other))
    if "standard, frozen biases" in config.groups:
        question = Question(
            statement=f"with frozen biases first updates at × {top:g} cost no accuracy",
            source=SOURCE,
            paper_value=_paper_loss(top, "standard, frozen biases"),
            claimed=(-np.inf, 0.5),
            unit="% of accuracy",
            note=f"{LOST}, at most 0.5; {seeds}",
        )
        yield question, Measurement.over_seeds(lost("standard, frozen biases"))


def _few_images(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    """Appendix A: overfitting to few samples at the beginning does not lower the final accuracy."""
    if not {"standard", FEW} <= set(config.groups):
        return
    losses, lost = few_images(table, config)
    question = Question(
        statement=f"a first phase on {config.first_images} images costs no accuracy",
        source=SOURCE,
        paper_value="0.0",
        claimed=(-np.inf, 0.5),
        unit="% of accuracy",
        note=f"{LOST}, at × 1, at most 0.5; {losses}; {_seeds(config)}",
    )
    yield question, lost


def _seeds(config: Config) -> str:
    return f"t interval over {len(config.seeds)} seeds"


def _paper_loss(top: float, name: str, less: str | None = None) -> str:
    """The loss of accuracy from × 1 to × top in the paper, in %, minus that of another group."""
    published = [GROUPS[n].paper_accuracy for n in (name, less) if n]
    lost = [by_scale[1] - by_scale[top] for by_scale in published if top in by_scale]
    return f"{lost[0] - sum(lost[1:]):.1f}" if lost else "–"
