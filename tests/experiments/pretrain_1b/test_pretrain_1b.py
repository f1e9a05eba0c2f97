"""pretrain_1b: its model is Table 3's, and its claims follow planted numbers."""

import dataclasses
import math
import re

import numpy as np
import pandas as pd
import pytest

from lvp.analysis.claims import NOT_TESTED
from lvp.errors import InputError
from lvp.experiments import pretrain_1b
from lvp.experiments.pretrain_1b import PRESETS, Config
from lvp.experiments.pretrain_1b.config import setting_of, settings
from lvp.models.configs import hayou_liu_1b

CONFIG = PRESETS["laptop"]
LARGER = {"powers": (0.0, 0.5, 1.0), "beyond": (2.0, 4.0, 8.0, 16.0)}
TUNED = dataclasses.replace(CONFIG, rates=(0.0015, 0.003, 0.006, 0.012), selecting_seeds=(100, 101), **LARGER)
CONTEXT = {"experiment": "pretrain_1b", "preset": "laptop", "corpus": "none", "commit": "0"}


# Keys of `verdicts`, with the statements of the claims.
BETTER, THROUGHOUT, BY_WORD, BY_WORD_THROUGHOUT = (
    f"at d {CONFIG.width}, the loss is lower with the embedding at √d times the other rates than with one rate "
    f"({loss}, at {at})"
    for loss, ats in (
        ("loss per token", ("the end", "every measured step")),
        ("ln of word-level perplexity", ("the end", "every scored step")),
    )
    for at in ats
)
NEAR = "with the other rates tuned at the embedding ratio √d, the loss at √d is within 0.02 nats per token of the best "
NEAR += "ratio's"


def table(config=CONFIG, best=None, words=0.0, best_rate=None, own_rate=None, runs=None, curvature=0.01, shrinks=0.05):
    """Returns a table of losses that grow with the distance of ln ratio from ln `best` (√d) and of the rate from
    `best_rate` (at ratio 1 from `own_rate`), and of a word-level loss that `words` shifts in favour of ratio 1.

    At the start, ratios above √d have losses that are lower by `shrinks`.
    """
    best, rows = best or config.root, []
    for run in runs or [run for planned in settings(config) for run in planned.runs]:
        rate = run.learning_rates["hidden"]
        ratio = run.learning_rates["embedding"] / rate
        loss = 4 + curvature * math.log(ratio / best) ** 2 + 0.001 * run.seed
        of_ratio = own_rate if own_rate and ratio < 1.01 else best_rate
        loss += math.log(rate / (of_ratio or rate)) ** 2
        curve = loss + np.linspace(5, 0, len(config.measured_steps))
        curve -= np.linspace(shrinks, 0, len(config.measured_steps)) * (ratio > 1.01 * config.root)
        rows.append(
            {
                "status": "finished",
                "valid_loss": loss,
                "perplexity_by_tokens": math.exp(1.3 * loss - words * (ratio < 1.01)),
                "perplexity_by_words": math.exp(1.4 * loss),
                "perplexities_by_tokens": [
                    math.exp(1.3 * x - words * (ratio < 1.01)) if step in config.scored_steps else None
                    for step, x in zip(config.measured_steps, curve, strict=True)
                ],
                "measures.validation.loss": list(curve),
                "run.seed": run.seed,
                "run.learning_rates.hidden": rate,
                "run.learning_rates.embedding": run.learning_rates["embedding"],
            }
        )
    return pd.DataFrame(rows)


def tuned_table(best_rate, **planted):
    """Returns the table of the runs that select the rate and of the follow-up runs."""
    first = settings(TUNED)[0].runs
    more = pretrain_1b.analysis.follow_up(table(TUNED, best_rate=best_rate, runs=first, **planted), TUNED)
    runs = [*first, *(run for runs in more.values() for run in runs)]
    return table(TUNED, best_rate=best_rate, runs=runs, **planted)


def verdicts(table, config=CONFIG):
    return {c.full_statement: c.verdict for c in pretrain_1b.claims.claims(table, config, CONTEXT)}


def test_the_paper_preset_trains_table_3():
    setting = setting_of(Config())
    assert setting.model == hayou_liu_1b()
    assert setting.tokens_per_run == pytest.approx(65e9, rel=0.01)
    assert setting.data.order == "rows" and setting.data.scored == "wikitext2"


def ratios_of(runs) -> list[float]:
    """The ratios of the embedding's rate to the other rates, in increasing order."""
    return sorted({round(run.learning_rates["embedding"] / run.learning_rates["hidden"], 2) for run in runs})


@pytest.mark.parametrize("preset", PRESETS)
def test_the_settings_differ_in_scored_steps_only(preset):
    config = PRESETS[preset]
    plain, scored = settings(config)
    for planned in (plain, scored):
        for run in planned.runs:
            assert run.learning_rates["hidden"] in (config.rates or (config.rate,))
            assert len({run.learning_rates[role] for role in ("hidden", "output", "vector")}) == 1
    assert dataclasses.replace(scored.setting, scored_steps=()) == plain.setting
    assert ratios_of(scored.runs) == pytest.approx([1.0, config.root], rel=1e-2)
    assert ratios_of([*plain.runs, *scored.runs]) == pytest.approx(list(config.ratios), rel=1e-2)
    assert config.measured_steps[-1] == config.steps - 1


def test_the_laptop_preset_has_the_specified_sizes():
    model, setting = setting_of(CONFIG).model, setting_of(CONFIG)
    assert (model.layers, model.width, model.head_dim, model.num_heads // model.num_kv_heads) == (4, 128, 32, 4)
    assert (model.window, model.context, model.vocab) == (128, 256, 4096)
    assert setting.tokens_per_run == pytest.approx(1e6, rel=0.03)
    assert len(CONFIG.ratios) == 7 and len(CONFIG.seeds) == 3
    assert CONFIG.ratios[0] == 1 and CONFIG.ratios[-1] == pytest.approx(4 * 128**0.5, rel=1e-3)


def test_claims_follow_the_planted_values():
    all_claims = {BETTER, THROUGHOUT, NEAR, BY_WORD, BY_WORD_THROUGHOUT}
    assert verdicts(tuned_table(0.006), TUNED) == dict.fromkeys(all_claims, "supported")
    at_ratio_1 = verdicts(tuned_table(0.006, best=1.0, shrinks=-0.05), TUNED)
    assert at_ratio_1 == dict.fromkeys(all_claims, "contradicted")
    at_large_ratios = verdicts(tuned_table(0.006, best=400.0), TUNED)  # larger ratios still improve the loss
    assert [at_large_ratios[x] for x in (BETTER, NEAR)] == ["supported", "contradicted"]
    by_word = verdicts(tuned_table(0.006, words=1.0), TUNED)
    assert [by_word[x] for x in (BETTER, BY_WORD, BY_WORD_THROUGHOUT)] == ["supported", "contradicted", "contradicted"]


def test_other_seeds_select_the_rate_at_root_d():
    first = settings(TUNED)[0].runs
    assert {run.seed for run in first} == set(TUNED.selecting_seeds)
    for best in (0.003, 0.006):
        losses = table(TUNED, best_rate=best, runs=first)
        assert pretrain_1b.analysis.tuned_rate(losses, TUNED) == best
        more = pretrain_1b.analysis.follow_up(losses, TUNED)
        assert ratios_of(more["d 128, words scored"]) == pytest.approx([1.0, TUNED.root], rel=1e-2)
        runs = [*more["d 128"], *more["d 128, words scored"]]
        assert {(run.learning_rates["hidden"], run.seed) for run in runs} == {(best, s) for s in TUNED.seeds}
        assert len(runs) == len(TUNED.ratios) * len(TUNED.seeds)
    assert pretrain_1b.analysis.follow_up(table(), CONFIG) == {}


def test_one_rate_for_all_is_judged_at_its_own_rate():
    """At √d's rate, ratio 1 loses (ln 2)² nats more than at its own. At its own it is the better ratio."""
    whole = tuned_table(0.003, own_rate=0.006, best=1.0)
    at_one = whole["run.learning_rates.embedding"] == whole["run.learning_rates.hidden"]
    judging = whole[at_one & whole["run.seed"].isin(TUNED.seeds)]
    assert set(judging["run.learning_rates.hidden"]) == {0.003, 0.006}
    claims = {c.full_statement: c for c in pretrain_1b.claims.claims(whole, TUNED, CONTEXT)}
    assert {claims[x].verdict for x in (BETTER, THROUGHOUT, BY_WORD, BY_WORD_THROUGHOUT)} == {"contradicted"}
    at_rates = [
        pretrain_1b.analysis.values_by_seed(whole, TUNED, 1.0, "valid_loss", own_rate=own) for own in (False, True)
    ]
    np.testing.assert_allclose(np.subtract(*at_rates), math.log(2) ** 2, rtol=1e-6)
    assert "1 at its own η = 0.006" in pretrain_1b.analysis.summary(whole, TUNED)
    at_edge = pretrain_1b.claims.claims(tuned_table(0.003, own_rate=0.012), TUNED, CONTEXT)
    for claim in (c for c in at_edge if c.full_statement in (BETTER, THROUGHOUT, BY_WORD, BY_WORD_THROUGHOUT)):
        assert claim.verdict == "unresolved" and "η at 1" in claim.note


def test_claims_about_a_small_model_are_our_results():
    sources = {c.source for c in pretrain_1b.claims.claims(table(), CONFIG, CONTEXT)}
    assert all(source.startswith("our result") for source in sources)
    wide = dataclasses.replace(CONFIG, width=Config().width)
    claims = pretrain_1b.claims.claims(table(wide), wide, CONTEXT)
    assert {c.source for c in claims} == {f"Hayou & Liu 2025, {figures}" for figures in ("figure 4", "figures 4 and 5")}


def test_the_best_ratio_is_judged_at_a_tuned_rate():
    claims = pretrain_1b.claims.claims(table(best=400.0), CONFIG, CONTEXT)
    untested = [c for c in claims if c.verdict == NOT_TESTED]
    assert {c.full_statement for c in untested} == {NEAR}
    for claim in untested:
        assert "η = 0.003 was not tuned" in claim.reason and "is the largest tried" in claim.reason


def test_the_best_ratio_is_not_judged_at_an_edge_rate():
    claims = pretrain_1b.claims.claims(tuned_table(0.012, best=400.0), TUNED, CONTEXT)
    untested = [c for c in claims if c.verdict == NOT_TESTED]
    at_edge = {c.full_statement for c in untested if c.reason == "η = 0.012 is at the edge of its grid"}
    assert at_edge == {NEAR}


def test_a_small_gain_at_the_largest_ratio_is_unresolved():
    """The gain over √d is below the margin at all measured ratios, but a larger ratio may gain more."""
    largest = TUNED.ratios[-1]
    for best, verdict in ((largest, "unresolved"), (largest / 2, "supported")):
        claims = pretrain_1b.claims.claims(tuned_table(0.006, best=best, curvature=0.002), TUNED, CONTEXT)
        (near,) = [claim for claim in claims if claim.full_statement == NEAR]
        assert near.verdict == verdict and (f"ratio {largest:g}" in near.note) == (best == largest)


@pytest.mark.parametrize("shrinks", [0.05, -0.05])
def test_the_gain_of_larger_ratios_over_the_training_is_noted(shrinks):
    """A larger ratio has a loss that is lower by `shrinks` at first, and higher by the planted curvature at the end."""
    claims = pretrain_1b.claims.claims(tuned_table(0.006, shrinks=shrinks), TUNED, CONTEXT)
    (note,) = [claim.note for claim in claims if claim.full_statement == NEAR]
    (early, end) = re.findall(r"larger ratio: (\S+) at 40%.* (\S+) at 100% of the training", note)[0]
    early, end = (float(gain.replace("−", "-")) for gain in (early, end))
    assert early - end == pytest.approx(0.6 * shrinks, abs=0.003) and end < 0


def test_a_lost_lead_is_not_a_lead_throughout():
    """Ratio 1 leads in the middle of the training."""
    losses = table()
    at_one = np.isclose(losses["run.learning_rates.embedding"], CONFIG.rate)
    middle = len(CONFIG.measured_steps) // 2
    for curve in losses.loc[at_one, "measures.validation.loss"]:
        curve[middle] -= 0.5
    assert [verdicts(losses)[x] for x in (BETTER, THROUGHOUT)] == ["supported", "contradicted"]
    step = CONFIG.measured_steps.index(CONFIG.scored_steps[0])
    assert verdicts(losses)[BY_WORD_THROUGHOUT] == "supported"
    for perplexities in losses.loc[at_one, "perplexities_by_tokens"]:
        perplexities[step] *= math.exp(-0.5)
    assert [verdicts(losses)[x] for x in (BY_WORD, BY_WORD_THROUGHOUT)] == ["supported", "contradicted"]


def test_words_are_scored_at_equal_distances_and_only_if_asked():
    steps = dataclasses.replace(CONFIG, steps=1000).scored_steps
    assert [step + 1 for step in steps] == [200, 400, 600, 800]
    at_end = dataclasses.replace(CONFIG, scored_points=0)
    (planned,) = settings(at_end)
    assert planned.setting.scored_steps == () and ratios_of(planned.runs) == pytest.approx(CONFIG.ratios, rel=1e-2)
    (claim,) = (
        c
        for c in pretrain_1b.claims.claims(table(at_end), at_end, CONTEXT)
        if c.verdict == NOT_TESTED and c.full_statement == BY_WORD_THROUGHOUT
    )
    assert claim.reason == "words are scored only at the end of training"


def test_a_diverged_ratio_gives_no_verdict():
    lost = table()
    at_one = np.isclose(lost["run.learning_rates.embedding"], CONFIG.rate)
    lost.loc[at_one, ["status", "valid_loss"]] = ["diverged", np.nan]
    assert verdicts(lost)[BETTER] == "unresolved" and "–" in pretrain_1b.analysis.summary(lost, CONFIG)

    def ratios(rows) -> set[str]:
        figure = pretrain_1b.figure.figure(rows, CONFIG, preset="laptop", corpus="none", partial=(1, 2))
        return {text.get_text() for text in figure.axes[0].get_legend().get_texts()}

    assert ratios(table()) - ratios(lost) == {pretrain_1b.analysis.ratio_label(CONFIG, 1.0)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"powers": (0.0, 0.5)}, "powers must contain 0 .* and 1"),
        ({"rate": 0.0}, "rate must be finite and above zero"),
        ({"seeds": (0,)}, "seeds needs at least 2 values"),
        ({"rates": (0.1, 0.2, 0.3)}, "rates and selecting_seeds belong together"),
        ({"rates": (0.1, 0.2, 0.3), "selecting_seeds": (2, 3)}, "seeds 2 selected the setting"),
        ({"warmup": 0.9}, "with a sum of at most 1"),
        ({"points": 1}, "points must be at least 2"),
        ({"scored_points": 26}, "scored_points must be at most 25"),
    ],
    ids=str,
)
def test_bad_input_is_named(change, words):
    with pytest.raises(InputError, match=words):
        dataclasses.replace(CONFIG, **change)
