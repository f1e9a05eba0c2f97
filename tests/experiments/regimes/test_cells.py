"""The cells of regimes: every lane is a common lane or a rule's lane, and unusable configurations are refused."""

import json
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest

import experiments
from experiments import regimes
from lvp.errors import InputError
from lvp.parametrization import table as rule_table
from lvp.roles import ROLES
from lvp.training import records

LAPTOP = regimes.TIERS["laptop"]


def test_the_tiers_cover_widths_and_vocabularies():
    for tier in ("laptop", "gpu", "paper"):
        config = regimes.TIERS[tier]
        assert len(config.widths) >= 3 and max(config.widths) >= 4 * min(config.widths)
        assert len(config.vocabs) >= 3 and max(config.vocabs) >= 16 * min(config.vocabs)
        assert len(config.rates) >= 7 and len(config.seeds) == 3
    assert len(regimes.TIERS["smoke"].shapes) == 4 and len(regimes.TIERS["smoke"].seeds) == 2


@pytest.mark.parametrize("config", regimes.TIERS.values(), ids=regimes.TIERS)
def test_cells_equal_the_configuration(config):
    cells = regimes.config.cells(config)
    assert [(c.cell.model.width, c.cell.model.vocab) for c in cells] == list(product(config.widths, config.vocabs))
    assert len({c.label for c in cells}) == len(cells)
    for c in cells:
        assert c.epochs == config.epochs and c.cell.steps >= 1
        assert (c.cell.data.corpus, c.cell.batch, c.cell.model.context) == (config.corpus, config.batch, config.context)
        common = len(config.rates) * len(config.seeds)
        rules = len(regimes.config.RULES) * len(config.constants) * len(config.seeds) if c is cells[0] else 0
        assert len(c.lanes) == common + rules == len({records.dumps(asdict(lane)) for lane in c.lanes})


@pytest.mark.parametrize("config", regimes.TIERS.values(), ids=regimes.TIERS)
def test_common_lanes_differ_only_in_the_embedding_rate(config):
    for (width, _), c in zip(config.shapes, regimes.config.cells(config), strict=True):
        swept = []
        for lane in c.lanes[: len(config.rates) * len(config.seeds)]:
            assert {lane.init_std[role] for role in ("embedding", "hidden", "output")} == {width**-0.5}
            for role in ("hidden", "output", "vector"):
                assert lane.learning_rates[role] == pytest.approx(0.2 / width, rel=1e-12)
            swept.append((lane.learning_rates["embedding"], lane.seed))
        assert sorted(swept) == sorted(product(config.rates, config.seeds))


def assert_follows(lane, rule, width, vocab):
    """Asserts that a lane has the rule's stds at this shape, and the rule's multipliers times one η. Returns η."""
    rows = rule_table(rule, width=width, vocab=vocab)
    assert lane.init_std == {role: rows[role].init_std for role in ROLES}
    etas = [lane.learning_rates[role] / rows[role].lr_multiplier for role in ROLES]
    assert etas == pytest.approx([etas[0]] * len(etas), rel=1e-12)
    return etas[0]


@pytest.mark.parametrize("config", [regimes.TIERS["smoke"], LAPTOP], ids=["smoke", "laptop"])
def test_lanes_of_a_rule_have_the_parametrizations_numbers(config):
    (width, vocab), first = config.shapes[0], regimes.config.cells(config)[0]
    lanes = iter(first.lanes[len(config.rates) * len(config.seeds) :])
    for rule, constant, seed in product(regimes.config.RULES, config.constants, config.seeds):
        lane = next(lanes)
        assert_follows(lane, rule, width, vocab)
        assert lane.learning_rates["hidden"] == pytest.approx(constant / width, rel=1e-12)
        assert lane.seed == seed
    assert next(lanes, None) is None


@pytest.mark.parametrize("rule", regimes.config.RULES)
def test_a_rule_carries_one_constant_to_every_shape(rule):
    lanes = {shape: regimes.config.rule_lane(LAPTOP, rule, 0.2, *shape, seed=1) for shape in LAPTOP.shapes}
    etas = [assert_follows(lane, rule, *shape) for shape, lane in lanes.items()]
    assert etas == pytest.approx([etas[0]] * 9, rel=1e-12)
    # In closed form, at (128, 4096) from (32, 256): the hidden rate, and the embedding's rate over it.
    last = lanes[128, 4096].learning_rates
    assert last["hidden"] == pytest.approx(0.2 / (32 if rule == "sp" else 128))
    ratio = np.sqrt((1 + 2 / np.pi * 127) / (1 + 2 / np.pi * 127 / 4096))
    assert last["embedding"] / last["hidden"] == pytest.approx(
        {"sp": 1, "mup": 128, "lvp": 128**0.5, "interpolated": ratio}[rule]
    )


@pytest.mark.parametrize(
    "values, says",
    [
        ({"widths": ""}, "widths is empty"),
        ({"vocabs": ""}, "vocabs is empty"),
        ({"rates": ""}, "rates is empty"),
        ({"constants": ""}, "constants is empty"),
        ({"seeds": ""}, "seeds is empty"),
        ({"widths": "32,32"}, "widths holds a value twice"),
        ({"vocabs": "256,320,256"}, "vocabs holds a value twice"),
        ({"constants": "0.1,0.1,0.2"}, "constants holds a value twice"),
        ({"seeds": "0,0"}, "seeds holds a value twice"),
        ({"rates": "0.1,0.2"}, "rates needs at least 3"),
        ({"constants": "0.1,0.2"}, "constants needs at least 3"),
        ({"rates": "-0.1,0.1,0.2"}, "rates must be finite and above zero, got -0.1"),
        ({"constants": "0,0.1,0.2"}, "constants must be finite and above zero"),
        ({"rate_times_width": "-0.2"}, "rate_times_width"),
        ({"epochs": 0}, "epochs must be finite and above zero, got 0"),
        ({"epochs": "nan"}, "epochs"),
        ({"epochs": "-3"}, "epochs"),
        ({"batch": 0}, "batch"),
        ({"context": 0}, "context"),
        ({"widths": "4,16"}, "widths must be at least 8"),
        ({"widths": "16", "vocabs": "256"}, "single cell"),
        ({"vocabs": "1,256"}, "vocab must be a whole number of at least 2, got 1"),
        ({"vocabs": "-256,256"}, "vocab .* got -256"),
        ({"vocab": "256"}, "did you mean vocabs"),
        ({"seeds": "-1"}, "seeds"),
    ],
)
def test_unusable_values_give_a_one_line_error(values, says):
    with pytest.raises(InputError, match=says) as caught:
        regimes.config.cells(experiments.configured("regimes", "smoke", values))
    assert "\n" not in str(caught.value)


def test_values_are_sorted_and_survive_json():
    config = experiments.configured("regimes", "smoke", {"widths": "48,16", "vocabs": [320, 256], "rates": "3,1,2"})
    assert (config.widths, config.vocabs, config.rates) == ((16, 48), (256, 320), (1.0, 2.0, 3.0))
    again = experiments.configured("regimes", "smoke", json.loads(records.dumps(experiments.to_dict(config))))
    assert again == config
