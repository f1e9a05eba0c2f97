"""The claims of `muon`."""

from collections.abc import Iterator

from experiments.muon.analysis import tuned
from experiments.muon.config import LVP_POWER, NANOCHAT, Arm, Config
from lvp.analysis.claims import ABOVE_ZERO, Claim, Question, refusal
from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import difference

NEAR = 0.01  # bits per byte
NOTE = "difference in validation bits per byte; each arm at its own tuned rate; the interval allows for the tuning"


def claims(table, config: Config, context) -> list[Claim]:
    """Whether the ratio matters under Adam and under Muon, whether √d is near the best, and which arm has less loss."""
    reason = refusal(config.judging_seeds, config.selecting_seeds)
    return [question.answer(measurement, context, reason=reason) for question, measurement in _judged(table, config)]


def _judged(table, config: Config) -> Iterator[tuple[Question, Measurement]]:
    seeds = f"{NOTE}; t interval over {len(config.judging_seeds)} judging seeds"
    by_ratio = {
        optimizer: {power: tuned(table, config, Arm(optimizer, power)).judged for power in config.powers}
        for optimizer in ("Adam", "Muon")
    }
    sources = {"Adam": "Hayou & Liu 2025, section 4.2", "Muon": "our result"}
    for optimizer, ratios in by_ratio.items():
        of_lvp = ratios[LVP_POWER]
        yield (
            Question(
                statement=f"under {optimizer} LVP's ratio √d has a lower loss than one rate",
                source=sources[optimizer],
                paper_value="> 0" if optimizer == "Adam" else None,
                claimed=ABOVE_ZERO,
                note=seeds,
            ),
            difference([[ratios[0.0]]], [[of_lvp]]),
        )
        yield (
            Question(
                statement=f"under {optimizer} √d is within {NEAR} bits per byte of the best ratio",
                source=sources[optimizer],
                paper_value="near-optimal" if optimizer == "Adam" else None,
                claimed=(float("-inf"), NEAR),
                note=f"{seeds}; ratios d^p with p = {', '.join(f'{power:g}' for power in config.powers)}",
            ),
            difference([[of_lvp]], [list(ratios.values())]),
        )
    adam, muon = by_ratio["Adam"], by_ratio["Muon"]
    yield (
        Question(
            statement="the gain of LVP's ratio over one rate is smaller under Muon than under Adam",
            source="our result",
            paper_value=None,
            claimed=ABOVE_ZERO,
            note=f"gain under Adam less gain under Muon; {seeds}",
        ),
        difference([[adam[0.0]], [muon[LVP_POWER]]], [[adam[LVP_POWER]], [muon[0.0]]]),
    )
    rivals = {
        "Adam with LVP's rates": adam[LVP_POWER],
        "Muon with nanochat's constants": tuned(table, config, NANOCHAT).judged,
    }
    for name, other in rivals.items():
        yield (
            Question(
                statement=f"Muon with LVP's rates has a lower loss than {name}",
                source="our result",
                paper_value=None,
                claimed=ABOVE_ZERO,
                note=seeds,
            ),
            difference([[other]], [[muon[LVP_POWER]]]),
        )
