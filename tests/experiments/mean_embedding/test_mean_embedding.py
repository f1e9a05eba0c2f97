"""mean_embedding: planted drifts, losses and second moments give the expected verdicts."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from lvp.experiments import mean_embedding
from lvp.sweeps import committed
from lvp.training import records

CONFIG = mean_embedding.PRESETS["laptop"]
CONTEXT = {"experiment": "mean_embedding", "preset": "laptop", "corpus": "none", "commit": "none"}
DRIFT = {"SGD": 1e-8, "momentum SGD": 2e-8, "SignSGD": 0.4, "LionA": 0.3, "Adam": 0.5, "Coupled Adam": 1e-8}


def outcome(setting, run, drift, best, r_squared, scale, seed):
    """Returns an outcome with planted values for all measures that the claims read."""
    points, jitter = len(setting.measured_steps), 1 + 0.01 * seed
    path = "tied_embedding/embedding" if setting.model.tied else "head/kernel"
    moments = {"r_squared": r_squared, "slope": scale, "slope_through_origin": scale}
    bins = {"frequency": [0.1, 0.01, 0.0], "norm": [1.0, 0.5, None], "second_moment": [1e-3, 1e-4, None]}
    coupled = setting.optimizer.kind == "coupled_adam"
    matrix = {"average_cosine": 0.1, "isotropy": 0.9 if coupled else 0.5, "mean_norm": 0.01 if coupled else 0.3}
    matrix |= {"against_hidden": 0.8, "first_moment_sum": 1e-7} | ({} if setting.optimizer.kind != "adam" else moments)
    vocabulary = {}
    for name in {path, "embedding/embedding"} if not setting.model.tied else {path}:
        scaled = run.learning_rates["embedding"] > run.learning_rates["hidden"] or (
            run.learning_rates["output"] > run.learning_rates["hidden"]
        )
        vocabulary[name] = {k: [v * jitter] * points for k, v in matrix.items()}
        vocabulary[name]["mean_drift"] = [drift * jitter * (2 if scaled else 1)] * points
        vocabulary[name]["by_frequency"] = {k: [v] * points for k, v in bins.items()}
    loss = 2 + (np.log(run.learning_rates["hidden"] / best)) ** 2 + 0.001 * seed
    return {
        "status": "finished",
        "valid_loss": loss,
        "valid_bits_per_byte": loss,
        "measures": {"vocabulary": vocabulary, "head_gradient_sum": [1e-8 * jitter] * points},
    }


def table_of(config, settings, r_squared=0.85, scale=1 / 512):
    rows = []
    for label, setting, runs, _ in settings:
        name, head = label.rsplit(", ", 1)
        rates = getattr(config, mean_embedding.config.OPTIMIZERS[name].rates_field)
        described = asdict(setting)
        for run in runs:
            planted = DRIFT[name] if head == "untied" or "Coupled" not in name else 0.01
            made = outcome(setting, run, planted, rates[1], r_squared, scale, run.seed)
            config_of = {"cell": described, "lane": vars(run)}
            rows.append({"hash": str(len(rows)), "config": config_of, "outcome": made, "provenance": {}})
    return records.table(rows)


def whole(config, **planted):
    """Returns the table of the tuning runs and their follow-up runs."""
    settings = mean_embedding.config.settings(config)
    more = mean_embedding.analysis.follow_up(table_of(config, settings, **planted), config)
    return table_of(config, [c._replace(runs=[*c.runs, *more[c.label]]) for c in settings], **planted)


def verdicts(table, config):
    return {c.full_statement: c.verdict for c in mean_embedding.claims.claims(table, config, CONTEXT)}


def test_one_seed_tunes_and_the_others_follow_up():
    settings = mean_embedding.config.settings(CONFIG)
    assert [c.label for c in settings[:6]] == [f"{name}, untied" for name in mean_embedding.config.OPTIMIZERS]
    table = table_of(CONFIG, settings)
    assert set(table["run.seed"]) == {0} and len(table) == 2 * (6 * 6 + 2 * 5)
    more = mean_embedding.analysis.follow_up(table, CONFIG)
    assert sum(map(len, more.values())) == 2 * 8 * len(CONFIG.judging_seeds)
    for label, runs in more.items():
        rates = getattr(CONFIG, mean_embedding.config.OPTIMIZERS[label.rsplit(", ", 1)[0]].rates_field)
        assert {run.learning_rates["hidden"] for run in runs} == {rates[1]}
        assert {run.seed for run in runs} == {*CONFIG.judging_seeds}
    scaled = [run for run in more["Adam, untied"] if run.learning_rates["embedding"] > run.learning_rates["hidden"]]
    assert all(x.learning_rates["embedding"] == 8 * x.learning_rates["hidden"] for x in scaled) and len(scaled) == len(
        CONFIG.judging_seeds
    )
    # A tied matrix trains at the rate of the role output.
    assert any(x.learning_rates["output"] == 8 * x.learning_rates["hidden"] for x in more["Adam, tied"])


def test_adam_and_coupled_adam_get_the_same_constants():
    optimizers = {c.label: c.setting.optimizer for c in mean_embedding.config.settings(CONFIG)}
    constants = {"b1": CONFIG.b1, "b2": CONFIG.b2, "eps": CONFIG.eps}
    assert optimizers["Adam, tied"].options == constants
    assert optimizers["Coupled Adam, tied"].options == constants | {"couple": ["output", "embedding"]}
    assert optimizers["SGD, tied"].options == {} and optimizers["momentum SGD, tied"].options == {"momentum": 0.9}


def test_claims_follow_the_planted_values():
    claim_verdicts = verdicts(whole(CONFIG), CONFIG)
    assert len(claim_verdicts) == 14 and set(claim_verdicts.values()) == {"supported"}


def test_the_committed_runs_have_sums_of_zero():
    """Stollenwerk & Stollenwerk 2025: the head's gradients sum to zero under every optimizer, and the mean of an untied
    head stays where it was under SGD, momentum SGD and Coupled Adam. Control: under Adam it moves."""
    table = committed.result("mean_embedding/laptop-wikitext2").table.query("status == 'finished'")
    assert np.concatenate(table["measures.head_gradient_sum"].tolist()).max() < 1e-5
    untied = table[~table["setting.model.tied"].astype(bool)]
    drift = {
        kind: max(map(max, rows["measures.vocabulary.head/kernel.mean_drift"]))
        for kind, rows in untied.groupby("setting.optimizer.kind")
    }
    assert max(drift["sgd"], drift["coupled_adam"]) < 1e-5 and drift["adam"] > 0.1


def test_the_seed_that_selects_a_rate_does_not_judge():
    config = replace(CONFIG, seeds=(0, 1, 2))
    claims = mean_embedding.claims.claims(whole(config), config, CONTEXT)
    refused = {c.statement for c in claims if c.reason == "2 judging seeds: a claim needs at least 3"}
    assert refused == {c.statement for c in claims}
    table = whole(CONFIG)
    table.loc[table["run.seed"] == 0, "valid_bits_per_byte"] += 9.0
    assert verdicts(table, CONFIG) == verdicts(whole(CONFIG), CONFIG)


def test_records_without_a_measure_do_not_judge_it():
    table = whole(CONFIG)
    table = table.drop(columns=[c for c in table if c.endswith(("against_hidden", "first_moment_sum"))])
    untested = [c for c in mean_embedding.claims.claims(table, CONFIG, CONTEXT) if c.reason]
    assert len(untested) == 2 and {c.reason for c in untested} == {mean_embedding.claims.UNMEASURED}


def test_claims_reverse_with_the_data(monkeypatch):
    """Negative control."""
    monkeypatch.setitem(DRIFT, "Adam", 1e-4)
    claim_verdicts = verdicts(whole(CONFIG, r_squared=0.4), CONFIG)
    wrong = {s for s, v in claim_verdicts.items() if v == "contradicted"}
    assert sum("Adam moves" in s for s in wrong) == sum("linear in token frequency" in s for s in wrong) == 2


def test_the_slope_of_the_second_moment_is_in_units_of_one_over_the_tokens_of_a_step():
    _, scale = mean_embedding.analysis.moment_fit(whole(CONFIG, scale=2 / 512), CONFIG, "untied")
    np.testing.assert_allclose(scale, [2 * (1 + 0.01 * seed) for seed in CONFIG.judging_seeds])


def test_a_better_fit_does_not_contradict_the_claim():
    claim_verdicts = verdicts(whole(CONFIG, r_squared=0.96), CONFIG)
    assert {v for s, v in claim_verdicts.items() if "linear in token frequency" in s} == {"supported"}


def test_runs_without_momentum_are_read_apart():
    """Both grids of rates contain 0.125. Without a run with momentum the table has no column for it."""
    config = replace(CONFIG, groups=("SGD", "Adam"), heads=("untied",))
    table = whole(config)
    assert set(CONFIG.sgd_rates) & set(CONFIG.momentum_rates)
    assert not len(mean_embedding.analysis.tuned_runs(table, CONFIG, "momentum SGD", "untied"))
    assert not any("momentum" in statement for statement in verdicts(table, config))


def test_seeds_are_paired_only_with_themselves():
    table = whole(CONFIG)
    scaled = table["run.learning_rates.embedding"] > table["run.learning_rates.hidden"]
    for kind, seed in (("adam", 1), ("coupled_adam", 2)):
        lost = scaled & (table["setting.optimizer.kind"] == kind) & (table["run.seed"] == seed)
        assert lost.any()
        table.loc[lost, ["status", "valid_loss", "valid_bits_per_byte"]] = ["diverged", np.nan, np.nan]
    claim_verdicts = {s: v for s, v in verdicts(table, CONFIG).items() if "√d" in s and ("untied" in s or "input" in s)}
    assert len(claim_verdicts) == 2 and set(claim_verdicts.values()) == {"unresolved"}
    assert "nan" not in mean_embedding.analysis.summary(table, CONFIG)


def drawn(table, config) -> set[str]:
    """Returns the names in the legends of the figure."""
    figure = mean_embedding.figure.figure(table, config, preset="laptop", corpus="none", partial=(1, 2))
    legends = [axes.get_legend() for axes in figure.axes]
    return {text.get_text() for legend in legends if legend for text in legend.get_texts()}


@pytest.mark.parametrize("groups, heads", [(("SGD", "Adam"), ("untied",)), (("LionA",), ("tied",))])
def test_missing_groups_have_no_claims(groups, heads):
    config = replace(CONFIG, groups=groups, heads=heads)
    table = whole(config)
    assert len(mean_embedding.config.settings(config)) == len(groups)
    assert groups[0] in mean_embedding.analysis.summary(table, config)
    assert drawn(table, config) & set(DRIFT) == (set(groups) if heads == ("untied",) else set())
    assert set(verdicts(table, config).values()) <= {"supported"}  # only groups that ran have claims


def test_a_diverged_group_is_reported_and_not_drawn():
    table = whole(CONFIG)
    assert set(DRIFT) <= drawn(table, CONFIG)
    lost = table["setting.optimizer.kind"] == "lion_a"
    table.loc[lost, ["status", "valid_loss"]] = ["diverged", np.nan]
    assert "no finished run" in mean_embedding.analysis.summary(table, CONFIG)
    assert drawn(table, CONFIG) & set(DRIFT) == set(DRIFT) - {"LionA"}
    assert not any(f.get("LionA, tied") for f in [mean_embedding.analysis.follow_up(table, CONFIG)])
