"""rate_transfer: planted powers, sensitivities and losses are recovered, and give the expected verdicts."""

from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest

from lvp.errors import InputError
from lvp.experiments import rate_transfer
from lvp.experiments.common.transferred_entries import ENTRIES, run_of
from lvp.experiments.rate_transfer import analysis, claims
from lvp.training import records
from tests.marking import slow

CONFIG = rate_transfer.PRESETS["laptop"]
CONTEXT = {"experiment": "rate_transfer", "preset": "laptop", "corpus": "none", "commit": "none"}
BEST = 0.1  # planted best constant at the base
CURVATURE = 0.08  # planted coefficient of (ln constant)² at the base, bits per byte
# Entry → (power of d of the best constant, power of d of the curvature, loss at the best constant)
SP_IS_WORST = {
    "LVP": (0.0, 0.0, 2.0),
    "SP": (-0.7, 0.0, 2.2),
    "SP (embedding × d)": (-0.1, 0.5, 2.02),
    "μP": (0.0, 0.0, 2.01),
}


def table_of(planted, runs_by_label, config=CONFIG, noise=2e-4, diverged=()):
    """Returns the table of planted runs.

    Args:
      planted: as `SP_IS_WORST`. diverged: constants of runs that diverge.
    """
    losses = {}
    grid = product(config.entries, config.sizes.items(), config.constants, config.seeds)
    for name, (size_name, size), constant, seed in grid:
        power, steepening, floor = planted[name]
        growth = size.width / config.width
        distance = np.log(constant / (BEST * growth**power))
        loss = floor + CURVATURE * growth**steepening * distance**2
        loss += noise * np.random.default_rng([len(losses), seed]).normal()
        run = run_of(config, ENTRIES[name], size, constant, seed)
        losses[size_name, repr(run)] = np.inf if constant in diverged else loss
    settings = {c.label: c.setting for c in rate_transfer.EXPERIMENT.settings(config)}
    described = {label: asdict(setting) for label, setting in settings.items()}
    rows = []
    for label, run in ((label, run) for label, runs in runs_by_label.items() for run in runs):
        size_name = next(name for name, size in config.sizes.items() if size.width == settings[label].model.width)
        loss = losses[size_name, repr(run)]
        finished = {"status": "finished", "valid_bits_per_byte": loss}
        outcome = finished if np.isfinite(loss) else {"status": "diverged", "valid_bits_per_byte": None}
        config_of = {"cell": described[label], "lane": vars(run)}
        rows.append({"hash": str(len(rows)), "config": config_of, "outcome": outcome, "provenance": {}})
    return records.table(rows)


def whole(planted, config=CONFIG, **options):
    """Returns the table of the runs that tune and of the runs that judge."""
    first = {c.label: list(c.runs) for c in rate_transfer.EXPERIMENT.settings(config)}
    more = analysis.follow_up(table_of(planted, first, config, **options), config)
    runs = {label: own + [x for x in more[label] if x not in own] for label, own in first.items()}
    return table_of(planted, runs, config, **options)


def verdicts(planted):
    return [claim.verdict for claim in claims.claims(whole(planted), CONFIG, CONTEXT)]


@pytest.fixture(scope="module")
def reading():
    return analysis.read(whole(SP_IS_WORST), CONFIG)


@pytest.mark.parametrize("name", SP_IS_WORST)
def test_powers_and_fit_errors_are_those_planted(reading, name):
    power, steepening, _ = SP_IS_WORST[name]
    read = reading[name]
    assert read.power.num_points == len(CONFIG.widths) and read.power.slope == pytest.approx(power, abs=0.02)
    assert read.fit_error < 0.05
    assert read.sensitivity_power.slope == pytest.approx(steepening, abs=0.05)


@pytest.mark.parametrize("name", SP_IS_WORST)
def test_sensitivity_is_the_excess_loss_at_twice_the_rate(reading, name):
    _, steepening, floor = SP_IS_WORST[name]
    for d, tuned in reading[name].widths.items():
        excess = CURVATURE * (d / CONFIG.width) ** steepening * np.log(2) ** 2
        assert tuned.sensitivity == pytest.approx(excess / floor, rel=0.05)


def test_the_transfer_gap_is_the_excess_loss(reading):
    for name, (power, steepening, floor) in SP_IS_WORST.items():
        for d, tuned in reading[name].widths.items():
            growth = d / CONFIG.width
            constants = [CONFIG.constants[at.best] for at in (tuned.selected, reading[name].widths[32].selected)]
            own, base = (
                floor + CURVATURE * growth**steepening * np.log(x / (BEST * growth**power)) ** 2 for x in constants
            )
            assert tuned.gap == pytest.approx(base / own - 1, abs=1e-3)


def test_the_penalty_is_the_loss_above_the_best_other_entry(reading):
    last = CONFIG.widths[-1]
    means = {name: each.widths[last].own.losses.mean() for name, each in reading.items()}
    for name in SP_IS_WORST:
        least = min(mean for other, mean in means.items() if other != name)
        measured = analysis.penalty(reading, name, last)
        assert measured.value == pytest.approx(means[name] / least - 1, abs=1e-9)
        assert measured.interval[0] <= measured.value <= measured.interval[1]
    assert analysis.penalty(reading, "LVP", last).interval[1] < 0 < analysis.penalty(reading, "SP", last).interval[0]


def test_scatter_about_the_power_law_is_the_fit_error():
    """Best constants that alternate by a factor of 2^±1/2 about a power of 0 have residuals of half an octave."""
    read = analysis.read(whole(dict.fromkeys(SP_IS_WORST, (0.0, 0.0, 2.0))), CONFIG)["SP"]
    signs = dict(zip(read.widths, (1, -1, -1, 1), strict=True))  # no trend over four equal ratios
    moved = {
        d: replace(each, optimum=replace(each.optimum, rate=BEST * 2 ** (signs[d] / 2), log_rate_std=0.01))
        for d, each in read.widths.items()
    }
    scattered = analysis.Transfer(moved)
    assert scattered.power.slope == pytest.approx(0, abs=1e-9)
    assert scattered.fit_error == pytest.approx((4 * 0.25 / 2) ** 0.5)


def test_claims_are_supported_if_only_sp_is_worse():
    answers = claims.claims(whole(SP_IS_WORST), CONFIG, CONTEXT)
    assert [claim.verdict for claim in answers] == ["supported"] * 6
    ours = [claim.statement for claim in answers if claim.paper_value is None]
    assert ours == [f"tuned at d {CONFIG.widths[-1]} itself, LVP has a lower loss than SP"]


def test_claims_are_contradicted_without_an_effect():
    """Negative control. μP's best constant falls, and μP has a lower loss than SP."""
    planted = {
        "LVP": (-0.6, 0.0, 2.1),
        "SP": (0.0, 0.0, 2.0),
        "SP (embedding × d)": (-0.7, 0.0, 2.2),
        "μP": (-0.6, 0.0, 1.9),
    }
    assert verdicts(planted) == ["contradicted"] * 6


def test_equal_rules_decide_nothing():
    """Negative control. Without a gain of μP, its share is not tested."""
    planted = dict.fromkeys(SP_IS_WORST, (0.0, 0.0, 2.0))
    assert verdicts(planted)[:4] == ["unresolved", "unresolved", "not tested here", "unresolved"]


def test_a_constant_at_the_edge_decides_no_difference():
    """SP's best constant at the largest width lies below the grid, so that SP's loss is an upper bound."""
    answers = claims.claims(whole(SP_IS_WORST | {"SP": (-2.0, 0.0, 2.2)}), CONFIG, CONTEXT)
    assert answers[0].verdict == "unresolved" and "edge of its grid: SP" in answers[0].note


def test_too_few_seeds_cannot_judge():
    config = replace(CONFIG, seeds=(0, 1, 2), selecting=2)
    answers = claims.claims(whole(SP_IS_WORST, config), config, CONTEXT)
    refused = [claim for claim in answers if claim.reason]
    counts = [1] * 3 + [2] * 3  # seeds that judge losses, and seeds that give the powers
    for claim, count in zip(refused, counts, strict=True):
        assert claim.reason.startswith(f"{count} judging seed") and claim.reason.endswith("a claim needs at least 3")


@pytest.mark.parametrize("diverged", [slow(()), CONFIG.constants[-3:], slow(CONFIG.constants)])
def test_unfinished_sweeps_have_a_summary_and_a_figure(diverged):
    runs = {c.label: list(c.runs) for c in rate_transfer.EXPERIMENT.settings(CONFIG)}
    for few in ({label: own[:1] for label, own in runs.items()}, runs):
        table = table_of(SP_IS_WORST, few, diverged=diverged)
        assert analysis.summary(table, CONFIG)
        assert rate_transfer.EXPERIMENT.figure(table, CONFIG, preset="laptop", corpus="none", partial=(1, 2))
        assert {claim.verdict for claim in claims.claims(table, CONFIG, CONTEXT)[:3]} <= {
            "unresolved",
            "not tested here",
        }


@pytest.mark.parametrize("preset", rate_transfer.PRESETS)
def test_no_more_runs_are_planned_than_seeds_may_train(preset):
    config = rate_transfer.PRESETS[preset]
    planned = sum(len(c.runs) for c in rate_transfer.EXPERIMENT.settings(config))
    assert planned <= len(config.entries) * len(config.widths) * len(config.constants) * config.selecting


def test_the_base_must_be_the_first_width():
    with pytest.raises(InputError, match=r"widths must begin with the base width 32, got \(64, 128\)"):
        replace(CONFIG, widths=(64, 128))
