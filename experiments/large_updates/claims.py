"""The claims of `large_updates`."""

import numpy as np

from experiments.large_updates.analysis import accuracy, dead
from experiments.large_updates.config import ARMS, Config
from lvp.analysis.claims import ABOVE_ZERO, Claim, of_values

PAPER_C = "Kosson, Messmer & Jaggi 2024, appendix A"
DIED = "difference in the fraction of dead ReLUs at the end"
LOST = "difference in final accuracy, %"
PREVENTED = 0.01  # of all units: what counts as none more


def _claimed(table, config: Config):
    """Statement, paper's value, values by seed, claimed region, note."""
    top = config.largest
    loss = lambda name: accuracy(table, config, name, 1.0) - accuracy(table, config, name, top)  # noqa: E731
    has = lambda *names: set(names) <= set(config.arms)  # noqa: E731
    for name in (n for n in ("standard", "random") if has(n)):
        unfrozen, frozen = (dead(table, config, name, scale) for scale in (top, 1.0))
        statement = f"first updates at × {top:g} leave dead ReLUs ({name})"
        yield statement, "> 0", unfrozen - frozen, ABOVE_ZERO, f"{DIED} between × {top:g} and × 1"
        if has(f"{name}, frozen biases"):
            held = [dead(table, config, f"{name}, frozen biases", scale) for scale in (top, 1.0)]
            statement = f"with frozen biases they leave fewer ({name}, × {top:g})"
            yield statement, "> 0", unfrozen - held[0], ABOVE_ZERO, f"{DIED}, unfrozen less frozen"
            statement = f"frozen biases prevent dead ReLUs ({name}, × {top:g})"
            note = f"{DIED} between × {top:g} and × 1, at most {PREVENTED:g}"
            yield statement, "≤ 0", held[0] - held[1], (-np.inf, PREVENTED), note
    if has("standard"):
        statement = f"first updates at × {top:g} cost accuracy"
        yield statement, _paper_loss(top, "standard"), loss("standard"), ABOVE_ZERO, LOST
    for other, words in (("random", "in random directions cost less"), ("leaky", "cost a leaky ReLU less")):
        if has("standard", other):
            statement = f"first updates at × {top:g} {words} accuracy"
            yield statement, _paper_loss(top, "standard", other), loss("standard") - loss(other), ABOVE_ZERO, LOST
    if has("standard, frozen biases"):
        values = loss("standard, frozen biases")
        statement = f"with frozen biases first updates at × {top:g} cost no accuracy"
        note = f"{LOST}, at most 0.5"
        yield statement, _paper_loss(top, "standard, frozen biases"), values, (-np.inf, 0.5), note


def _paper_loss(top: float, name: str, less: str | None = None) -> str:
    """What the paper's accuracies lose from × 1 to × top, in %; less what another arm's do."""
    lost = [ARMS[n].paper[1] - ARMS[n].paper[top] for n in (name, less) if n and top in ARMS[n].paper]
    return f"{lost[0] - sum(lost[1:]):.1f}" if lost else "–"


def claims(table, config: Config, context) -> list[Claim]:
    """Those of appendix A whose arms were run."""
    made = []
    for statement, paper_value, values, claimed, note in _claimed(table, config):
        note = f"{note}; t interval over {len(values)} seeds"
        parts = dict(statement=statement, source=PAPER_C, paper_value=paper_value, note=note)
        made.append(of_values(values, claimed=claimed, **parts, **dict(context)))
    return made
