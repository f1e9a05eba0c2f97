"""LionAR that holds the measured representation change: independent measures of its updates."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp import measures
from lvp.experiments.warmup.config import PRESETS, group_run, group_setting
from lvp.experiments.warmup.held import divide_by_amplification
from lvp.models.configs import GPT2_FORM, DecoderConfig
from lvp.models.decoder import decoder
from lvp.training.tasks import train

HELD = "LionAR, measured RRC held"
MODEL = DecoderConfig(layers=1, width=16, vocab=40, context=8, **GPT2_FORM)


def tree_like(params, seed):
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    return jax.tree.unflatten(structure, [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)])


def test_the_relative_change_of_outputs_is_the_relative_size_of_the_update():
    model = decoder(MODEL)
    params = model.init(jax.random.key(0))
    params["tied_embedding"]["embedding"] += 1.0  # outputs that are far from those of independent weights
    updates = tree_like(params, 1)
    _, inputs = model.apply(params, jnp.arange(24).reshape(3, 8), capture=True)
    tx = divide_by_amplification()
    held, _ = tx.update(updates, tx.init(params), params, inputs=inputs)
    before, after = (measures.representation_change(params, u, inputs)["matrices"] for u in (updates, held))
    sizes = {
        jax.tree_util.keystr(path, simple=True, separator="/"): float(jnp.linalg.norm(u) / jnp.linalg.norm(w))
        for (path, u), w in zip(jax.tree_util.tree_leaves_with_path(updates), jax.tree.leaves(params), strict=True)
    }
    assert set(after) == set(inputs) and len(after) == 6
    for path, change in after.items():
        np.testing.assert_allclose(change["representation_change"], sizes[path], rtol=1e-5)
    off = [abs(float(before[path]["representation_change"]) / sizes[path] - 1) for path in before]
    assert max(off) > 0.5  # negative control
    same = jax.tree.map(lambda a, b: bool((a == b).all()), held, updates)
    assert same["norm_final"] == {"scale": True, "bias": True} and same["block_0"]["mlp"]["up"]["bias"]


def test_an_update_without_effect_stays_as_it_is():
    model = decoder(MODEL)
    params = model.init(jax.random.key(0))
    nothing = jax.tree.map(jnp.zeros_like, params)
    _, inputs = model.apply(params, jnp.arange(8)[None], capture=True)
    tx = divide_by_amplification()
    for of_params in (params, nothing):
        updates, _ = tx.update(nothing, tx.init(params), of_params, inputs=inputs)
        assert all(bool((u == 0).all()) for u in jax.tree.leaves(updates))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "held"), [(HELD, True), ("LionAR", False)])
def test_the_measured_change_is_the_angle_of_lion_ar(name, held, tmp_path):
    """√(2 η λ) γ with γ = √((1 − β) / (1 + β)). Neurons lose the part of their update that is parallel to them."""
    rate, config = 0.02, replace(PRESETS["smoke"], points=2, groups=(name,))
    config = replace(config, steps=40, warmups=(0.0, 0.5), reference=0.5)
    outcome = train(group_setting(config, name), group_run(config, name, rate, 0.0, 0), cache=tmp_path)
    by_matrix = outcome["measures"]["matrices"]
    changes = [by_matrix[path]["representation_change"][0] for path in by_matrix if path.startswith("block")]
    angle = np.sqrt(2 * rate * config.weight_decay * (1 - config.b1) / (1 + config.b1))
    assert (abs(np.mean(changes) / angle - 1) < 0.1) == held
