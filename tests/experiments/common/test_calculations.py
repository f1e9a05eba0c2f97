"""Experiments that calculate: their quantities equal the definitions, and their claims are right on planted tables."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from lvp import data, theory
from lvp.data.tokens import tokenizers
from lvp.errors import InputError
from lvp.experiments import feature_learning, linear_network, token_frequencies
from lvp.experiments.feature_learning import sign_moments
from lvp.sweeps.committed import result
from tests.marking import slow

CONTEXT = {"experiment": "none", "preset": "none", "corpus": "none", "commit": "none"}


@pytest.mark.parametrize("experiment", [token_frequencies, feature_learning, linear_network], ids=lambda m: m.__name__)
def test_a_small_text_has_the_vocabularies_of_every_preset(experiment):
    for config in experiment.PRESETS.values():
        assert all(c.setting.vocab <= 32768 for c in experiment.config.settings(config))


@pytest.fixture
def zipf(tmp_path):
    return data.prepare("zipf:1", vocab=512, slice_bytes=None, valid_bytes=None, cache=tmp_path)


def test_mean_squares_equal_those_of_the_frequencies(zipf):
    calculated = token_frequencies.calculation.calculate({"ranks": [10, 500]}, {"vocab": 512}, zipf)
    alpha = zipf.frequencies()
    assert calculated["peak_ratio"] == pytest.approx(512 * alpha.max() ** 2 / np.sum(alpha**2), rel=1e-12)
    assert calculated["mean_square_of_top"] == pytest.approx(1 / calculated["peak_ratio"], rel=1e-12)
    assert calculated["exponent"] == pytest.approx(1, abs=0.05) and calculated["unseen"] == 0


def frequencies_table(power):
    """Returns a table whose peak ratio is m^power, with noise of 1 %."""
    vocabs = np.array([256, 512, 1024, 2048])
    noise = np.array([1.01, 0.99, 1.0, 1.005])
    ratio = vocabs.astype(float) ** power * noise
    return pd.DataFrame({"run.vocab": vocabs, "peak_ratio": ratio, "mean_square_of_top": 1 / ratio})


@pytest.mark.parametrize("power, verdict", [(1.0, "supported"), (0.0, "contradicted"), (0.5, "contradicted")])
def test_claims_about_frequencies_follow_the_planted_power(power, verdict):
    """The larger half of the vocabularies decides. The smaller half has another power."""
    small, large = frequencies_table(power - 0.7), frequencies_table(power)
    table = pd.concat([small, large.assign(**{"run.vocab": large["run.vocab"] * 12})], ignore_index=True)
    claims = token_frequencies.claims.claims(table, token_frequencies.PRESETS["laptop"], CONTEXT)
    assert [c.verdict for c in claims] == [verdict]
    assert claims[0].value == pytest.approx(power, abs=0.02)


@pytest.mark.parametrize(("bend", "verdict"), [(0.0, "supported"), (0.2, "contradicted")])
def test_the_claim_about_the_power_law_follows_the_curve(bend, verdict):
    """The planted frequencies are a power of rank if `bend` is 0. Otherwise their logarithms have a quadratic term."""
    table = frequencies_table(1.0).assign(**{"run.vocab": [1024, 2048, 4096, 8192]})
    log_rank = np.log(np.geomspace(1, 8192, 80))
    table["shown_ranks"] = [np.exp(log_rank).tolist()] * 4
    table["shown_frequencies"] = [np.exp(-log_rank + bend * log_rank**2).tolist()] * 4
    of_paper = CONTEXT | {"corpus": "wikitext2"}
    *_, claim = token_frequencies.claims.claims(table, token_frequencies.PRESETS["laptop"], of_paper)
    others = token_frequencies.claims.claims(table, token_frequencies.PRESETS["laptop"], CONTEXT)
    assert claim.statement not in {other.statement for other in others}  # figure 2 shows WikiText-2
    assert claim.variant == "m = 8192" and claim.verdict == verdict
    if not bend:
        assert claim.value == pytest.approx(1) and "factor of up to 1.0;" in claim.note


def test_the_fit_of_frequencies_gives_both_exponents():
    ranks = np.geomspace(1, 4096, 80)
    broken = np.where(ranks < 64, ranks**-0.9, 64**0.4 * ranks**-1.3)
    fits = [
        token_frequencies.analysis.power_law_fit({"shown_ranks": ranks, "shown_frequencies": frequencies})
        for frequencies in (broken, np.exp(-ranks / 500))
    ]
    assert fits[0].exponents == pytest.approx((0.9, 1.3), abs=1e-6)
    assert fits[0].r_squared > 0.95 > fits[0].r_squared_of_exponential
    assert fits[1].r_squared_of_exponential == pytest.approx(1) and fits[1].r_squared < 0.95


@pytest.mark.slow
def test_components_of_a_step_equal_their_closed_forms(zipf):
    arguments = {"width": 16, "vocab": 512, "draws": 40, "seed": 0, "steps": [1, 3], "rate": 0.2}
    components = feature_learning.calculation.calculate(arguments, {"arm": feature_learning.config.THEOREM}, zipf)
    for part in feature_learning.config.PARTS:
        assert abs(components[part] - components[f"{part}_exact"]) < 4 * components[f"{part}_error"]
    assert components["embedding_paper"] == theory.embedding_component(16, 512, 1.0, 1.0)
    assert components["top_paper"] > 1.05 * components["top_exact"]
    group = feature_learning.calculation.calculate(arguments, {"arm": "Adam, cross-entropy"}, zipf)
    assert {f"{part}_step{t}" for part in feature_learning.config.PARTS for t in (1, 3)} <= set(group)
    assert group["embedding_step3"] > group["embedding_step1"] > 0


def moments_rows(d, alpha, form):
    """Yields a row for theorem 3 and one for theorem 4. Their variances have the exact or the printed form; their
    covariances are diagonal up to noise."""
    signs = float(theory.sign_projection_variance(d, len(alpha)))
    variances = [theory.sign_gaussian_variance(d, alpha, exact=exact) for exact in (True, False)]
    forms = {"signs": (signs, signs)}
    forms |= {
        name: tuple(float(x[token]) for x in variances) for name, token in (("top", 0), ("rare", len(alpha) // 2))
    }
    for group in sign_moments.GROUPS:
        row = {"run.arm": group}
        for name in ("signs",) if group == "theorem 3" else ("top", "rare"):
            exact, paper = forms[name]
            value = exact if form == "exact" else paper
            row |= {f"{name}_variance": value, f"{name}_variance_error": 0.003 * value}
            row |= {f"{name}_variance_exact": exact, f"{name}_variance_paper": paper}
            row |= {f"{name}_covariance": 0.001 * value, f"{name}_covariance_error": 0.002 * value}
        yield row


def learning_table(config, form):
    """Returns a table in which the projection has `form` ("exact" or "paper"), and every group has LVP's power of d."""
    rows = []
    for regime, pairs in feature_learning.config.regimes(config).items():
        for d, m in pairs:
            alpha = 1.0 / np.arange(1, m + 1)
            alpha /= alpha.sum()
            shape = {"setting.arguments.regime": regime, "setting.arguments.width": d}
            forms = {"embedding": [theory.embedding_component(d, m, 1.0, 1.0)] * 2}
            for part, token in (("top", 0), ("rare", m // 2)):
                forms[part] = [theory.projection_component(d, 1.0, 1.0, alpha, exact=e)[token] for e in (True, False)]
            row = {"run.arm": feature_learning.config.THEOREM}
            for part, (exact, paper) in forms.items():
                value = exact if form == "exact" else paper
                row |= {part: value, f"{part}_error": 0.003 * value, f"{part}_exact": exact, f"{part}_paper": paper}
            rows.append(shape | row)
            rows += [shape | r for r in moments_rows(d, alpha, form)] if regime == "m = 8 d" else []
            for group in feature_learning.config.GROUPS if regime == "m = 8 d" else ():
                scale = {"embedding": d**-1.0, "top": d**-1.5, "rare": d**-1.5}
                steps = {f"{p}_step{t}": scale[p] * forms[p][0] for p in forms for t in config.steps}
                errors = {k.replace("_step", "_error_step"): 0.01 * v for k, v in steps.items()}
                rows.append(shape | {"run.arm": group} | steps | errors)
    return pd.DataFrame(rows)


@pytest.mark.parametrize("form, verdict", [("exact", "contradicted"), slow("paper", "supported")])
def test_claims_about_theorem_4_follow_the_planted_form(form, verdict):
    """The printed form of theorem 4 is right for the median token in either case."""
    config = feature_learning.PRESETS["laptop"]
    table = learning_table(config, form)
    claims = feature_learning.claims.claims(table, config, CONTEXT)
    frequent, *others = claims
    assert frequent.variant == "most frequent token" and frequent.verdict == verdict
    assert {c.verdict for c in others} == {"supported"} and others[0].variant == "median token"
    assert "Theorem 4, most frequent token" in feature_learning.analysis.summary(table, config)
    assert feature_learning.figure.figure(table, config, preset="laptop", corpus="none", partial=None).axes
    assert all(group in feature_learning.analysis.summary(table, config) for group in feature_learning.config.GROUPS)


def test_claims_hold_where_the_closed_form_is_no_power_law():
    """The closed form of δ_W need not be a power of d, for example for a text. The claim is judged on the ratio of the
    measured component to the form."""
    config = feature_learning.PRESETS["laptop"]
    table = learning_table(config, "exact")
    jump = 1 + (table["setting.arguments.width"] == 32)  # at d 32 the form of the most frequent token is doubled
    columns = [c for c in table if c == "top_exact" or c.startswith("top_step")]
    table[columns] = table[columns].mul(jump, axis=0)
    wrong = table["run.arm"] == "sign, cross-entropy"
    table.loc[wrong, columns] = table[columns].div(table["setting.arguments.width"] ** 0.3, axis=0)[wrong]
    claims = feature_learning.claims.claims(table, config, CONTEXT)[-4:]  # the exponent of δ_W
    assert [c.verdict for c in claims] == ["supported", "supported", "contradicted", "supported"]
    assert claims[2].value == pytest.approx(-0.3, abs=0.01)


def test_a_partial_sweep_can_be_reported():
    config = feature_learning.PRESETS["laptop"]
    whole = learning_table(config, "exact")
    is_theorem = whole["run.arm"] == feature_learning.config.THEOREM
    for rows in (whole[is_theorem], whole[~is_theorem], whole[:1], whole[::7]):
        rows = rows.dropna(axis=1, how="all")  # a partial table lacks the columns of runs that have not run
        feature_learning.figure.figure(rows, config, preset="none", corpus="none", partial=(len(rows), len(whole)))
        assert feature_learning.analysis.summary(rows, config).startswith("regime")
        assert len(feature_learning.claims.claims(rows, config, CONTEXT)) == 2 + 2 * len(feature_learning.config.GROUPS)


@pytest.mark.slow
def test_moments_equal_their_closed_forms(zipf):
    arguments = {"width": 16, "vocab": 512, "draws": 20, "seed": 0, "steps": [1], "rate": 0.2}
    moments = [feature_learning.calculation.calculate(arguments, {"arm": group}, zipf) for group in sign_moments.GROUPS]
    for name, outcome in (("signs", moments[0]), ("top", moments[1]), ("rare", moments[1])):
        value, error = outcome[f"{name}_variance"], outcome[f"{name}_variance_error"]
        assert abs(value - outcome[f"{name}_variance_exact"]) < 4 * error < 0.2 * value
        assert abs(outcome[f"{name}_covariance"]) < 4 * outcome[f"{name}_covariance_error"]
    assert moments[1]["top_variance_paper"] > 1.1 * moments[1]["top_variance_exact"]


def test_a_claim_names_the_width_of_its_measurement():
    config = feature_learning.Config(widths=(16, 32, 64, 128, 256), largest=1024)
    ratios = feature_learning.claims.claims(learning_table(config, "exact"), config, CONTEXT)[:2]
    assert all("at d 128, m = 8 d" in claim.note for claim in ratios)


def test_points_have_error_bars_and_no_legend_on_them():
    config = feature_learning.PRESETS["laptop"]
    table = learning_table(config, "exact")
    figure = feature_learning.figure.figure(table, config, preset="laptop", corpus="none", partial=None)
    figure.draw_without_rendering()
    panels = [axes for axes in figure.axes if axes.get_legend()]
    assert len(panels) == len(feature_learning.config.regimes(config)) + 2
    for axes in panels:
        assert axes.containers and all(container.has_yerr for container in axes.containers)
        assert not axes.get_legend().get_window_extent().overlaps(axes.get_window_extent())


def test_a_text_corpus_refuses_a_vocabulary_below_256():
    for preset, config in feature_learning.PRESETS.items():
        text = dataclasses.replace(config, corpus="wikitext2:/somewhere")
        shapes = [pair for pairs in feature_learning.config.regimes(text).values() for pair in pairs]
        assert min(m for _, m in shapes) == tokenizers.SMALLEST
        assert all(len(pairs) >= 2 for pairs in feature_learning.config.regimes(text).values()), preset
        assert {c.setting.vocab for c in feature_learning.config.settings(text)} == {m for _, m in shapes}
    assert (
        min(c.setting.vocab for c in feature_learning.config.settings(feature_learning.PRESETS["smoke"]))
        < tokenizers.SMALLEST
    )


def test_a_regime_of_one_width_is_left_out_and_reported():
    config = feature_learning.Config(corpus="python-docs", widths=(16, 32, 64), fixed_vocab=128, largest=2048)
    assert [len(pairs) for pairs in feature_learning.config.regimes(config).values()] == [0, 2, 2]
    lines = feature_learning.analysis.summary(learning_table(config, "exact"), config).splitlines()
    assert [line.split("  ")[0] for line in lines if "left out: fewer than two widths" in line] == ["m = 128"]
    with pytest.raises(InputError, match="256 ≤ m ≤ 300"):
        dataclasses.replace(config, largest=300)


def test_an_exponent_with_an_unknown_interval_is_shown_as_open():
    rows = {
        "run.vocab": [256, 512], "tokens": [10**7, 10**6], "unseen": 94, "fitted_from": 10, "fitted_to": [162, 418],
        "exponent": [20.0, 0.93], "exponent_low": [None, 0.8], "exponent_high": [None, 1.06], "offset": [244.0, -1.7],
        "peak_ratio": [203.1, 1000.0], "mean_square": [4e-4, 1.5e-5], "mean_square_of_top": [1 / 203.1, 1e-3],
        "shown_ranks": [[1, 10, 256], [1, 10, 512]], "shown_frequencies": [[0.2, 0.1, 0.0], [0.2, 0.1, 1e-3]],
        "shown_fit": [[None, 0.1, 0.01]] * 2,
    }  # fmt: skip
    table, config = pd.DataFrame(rows), token_frequencies.Config(vocabs=(256, 512))
    head, unresolved, resolved, *_ = token_frequencies.analysis.summary(table, config).splitlines()
    assert len(head) == len(unresolved) == len(resolved)
    assert "20.0" not in unresolved and "open" in unresolved and "0.80 … 1.06" in resolved
    curves = (
        token_frequencies.figure.figure(table, config, preset="none", corpus="none", partial=None).axes[0].get_lines()
    )
    assert len(curves) == 3  # the frequencies of two vocabularies and one fitted law
    drawn = np.concatenate([line.get_ydata() for line in curves])
    assert np.nanmin(drawn) == 1e-3  # a frequency of 0 is not drawn


@pytest.mark.parametrize("change", [{"widths": (8,)}, {"draws": 1}, {"steps": ()}, {"steps": (0, 1)}])
def test_unusable_configurations_are_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        feature_learning.Config(**change)
    with pytest.raises(InputError, match="first_rank"):
        token_frequencies.Config(first_rank=10, last_rank=10)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_claims_about_few_vocabularies_are_unresolved(count):
    """Without one of them no vocabulary is left."""
    done = result("token_frequencies/laptop-wikitext2")
    few = done.table.nsmallest(count, "run.vocab")
    (claim,) = token_frequencies.claims.claims(few, done.config, CONTEXT)
    assert claim.verdict == "unresolved"
