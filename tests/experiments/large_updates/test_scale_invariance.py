"""Powers of the scale of normalised kernels, and the claims about them."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from experiments import large_updates
from experiments.large_updates import scale_invariance
from lvp.models.resnet import ResNetConfig
from lvp.training import records

SMALL = ResNetConfig(classes=3, image=(8, 8, 1), depth=8, channels=2)
CONFIG = large_updates.TIERS["laptop"]
CONTEXT = {"experiment": "large_updates", "tier": "laptop", "corpus": "none", "commit": "none"}


@pytest.mark.parametrize("epsilon, invariant", [(1e-5, True), (100.0, False)])
def test_powers_of_the_scale_of_normalised_kernels(epsilon, invariant):
    """The control divides outputs by a constant: the epsilon is larger than any variance."""
    model = asdict(replace(SMALL, norm_epsilon=epsilon))
    outcome = scale_invariance.calculate({"model": model}, {"seed": 0})
    assert records.dumps(outcome)
    for name, power in scale_invariance.POWERS.items():
        powers = np.array(outcome["powers"][name])
        assert powers.shape == (7,)  # convolutions
        if invariant:
            np.testing.assert_allclose(powers, power, atol=0.02)
        elif name != "angle of an Adam update":  # whose size does not depend on the gradient's
            assert np.abs(powers - power).max() > 0.5


def verdicts(planted, seeds=CONFIG.seeds):
    _, cell, lanes, _ = large_updates.config.calculated(CONFIG)
    rows = [
        {
            "hash": str(lane["seed"]),
            "config": {"cell": {"arguments": dict(cell.arguments)}, "lane": lane},
            "outcome": {
                "status": "finished",
                "powers": {name: [power + 1e-3 * lane["seed"]] * 19 for name, power in planted.items()},
            },
            "provenance": {},
        }
        for lane in lanes
        if lane["seed"] in seeds
    ]
    answered = scale_invariance.questions(records.table(rows), CONFIG.seeds)
    return [question.answer(value, CONTEXT, None).verdict for question, value in answered]


def test_claims_follow_the_planted_powers():
    powers = scale_invariance.POWERS
    assert verdicts(powers) == ["supported"] * 4
    assert verdicts(powers | {"gradient": 0.0}) == ["contradicted"] + ["supported"] * 3
    assert verdicts(powers, seeds=(0, 1, 2)) == ["unresolved"] * 4  # a seed is missing
    assert not list(scale_invariance.questions(records.table([]).assign(status=[]), CONFIG.seeds))


def test_cells_are_the_trained_network_and_the_calculation():
    trained, calculated = large_updates.config.cells(CONFIG)
    assert calculated.cell.arguments["model"] == records.configuration(trained.cell.model)
    assert [lane["seed"] for lane in calculated.lanes] == list(CONFIG.seeds)
    assert records.dumps(dict(calculated.cell.arguments)) and calculated.cell.flops_per_lane > 0
