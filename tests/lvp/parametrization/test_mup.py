"""Rule "mup" against the numbers of microsoft/mup (`mup_reference.py`), for an MLP and a GPT at two widths."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import pytest

from lvp import optim
from lvp.parametrization.scaling import Shape, scale

REFERENCE = json.loads(Path(__file__).with_name("mup_reference.json").read_text())
ROLES = {"first": "embedding", "embedding": "embedding", "position": "position", "head": "output", "norm": "vector"}


def role_of(name: str) -> str:
    return "vector" if name.endswith("bias") else next((r for part, r in ROLES.items() if part in name), "hidden")


@pytest.mark.parametrize("name", REFERENCE["models"])
def test_rates_decays_and_stds_are_those_of_mup(name):
    base, vocab, width = REFERENCE["base"], REFERENCE["vocab"], int(name.split()[1])
    shapes = Shape(base, vocab), Shape(width, vocab)
    scaling = scale(*shapes, "mup", ratios=1, axes={"decay": "constant_timescale"})
    tx = optim.transfer(optax.adamw, scaling, 1.0, weight_decay=1.0)
    tuned = scale(shapes[0], shapes[0], "mup", ratios=1).table
    for parameter, theirs in REFERENCE["models"][name].items():
        role = role_of(parameter)
        ours = tx.settings[role]
        # mup multiplies the head's output; the rule puts this factor into the head's rate, decay and std.
        factor = theirs.get("forward", 1.0)
        assert ours["learning_rate"] == pytest.approx(theirs["rate"] * factor, rel=1e-12), parameter
        assert ours["weight_decay"] == pytest.approx(0.0 if role == "vector" else theirs["decay"] / factor), parameter
        if "std" in theirs:
            assert tx.table[role].init_std / tuned[role].init_std == pytest.approx(theirs["std"] * factor, rel=0.06)


def test_control_the_rules_own_ratio_is_not_mups():
    made = scale(Shape(64, 4096), Shape(256, 4096), "mup").table
    assert made["embedding"].lr_multiplier == 64 and made["hidden"].lr_multiplier == 0.25
    params = {"embedding": {"embedding": jax.ShapeDtypeStruct((4096, 256), jnp.float32)}}
    (row,) = optim.describe(optim.parametrized(optax.adam, made, 0.003), params).rows
    assert row.learning_rate == pytest.approx(0.192)
