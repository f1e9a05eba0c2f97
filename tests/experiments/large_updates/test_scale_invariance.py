"""Powers of the scale of normalised kernels, and the claims about them."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from lvp.experiments import large_updates
from lvp.experiments.large_updates import scale_invariance
from lvp.experiments.large_updates.resnet import ResNetConfig
from lvp.training import records

SMALL = ResNetConfig(classes=3, image=(8, 8, 1), depth=8, channels=2)
CONFIG = large_updates.PRESETS["laptop"]
CONTEXT = {"experiment": "large_updates", "preset": "laptop", "corpus": "none", "commit": "none"}


@pytest.mark.slow
@pytest.mark.parametrize("epsilon, invariant", [(1e-5, True), (100.0, False)])
def test_powers_of_the_scale_of_normalised_kernels(epsilon, invariant):
    """The control divides outputs by a constant: the epsilon is larger than any variance."""
    model = asdict(replace(SMALL, norm_epsilon=epsilon))
    outcome = scale_invariance.calculate({**scale_invariance.ARGUMENTS, "model": model}, {"seed": 0})
    assert records.dumps(outcome)
    for name, power in scale_invariance.POWERS.items():
        powers = np.array(outcome["powers"][name])
        assert powers.shape == (7,)  # convolutions
        if invariant:
            np.testing.assert_allclose(powers, power, atol=0.02)
        elif name != "angle of an Adam update":  # it has this power without normalisation too
            assert np.abs(powers - power).max() > 0.5


def table_of(planted, seeds=CONFIG.seeds):
    _, setting, runs, _ = large_updates.config.calculated(CONFIG)
    lists = {name: [power] * 18 + [power + 1e-3] if np.isscalar(power) else power for name, power in planted.items()}
    rows = [
        {
            "hash": str(run["seed"]),
            "config": {"cell": {"arguments": dict(setting.arguments)}, "lane": run},
            "outcome": {"status": "finished", "powers": lists},
            "provenance": {},
        }
        for run in runs
        if run["seed"] in seeds
    ]
    return records.table(rows)


def verdicts(table):
    return [q.answer(value, CONTEXT, None).verdict for q, value in scale_invariance.questions(table, CONFIG.seeds)]


def test_claims_follow_the_planted_powers():
    powers = scale_invariance.POWERS
    assert verdicts(table_of(powers)) == ["supported"] * 4
    assert verdicts(table_of(powers | {"gradient": 0.0})) == ["contradicted"] + ["supported"] * 3
    # A single convolution decides, although the mean over convolutions is the claimed power.
    opposite = {"gradient": [-1.0] * 17 + [-0.5, -1.5]}
    assert verdicts(table_of(powers | opposite)) == ["contradicted"] + ["supported"] * 3
    assert verdicts(table_of(powers, seeds=(0, 1, 2))) == ["unresolved"] * 4  # a seed is missing
    assert not verdicts(records.table([]).assign(status=[]))


def test_settings_are_the_trained_network_and_the_calculation():
    trained, calculated = large_updates.config.settings(CONFIG)
    assert calculated.setting.arguments["model"] == records.configuration(trained.setting.model)
    assert [run["seed"] for run in calculated.runs] == list(CONFIG.seeds)
    assert records.dumps(dict(calculated.setting.arguments)) and calculated.setting.flops_per_run > 0


def test_a_sweep_without_trained_runs_can_be_reported():
    table = table_of(scale_invariance.POWERS)
    answers = large_updates.claims.claims(table, CONFIG, CONTEXT)
    assert [c.verdict for c in answers if c.source == scale_invariance.SOURCE] == ["supported"] * 4
    assert {c.verdict for c in answers if "ReLUs" in c.statement and "leaky" not in c.statement} == {"unresolved"}
    assert "nan" not in large_updates.analysis.summary(table, CONFIG)
    assert large_updates.figure.figure(table, CONFIG, preset="laptop", corpus="none", partial=(4, 88)).axes
