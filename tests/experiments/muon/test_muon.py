"""muon: planted losses give the expected verdicts, and Muon trains the hidden matrices only."""

import re
from dataclasses import asdict, replace

import numpy as np
import pytest

from lvp.experiments import muon
from lvp.experiments.muon.config import NANOCHAT, Group
from lvp.parametrization import table
from lvp.training import Run, records

CONFIG = muon.PRESETS["laptop"]
CONTEXT = {"experiment": "muon", "preset": "laptop", "corpus": "none", "commit": "none"}


def table_of(config, runs_by_label, loss):
    """Returns the table of planted runs. `loss`: (group, tuned value) → validation loss without noise."""
    rows = []
    for group in muon.config.groups(config):
        setting = asdict(muon.config.setting_of(config, group))
        for value in muon.config.tuned_values(config, group):
            for seed in config.seeds:
                run = muon.config.run(config, group, value, seed)
                if run not in runs_by_label[muon.config.setting_label(group)]:
                    continue
                noise = 0.003 * np.random.default_rng([seed, len(rows)]).normal() + 0.01 * seed
                outcome = {"status": "finished", "valid_bits_per_byte": loss(group, value) + noise}
                config_of = {"cell": setting, "lane": vars(run)}
                rows.append({"hash": str(len(rows)), "config": config_of, "outcome": outcome, "provenance": {}})
    return records.table(rows)


def whole(config, loss):
    """Returns the table of the selecting seeds' runs and of their follow-up runs."""
    first = {c.label: list(c.runs) for c in muon.config.settings(config)}
    more = muon.analysis.follow_up(table_of(config, first, loss), config)
    return table_of(config, {label: runs + more[label] for label, runs in first.items()}, loss)


def planted(gain_under_adam, gain_under_muon, *, best_power=0.5, nanochat=0.1):
    """Returns a loss with a parabola over the tuned value, and a parabola over p between one rate and `best_power`."""

    def loss(group, value):
        if group == NANOCHAT:
            return 2.0 + nanochat + 0.05 * np.log(value) ** 2
        gain = {"Adam": gain_under_adam, "Muon": gain_under_muon}[group.optimizer]
        start = {"Adam": 2.2, "Muon": 2.0}[group.optimizer]
        return start + gain * ((group.power - best_power) / best_power) ** 2 + 0.05 * np.log(value / 0.2) ** 2

    return loss


def verdicts(runs, config=CONFIG):
    return [c.verdict for c in muon.claims.claims(runs, config, CONTEXT)]


def test_every_group_is_tuned_with_the_same_number_of_runs():
    settings = {c.label: c.runs for c in muon.config.settings(CONFIG)}
    assert {label: len(runs) for label, runs in settings.items()} == {
        "Adam": 50,
        "Muon": 50,
        "Muon, nanochat's constants": 10,
    }
    more = muon.analysis.follow_up(table_of(CONFIG, settings, planted(0.2, 0.1)), CONFIG)
    assert {label: len(runs) for label, runs in more.items()} == {
        "Adam": 5 * len(CONFIG.judging_seeds),
        "Muon": 5 * len(CONFIG.judging_seeds),
        "Muon, nanochat's constants": len(CONFIG.judging_seeds),
    }
    seeds = {run.seed for runs in more.values() for run in runs}
    assert seeds == set(CONFIG.judging_seeds) and not seeds & set(CONFIG.selecting_seeds)
    hidden = {run.learning_rates["hidden"] for run in more["Adam"]}
    assert hidden == {0.2 / CONFIG.width}


@pytest.mark.parametrize("power", CONFIG.powers)
def test_the_ratio_of_a_run_is_the_power_of_the_width(power):
    rates = muon.config.run(CONFIG, Group("Muon", power), 0.4, 0).learning_rates
    assert rates["embedding"] / rates["hidden"] == pytest.approx(CONFIG.width**power, rel=1e-12)
    assert rates["output"] == rates["hidden"] == pytest.approx(0.4 / CONFIG.width, rel=1e-12)


def test_the_group_of_lvp_is_lvp():
    lvp = Run.under(table("lvp", width=CONFIG.width, vocab=CONFIG.vocab), 0.4 / CONFIG.width, 3)
    ours = muon.config.run(CONFIG, Group("Adam", 0.5), 0.4, 3)
    assert ours.learning_rates == pytest.approx(lvp.learning_rates, rel=1e-12) and ours.init_std == lvp.init_std


def test_claims_follow_the_planted_values():
    assert verdicts(whole(CONFIG, planted(0.2, 0.1))) == ["supported"] * 6


def test_claims_reverse_with_the_data():
    """Negative control: the best ratio is d, the ratio matters more under Muon, and nanochat's constants are better."""
    opposite = planted(0.3, 0.6, best_power=1.0, nanochat=-0.3)
    of_ratios = ["supported", "contradicted"]  # √d is better than one rate, and it is not near the best ratio
    of_rivals = ["supported", "contradicted"]  # Muon's loss stays below Adam's
    assert verdicts(whole(CONFIG, opposite)) == [*of_ratios, *of_ratios, *of_rivals]


def test_without_effects_nothing_is_supported_but_nearness():
    """Negative control: equal losses of all ratios and groups."""

    def flat(group, value):
        return 2.0 + 0.05 * np.log(value / (1.0 if group == NANOCHAT else 0.2)) ** 2

    of_equals = verdicts(whole(CONFIG, flat))
    assert "contradicted" not in (of_equals[1], of_equals[3])
    assert "supported" not in [of_equals[i] for i in (0, 2, 4, 5)]


def gain_under_adam_minus_under_muon(losses):
    """The interval in the note of the first claim."""
    note = muon.claims.claims(whole(CONFIG, losses), CONFIG, CONTEXT)[0].note
    (ends,) = re.findall(r"gain under Adam minus gain under Muon: \S+ \[(\S+), (\S+)\]", note)
    return [float(end.replace("−", "-")) for end in ends]


def test_the_gains_under_adam_and_muon_are_compared_in_the_note():
    """The planted losses at one rate are 0.2 and 0.1, or 0.3 and 0.6, above the best. Control: equal gains."""
    assert gain_under_adam_minus_under_muon(planted(0.2, 0.1))[0] > 0
    assert gain_under_adam_minus_under_muon(planted(0.3, 0.6))[1] < 0
    low, high = gain_under_adam_minus_under_muon(planted(0.2, 0.2))
    assert low <= 0 <= high


def test_a_tuned_value_at_the_edge_of_its_grid_is_marked():
    runs = whole(CONFIG, lambda group, value: 2.0 + 0.05 * np.log(value / 0.05) ** 2)
    lines = muon.analysis.summary(runs, CONFIG).splitlines()
    assert all("0.05*" in line for line in lines[1:11]) and "0.25*" in lines[11]


def test_one_finished_run_has_a_figure_and_no_verdict():
    runs = {c.label: c.runs[:1] * (c.label == "Adam") for c in muon.config.settings(CONFIG)}
    one = table_of(CONFIG, runs, planted(0.1, 0.1))
    assert len(one) == 1 and muon.analysis.summary(one, CONFIG).count("–") >= len(muon.config.groups(CONFIG))
    assert muon.figure.figure(one, CONFIG, preset="laptop", corpus="none", partial=(1, 143))
    assert set(verdicts(one)) == {"unresolved"}


def test_two_judging_seeds_are_refused():
    config = replace(CONFIG, seeds=(0, 1, 2, 3))
    claims = muon.claims.claims(whole(config, planted(0.2, 0.1)), config, CONTEXT)
    assert {c.reason for c in claims} == {"2 judging seeds: a claim needs at least 3"}
