"""Powers of the scale of normalised kernels, and the claims about them."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from lvp.experiments import large_updates
from lvp.experiments.large_updates import scale_invariance
from lvp.experiments.large_updates.resnet import ResNetConfig
from lvp.sweeps import committed
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


def table_of(planted):
    _, setting, runs, _ = large_updates.config.calculated(CONFIG)
    config = {"cell": {"arguments": dict(setting.arguments)}}
    outcome = {"status": "finished", "powers": {name: [power] * 19 for name, power in planted.items()}}
    shared = {"outcome": outcome, "provenance": {}}
    return records.table([shared | {"hash": str(run["seed"]), "config": config | {"lane": run}} for run in runs])


def test_the_committed_runs_have_these_powers():
    """Kosson et al. 2024, section 5 and appendix B.2, for every convolution of every seed."""
    table = committed.result("large_updates/laptop-digits").table
    for name, power in scale_invariance.POWERS.items():
        column = table[f"powers.{name}"].dropna()
        assert len(column) == 4
        np.testing.assert_allclose(np.array(column.tolist()), power, atol=0.02)


def test_settings_are_the_trained_network_and_the_calculation():
    trained, calculated = large_updates.config.settings(CONFIG)
    assert calculated.setting.arguments["model"] == records.configuration(trained.setting.model)
    assert [run["seed"] for run in calculated.runs] == list(CONFIG.seeds)
    assert records.dumps(dict(calculated.setting.arguments)) and calculated.setting.flops_per_run > 0


def test_a_sweep_without_trained_runs_can_be_reported():
    table = table_of(scale_invariance.POWERS)
    answers = large_updates.claims.claims(table, CONFIG, CONTEXT)
    assert {c.verdict for c in answers if "ReLUs" in c.statement and "leaky" not in c.statement} == {"unresolved"}
    assert "nan" not in large_updates.analysis.summary(table, CONFIG)
    assert large_updates.figure.figure(table, CONFIG, preset="laptop", corpus="none", partial=(4, 88)).axes
