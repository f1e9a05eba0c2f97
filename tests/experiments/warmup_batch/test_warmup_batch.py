"""warmup_batch: runs keep tokens or steps, and planted gaps give the expected verdicts."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from lvp.analysis.claims import NOT_TESTED
from lvp.experiments import warmup_batch
from lvp.experiments.warmup import config as warmup
from lvp.experiments.warmup_batch.config import EQUAL
from lvp.training import records

LAPTOP = warmup_batch.PRESETS["laptop"]
CONFIG = replace(LAPTOP, groups=("AdamW",), batches=(32, 512), seeds=(0, 1), more_seeds=(100, 101, 102, 103), reserve=0)
CONTEXT = {"experiment": "warmup_batch", "preset": "laptop", "corpus": "none", "commit": "none"}


def rows_of(config, settings, gaps, best=1):
    """Returns records in which training without warm-up loses `gaps[batch]`, and rate number `best` is the best."""
    rows, noise = [], np.random.default_rng(0)
    configs = {(own.batch, own.steps): own for own in config.runs.values()}
    for _, setting, runs, _ in settings:
        rates = warmup.rates_of(configs[setting.batch, setting.steps], "AdamW")
        described = asdict(setting)
        for run in runs:
            loss = 3 + 0.2 * np.log(run.learning_rates["hidden"] / rates[best]) ** 2 + 0.002 * noise.normal()
            loss += gaps[setting.batch] * (run.warmup_steps == 0)
            outcome = {"status": "finished", "valid_loss": loss}
            config_of = {"cell": described, "lane": vars(run)}
            rows.append({"hash": str(len(rows)), "config": config_of, "outcome": outcome, "provenance": {}})
    return records.table(rows)


def table_of(gaps, config=CONFIG, **planted):
    """Returns the table of the selecting runs and of the runs that follow up."""
    settings = warmup_batch.config.settings(config)
    more = warmup_batch.analysis.follow_up(rows_of(config, settings, gaps, **planted), config)
    return rows_of(config, [c._replace(runs=[*c.runs, *more[c.label]]) for c in settings], gaps, **planted)


def test_runs_keep_the_tokens_or_the_steps_of_the_base_batch():
    sizes = {(own.batch, own.steps) for own in LAPTOP.runs.values()}
    assert sizes == {(32, 3200), (128, 800), (512, 200), (32, 200), (128, 200)}
    for batch in LAPTOP.batches:
        by_tokens, by_steps = (LAPTOP.at(equal, batch) for equal in ("tokens", "steps"))
        assert by_tokens.batch * by_tokens.steps == LAPTOP.batch * LAPTOP.steps and by_steps.steps == LAPTOP.steps
        root = (batch / LAPTOP.batch) ** 0.5
        for name, group in warmup.GROUPS.items():
            ratios = np.divide(warmup.rates_of(by_tokens, name), warmup.rates_of(LAPTOP, name))
            sizes = np.sqrt(ratios) if group.kind == "lion_ar" else ratios  # of an update: LionAR's is an angle
            assert sizes == pytest.approx(root, rel=1e-3), name
    settings = warmup_batch.config.settings(LAPTOP)
    assert len({c.label for c in settings}) == len(settings) == 5 * 3
    for c in settings:
        for run in c.runs:
            c.setting.check(run)


@pytest.mark.parametrize(
    ("gaps", "verdict"), [({32: 0.1, 512: 0.3}, "supported"), ({32: 0.3, 512: 0.1}, "contradicted")]
)
def test_claims_follow_the_planted_gaps(gaps, verdict):
    table = table_of(gaps)
    claims = warmup_batch.claims.claims(table, CONFIG, CONTEXT)
    assert [c.verdict for c in claims] == [verdict] * len(EQUAL)
    assert claims[0].value == pytest.approx(gaps[512] - gaps[32], abs=0.01)
    assert warmup_batch.figure.figure(table, CONFIG, preset="laptop", corpus="none", partial=(1, 2)).axes
    assert "equal tokens" in warmup_batch.analysis.summary(table, CONFIG)


def test_a_best_rate_at_the_edge_leaves_the_claim_open():
    claims = warmup_batch.claims.claims(table_of({32: 0.1, 512: 0.3}, best=0), CONFIG, CONTEXT)
    assert {c.verdict for c in claims} == {"unresolved"} and "at the edge of its grid" in claims[0].note


def test_an_edge_matters_only_if_it_could_change_the_verdict():
    """Only runs with warm-up at the largest batch have their best rate at the edge: a better rate widens their gap."""
    whole = table_of({32: 0.1, 512: 0.3})
    rates = warmup.rates_of(CONFIG.at("steps", 512), "AdamW")
    swap = {rates[0]: rates[1], rates[1]: rates[0]}
    for warmup_steps, verdict in ((40, "supported"), (0, "unresolved")):
        table = whole.copy()
        chosen = (table["setting.batch"] == 512) & (table["run.warmup_steps"] == warmup_steps)
        chosen &= table["run.learning_rates.hidden"].isin(swap)
        table.loc[chosen, "run.learning_rates.hidden"] = table["run.learning_rates.hidden"][chosen].map(swap)
        claims = warmup_batch.claims.claims(table, CONFIG, CONTEXT)
        assert {c.verdict for c in claims} == {verdict}


def test_a_run_whose_momentum_lasts_too_long_is_not_tested():
    config = replace(CONFIG, steps=190)  # β = 0.9 averages over 10 steps, more than 5 % of 190
    claims = warmup_batch.claims.claims(table_of({32: 0.1, 512: 0.3}, config), config, CONTEXT)
    assert {c.verdict for c in claims} == {NOT_TESTED} and "averages over 10 steps" in claims[0].reason


def test_grids_grow_in_rounds_and_no_run_measures_a_stable_rate():
    config = replace(CONFIG, groups=("LionA",), reserve=2)
    first = warmup_batch.config.settings(config)
    more = warmup_batch.analysis.follow_up(rows_of(config, first, {32: 0.1, 512: 0.3}), config)
    added = [run for runs in more.values() for run in runs]
    assert {run.seed for run in added} == set(config.seeds)  # the planted best rate is in reserve
    limit = {c.label: c.runs for c in warmup_batch.config.all_runs(config)}
    assert all(run in limit[label] for label, runs in more.items() for run in runs)
    judging = [run for runs in limit.values() for run in runs if run.seed in config.more_seeds]
    assert len(judging) == len(config.runs) * len(config.warmups) * len(config.more_seeds)


def test_equal_gaps_support_no_growth():
    """Negative control, with noise that is the same for no two runs."""
    claims = warmup_batch.claims.claims(table_of({32: 0.2, 512: 0.2}), CONFIG, CONTEXT)
    assert len(claims) == len(EQUAL) and "supported" not in {c.verdict for c in claims}
