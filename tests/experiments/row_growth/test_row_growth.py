"""row_growth: a planted law is supported, its powers are recovered, and data of another law contradict it."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from lvp.experiments import row_growth
from lvp.experiments.row_growth import analysis
from lvp.experiments.row_growth import config as runs
from lvp.experiments.row_growth.laws import LAWS, spread
from tests.experiments.common.verdicts import supported_with_all
from tests.experiments.row_growth import planted
from tests.marking import slow

CONFIG = runs.PRESETS["laptop"]
CONTEXT = {"experiment": "row_growth", "preset": "laptop", "corpus": "none", "commit": "none"}
FIXED, LINEAR = "rows grow as √T to a fixed size", "rows grow as T to the positions"
NO_GROWTH = "steps have a fixed size"


def claims(table, config=CONFIG):
    return row_growth.claims.claims(table, config, CONTEXT)


@pytest.fixture(scope="module")
def lawful():
    return planted.table_of(CONFIG, analysis.LAW)


# --- design -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", runs.PRESETS)
def test_settings_change_one_factor_at_a_time(preset):
    config = runs.PRESETS[preset]
    start, all_variants = runs.base(config), runs.variants(config)
    assert start in all_variants and len({s.label for s in all_variants}) == len(all_variants)
    for variant in all_variants:
        changed = [name for name, value in vars(variant).items() if value != getattr(start, name)]
        assert len(set(changed) - {"width"}) <= 1 and (len(changed) <= 1 or set(changed) & {"token_rows", "steps"})
    planned = runs.settings(config)
    assert len({str(c.setting) for c in planned}) == len(planned)


def test_laptop_preset_holds_the_factors_of_the_law():
    all_variants = runs.variants(CONFIG)
    assert {(s.width, s.steps) for s in all_variants} >= {(d, t) for d in (32, 64, 128) for t in (300, 1500, 12_000)}
    assert {s.amplitude for s in all_variants} == {s.std for s in all_variants} == {0.25, 1.0, 4.0}
    assert {s.positions for s in all_variants} == {"sinusoidal", "learned", "rotary"}
    assert {s.optimizer for s in all_variants} == {"adam", "lion_a"}
    planned = runs.settings(CONFIG)
    assert len(planned) == len(all_variants) - 2  # an init std is traced
    assert {c.setting.measures for c in planned} == {("inputs", "later_positions")}


@pytest.mark.parametrize("variant", runs.variants(CONFIG), ids=lambda s: s.label)
def test_every_grid_holds_the_optimum_of_the_first_two_laws(variant):
    rates = runs.embedding_rates(CONFIG, variant)
    for law in list(LAWS)[:2]:
        assert rates[1] <= planted.best_rate(LAWS[law], variant, variant.steps) <= rates[-2]
    assert np.allclose(np.diff(np.log(rates)), math.log(2), atol=1e-3)


def test_prefixes_end_at_points_of_the_curve(lawful):
    for variant in runs.variants(CONFIG):
        rows = analysis.records_of(lawful, CONFIG, variant)
        for steps in runs.prefixes(CONFIG, variant):
            assert steps - 1 in runs.measured_steps(CONFIG, variant)
            assert np.isfinite(analysis.losses(rows, CONFIG, variant, steps)).all()
    assert runs.prefixes(CONFIG, replace(runs.base(CONFIG), steps=12_000)) == (2400, 4800, 12_000)
    assert runs.prefixes(CONFIG, replace(runs.base(CONFIG), steps=300)) == (300,)


def test_runs_of_a_setting_are_those_that_were_planned(lawful):
    counted = [len(analysis.records_of(lawful, CONFIG, variant)) for variant in runs.variants(CONFIG)]
    assert sum(counted) == len(lawful) == sum(len(c.runs) for c in runs.settings(CONFIG))
    for variant, count in zip(runs.variants(CONFIG), counted, strict=True):
        assert count == len(runs.embedding_rates(CONFIG, variant)) * 3


# --- laws -------------------------------------------------------------------------------------------------------------


def test_the_planted_law_is_supported(lawful):
    made = claims(lawful)
    assert all(map(supported_with_all, made[1:6])) and len(made) == 9
    assert {c.verdict for c in (made[0], *made[6:])} == {"supported"}
    fitted = analysis.exponents(CONFIG, analysis.points(lawful, CONFIG))
    for name, power in fitted.items():
        assert power.value == pytest.approx(LAWS[analysis.LAW].get(name, 0.0), abs=0.06)
    assert re.search("the law “.*” departs by .*, more", made[0].note) and made[0].value < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("law", [FIXED, LINEAR, NO_GROWTH])
def test_another_law_is_not_called_this_law(law):
    """Negative control. A 95 % interval misses a shared power in 5 % of the draws, so there are several draws."""
    draws = []
    for seed in range(5):
        table = planted.table_of(CONFIG, law, seed=seed)
        made = claims(table)
        assert made[0].verdict == "contradicted" and re.search(
            f"the law “{re.escape(law)}” departs by .*, less", made[0].note
        )
        by_law = analysis.spreads(analysis.points(table, CONFIG))
        assert min(by_law, key=lambda name: by_law[name].width.value) == law
        draws.append(["supported" if supported_with_all(c) else c.verdict for c in made[1:6]])
    for name, *verdicts in zip(row_growth.claims.RIVALS, *draws, strict=True):
        if LAWS[law].get(name, 0.0) == LAWS[analysis.LAW].get(name, 0.0):
            assert verdicts.count("supported") >= 3, name
        else:
            assert set(verdicts) <= {"contradicted", "unresolved"}, name


def test_departures_of_the_settings_contradict_the_law():
    table = planted.table_of(CONFIG, analysis.LAW, departures=0.5, seed=1)
    width = analysis.spreads(analysis.points(table, CONFIG))[analysis.LAW].width
    assert width.interval[0] > CONFIG.tolerance and width.interval[0] < math.expm1(1.96 * 0.5) < width.interval[1]


def design(optimum_stds, rng, law, departures):
    """Returns the points of the laptop preset with optima drawn about a law."""
    made = []
    for variant in runs.variants(CONFIG):
        std = optimum_stds * rng.uniform(0.5, 2.0)
        moved = math.exp(departures * rng.normal() + std * rng.normal())
        rate = planted.best_rate(LAWS[law], variant, variant.steps) * moved
        made.append(planted.point(variant, variant.steps, rate, std))
    return made


@pytest.mark.parametrize("departures", [0.1, *map(slow, (0.0, 0.3))])
def test_intervals_cover_90_to_98_percent(departures):
    """Intervals of all powers, of the constant and of the spread, for a law with and without departures."""
    sweeps, rng, start = 200, np.random.default_rng(round(100 * departures)), runs.base(CONFIG)
    law, covered, half_widths = LAWS[analysis.LAW], [], []
    constant = planted.point(start, start.steps, planted.best_rate(law, start, start.steps)).constant.value
    for _ in range(sweeps):
        made = design(0.07, rng, analysis.LAW, departures)
        measured = analysis.exponents(CONFIG, made)
        truth = {name: law.get(name, 0.0) for name in measured}
        used = [p for p in made if p.added > 0]
        quantities = {name: np.array([p.quantities[name] for p in used]) for name in law}
        measured["constant"], measured["spread"], _ = spread([p.optimum for p in used], law, quantities)
        truth |= {"constant": constant, "spread": math.expm1(1.96 * departures)}
        covered.append([m.interval[0] <= truth[name] <= m.interval[1] for name, m in measured.items()])
        half_widths.append([np.ptp(measured[name].interval) / 2 for name in law])
    low, high = binom.ppf([0.001, 0.999], sweeps, [0.90, 0.98]) / sweeps
    coverage = np.mean(covered, axis=0)
    assert ((low <= coverage) & (coverage <= high)).all(), coverage
    assert np.median(half_widths) < 0.25  # control: intervals of any width would cover the powers


@pytest.mark.slow
def test_intervals_from_runs_cover_90_to_98_percent():
    """The same from runs to powers, with noise in the losses."""
    sweeps, covered = 40, []
    for seed in range(sweeps):
        table = planted.table_of(CONFIG, analysis.LAW, noise=0.01, departures=0.1, seed=seed)
        fitted = analysis.exponents(CONFIG, analysis.points(table, CONFIG))
        covered.append(
            [p.interval[0] <= LAWS[analysis.LAW].get(name, 0.0) <= p.interval[1] for name, p in fitted.items()]
        )
    low, high = binom.ppf([0.001, 0.999], sweeps, [0.90, 0.98]) / sweeps
    coverage = np.mean(covered, axis=0)
    assert (low <= coverage).all() and (coverage <= high).all(), coverage


def test_a_spread_without_noise_is_that_of_the_constants():
    made = [planted.point(s, s.steps, 0.1 * 2.0**k, 1e-6) for k, s in enumerate(runs.variants(CONFIG)[:3])]
    law = spread([p.optimum for p in made], {}, {})
    assert law.constant.value == pytest.approx(0.2) and law.width.value == pytest.approx(2**1.96 - 1, rel=1e-3)
    assert math.isnan(spread([p.optimum for p in made[:2]], {}, {}).width.value)


# --- partial and unusual tables ---------------------------------------------------------------------------------------


SMALL = replace(
    CONFIG,
    widths=(64,),
    horizons=(300, 1500),
    amplitude_factors=(0.25, 1.0, 4.0),
    std_factors=(1.0,),
    positions=("sinusoidal", "rotary"),
    optimizers=("adam",),
)
PARTS = {
    "one run": lambda table: table.iloc[:1],
    "one seed": lambda table: table[table["run.seed"] == 1],
    "one horizon": lambda table: table[table["setting.steps"] == 300],
    "only diverged runs": lambda table: table.assign(
        status="diverged", train_loss=None, curve_losses=[[None] * 50] * len(table)
    ),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_partial_table_is_reported(part):
    table = part(planted.table_of(SMALL, analysis.LAW))
    text = row_growth.analysis.summary(table, SMALL)
    assert "nan" not in text and "inf" not in text
    assert row_growth.figure.figure(table, SMALL, preset="laptop", corpus="none", partial=(1, 2)).axes
    assert {c.verdict for c in claims(table, SMALL)} == {"unresolved"}


def test_a_factor_that_does_not_vary_has_no_power():
    """Negative control for the partial tables: the other claims have verdicts."""
    made = claims(planted.table_of(SMALL, analysis.LAW), SMALL)
    by_name = dict(zip(["law", *row_growth.claims.RIVALS, "within", "later"], made, strict=True))
    assert all(supported_with_all(by_name[name]) for name in ("law", "steps", "added", "later"))
    assert all(by_name[name].verdict == "unresolved" for name in ("width", "σ_E √d"))
    assert not any(supported_with_all(by_name[name]) for name in ("width", "σ_E √d"))


def test_rotary_positions_have_no_constant(lawful):
    (rotary,) = [p for p in analysis.points(lawful, CONFIG) if p.variant.positions == "rotary"]
    assert rotary.added == 0 and math.isnan(rotary.constant.value) and rotary.optimum.resolved
