"""large_updates: planted accuracies and dead units give the expected verdicts."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from lvp.experiments import large_updates
from lvp.experiments.large_updates.config import GROUPS
from lvp.training import records, steps_of_parts

CONFIG = replace(large_updates.PRESETS["laptop"], corpus="cifar10")
CONTEXT = {"experiment": "large_updates", "preset": "laptop", "corpus": "none", "commit": "none"}
LEAVE = "a first phase at 128 times the learning rate leaves dead ReLUs, and frozen biases prevent this"
DEAD = {"standard": 0.4, "random": 0.3}  # dead units at the largest scale, unless biases are frozen
RANK = {"standard": 2.0, "random": 2.0}  # stable rank at the largest scale, where it is not 5
LOST = {"standard": 4.0, "random": 2.0, "leaky": 1.0}


def group_of(run):
    return next(
        name
        for name, group in GROUPS.items()
        if (group.random, group.frozen, group.leaky, group.few)
        == (run.random, run.frozen, run.negative_slope > 0, run.first_images > 0)
    )


def table_of(config, lost=()):
    _, setting, runs, _ = large_updates.config.trained(config)
    points = len(steps_of_parts(config.measured_parts, setting.steps))
    rows = []
    for run in runs:
        name, large = group_of(run), run.first_scale == config.largest
        dead = DEAD.get(name, 0.0) * large * (1 + 0.01 * run.seed)
        measured = {
            "dead": {"all": [dead] * points},
            "stable_rank": {"mean": [RANK.get(name, 5.0) if large else 5.0] * points},
        }
        right = 0.92 - LOST.get(name, 0.0) / 100 * large * (1 + 0.01 * run.seed)
        curve = {"curve_steps": [44, 440], "curve_losses": [0.01 if run.first_images else 0.5, 0.1]}
        outcome = {"status": "finished", "accuracy": right, "valid_loss": 0.3, "measures": measured} | curve
        if name in lost:
            outcome = {"status": "diverged", "accuracy": None, "valid_loss": None, "measures": measured}
        config_of = {"cell": asdict(setting), "lane": records.configuration(run)}
        rows.append({"hash": str(len(rows)), "config": config_of, "outcome": outcome, "provenance": {}})
    return records.table(rows)


UNRELATED = (
    "except at × 128 without frozen biases, final accuracy and stable rank have a correlation of at most 0.3 in size"
)


def verdicts(table, config=CONFIG):
    return {c.full_statement: c.verdict for c in large_updates.claims.claims(table, config, CONTEXT)}


def test_all_groups_are_runs_of_one_program():
    _, setting, runs, epochs = large_updates.config.trained(CONFIG)
    assert len(runs) == 21 * 4 and epochs == 20 and setting.steps == 20 * (1438 // 64)
    assert {group_of(run) for run in runs} == set(GROUPS)
    assert setting.first_phase == pytest.approx(0.1) and setting.first_phase in setting.measured_parts
    assert setting.optimizer.options["weight_decay"] == 0.01


def test_the_paper_preset_is_the_published_set_up():
    _, setting, runs, epochs = large_updates.config.trained(large_updates.PRESETS["paper"])
    assert (setting.model.depth, setting.model.image, setting.model.channels, epochs) == (20, (32, 32, 3), 16, 205)
    assert round(setting.first_phase * epochs) == 5 and {run.learning_rate for run in runs} == {0.05}
    assert {run.first_scale for run in runs} == {1, 8, 128} and {run.negative_slope for run in runs} == {0, 0.1}
    assert (setting.optimizer.options["b1"], setting.optimizer.options["b2"]) == (0.9, 0.999)


def test_accuracies_are_not_tested_on_other_images():
    claims = large_updates.claims.claims(table_of(CONFIG), replace(CONFIG, corpus="digits"), CONTEXT)
    untested = {c.statement for c in claims if "CIFAR-10" in c.reason}
    ours = {c.statement for c in claims if c.source.startswith("our result")}
    assert untested == {c.statement for c in claims} - ours and all("ReLU" in s or "stable rank" in s for s in ours)


def test_claims_follow_the_planted_values():
    claim_verdicts = verdicts(table_of(CONFIG))
    rank = claim_verdicts.pop(UNRELATED)  # the planted rank and accuracy change at × 128 unfrozen only
    assert len(claim_verdicts) == 17 and set(claim_verdicts.values()) == {"supported"} and rank == "unresolved"


def test_claims_reverse_with_the_data(monkeypatch):
    """Negative control."""
    monkeypatch.setitem(DEAD, "standard", -0.4)
    monkeypatch.setitem(LOST, "random", 8.0)
    monkeypatch.setitem(LOST, "standard, frozen biases", 3.0)
    monkeypatch.setitem(RANK, "standard", 5.2)
    monkeypatch.setitem(RANK, "standard, frozen biases", 2.0)
    wrong = {statement for statement, verdict in verdicts(table_of(CONFIG)).items() if verdict == "contradicted"}
    assert wrong == {
        f"{LEAVE} (standard, × 128 minus × 1)",
        f"{LEAVE} (standard, × 128, without minus with frozen biases)",
        "first updates at × 128 in random directions cost less accuracy",
        "with frozen biases first updates at × 128 cost no accuracy",
        "first updates at × 128 change the stable rank (standard)",
        "first updates at × 128 do not change the stable rank (standard, frozen biases)",
    }


def test_one_group_decides_no_correlation(monkeypatch):
    """Accuracy and stable rank fall together: in one group, and then in two."""
    for name, verdict in (("standard, frozen biases", "unresolved"), ("random, frozen biases", "contradicted")):
        monkeypatch.setitem(LOST, name, 3.0)
        monkeypatch.setitem(RANK, name, 2.0)
        claims = large_updates.claims.claims(table_of(CONFIG), CONFIG, CONTEXT)
        (claim,) = (c for c in claims if c.statement == UNRELATED)
        assert claim.verdict == verdict
        assert ("but not without standard, frozen biases × 128" in claim.note) == (verdict == "unresolved")


def test_equal_counts_support_no_difference(monkeypatch):
    """Negative control: counts that are equal in every seed support neither "more" nor "fewer"."""
    for planted in (DEAD, LOST):
        for name in list(planted):
            monkeypatch.setitem(planted, name, 0.0)
    for name in ("standard", "random"):
        monkeypatch.delitem(RANK, name)
    supported = {statement for statement, verdict in verdicts(table_of(CONFIG)).items() if verdict == "supported"}
    assert supported == {
        f"{LEAVE} (standard, frozen, × 128 minus × 1)",
        f"{LEAVE} (random, frozen, × 128 minus × 1)",
        "with frozen biases first updates at × 128 cost no accuracy",
        "a first phase on 64 images costs no accuracy",
        "first updates at × 128 do not change the stable rank (standard, frozen biases)",
        "first updates at × 128 do not change the stable rank (random, frozen biases)",
        "first updates at × 8 do not change the stable rank (standard)",
    }
    # Fewer dead units are not none.
    monkeypatch.setitem(DEAD, "standard", 0.4)
    monkeypatch.setitem(DEAD, "standard, frozen biases", 0.3)
    claim_verdicts = verdicts(table_of(CONFIG))
    assert claim_verdicts[f"{LEAVE} (standard, × 128, without minus with frozen biases)"] == "supported"
    assert claim_verdicts[f"{LEAVE} (standard, frozen, × 128 minus × 1)"] == "contradicted"


def test_few_images_are_compared_at_the_plain_rate():
    table = table_of(CONFIG)
    few = table["run.first_images"].fillna(0) > 0
    (claim,) = (c for c in large_updates.claims.claims(table, CONFIG, CONTEXT) if "on 64 images" in c.statement)
    assert "0.01 on these images, 0.50 on all" in claim.note
    for scale, verdict in ((1.0, "contradicted"), (128.0, "supported")):
        lower = table.assign(accuracy=table["accuracy"] - 0.01 * (few & (table["run.first_scale"] == scale)))
        assert verdicts(lower)[claim.statement] == verdict
    old = table[~few].drop(columns="run.first_images")  # records without the group omit the column
    assert verdicts(old)[claim.statement] == "unresolved"


def test_the_papers_values_belong_to_the_judged_scale():
    values = {c.statement: c.paper_value for c in large_updates.claims.claims(table_of(CONFIG), CONFIG, CONTEXT)}
    assert values["first updates at × 128 cost accuracy"] == "3.9"
    for scales, expected in (((1.0, 8.0), "2.6"), ((1.0, 50.0), "–")):
        config = replace(CONFIG, scales=scales)
        made = large_updates.claims.claims(table_of(config), config, CONTEXT)
        assert {c.paper_value for c in made if c.statement.endswith(f"× {scales[-1]:g} cost accuracy")} == {expected}


@pytest.mark.parametrize("groups, lost", [(("standard",), ()), (tuple(GROUPS), ("standard",))])
def test_missing_and_diverged_groups_leave_claims_unresolved(groups, lost):
    config = replace(CONFIG, groups=groups)
    table = table_of(config, lost)
    assert "nan" not in large_updates.analysis.summary(table, config)
    assert large_updates.figure.figure(table, config, preset="laptop", corpus="none", partial=(1, 2)).axes
    claim_verdicts = verdicts(table, config)
    assert claim_verdicts["first updates at × 128 cost accuracy"] == ("unresolved" if lost else "supported")


def test_two_seeds_judge_nothing():
    config = replace(CONFIG, seeds=(0, 1))
    claims = large_updates.claims.claims(table_of(config), config, CONTEXT)
    assert {c.reason for c in claims} == {"2 judging seeds: a claim needs at least 3"}


def test_the_last_epoch_is_measured():
    epochs = large_updates.analysis.measured_epochs(table_of(CONFIG), CONFIG)
    assert epochs[-1] == 20 and np.all(np.diff(epochs) > 0) and np.any(np.isclose(epochs, 2.0))
