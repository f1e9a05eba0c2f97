"""A diverging lane of a pack does not affect the other lanes: not their losses, parameters or measures."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from lvp import roles, training
from lvp.models.configs import DecoderConfig
from lvp.training import Cell, DataConfig, Lane, Program, TrainingData

MODEL = DecoderConfig(vocab=40, width=16, layers=1, context=12)
CELL = Cell(MODEL, DataConfig("none"), batch=4, steps=6, measured_steps=(0, 5), measures=("validation",))
BROKEN = list(itertools.product((1e38, 1e8), range(3)))  # learning rates, and the index of the lane out of three


def lane(rate=0.01, seed=0, std=0.25):
    return Lane(dict.fromkeys(roles.ROLES, rate), dict.fromkeys(roles.ROLES, std), seed)


@pytest.fixture(scope="module")
def data():
    tokens = np.random.default_rng(0).integers(0, 40, 600).astype(np.int32)
    return TrainingData.from_tokens(CELL, tokens[:500], tokens[500:])


@pytest.fixture(scope="module")
def pack():
    return Program(CELL, 3)


def trained(pack, lanes, data):
    """Returns the outcomes as dictionaries, and each lane's final state as bytes by path of the leaf."""
    kept = {}
    outcomes = training.run(pack, lanes, data, on_chunk=lambda step, state: kept.update(jax.device_get(state)))
    leaves = jax.tree_util.tree_leaves_with_path(kept)
    states = [{jax.tree_util.keystr(path): np.asarray(x[i]).tobytes() for path, x in leaves} for i in range(len(lanes))]
    return [dataclasses.asdict(o) for o in outcomes], states


@pytest.mark.slow
def test_a_lane_that_diverges_by_any_value_changes_no_bit_of_the_states(pack, data):
    lanes, wrong = [lane(0.01, 0), lane(0.02, 1), lane(0.03, 2)], []
    outcomes, states = trained(pack, lanes, data)
    assert all(len(state) > 20 for state in states)
    for rate, place in BROKEN:
        broken = [*lanes[:place], lane(rate, place), *lanes[place + 1 :]]
        with_broken, after = trained(pack, broken, data)
        assert outcomes[place]["status"] == "finished" and with_broken[place]["status"] == "diverged"
        assert after[place] != states[place]
        same = [with_broken[i] == outcomes[i] and after[i] == states[i] for i in range(3) if i != place]
        wrong += [(rate, place, i) for i, equal in enumerate(same) if not equal]
    assert not wrong


@pytest.mark.slow
def test_diverging_lanes_change_no_bit_of_the_only_finite_lane(pack, data):
    lanes = [lane(0.01, 0), lane(0.02, 1), lane(0.03, 2)]
    outcomes, states = trained(pack, lanes, data)
    with_broken, after = trained(pack, [lane(1e38, 0), lanes[1], lane(1e38, 2)], data)
    assert [o["status"] for o in with_broken] == ["diverged", "finished", "diverged"]
    assert (with_broken[1], after[1]) == (outcomes[1], states[1])
