"""tied: planted losses give the expected verdicts, and a group trains the matrix that it names."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from lvp.experiments import tied
from lvp.experiments.tied import analysis
from lvp.experiments.tied.config import GROUPS, groups, label, run, setting_of
from lvp.parametrization import table
from lvp.training import records

CONFIG = replace(tied.PRESETS["laptop"], widths=(64,))
CONTEXT = {"experiment": "tied", "preset": "laptop", "corpus": "none", "commit": "none"}


def table_of(config, runs_by_label, loss):
    """Returns the table of planted runs. `loss`: (group, hidden rate times d) → validation loss without noise."""
    rows = []
    for group in groups(config):
        described = asdict(setting_of(config, group, 64))
        for constant in config.rates_times_width:
            for seed in config.seeds:
                planned = run(config, group, 64, constant, seed)
                if planned not in runs_by_label[label(group, 64)]:
                    continue
                noise = 0.002 * np.random.default_rng([seed, len(rows)]).normal() + 0.01 * seed
                outcome = {"status": "finished", "valid_bits_per_byte": loss(group, constant) + noise}
                config_of = {"cell": described, "lane": vars(planned)}
                rows.append({"hash": str(len(rows)), "config": config_of, "outcome": outcome, "provenance": {}})
    return records.table(rows)


def whole(loss, config=CONFIG):
    """Returns the table of the selecting seeds' runs and of their follow-up runs."""
    first = {each.label: list(each.runs) for each in tied.config.settings(config)}
    more = analysis.follow_up(table_of(config, first, loss), config)
    return table_of(config, {name: runs + more[name] for name, runs in first.items()}, loss)


def planted(by_choice):
    return lambda group, constant: by_choice[group.choice] + 0.05 * np.log(constant / 0.2) ** 2


def verdicts(runs):
    return [claim.verdict for claim in analysis.claims(runs, CONFIG, CONTEXT)]


def test_claims_follow_the_planted_losses():
    better = whole(planted({"untied": 2.0, "output": 2.4, "tied": 2.3, "bounded": 2.2}))
    assert verdicts(better) == ["supported"] * 3
    worse = whole(planted({"untied": 2.0, "output": 2.1, "tied": 2.2, "bounded": 2.3}))
    assert verdicts(worse) == ["contradicted"] * 3
    equal = whole(planted(dict.fromkeys(("untied", "output", "tied", "bounded"), 2.0)))
    assert "supported" not in verdicts(equal)
    assert "0.2 " in analysis.summary(better, CONFIG).splitlines()[1]
    assert analysis.figure(better, CONFIG, preset="laptop", corpus="none", partial=None).get_axes()


def test_one_finished_run_has_a_figure_and_no_verdict():
    runs = {c.label: c.runs[:1] * (c.label.startswith("lvp, tied")) for c in tied.config.settings(CONFIG)}
    one = table_of(CONFIG, runs, planted(dict.fromkeys(("tied",), 2.0)))
    assert len(one) == 1 and set(verdicts(one)) == {"unresolved"} and "–" in analysis.summary(one, CONFIG)


@pytest.mark.parametrize("group", GROUPS.values(), ids=lambda group: group.label)
def test_the_matrix_has_the_row_of_its_group(group):
    model, planned = setting_of(CONFIG, group, 64).model, run(CONFIG, group, 64, 0.2, 0)
    of_rule = table(group.rule, width=64, vocab=CONFIG.vocab, tied=True)
    row = of_rule["tied" if group.choice in ("tied", "bounded") else "output"]
    assert model.tied == (group.choice != "untied")
    assert planned.init_std["output"] == row.init_std
    assert planned.learning_rates["output"] == pytest.approx(0.2 / 64 * row.lr_multiplier, rel=1e-12)
    factor = {"tied": of_rule["tied"].head_multiplier, "bounded": 64**-0.5}.get(group.choice, 1.0)
    assert (model.output_multiplier, model.embedding_multiplier) == (factor, 1.0)
