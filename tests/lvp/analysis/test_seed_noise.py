"""Seed noise: blocks are removed, noise is pooled over rates and widths, and differing widths keep their own noise."""

import numpy as np
import pytest

from lvp.analysis import seed_noise
from lvp.analysis.noise import shrunk_noise, two_way
from lvp.errors import InputError


def runs(rng, noise=0.03, seeds=3, rates=9, block=1.0):
    curve = np.linspace(-2, 2, rates) ** 2
    return curve + block * rng.standard_normal((seeds, 1)) + noise * rng.standard_normal((seeds, rates))


def test_the_noise_is_recovered_under_large_blocks():
    rng = np.random.default_rng(0)
    std, freedom = seed_noise([runs(rng) for _ in range(50)])
    assert freedom == 50 * 2 * 8
    assert std == pytest.approx(0.03, rel=3 / np.sqrt(2 * freedom))


def test_constants_and_order_of_seeds_do_not_matter():
    sweep = runs(np.random.default_rng(1))
    moved = sweep[::-1] + np.array([[3.0], [-1.0], [0.5]])
    assert seed_noise([moved])[0] == pytest.approx(seed_noise([sweep])[0], rel=1e-12)


def test_complete_and_incomplete_tables_agree():
    sweep = runs(np.random.default_rng(2))
    means, blocks, residuals, freedom = two_way(sweep)
    assert np.allclose(means, sweep.mean(axis=0)) and abs(blocks.sum()) < 1e-12 and freedom == 16
    assert np.allclose(residuals.sum(axis=0), 0) and np.allclose(residuals.sum(axis=1), 0)
    sweep[1, 3] = np.nan
    means, blocks, residuals, freedom = two_way(sweep)
    assert freedom == 15 and np.isnan(residuals[1, 3]) and abs(blocks.sum()) < 1e-12
    assert np.allclose(np.nansum(residuals, axis=0), 0) and np.allclose(np.nansum(residuals, axis=1), 0)


def test_a_missing_run_does_not_move_the_mean():
    sweep = runs(np.random.default_rng(3), noise=0.0)
    whole = two_way(sweep)[0]
    sweep[0, 4] = np.nan
    assert np.allclose(two_way(sweep)[0], whole)
    assert seed_noise([sweep])[0] < 1e-12


def test_rates_with_a_diverged_run_are_left_out():
    sweep = runs(np.random.default_rng(4))
    sweep[0, 8] = np.inf
    assert seed_noise([sweep])[1] == 14
    assert seed_noise([sweep])[0] == pytest.approx(seed_noise([sweep[:, :8]])[0])


def test_one_seed_has_no_noise():
    std, freedom = seed_noise([np.arange(9.0), np.arange(9.0)[None]])
    assert np.isnan(std) and freedom == 0
    rng = np.random.default_rng(5)
    assert seed_noise([np.arange(9.0), runs(rng)])[1] == 16


def test_only_widths_of_equal_noise_are_pooled():
    rng = np.random.default_rng(6)
    freedoms = np.full(5, 12)
    same = np.array([0.02 * np.sqrt(rng.chisquare(12, 5) / 12) for _ in range(200)])
    shrunk = np.array([shrunk_noise(stds, freedoms)[0] for stds in same])
    assert np.std(np.log(shrunk)) < 0.6 * np.std(np.log(same))
    true = 0.02 * 3.0 ** -np.arange(5)
    differ = np.array([true * np.sqrt(rng.chisquare(12, 5) / 12) for _ in range(200)])
    shrunk = np.array([shrunk_noise(stds, freedoms)[0] for stds in differ])
    assert np.abs(np.median(np.log(shrunk / true), axis=0)).max() < 0.15


def test_a_width_without_a_noise_estimate_gets_the_pooled_noise():
    stds, freedoms = shrunk_noise([0.02, np.nan, 0.03], [10, 0, 10])
    assert stds == pytest.approx([np.sqrt(0.00065)] * 3) and freedoms == pytest.approx([20] * 3)
    stds, freedoms = shrunk_noise([np.nan, np.nan], [0, 0])
    assert np.isnan(stds).all() and (freedoms == 0).all()


@pytest.mark.parametrize("bad", [[], np.ones((2, 3, 4)), [["a"]], np.full((3, 9), -np.inf)])
def test_bad_input_gives_a_one_line_error(bad):
    with pytest.raises(InputError) as caught:
        seed_noise([bad])
    assert len(str(caught.value).splitlines()) == 1


def test_a_seed_without_runs_has_no_influence():
    """As in a sweep that was stopped early: two of three seeds, at one rate."""
    runs = np.array([[0.922, np.nan], [1.146, np.nan], [np.nan, np.nan]])
    means, blocks, residuals, freedom = two_way(runs)
    np.testing.assert_allclose(means, [(0.922 + 1.146) / 2, np.nan])
    np.testing.assert_allclose(blocks, [-0.112, 0.112, 0.0], atol=1e-12)
    assert freedom == 0


def test_rates_without_a_common_seed_have_their_own_means():
    runs = np.array([[1.0, 1.2, np.nan], [1.4, 1.6, np.nan], [np.nan, np.nan, 7.0], [np.nan] * 3])
    means, blocks, _, freedom = two_way(runs)
    np.testing.assert_allclose(means, [1.2, 1.4, 7.0])
    np.testing.assert_allclose(blocks, [-0.2, 0.2, 0.0, 0.0], atol=1e-12)
    assert freedom == 1


def test_a_chain_of_runs_connects_seeds():
    """Rate 2 has only the lucky seed 1, whose block is known from rate 1."""
    runs = np.array([[1.0, 2.0, np.nan], [np.nan, 1.5, 2.5], [1.0, 2.0, np.nan]])
    means, blocks, _, freedom = two_way(runs)
    np.testing.assert_allclose(means[2] - means[1], 1.0)
    np.testing.assert_allclose(blocks - blocks[0], [0.0, -0.5, 0.0], atol=1e-12)
    assert freedom == 1
