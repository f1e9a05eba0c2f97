"""η_hidden · d is tuned at the smallest width, by runs of seeds that are not used elsewhere."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lvp import experiments
from lvp.errors import InputError
from lvp.experiments import width_vocab
from lvp.experiments.width_vocab import analysis
from lvp.experiments.width_vocab.config import all_runs
from lvp.training.records import flatten

WORKSTATION = width_vocab.PRESETS["workstation"]
CONTEXT = {"experiment": "width_vocab", "preset": "workstation", "corpus": "none", "commit": "none"}
BEST = {"sqrt": 0.4, "plain": 0.2}  # the planted η_hidden · d
POWER = {"sqrt": -0.6, "plain": 0.1}  # the planted exponents of η_E


def row_of(setting, run, best=BEST, noise=0.0):
    """A finished run whose loss is a parabola in ln η_E and in ln η_hidden."""
    model, rates = setting.model, run.learning_rates
    token_rows = "plain" if model.embedding_multiplier == 1 else "sqrt"
    eta = 0.016 / model.embedding_multiplier * (model.width / 64) ** (POWER[token_rows] + 0.5 * (token_rows == "sqrt"))
    hidden = rates["hidden"] * model.width / best[token_rows]
    rng = np.random.default_rng([run.seed, model.width, round(1e6 * rates["embedding"]), round(1e6 * hidden)])
    loss = 1 + 0.1 * np.log(rates["embedding"] / eta) ** 2 + 0.2 * np.log(hidden) ** 2 + noise * rng.normal()
    # The losses of the tuning seeds are much smaller: an optimum that used them would be wrong.
    loss -= 0.5 * (run.seed in WORKSTATION.tuning_seeds)
    columns = {"setting.model.width": model.width, "setting.model.embedding_multiplier": model.embedding_multiplier}
    columns |= {"run.seed": run.seed, "train_loss": loss, "status": "finished"}
    return columns | {f"run.{name}": value for name, value in flatten({"learning_rates": rates}).items()}


def trained(config, **planted):
    """The table of a whole sweep with planted losses, and the settings with all their runs."""
    settings = {
        planned.label: planned._replace(runs=list(planned.runs)) for planned in width_vocab.config.settings(config)
    }
    rows = [row_of(c.setting, run, **planted) for c in settings.values() for run in c.runs]
    while any(new := analysis.follow_up(pd.DataFrame(rows), config).values()):
        for label, runs in zip(settings, new, strict=True):
            rows += [row_of(settings[label].setting, run, **planted) for run in runs]
            assert not any(run in settings[label].runs for run in runs)
            settings[label].runs.extend(runs)
    return pd.DataFrame(rows), settings


@pytest.mark.parametrize("design", ["adaptive", "grid"])
def test_every_width_trains_at_the_tuned_constant(design):
    config = replace(WORKSTATION, design=design)
    table, settings = trained(config)
    tuning = set(config.tuning_seeds)
    for label, planned in settings.items():
        own = BEST["plain" if "plain" in label else "sqrt"]
        constants = {
            (run.seed in tuning, round(run.learning_rates["hidden"] * planned.setting.model.width, 9))
            for run in planned.runs
        }
        tried = {(True, constant) for constant in config.hidden_constants}
        assert constants == {(False, own)} | (tried if planned.setting.model.width == 64 else set())
        if design == "grid":
            assert sum(run.seed not in tuning for run in planned.runs) == len(config.rates) * len(config.seeds)
    sizes = {planned.label: len(planned.runs) for planned in all_runs(config)}
    assert all(len(planned.runs) <= sizes[label] for label, planned in settings.items())
    for token_rows in config.token_rows:
        assert analysis.hidden_constant(table, config, token_rows) == (BEST[token_rows], False)
        _, fit = analysis.optima(table, config, token_rows)
        assert fit.slope == pytest.approx(POWER[token_rows], abs=1e-6)


def test_the_constant_is_in_the_summary_and_in_the_claims():
    # At width 512 a constant rate lies outside the rates that all seeds train.
    config = replace(WORKSTATION, steps=100, widths=(64, 128, 256))
    table, _ = trained(config, noise=0.001)
    table = table.assign(curve_steps=[[100]] * len(table), curve_losses=[[loss] for loss in table["train_loss"]])
    summary, claims = analysis.summary(table, config), width_vocab.claims.claims(table, config, CONTEXT)
    text = "η_hidden · d: 0.4, tuned over 0.1, 0.2, 0.4, 0.8, 1.6 at width 64"
    assert f"{text}\n" in summary and text in claims[0].note
    # The runs of the adaptive design are enough for the cost of the √d rule and of its rivals.
    assert [claim.verdict for claim in claims[2:4]] == ["supported", "supported"]
    costs = [analysis.transfer_gap(table, config, "sqrt", power).value for power in (0.0, -0.5, -0.6)]
    assert costs[0] > costs[1] > costs[2]
    planted = [0.1 * ((0.6 + power) * np.log(4)) ** 2 for power in (0.0, -0.5, -0.6)]
    assert costs == pytest.approx(planted, abs=0.002)


def test_the_edge_of_the_tried_constants_is_reported():
    table, _ = trained(WORKSTATION, best=BEST | {"sqrt": 6.4})
    assert analysis.hidden_constant(table, WORKSTATION, "sqrt") == (1.6, True)
    assert analysis.hidden_constant_text(table, WORKSTATION, "sqrt").endswith("at the edge of these values")


def test_a_reading_without_a_result_gets_no_further_runs():
    first = width_vocab.config.settings(WORKSTATION)
    rows = [row_of(planned.setting, run) for planned in first for run in planned.runs]
    table = pd.DataFrame(rows)
    diverged = table["setting.model.embedding_multiplier"] > 1
    table.loc[diverged, "status"] = "diverged"
    assert analysis.hidden_constant(table, WORKSTATION, "sqrt") is None
    assert "finished with all tuning seeds" in analysis.hidden_constant_text(table, WORKSTATION, "sqrt")
    runs = analysis.follow_up(table, WORKSTATION)
    assert set(runs) == {planned.label for planned in first if "plain" in planned.label}


def test_vocab_effect_does_not_tune():
    with pytest.raises(InputError, match="hidden_constants has no effect in vocab_effect"):
        experiments.configured("vocab_effect", "laptop", {"hidden_constants": "0.1,0.2,0.4", "tuning_seeds": "7"})


def test_a_stored_configuration_keeps_class_defaults():
    """The workstation preset has other values. A sweep's manifest stores `to_dict`."""
    changes = {"design": "grid", "hidden_constants": (), "tuning_seeds": ()}
    config = experiments.configured("width_vocab", "workstation", changes)
    stored = experiments.to_dict(config, WORKSTATION)
    assert experiments.configured("width_vocab", "workstation", stored) == config != WORKSTATION
    assert experiments.to_dict(WORKSTATION, WORKSTATION) == experiments.to_dict(WORKSTATION)
