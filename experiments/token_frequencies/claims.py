"""The claims of `token_frequencies`."""

from lvp.analysis.claims import OUR_RESULT, Claim, Question
from lvp.analysis.measurement import Measurement
from lvp.analysis.power_laws import in_words
from lvp.experiments.common import slope_claims
from lvp.experiments.token_frequencies.analysis import by_vocab, growth, larger_half, power_law_fit
from lvp.experiments.token_frequencies.config import Config

PAPER_A = "Hayou & Liu 2025"
FIGURE_2 = (8192, 32768)  # vocabularies of the figure
EXCELLENT = 0.95  # R²; the paper gives no number


def claims(table, config: Config, context) -> list[Claim]:
    """The claims that the ratio of squares is Θ(m), and the frequencies a power of rank."""
    larger = larger_half(table)
    peak = growth(larger, "peak_ratio")
    ratio = Question(
        statement="for large m, the top token's squared frequency over the mean square is proportional to m",
        source=f"{OUR_RESULT}, after {PAPER_A}, lemma 1 and theorem 2",  # which are about Zipf's law
        paper_value=1.0,
        claimed=1.0,
        rivals=(0.0,),
        unit="power of m",
        note=f"power of m in the larger half of the vocabularies (m = {', '.join(map(str, larger['run.vocab']))}), "
        f"because the order is that of large m; in all vocabularies {in_words(growth(table, 'peak_ratio'))}",
    )
    without = {}
    for m in larger["run.vocab"] if len(larger) > 1 else ():
        fit = growth(larger[larger["run.vocab"] != m], "peak_ratio")
        without[f"m {m}"] = Measurement(fit.slope, fit.interval)
    measured = Measurement(peak.slope, peak.interval)
    answers = [slope_claims.answer_without_each(ratio, measured, without, context, None, what="m")]
    rows = {row["run.vocab"]: row for row in by_vocab(table).to_dict("records")}
    for vocab in (m for m in FIGURE_2 if m in rows and context["corpus"] == "wikitext2"):
        fit = power_law_fit(rows[vocab])
        frequent, rare = fit.exponents
        question = Question(
            statement=f"WikiText-2's token frequencies follow a power of their rank, with R² of at least {EXCELLENT:g} "
            "in logarithms",
            variant=f"m = {vocab}",
            source=f"{PAPER_A}, figure 2",
            paper_value="excellent",
            claimed=(EXCELLENT, 1.0),
            unit="R²",
            note=f"R² in logarithms over tokens that occur, at ranks of equal ratios, at least {EXCELLENT:g} "
            f"(our threshold); an exponential in the rank has R² = {fit.r_squared_of_exponential:.2f}; exponent "
            f"{frequent:.2f} in the more frequent half of the ranks and {rare:.2f} in the rarer half; the power is off "
            f"by a factor of up to {fit.factor:.1f}; counted, without sampling error",
        )
        counted = Measurement(fit.r_squared, (fit.r_squared, fit.r_squared))
        answers.append(question.answer(counted, context, None))
    return answers
