"""width_fixed_vocab: the runs of its designs, claims that follow the data, and the analysis of a decoder's table."""

from collections import defaultdict
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lvp.analysis.claims import NOT_TESTED, refusal
from lvp.experiments import width_fixed_vocab
from lvp.experiments.common.decoder_runs import geometric
from lvp.experiments.common.tables import EMBEDDING_RATE, losses_by_seed_and_rate, select
from lvp.experiments.width_fixed_vocab.config import COMMON, FACTORS
from lvp.training import Run, records
from tests.marking import slow

HIDDEN = "run.learning_rates.hidden"
CONTEXT = {"experiment": "width_fixed_vocab", "preset": "none", "corpus": "none", "commit": "none"}
LAPTOP = width_fixed_vocab.PRESETS["laptop"]
SMALL_GRID = replace(LAPTOP, rates=geometric(0.004, 0.256, 7), output_rate_factors=(0.25, 1.0, 4.0))
ONE_INIT = replace(SMALL_GRID, mup_init=False)
STAR = replace(ONE_INIT, hidden_rates=(0.1, 0.2, 0.4), embedding_std_factors=(1.0,), output_std_factors=(1.0, 4.0))
PART = replace(STAR, output_rate_factors=(0.25, 1.0))
LEAN = replace(STAR, output_rate_factors=(1.0, 4.0), output_std_factors=(1.0,))
FULL = replace(STAR, widths=(32, 64, 128), rates=geometric(0.008, 0.128, 5), design="full")


# --- the runs --------------------------------------------------------------------------------------------------------


def key(run):
    """Returns everything that distinguishes a run from others."""
    return tuple(run.learning_rates.items()), tuple(run.init_std.items()), run.seed


def point_of(run, width):
    """Returns (η_E, η_H d, factors) of a run."""
    rates, stds = run.learning_rates, run.init_std
    ratios = rates["output"] / rates["hidden"], *(stds[x] * width**0.5 for x in ("embedding", "output"))
    factors = {name: round(x, 9) for name, x in zip(FACTORS, ratios, strict=True)}
    return rates["embedding"], round(rates["hidden"] * width, 9), factors


@pytest.mark.parametrize("config", width_fixed_vocab.PRESETS.values(), ids=width_fixed_vocab.PRESETS)
def test_every_preset_has_each_run_once(config):
    settings = width_fixed_vocab.config.settings(config)
    assert [c.setting.model.width for c in settings] == list(config.widths) and len({c.label for c in settings}) == len(
        settings
    )
    points = len(config.rates) * len(config.hidden_rates)
    if config.design == "full":
        points *= int(np.prod([len(getattr(config, name)) for name in FACTORS])) + config.mup_init
    for c in settings:
        assert (c.setting.model.vocab, c.setting.steps, c.epochs) == (config.vocab, config.steps, None)
        assert len(c.runs) == points * len(config.seeds) == len(set(map(key, c.runs)))


def test_laptop_preset_in_numbers():
    """The preset has 4 widths of 9 η_E × 4 η_H × 6 seeds, then 7 rays of 5 η_E and μP's init at 6 η_E, × 6 seeds."""
    assert [len(c.runs) for c in width_fixed_vocab.config.settings(LAPTOP)] == [216] * 4
    more = width_fixed_vocab.analysis.follow_up(first_stage(LAPTOP, bowl(0.0)), LAPTOP)
    assert {label: len(runs) for label, runs in more.items()} == {f"d {d}, m 4096": 246 for d in (32, 48, 80, 128)}


def test_paper_preset_is_the_published_set_up():
    """Hayou & Liu 2025, appendix C.1."""
    paper = width_fixed_vocab.PRESETS["paper"]
    assert (paper.design, paper.vocab, paper.widths) == ("full", 32768, tuple(2**k for k in range(8, 13)))
    assert refusal(paper.judging_seeds, paper.selecting_seeds) == ""
    assert (paper.selecting_seeds, paper.steps, paper.corpus, paper.slice_bytes) == ((0, 1), 10_000, "wikitext2", None)


# The best η_H d, the index of the best η_E among the rates, and the expected indices of the rays.
PLANTED = {32: (0.1, 0, (0, 1, 2)), 48: (0.4, 1, (0, 1, 2, 3)), 80: (0.2, 3, (1, 2, 3, 4, 5)), 128: (0.2, 6, (4, 5, 6))}


def planted(d, rate, hidden, factors):
    best, at, _ = PLANTED[d]
    return 2 + np.log(hidden / best) ** 2 + 0.1 * np.log(rate / LAPTOP.rates[at]) ** 2


def test_rays_surround_the_best_rate():
    """Expected values are by hand. A best η_E at or next to the end of its grid shortens the reach."""
    more = width_fixed_vocab.analysis.follow_up(first_stage(STAR, planted), STAR)
    changes = [("output_rate_factors", 0.25), ("output_rate_factors", 4.0), ("output_std_factors", 4.0)]
    assert list(more) == [c.label for c in width_fixed_vocab.config.settings(STAR)]
    for (d, (hidden, _, near)), runs in zip(PLANTED.items(), more.values(), strict=True):
        expected = [
            (STAR.rates[i], hidden, COMMON | {name: x}, seed)
            for (name, x) in changes
            for i in near
            for seed in STAR.seeds
        ]
        assert [(*point_of(run, d), run.seed) for run in runs] == expected
        assert runs == [width_fixed_vocab.config.run(d, STAR.vocab, *point) for point in expected]


def test_a_star_changes_one_factor_at_a_time():
    full = width_fixed_vocab.config.settings(replace(ONE_INIT, design="full"))
    settings, more = (
        width_fixed_vocab.config.settings(ONE_INIT),
        width_fixed_vocab.analysis.follow_up(first_stage(ONE_INIT, planted), ONE_INIT),
    )
    for few, many in zip(settings, full, strict=True):
        d, first, then = few.setting.model.width, set(map(key, few.runs)), set(map(key, more[few.label]))
        assert few.setting == many.setting and first | then < set(map(key, many.runs))
        assert not first & then and len(then) == len(more[few.label])
        assert all(point_of(run, d)[2] == COMMON for run in few.runs)
        changed = [[x for x in point_of(run, d)[2].items() if x[1] != 1.0] for run in more[few.label]]
        assert set(map(len, changed)) == {1}
        assert {x for (x,) in changed} == set(product(FACTORS, (0.25, 4.0)))


def test_only_a_star_has_a_follow_up():
    assert width_fixed_vocab.analysis.follow_up(table_of(FULL, bowl(-0.5)), FULL) == {}
    loss = bowl(-0.5, better=("output_rate_factors", 4.0), by=2)
    once, again = (width_fixed_vocab.analysis.follow_up(make(LEAN, loss), LEAN) for make in (first_stage, table_of))
    assert once == again and any(once.values())


def test_a_diverged_width_is_followed_up():
    more = width_fixed_vocab.analysis.follow_up(first_stage(STAR, planted, diverged=lambda d, *_: d == 80), STAR)
    assert [len(runs) for runs in more.values()] == [54, 72, 54, 54]
    assert {point_of(run, 80)[0] for run in more["d 80, m 4096"]} == set(STAR.rates[:3])
    # Diverged runs have no part in the choice if others finished.
    partly_diverged = first_stage(STAR, planted, diverged=lambda d, rate, *_: d == 80 and rate >= STAR.rates[2])
    clipped = width_fixed_vocab.analysis.follow_up(partly_diverged, STAR)["d 80, m 4096"]
    assert {point_of(run, 80)[0] for run in clipped} == set(STAR.rates[:4])


@pytest.mark.parametrize("config", [SMALL_GRID, FULL], ids=["star", "full"])
def test_stds_and_rates_equal_the_settings(config):
    points = [(*x, seed) for x, seed in product(width_fixed_vocab.config.points(config), config.seeds)]
    for c in width_fixed_vocab.config.settings(config):
        d = c.setting.model.width
        assert [(*point_of(run, d), run.seed) for run in c.runs] == points
        assert all(run.learning_rates["vector"] == run.learning_rates["hidden"] for run in c.runs)
        assert {run.init_std["hidden"] for run in c.runs} == {d**-0.5}


def test_the_numbers_of_a_run():
    factors = {"output_rate_factors": 4.0, "embedding_std_factors": 0.5, "output_std_factors": 2.0}
    run = width_fixed_vocab.config.run(64, 512, 0.01, 0.32, factors, seed=7)
    # LVP's position and vector rows at d = 64: 0.32 d^(−1/2) and 0.32 / d. The decoder has no learned positions.
    rates = {"embedding": 0.01, "position": 0.04, "hidden": 0.005, "output": 0.02, "vector": 0.005}
    stds = {"embedding": 0.0625, "position": 0.125, "hidden": 0.125, "output": 0.25, "vector": 0.0}
    assert (run.learning_rates, run.init_std, run.seed) == (pytest.approx(rates), stds, 7)


# --- tables with known answers ----------------------------------------------------------------------------------------


def rows_of(config, runs, loss, diverged):
    """Returns the rows of a sweep in which a run ends at `loss(d, η_E, η_H d, factors)`. `runs` are by width."""
    rows = []
    for d, run in runs:
        point = point_of(run, d)
        outcome = {"status": "diverged", "train_loss": None}
        if not diverged(d, *point):
            outcome = {"status": "finished", "train_loss": float(loss(d, *point))}
        shape = {"model": {"width": d, "vocab": config.vocab}}
        rows.append({"hash": "", "config": {"cell": shape, "lane": vars(run)}, "outcome": outcome, "provenance": {}})
    return rows


def stages(config, loss, diverged):
    """Returns the rows of the settings and of their follow-up."""
    settings = width_fixed_vocab.config.settings(config)
    first = rows_of(config, [(c.setting.model.width, x) for c in settings for x in c.runs], loss, diverged)
    more = width_fixed_vocab.analysis.follow_up(records.table(first), config)
    rest = [(c.setting.model.width, x) for c in settings for x in more.get(c.label, ())]
    return first, rows_of(config, rest, loss, diverged)


def first_stage(config, loss, diverged=lambda *_: False):
    return records.table(stages(config, loss, diverged)[0])


def table_of(config, loss, diverged=lambda *_: False):
    return records.table(sum(stages(config, loss, diverged), []))


def bowl(power, better=None, by=1.2, noise=0.001, seed=0):
    """Returns 2 + a parabola in ln η_E about 0.03 (d/64)^power and one in ln η_H about 0.2/d. Factors away from 1 cost
    3 %, except `better` = (name, value), which divides the loss by `by`."""
    rng = np.random.default_rng(seed)

    def loss(d, rate, hidden, factors):
        value = 2 + 0.3 * (np.log(rate / 0.03) - power * np.log(d / 64)) ** 2 + 0.3 * np.log(hidden / 0.2) ** 2
        for name, factor in factors.items():
            value *= 1 if factor == 1.0 else 1 / by if (name, factor) == better else 1.03
        return value * (1 + noise * rng.normal())

    return loss


def claims_of(table, config, context):
    """The claims about the embedding's exponent and about equal matrices."""
    return width_fixed_vocab.claims.claims(table, config, context)[:2]


@pytest.mark.parametrize(("power", "verdict"), [(0.0, "supported"), (0.5, "contradicted")])
def test_the_claim_about_the_hidden_rate_follows_the_data(power, verdict):
    """The best η_H · d grows as this power of d."""
    constants = {width: 0.1 * (width / 32) ** power for width in LEAN.widths}
    config = replace(LEAN, hidden_rates=tuple(sorted({0.05, 0.4, *constants.values()})))

    def loss(d, rate, hidden, factors):
        return 2 + 0.3 * np.log(rate / 0.03) ** 2 + 0.3 * np.log(hidden / constants[d]) ** 2

    *_, claim = width_fixed_vocab.claims.claims(table_of(config, loss), config, CONTEXT)
    assert claim.value == pytest.approx(power - 1) and claim.verdict == verdict
    one = replace(LEAN, hidden_rates=(0.2,))
    *_, claim = width_fixed_vocab.claims.claims(table_of(one, bowl(-0.5)), one, CONTEXT)
    assert claim.reason == "η_H · d = 0.2 was not tuned"


@pytest.mark.parametrize(
    ("factor", "best_rate", "verdict"),
    [(1.1, 0.03, "supported"), (0.9, 0.03, "contradicted"), (1.1, 9.0, "unresolved"), (1.0, 0.03, "unresolved")],
)
def test_the_claim_about_the_init_follows_the_data(factor, best_rate, verdict):
    """μP's init multiplies the loss, and moves the best η_E; 9.0 is beyond the grid."""
    config, rng = replace(LEAN, mup_init=True), np.random.default_rng(0)

    def loss(d, rate, hidden, factors):
        mup = factors["output_std_factors"] != 1.0
        value = 2 + 0.3 * np.log(rate / (best_rate if mup else 0.03)) ** 2 + 0.3 * np.log(hidden / 0.2) ** 2
        return value * (factor if mup else 1.0) * (1 + 0.001 * rng.normal())

    table = table_of(config, loss)
    (claim,) = [c for c in width_fixed_vocab.claims.claims(table, config, CONTEXT) if "μP's init" in c.statement]
    assert claim.verdict == verdict and claim.value == pytest.approx(factor, abs=0.01 if best_rate < 1 else np.inf)
    assert ("edge of its grid: μP's init at d 32" in claim.note) == (best_rate == 9.0)
    assert "μP's init, judging" in width_fixed_vocab.analysis.summary(table, config)


def everything(table, config, draw=False):
    text = width_fixed_vocab.analysis.summary(table, config)
    figure = width_fixed_vocab.figure.figure(table, config, preset="none", corpus="none", partial=(1, 2))
    if draw:
        figure.draw_without_rendering()
    return text, claims_of(table, config, CONTEXT)


@pytest.mark.parametrize(
    "power, verdict",
    [(-0.5, "supported"), slow(0.0, "unresolved"), slow(0.4, "contradicted"), (-1.4, "contradicted")],
)
def test_the_claim_about_the_exponent_follows_the_data(power, verdict):
    """Uses 3 synthetic sweeps: a 95 % interval may miss once but not twice."""
    right = 0
    for seed in range(3):
        table = table_of(LEAN, bowl(power, noise=0.005, seed=seed))
        claim, near = claims_of(table, LEAN, CONTEXT)
        assert claim.value == pytest.approx(power, abs=0.05) and "4 of 4 widths resolved" in claim.note
        right += claim.verdict == verdict
        assert near.verdict == "supported"
    assert right >= 2


@pytest.mark.parametrize("config", [STAR, FULL], ids=["star", "full"])
@pytest.mark.parametrize("better", [("output_rate_factors", 4.0), ("output_std_factors", 4.0)], ids=["rate", "init"])
def test_equal_settings_that_cost_a_fifth_are_not_near_optimal(config, better):
    table = table_of(config, bowl(-0.5, better=better))
    text, (_, claim) = (
        width_fixed_vocab.analysis.summary(table, config),
        claims_of(table, config, CONTEXT),
    )
    assert claim.verdict == "contradicted" and claim.value == pytest.approx(1.2, abs=0.005)
    assert claim.interval[0] < claim.value < claim.interval[1] < 1.21
    line = next(line for line in text.splitlines() if line.startswith(f"{FACTORS[better[0]]} = {better[1]:g} "))
    assert [float(x) for x in line.split()[-len(config.widths) :]] == pytest.approx(
        [-100 / 6] * len(config.widths), abs=0.5
    )


def test_a_cost_near_the_tolerance_is_unresolved():
    config = replace(STAR, output_rate_factors=(0.25, 1.0, 4.0, 16.0))
    table = table_of(config, bowl(-0.5, better=("output_rate_factors", 4.0), by=1.05, noise=0.02))
    low, high = claims_of(table, config, CONTEXT)[1].interval
    assert low < 1.06 and high > 1.04  # the planted ratio is 1.05
    for width in config.widths:  # no width may decide, so the verdict needs the intervals without each
        some = replace(config, widths=tuple(d for d in config.widths if d != width))
        high = max(high, claims_of(table, some, CONTEXT)[1].interval[1])
    for tolerance, verdict in (((low + high) / 2 - 1, "unresolved"), (high - 0.99, "supported")):
        config = replace(config, tolerance=tolerance)
        assert claims_of(table, config, CONTEXT)[1].verdict == verdict


@pytest.mark.parametrize(("width", "verdict"), [(48, "unresolved"), (None, "supported")])
def test_one_width_does_not_decide_a_mean_over_widths(width, verdict):
    """Unequal matrices are better by 25 % at one width, thus by 5.7 % in the mean over four and 7.7 % over three."""
    config = replace(STAR, output_rate_factors=(0.25, 1.0, 4.0, 16.0), tolerance=0.067)

    def loss(d, *point):
        better = ("output_rate_factors", 4.0)
        by = 1.057 if width is None else 1.25 if d == width else 1.0
        return bowl(-0.5, better, by)(d, *point)

    claim = claims_of(table_of(config, loss), config, CONTEXT)[1]
    assert claim.verdict == verdict and claim.value == pytest.approx(1.057, abs=0.003)
    noted = "supported with all, but not without width 32 (1.08 [1.08, 1.08]) or width"
    assert (noted in claim.note) == (verdict == "unresolved")


def test_a_best_setting_at_the_end_of_a_grid_supports_nothing():
    """At η_W = 4 η_H the loss is 1 % less, within the tolerance. At a larger ratio it may be lower still."""
    for factors, verdict in (((0.25, 1.0, 4.0), "unresolved"), ((0.25, 1.0, 4.0, 16.0), "supported")):
        config = replace(STAR, output_rate_factors=factors)
        table = table_of(config, bowl(-0.5, better=("output_rate_factors", 4.0), by=1.01))
        claim = claims_of(table, config, CONTEXT)[1]
        assert claim.verdict == verdict and ("all points at d 32" in claim.note) == (verdict == "unresolved")


def test_a_best_rate_at_the_end_of_a_ray_supports_nothing():
    """The ray of η_W = 4 η_H has its best η_E two rates above the best of equal points, where the ray ends."""
    config = replace(STAR, output_rate_factors=(0.25, 1.0, 4.0, 16.0))
    near_step = config.rates[1] / config.rates[0]

    def loss(d, rate, hidden, factors):
        on_ray = factors["output_rate_factors"] == 4.0
        value = 2 + 0.3 * np.log(rate / (config.rates[3] * near_step ** (2 * on_ray))) ** 2
        return (value + 0.3 * np.log(hidden / 0.2) ** 2) * (0.99 if on_ray else 1.03 if factors != COMMON else 1.0)

    claim = claims_of(table_of(config, loss), config, CONTEXT)[1]
    assert claim.verdict == "unresolved" and "all points at d 32" in claim.note


def test_only_equal_hidden_rates_are_compared():
    table = table_of(STAR, bowl(-0.5))
    selecting = table["run.seed"].isin(STAR.selecting_seeds) & (table["setting.model.width"] == 48)
    selecting &= np.isclose(table[HIDDEN] * 48, 0.4)
    table.loc[selecting, "train_loss"] -= 1.0  # the selecting seeds now choose another η_H than that of the rays
    claim = claims_of(table, STAR, CONTEXT)[1]
    assert claim.verdict == NOT_TESTED and claim.reason.endswith("at width 48")


@pytest.mark.parametrize("config", [STAR, FULL], ids=["star", "full"])
def test_gaps_equal_their_definition(config):
    """Compares with a calculation without pandas, at a noise that makes every choice matter."""
    lost = config.rates[2]
    rows = sum(stages(config, bowl(-0.5, noise=0.1), lambda d, rate, *_: d == 32 and rate == lost), [])
    table, losses = records.table(rows), defaultdict(lambda: defaultdict(list))
    for r in rows:
        width = r["config"]["cell"]["model"]["width"]
        rate, hidden, factors = point_of(Run(**r["config"]["lane"]), width)
        loss = r["outcome"]["train_loss"] if r["outcome"]["status"] == "finished" else np.inf
        losses[width][rate, hidden, tuple(factors.values())].append(loss)
    half = len(config.seeds) // 2  # the first half selects
    compared = [width_fixed_vocab.analysis.compare(table, config, width) for width in config.widths]

    def least(values):
        return np.array(min(values, key=lambda by_seed: np.mean(np.log(by_seed[:half])))[half:])

    differences, regrets = [], np.zeros(2)
    for width, ours in zip(config.widths, compared, strict=True):
        finished = {k: v for k, v in losses[width].items() if np.isfinite(v).all()}
        equal = [v for (*_, (output_rate, _, output_std)), v in finished.items() if output_rate == output_std == 1.0]
        differences.append(np.log(least(equal)) - np.log(least(finished.values())))
        assert ours.gap == pytest.approx(np.expm1(differences[-1].mean()), rel=1e-9)
        regrets += [ours.equal.regret / len(config.widths), ours.best.regret / len(config.widths)]
    assert np.abs(differences).max() > 0.01
    value, interval = width_fixed_vocab.analysis.cost_of_equal(compared)
    by_seed = np.mean(differences, axis=0)
    theirs = stats.ttest_1samp(by_seed, 0).confidence_interval(0.95)
    assert value == pytest.approx(np.exp(by_seed.mean()))
    assert interval == pytest.approx((np.exp(theirs.low - regrets[0]), np.exp(theirs.high + regrets[1])))


@pytest.mark.parametrize(
    ("better", "verdict"),
    [(("embedding_std_factors", 4.0), "supported"), (("output_std_factors", 4.0), "contradicted")],
)
def test_the_embedding_is_not_in_the_claim_on_hidden(better, verdict):
    table = table_of(replace(PART, embedding_std_factors=(1.0, 4.0)), bowl(-0.5, better=better))
    claim = claims_of(table, replace(PART, embedding_std_factors=(1.0, 4.0)), CONTEXT)[1]
    assert claim.verdict == verdict


def test_two_seeds_do_not_judge_what_they_selected():
    config = replace(PART, seeds=(0, 1))
    claims = claims_of(table_of(config, bowl(-0.5)), config, CONTEXT)
    assert {claim.reason for claim in claims} == {"1 judging seed: a claim needs at least 3"}


def test_the_judging_seeds_do_not_select_the_hidden_rate():
    """At the hidden rate that the judging seeds prefer, the exponent differs."""
    config = replace(LEAN, hidden_rates=(0.1, 0.2, 0.4, 0.8))

    def loss(d, rate, hidden, factors):
        power = -0.5 if hidden == 0.2 else 0.4
        value = 2 + 0.3 * np.log(rate / (0.03 * (d / 64) ** power)) ** 2 + 0.3 * np.log(hidden / 0.2) ** 2
        return value * (1 if factors == COMMON else 1.03)

    table = table_of(config, loss)
    preferred = table["run.seed"].isin(config.judging_seeds)
    preferred &= np.isclose(table["run.learning_rates.hidden"] * table["setting.model.width"], 0.4)
    table.loc[preferred, "train_loss"] -= 1.0
    _, own = width_fixed_vocab.analysis.optima(table, config)
    assert own.slope == pytest.approx(0.4, abs=0.05)  # control: all seeds together select the other rate
    assert claims_of(table, config, CONTEXT)[0].value == pytest.approx(-0.5, abs=0.05)


def test_the_curve_uses_the_best_hidden_rate():
    table = table_of(STAR, lambda *point: planted(*point) - (point[-1] != COMMON))
    for d, (hidden, at, _) in PLANTED.items():
        assert width_fixed_vocab.analysis.best_hidden(table, STAR, d) == hidden
        curve = width_fixed_vocab.analysis.losses_over_rates(table, STAR, d, hidden, COMMON)
        expected = 2 + 0.1 * np.log(np.array(STAR.rates) / STAR.rates[at]) ** 2
        assert curve == pytest.approx(np.stack([expected] * len(STAR.seeds)), rel=1e-12)


@pytest.mark.parametrize(
    "hidden_rates, flagged",
    [((0.1, 0.2, 0.4), (32, 128)), ((0.05, 0.1, 0.2, 0.4, 0.8), ()), ((0.2,), ()), ((0.1, 0.2), (32, 48, 80, 128))],
)
def test_a_hidden_rate_at_the_edge_is_not_in_the_slope(hidden_rates, flagged):
    """The middle widths lie on d^(−1/2) and the others do not."""
    config, best, noise = replace(LEAN, hidden_rates=hidden_rates), {32: 0.1, 128: 0.4}, np.random.default_rng(0)

    def loss(d, rate, hidden, factors):
        away = np.log(rate / (0.03 * (d / 64) ** -0.5)) - (d in best)
        value = 2 + 0.3 * away**2 + 0.3 * np.log(hidden / best.get(d, 0.2)) ** 2
        return value * (1.03 if factors != COMMON else 1) + 0.001 * noise.normal()

    table = table_of(config, loss)
    optima, slope = width_fixed_vocab.analysis.optima(table, config)
    assert [d for d, o in zip(config.widths, optima, strict=True) if "hidden edge" in o.flags] == list(flagged)
    assert all(o.resolved == (d not in flagged) for d, o in zip(config.widths, optima, strict=True))
    assert slope.num_points == 4 - len(flagged)
    if slope.num_points == 2:
        assert slope.slope == pytest.approx(-0.5, abs=0.05)
        text, (claim, _) = everything(table, config)
        assert text.count("hidden edge") == 2 and claim.note.endswith("; 2 of 4 widths resolved")


# --- diverged and missing runs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole():
    return table_of(PART, bowl(-0.5))


PARTS = {
    "a few runs": lambda table: table.iloc[[0, 5, 30, 31, 80, -1]],
    "one seed": lambda table: table[table["run.seed"] == 1],
    "nothing at factors of one": lambda table: table[table["run.learning_rates.output"] < table[HIDDEN]],
    "stage one": lambda table: table[
        (table["run.learning_rates.output"] == table[HIDDEN])
        & np.isclose(table["run.init_std.output"], table["setting.model.width"] ** -0.5)
    ],
    "all diverged": lambda table: table.assign(status="diverged", train_loss=None),
    "one width diverged": lambda table: table.assign(
        status=table["status"].where(table["setting.model.width"] != 48, "diverged")
    ),
}
# The common point is the best if no other point was trained, which is no evidence.
JUDGED = {"stage one": ["supported", "unresolved"]}


@pytest.mark.parametrize("part", PARTS)
def test_a_partial_table_is_reported(whole, part):
    table = PARTS[part](whole)
    assert 0 < len(table) and (len(table) < len(whole) or "diverged" in set(table["status"]))
    _, made = everything(table, PART, draw=part == "a few runs")
    assert [c.verdict for c in made] == JUDGED.get(part, ["unresolved", "unresolved"])


def test_a_complete_table_gives_every_result(whole):
    """Negative control for the partial tables."""
    text, made = everything(whole, PART, draw=True)
    assert [c.verdict for c in made] == ["supported", "supported"]
    assert f"ln(width): {made[0].value:.2f}" in text and "nan" not in text
    # One line per value of a factor, none for its common value.
    assert [line[:14].strip() for line in text.splitlines()[-2:]] == ["η_W/η_H = 0.25", "σ_W √d = 4"]


def test_settings_that_are_all_equal_give_no_comparison():
    config = replace(PART, output_rate_factors=(1.0,), output_std_factors=(1.0,))
    text, made = everything(table_of(config, bowl(-0.5)), config)
    assert [c.verdict for c in made] == ["supported", "unresolved"]
    assert text.splitlines()[-1].startswith("point")


# --- the runs of a table as a grid -----------------------------------------------------------------------------------


def runs(*rows):
    return pd.DataFrame(rows, columns=[EMBEDDING_RATE, "run.seed", "train_loss", "status"])


def test_every_loss_stands_at_its_seed_and_rate():
    rows = runs(
        (0.2, 5, 1.25, "finished"),
        (0.1, 3, 1.13, "finished"),
        (0.2, 3, None, "diverged"),
        (0.3, 3, 9.0, "finished"),  # another rate
        (0.1, 4, 9.0, "finished"),  # another seed
        (0.1 + 1e-12, 5, 9.0, "finished"),  # a nearly equal rate is not the same rate
    )
    grid = losses_by_seed_and_rate(rows, (0.1, 0.2), (3, 5))
    assert np.array_equal(grid, [[1.13, np.inf], [np.nan, 1.25]], equal_nan=True)
    assert np.array_equal(losses_by_seed_and_rate(rows.iloc[::-1], (0.1, 0.2), (3, 5)), grid, equal_nan=True)
    assert np.array_equal(losses_by_seed_and_rate(rows, (0.2, 0.1), (5, 3)), grid[::-1, ::-1], equal_nan=True)
    assert np.isnan(losses_by_seed_and_rate(runs(), (0.1, 0.2), (0, 1, 2))).all()
    assert losses_by_seed_and_rate(runs(), (0.1,), (0,)).shape == (1, 1)


def test_a_diverged_run_is_infinite_regardless_of_its_loss():
    rows = runs((0.1, 0, 3.0, "diverged"), (0.2, 0, np.nan, "diverged"), (0.3, 0, 1.5, "finished"))
    assert np.array_equal(losses_by_seed_and_rate(rows, (0.1, 0.2, 0.3), (0,)), [[np.inf, np.inf, 1.5]])
    rows["valid_loss"] = 2.5
    assert np.array_equal(losses_by_seed_and_rate(rows, (0.1, 0.2, 0.3), (0,), "valid_loss"), [[np.inf, np.inf, 2.5]])


def test_select_takes_all_values_at_once():
    rows = runs((0.1, 0, 1.0, "finished"), (0.1, 1, 2.0, "finished"), (0.2, 0, 3.0, "diverged"))
    assert list(select(rows, {EMBEDDING_RATE: 0.1, "run.seed": 0})["train_loss"]) == [1.0]
    assert list(select(rows, {"run.seed": 0})["train_loss"]) == [1.0, 3.0]
    assert len(select(rows, {"run.seed": 9})) == 0 and select(rows, {}).equals(rows)


# --- configurations ---------------------------------------------------------------------------------------------------
