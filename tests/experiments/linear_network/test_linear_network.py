"""The linear network: infinite-batch gradients equal their closed forms, and claims are right on planted tables."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp import data
from lvp.data.text import zipf
from lvp.errors import InputError
from lvp.experiments import linear_network
from lvp.experiments.common.shape_powers import slices, slope_along
from lvp.experiments.linear_network import analysis, calculation
from lvp.models import linear
from lvp.training import records
from tests.experiments.common.verdicts import supported_with_all

CONTEXT = {"experiment": "linear_network", "preset": "none", "corpus": "none", "commit": "none"}
CONFIG = dataclasses.replace(
    linear_network.Config(), widths=(32, 128, 512), vocabs=(64, 256, 1024), growing_widths=(32, 64, 128, 256)
)


@pytest.fixture
def network():
    """Yields (params, frequencies of token pairs) in float64. Token 3 never comes first."""
    with jax.enable_x64(True):
        params = linear.init(jax.random.key(0), 5, 12, 0.7, 0.4, dtype=jnp.float64)
        pairs = np.random.default_rng(0).random((12, 12))
        pairs[3] = 0
        yield params, jnp.asarray(pairs / pairs.sum())


@pytest.mark.slow
def test_gradients_of_the_pair_loss_equal_their_closed_form(network):
    params, pairs = network
    embedding, output = map(np.asarray, linear.matrices(params))
    p = np.asarray(pairs)
    exponentials = np.exp(embedding @ output)
    signal = p.sum(1, keepdims=True) * exponentials / exponentials.sum(1, keepdims=True) - p
    d_embedding, d_output = linear.matrices(jax.grad(linear.pair_loss)(params, pairs))
    np.testing.assert_allclose(d_embedding, signal @ output.T, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(d_output, embedding.T @ signal, rtol=1e-10, atol=1e-14)
    # Normalized rows: the gradient has no component along the row and is divided by the RMS of the row.
    rms = np.sqrt(np.mean(embedding**2, axis=1, keepdims=True))
    rows = embedding / rms
    exponentials = np.exp(rows @ output)
    signal = p.sum(1, keepdims=True) * exponentials / exponentials.sum(1, keepdims=True) - p
    d_rows = signal @ output.T
    expected = (d_rows - rows * np.mean(rows * d_rows, axis=1, keepdims=True)) / rms
    d_embedding, d_output = linear.matrices(jax.grad(linear.pair_loss)(params, pairs, normalize_rows=True))
    np.testing.assert_allclose(d_embedding, expected, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(d_output, rows.T @ signal, rtol=1e-10, atol=1e-14)


@pytest.mark.slow
def test_one_successor_gives_gradients_of_one_hot_targets(network):
    params, pairs = network
    alpha, targets = jnp.sum(pairs, axis=1), jnp.arange(12)[::-1]
    joint = jnp.zeros((12, 12)).at[jnp.arange(12), targets].set(alpha)
    expected = linear.gradients(params, alpha, targets, "cross_entropy")
    computed = jax.tree.leaves(jax.grad(linear.pair_loss)(params, joint))
    for gradient, closed_form in zip(computed, jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(gradient, closed_form, rtol=1e-10, atol=1e-14)
    with pytest.raises(InputError, match="pairs must be"):
        linear.pair_loss(params, joint[:3])


def test_zipf_pairs_have_the_stated_frequencies():
    pairs, alpha = zipf.pair_frequencies(64, 1.0), zipf.frequencies(64, 1.0)
    np.testing.assert_allclose(pairs.sum(0), alpha, rtol=1e-10)
    np.testing.assert_allclose(pairs.sum(1), alpha, rtol=1e-10)


def test_pairs_of_a_text_are_counted(tmp_path):
    text = tmp_path / "text"
    text.write_text("the rows grow. " * 400)
    dataset = data.prepare(f"text:{text}", vocab=256, slice_bytes=None, valid_bytes=None, cache=tmp_path / "cache")
    tokens, pairs = dataset.tokens("train"), dataset.pair_frequencies()
    assert pairs.shape == (256, 256) and pairs.sum() == pytest.approx(1)
    i, j = int(tokens[0]), int(tokens[1])
    assert pairs[i, j] == np.mean((tokens[:-1] == i) & (tokens[1:] == j)) > 0


@pytest.mark.slow
def test_the_first_step_is_a_sign_step_and_the_loss_falls():
    pairs = jnp.asarray(zipf.pair_frequencies(32, 1.0), jnp.float32)
    arguments = {"width": 8, "vocab": 32, "rates": [0.01, 0.1], "rate_times_width": 0.2, "eps": 1e-20, "steps": [1, 4]}
    for normalize in (False, True):
        losses = calculation.losses(jax.random.key(3), pairs, arguments, normalize_rows=normalize)
        start = linear.init(jax.random.key(3), 8, 32, 8**-0.5, 8**-0.5)
        gradients = jax.grad(linear.pair_loss)(start, pairs, normalize_rows=normalize)
        rates = linear.as_params(0.1, 0.2 / 8)
        moved = jax.tree.map(lambda p, rate, g: p - rate * jnp.sign(g), start, rates, gradients)
        expected = float(linear.pair_loss(moved, pairs, normalize_rows=normalize))
        assert losses[1, 0] == pytest.approx(expected, rel=1e-4)
        assert losses.shape == (2, 2) and losses[0, 1] < losses[0, 0]


def planted(config, width_power, vocab_power, rng, noise=0.002, scatter=0.0):
    """Returns a table with the optimum 0.1 (d/128)^a (m/256)^b t^(−1/4) and losses quadratic in ln η.

    `noise` is the standard deviation of losses, `scatter` that of ln optimum over settings.
    """
    rows = []
    for (d, m), setting in zip(config.shapes, linear_network.config.settings(config), strict=True):
        for rows_name in config.rows:
            shift = scatter * rng.standard_normal()
            for seed in config.seeds:
                outcome = {"status": "finished"}
                for t in config.steps:
                    best = (
                        0.1 * (d / 128) ** width_power[rows_name] * (m / 256) ** vocab_power * t**-0.25 * np.exp(shift)
                    )
                    loss = 3 + 0.1 * np.log(np.array(config.rates) / best) ** 2
                    outcome[f"loss_step{t}"] = (loss + noise * rng.standard_normal(loss.shape)).tolist()
                run = {"rows": rows_name, "seed": seed}
                configured = {"cell": {"arguments": dict(setting.setting.arguments)}, "lane": run}
                rows.append({"hash": "", "config": configured, "outcome": outcome, "provenance": {}})
    return records.table(rows)


@pytest.mark.slow
def test_planted_powers_are_recovered_and_judged():
    power = {"plain": 0.0, "normalized": -0.5}
    table = planted(CONFIG, power, 0.0, np.random.default_rng(0))
    claims = linear_network.claims.claims(table, CONFIG, CONTEXT)
    growing, held, vocab = claims[::3], claims[1::3], claims[2::3]
    assert len(growing) == len(vocab) == len(CONFIG.rows) * len(CONFIG.steps)
    assert {claim.verdict for claim in vocab} == {"supported"} and {claim.verdict for claim in held} == {"contradicted"}
    assert sum(map(supported_with_all, growing)) >= 5  # 1 of 20 intervals may miss its power
    assert growing[0].value == pytest.approx(0, abs=0.02) and growing[-1].value == pytest.approx(-0.5, abs=0.02)
    aligned = planted(CONFIG, {"plain": -0.5, "normalized": -1.0}, 0.3, np.random.default_rng(0))
    claims = linear_network.claims.claims(aligned, CONFIG, CONTEXT)
    growing, held, vocab = claims[::3], claims[1::3], claims[2::3]
    assert {claim.verdict for claim in (*growing, *vocab)} == {"contradicted"}
    assert sum(map(supported_with_all, held)) >= 5
    assert growing[0].value == pytest.approx(-0.2, abs=0.03)  # at m = 8 d the powers of d and of m add up
    assert held[0].value == pytest.approx(-0.5, abs=0.02) and vocab[0].value == pytest.approx(0.3, abs=0.02)


@pytest.mark.slow
def test_intervals_of_a_slice_cover_the_planted_power():
    config = dataclasses.replace(CONFIG, rows=("plain",), steps=(20,), vocabs=(256,), growing_widths=(32, 64, 128))
    rng, covered, count = np.random.default_rng(1), 0, 150
    (growing,) = (part for part in config.slices if part.name == linear_network.config.GROWING)
    for _ in range(count):
        table = planted(config, {"plain": -0.3}, 0.0, rng, noise=0.01, scatter=0.1)
        low, high = slope_along(growing, analysis.optima(table, config, "plain", 20)).interval
        covered += low <= -0.3 <= high
    assert 0.90 <= covered / count <= 0.99


def test_a_slice_fixes_d_or_m_or_their_ratio():
    shapes = [(8, 64), (16, 64), (32, 64), (16, 128), (32, 256), (8, 16)]
    by_name = {part.name: part for part in slices(shapes, 8)}
    assert set(by_name) == {"m = 64", "m = 8 d"}
    assert by_name["m = 64"].values == (8, 16, 32) and by_name["m = 8 d"].at == (0, 3, 4)
    assert set(by_name) - set(part.name for part in slices(shapes)) == {"m = 8 d"}
    over_m = slices([(8, 1), (8, 2), (8, 4)])
    assert [(part.name, part.moving, part.values) for part in over_m] == [("d = 8", "m", (1, 2, 4))]


def test_summary_and_figure_of_whole_and_partial_tables():
    config = dataclasses.replace(CONFIG, vocabs=(256,), growing_widths=(32, 64, 128), steps=(20,))
    table = planted(config, {"plain": 0.0, "normalized": -0.5}, 0.0, np.random.default_rng(0))
    for rows in (table[:1], table[::5]):
        text = linear_network.analysis.summary(rows, config)
        assert text.count("m = 8 d") == 2
        figure = linear_network.figure.figure(
            rows, config, preset="none", corpus="none", partial=(len(rows), len(table))
        )
        assert sum(axes.axison for axes in figure.axes) == 4
        assert len(linear_network.claims.claims(rows, config, CONTEXT)) == 6


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"rates": (0.1,)}, "rates"),
        ({"rows": ("sqrt",)}, "rows"),
        ({"steps": (10**7,)}, "steps"),
        ({"growing_widths": (32, 64)}, "growing_widths"),
        ({"corpus": "wikitext2"}, "vocab"),
    ],
)
def test_unusable_configurations_are_refused(change, word):
    with pytest.raises(InputError, match=word):
        dataclasses.replace(CONFIG, **change)
