"""The claims of `token_frequencies`."""

from experiments.token_frequencies.analysis import growth
from experiments.token_frequencies.config import Config
from lvp.analysis.claims import Claim, Question
from lvp.analysis.measurement import Measurement


def claims(table, config: Config, context) -> list[Claim]:
    """Whether the ratio of squares is Θ(m) and the relative mean square Θ(1/m)."""
    answers = []
    for statement, source, column, power in (
        ("the square of the top token's frequency outgrows the mean square as m", "theorem 2", "peak_ratio", 1.0),
        ("with α₁ = 1 the mean square falls as 1/m", "lemma 1", "mean_square_of_top", -1.0),
    ):
        fit = growth(table, column)
        question = Question(
            statement=statement,
            source=f"Hayou & Liu 2025, {source}",
            paper_value=power,
            claimed=power,
            rivals=(0.0,),
            note=f"power of m from {fit.num_points} vocabularies",
        )
        answers.append(question.answer(Measurement(fit.slope, fit.interval), context))
    return answers
