"""The claims of `token_frequencies`."""

from experiments.token_frequencies.analysis import by_vocab, growth, power_law_fit
from experiments.token_frequencies.config import Config
from lvp.analysis.claims import Claim, Question
from lvp.analysis.measurement import Measurement

FIGURE_2 = (8192, 32768)  # vocabularies of the figure
EXCELLENT = 0.95  # R²; the paper gives no number


def claims(table, config: Config, context) -> list[Claim]:
    """Returns the claims that the ratio of squares is Θ(m), the relative mean square Θ(1/m), and the frequencies a
    power of rank."""
    answers = []
    for statement, source, column, power in (
        ("the top token's squared frequency over the mean square grows as m", "theorem 2", "peak_ratio", 1.0),
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
    rows = {row["lane.vocab"]: row for row in by_vocab(table).to_dict("records")}
    for vocab in (m for m in FIGURE_2 if m in rows):
        r_squared, factor = power_law_fit(rows[vocab])
        question = Question(
            statement=f"a power of rank is an excellent approximation of the token frequencies (m = {vocab})",
            source="Hayou & Liu 2025, figure 2",
            paper_value="excellent",
            claimed=(EXCELLENT, 1.0),
            note=f"R² in logarithms over tokens that occur, at ranks of equal ratios, at least {EXCELLENT:g}; the "
            f"power is off by a factor of up to {factor:.1f}; counted, without sampling error",
        )
        answers.append(question.answer(Measurement(r_squared, (r_squared, r_squared)), context))
    return answers
